"""The points that each silo tries, and the best try of each.

All silos train all settings, because they are one program; a silo looks only at those that it
drew. A setting is the n-th try of a point of the grid: a silo that drew a point twice has two
settings of it, with batches and noise of their own.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from silodp.data.federation import Federation
from silodp.engines.job import Job, Setting
from silodp.engines.one_silo import metric_on, test_records
from silodp.models.metrics import mean_metric
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.plan import SiloPlan
from silodp.privacy.tuning import Tuning
from silodp.runs.prepare import Prepared
from silodp.runs.run_results import over_silos, where_measured
from silodp.runs.training_run import TrainingRun

Point = dict[str, float]

TUNING = "Tuning (silodp tune)"  # in errors


class Try(NamedTuple):
    """One setting: the number of a point of the grid, and the number of the try, from 0."""

    point: int
    time: int


def points_of(tuning: Tuning) -> list[Point]:
    """The points of the grid."""
    names, values = zip(*tuning.grid, strict=True)
    return [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]


def trials_of(plan: SiloPlan, seed: int, secret: bytes) -> np.ndarray:
    """The silo's secret draw of how often it tries each point of the grid: [points]."""
    assert plan.tuning is not None
    random = HostRandom(seed, secret, f"trials {plan.silo}")
    points = math.prod(len(values) for _, values in plan.tuning.grid)
    number = plan.tuning.trials.draw(random.uniform(), plan.most_trials)
    return np.bincount(random.integers(points, number), minlength=points)


def tries_of(drawn: np.ndarray) -> list[Try]:
    """The settings that are needed for all silos' draws [..., points]."""
    most = drawn.reshape(-1, drawn.shape[-1]).max(axis=0)
    return [Try(point, time) for point, times in enumerate(most) for time in range(times)]


def setting_of(prepared: Prepared, plans: Sequence[SiloPlan], point: Point, trial: int) -> Setting:
    """A setting with the request's options, replaced by those of the point."""
    spec = prepared.specs[0]
    values = {**spec.values, **point}
    return Setting(values["lr"], tuple(plans), spec.method.traced_values(values), trial=trial)


def settings_of(prepared: Prepared, drawn: np.ndarray) -> list[Setting]:
    """The pivot's setting, with the noise that it is charged for, and one for each try."""
    plans = prepared.plans[0]
    tuning = plans[0].tuning
    assert tuning is not None
    points = points_of(tuning)
    of_pivot = [
        replace(plan, noise_multiplier=tuning.pivot_noise * plan.noise_multiplier) for plan in plans
    ]
    tries = [
        setting_of(prepared, plans, points[one.point], number)
        for number, one in enumerate(tries_of(drawn), start=1)
    ]
    return [setting_of(prepared, of_pivot, {}, 0), *tries]


def best_tries(
    prepared: Prepared,
    job: Job,
    training: TrainingRun,
    drawn: np.ndarray,
    score_noise: Sequence[float],
) -> np.ndarray:
    """The best try of each silo (its place in `tries_of`): [seeds, silos]; -1 without tries.

    The settings of the tries come last in `training`.
    """
    metric = mean_metric(prepared.metric, TUNING)
    tries = tries_of(drawn)
    exact = training.execution.metrics[-1][:, len(training.settings) - len(tries) :]
    best = np.full(drawn.shape[:2], -1)
    paid = training.session.pay(job.rounds, job.rounds + 1)
    for s, k in np.ndindex(*best.shape):
        own = [place for place, one in enumerate(tries) if one.time < drawn[s, k, one.point]]
        if not own:
            continue
        silo = prepared.federations[s].silos[k]
        lower = metric.as_loss(exact[s, own, k], job.metric_bound)
        scores = training.session.noisy_mean(
            paid,
            training.seeds[s],
            f"score {silo.name}",
            silo,
            lower,
            job.metric_bound,
            score_noise[k],
        )
        best[s, k] = own[int(np.argmin(scores))]
    return best


def picked(trained: Sequence[Any], chosen: np.ndarray) -> Any:
    """The models of the chosen settings [seeds, silos], as leaves [seeds, silos, ...]."""

    def pick(*leaves: np.ndarray) -> np.ndarray:
        best = [leaves[chosen[s, k]][s, k] for s, k in np.ndindex(*chosen.shape)]
        return np.stack(best).reshape(*chosen.shape, *leaves[0].shape[2:])

    return jax.tree.map(pick, *trained)


def are_finite(models: Any) -> np.ndarray:
    """Whether all parameters of each model are finite: [seeds, silos]."""
    leaves = [np.isfinite(leaf) for leaf in jax.tree.leaves(models)]
    return np.all([leaf.reshape(*leaf.shape[:2], -1).all(axis=-1) for leaf in leaves], axis=0)


def evaluated(job: Job, models: Any, federations: Sequence[Federation]) -> np.ndarray:
    """The test metric of each silo's model: [seeds, silos]."""

    # Compiled as a whole: operation by operation, each size of a silo would take a second.
    exact = jax.jit(partial(metric_on, replace(job, metric_bound=math.inf)))

    def of_silo(s: int, k: int) -> float:
        own = jax.tree.map(lambda a: a[s, k], models)
        return float(exact(*test_records(federations[s].silos[k]), own))

    silos = range(len(federations[0].silos))
    return np.array([[of_silo(s, k) for k in silos] for s in range(len(federations))])


def overall_of(
    prepared: Prepared, job: Job, models: Any, federations: Sequence[Federation]
) -> np.ndarray:
    """The test metric of all silos' models together: [seeds]."""
    by_silo = evaluated(job, models, federations)
    has_value = where_measured(prepared, federations, noisy=False)
    return over_silos(by_silo, federations, has_value)
