"""Alternatives to tuning at the same epsilon: an untuned run, and a naive grid search."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dp_accounting import get_sigma_gaussian

from silodp.config.options import RunRequest
from silodp.models.model import Model
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.plan import SCORE_SHARE, SiloPlan
from silodp.privacy.tuning import Tuning
from silodp.results.result import summary
from silodp.runs.prepare import Loaded, prepare_loaded
from silodp.runs.run import job_of
from silodp.runs.run_results import over_silos, where_measured
from silodp.runs.training_run import TrainingRun, Watch
from silodp.tuning.costs import naive_noise
from silodp.tuning.search import best_tries, overall_of, picked, points_of, setting_of


def compared(
    request: RunRequest,
    loaded: Loaded,
    apart: Loaded,
    model: Model | None,
    tuning: Tuning,
    metric_bound: float,
    watch: Watch,
) -> dict[str, Any]:
    """The test metric of both alternatives, with the tuned run's own options (the pivot's)."""
    return {
        "untuned": summary(_untuned(request, loaded, model, watch)),
        "naive": summary(_naive(request, loaded, apart, model, tuning, metric_bound, watch)),
    }


def _untuned(request: RunRequest, loaded: Loaded, model: Model | None, watch: Watch) -> np.ndarray:
    """The test metric of one run on all records, with all of epsilon: [seeds]."""
    prepared = prepare_loaded([request], loaded, model, watch)
    settings = [setting_of(prepared, prepared.plans[0], {}, 0)]
    training = TrainingRun(prepared, job_of(prepared), lambda _: settings, None, watch)
    has_value = where_measured(prepared, loaded.federations, noisy=False)
    return over_silos(training.execution.metrics[-1][:, 0], loaded.federations, has_value)


def _naive(
    request: RunRequest,
    loaded: Loaded,
    apart: Loaded,
    model: Model | None,
    tuning: Tuning,
    metric_bound: float,
    watch: Watch,
) -> np.ndarray:
    """The test metric of a run per point of the grid, all seen by the server and paid for."""
    prepared = prepare_loaded([request], apart, model, watch)
    points = points_of(tuning)
    plans = _with_noise(prepared.plans[0], len(points), watch)
    settings = [setting_of(prepared, plans, point, n) for n, point in enumerate(points, start=1)]
    job = replace(job_of(prepared), metric_bound=metric_bound)
    training = TrainingRun(prepared, job, lambda _: settings, None, watch, keep_models=True)
    trained = training.execution.models
    assert trained is not None
    drawn = np.ones((len(training.seeds), len(plans), len(points)), int)
    noise = [_score_noise(plan, tuning, len(points)) for plan in plans]
    models = picked(trained, best_tries(prepared, job, training, drawn, noise))
    return overall_of(prepared, job, models, loaded.federations)


def _with_noise(plans: Sequence[SiloPlan], points: int, watch: Watch) -> list[SiloPlan]:
    noises = naive_noise(plans, points, watch.calibrated)
    return [replace(p, noise_multiplier=noise) for p, noise in zip(plans, noises, strict=True)]


def _score_noise(plan: SiloPlan, tuning: Tuning, points: int) -> float:
    """Noise of one score, where `points` of them are looked at."""
    if tuning.score == "public" or not plan.private:
        return 0.0
    alone = get_sigma_gaussian(SCORE_SHARE * plan.epsilon, plan.delta_for_queries)
    return alone * np.sqrt(points) * moved_by(plan.relation)
