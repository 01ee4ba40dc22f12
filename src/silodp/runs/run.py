"""Runs from options to results: load, plan, charge, train, sum up.

import silodp
result = silodp.run(data="school", method="mrmtl", lam=1, epsilon=6, delta=1e-3, seeds=5)
print(result.mean, result.std)
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.notebook_progress import usual_reporter
from silodp.base.progress import Reporter
from silodp.base.progress_file import kept_progress
from silodp.config.options import RunRequest
from silodp.config.run_arguments import RunArguments, SweepArguments
from silodp.data.source import DataSource
from silodp.engines.job import Job, Setting
from silodp.engines.programs import Programs
from silodp.models.metrics import mean_metric
from silodp.models.model import Model, check_custom
from silodp.results.result import FROM_PYTHON, Result
from silodp.runs.accounts import ledgers_of, refuse_early
from silodp.runs.baselines import forget_baselines, train_baselines
from silodp.runs.evaluation import evaluated
from silodp.runs.prepare import (
    Data,
    Prepared,
    check_worthwhile,
    load,
    prepare,
    prepare_loaded,
)
from silodp.runs.requests import requests_of
from silodp.runs.run_folder import RunFolder, run_folder
from silodp.runs.run_results import check_finite, result_of
from silodp.runs.training_run import TrainingRun, Watch


def run(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    keep_models: bool = False,
    baselines: bool = False,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    **options: Unpack[RunArguments],
) -> Result:
    """Trains one method with one setting over one or more seeds.

    Args:
      federation: records of the caller's own, in place of `data`: a Federation, or a function from
        a seed to one.
      custom_model: a model of the caller's own (see `silodp.custom_model`), in place of `model`.
      keep_models: whether the result holds the personal models, and `out` gets `models.npz` and,
        for each silo to take home, its own in `models` (see `load_model`).
      baselines: whether to train local training and FedAvg as well, into `out`/baselines: a report
        then says who gained. Each is a run of its own, at the same budgets.
      out: folder for `result.json`, and for a checkpoint while the run goes on.
      resume: go on from the folder's checkpoint, if there is one.
      overwrite: replace what is in the folder.
      reporter: hears about progress.
      **options: see `RunRequest`. One that does nothing beside the others is refused.

    Examples:
      >>> result = silodp.run(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> result.metric, len(result.per_silo), max(result.epsilons) <= 3
      ('mse', 2, True)
    """
    place = run_folder(out, resume, overwrite)
    if baselines and place is None:
        raise SilodpError("--baselines needs a folder to write to: give --out.")
    # Refuses wrong options before any baseline is trained.
    if len(_requests(options, federation, custom_model)) > 1:
        raise SilodpError("A run is of one setting: give single values, or use silodp.sweep.")
    if baselines and place is not None:
        own = {"federation": federation, "custom_model": custom_model, "reporter": reporter}
        train_baselines(run, place.folder, resume, overwrite, **own, **options)
    training, (result,) = _trained(
        federation, custom_model, keep_models, place, reporter, options, grid=False
    )
    with training.closed_on_failure():
        check_finite(result)
        if place is not None:
            if not baselines:  # those of another run would be taken for this one's
                forget_baselines(place.folder)
            # Before the checkpoint is cleared: a killed process leaves the one or the other.
            result.write(place.folder)
    training.close()
    return result


def sweep(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    keep_models: bool = False,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    **options: Unpack[SweepArguments],
) -> list[Result]:
    """Runs a grid: some options (lam, lr, epsilon...; `SweepArguments`) may be lists.

    All of it is trained in as few compiled programs as memory allows. Returns one result for each
    point of the grid; of several lists, the one declared last moves fastest. A setting that
    diverged has a NaN metric. `out` holds a checkpoint while it goes on, and no results.

    Examples:
      >>> results = silodp.sweep(
      ...     data="synthetic", silos=2, method="fedavg", epsilon=[1, 3], rounds=2
      ... )
      >>> [max(result.epsilons) <= epsilon for result, epsilon in zip(results, [1, 3])]
      [True, True]
    """
    place = run_folder(out, resume, overwrite)
    training, results = _trained(
        federation, custom_model, keep_models, place, reporter, options, grid=True
    )
    training.close()
    return results


def plan(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    reporter: Reporter | None = None,
    **options: Unpack[SweepArguments],
) -> Prepared:
    """Plans a run: its queries to each silo, and their noise.

    Trains nothing. With a ledger, refuses a run that would be refused. Arguments as for `run`.

    Examples:
      >>> prepared = silodp.plan(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> small, large = prepared.plans[0]
      >>> small.public_count < large.public_count, small.noise_multiplier > large.noise_multiplier
      (True, True)
    """
    reporter = reporter or usual_reporter()
    requests = _requests(options, federation, custom_model)
    if federation is None:
        refuse_early(requests[0])
    prepared = prepare(requests, federation, custom_model, reporter)
    check_worthwhile(prepared)
    ledgers = ledgers_of(prepared)
    if ledgers is not None:
        ledgers.check()
    return prepared


def _requests(
    options: Mapping[str, Any], federation: Data | None, custom_model: Model | None
) -> list[RunRequest]:
    check_custom(custom_model)
    # What is bound to a table of the caller's takes the options that say how it is loaded.
    own_data = federation is not None and not isinstance(federation, DataSource)
    return requests_of(options, by_data=True, own_data=own_data, own_model=custom_model is not None)


def _trained(
    federation: Data | None,
    custom_model: Model | None,
    keep_models: bool,
    place: RunFolder | None,
    reporter: Reporter | None,
    options: Mapping[str, Any],
    grid: bool,
) -> tuple[TrainingRun, list[Result]]:
    requests = _requests(options, federation, custom_model)
    first = requests[0]
    about = {"data": first.data, "method": first.method, "settings": len(requests)}
    with kept_progress(place and place.folder, reporter or usual_reporter(), about) as listener:
        watch = Watch(listener)
        # An interrupted run is charged already.
        if federation is None and not (place and place.interrupted):
            refuse_early(first)
        loaded = load(first, federation, watch)
        watch.done("load")
        prepared = prepare_loaded(requests, loaded, custom_model, watch)
        # What a run's models are worth is worked out from them; of a grid's, one metric is enough.
        training = train(prepared, place, watch, keep_models or not grid, for_models=keep_models)
    with training.closed_on_failure():
        results = [
            _result_of(
                prepared, training, number, keep_models, measured=not grid and prepared.is_tested
            )
            for number in range(len(requests))
        ]
    if federation is not None:
        results = [replace(one, options=one.options | {"data": FROM_PYTHON}) for one in results]
    return training, results


def _result_of(
    prepared: Prepared, training: TrainingRun, number: int, keep_models: bool, measured: bool
) -> Result:
    """The result of one setting; `measured` says whether all metrics are worked out."""
    by_silo = metrics_of(prepared, training, number)
    kept = training.execution.models
    models = None if kept is None else kept[number]
    return result_of(
        prepared,
        training.federations,
        number,
        training.execution.rounds,
        by_silo,
        training.seconds,
        models if keep_models else None,
        training.execution.learned[number],
        noisy_metric=prepared.specs[number].request.metric_share > 0,
        measured=evaluated(prepared, number, training.federations, models, by_silo[-1])
        if measured
        else [],
    )


def train(
    prepared: Prepared,
    place: RunFolder | None,
    watch: Watch,
    keep_models: bool = False,
    programs: Programs | None = None,
    *,
    for_models: bool = False,
) -> TrainingRun:
    """Trains the prepared settings; the caller closes the run once results are kept.

    `for_models` says that models are what it is for, whether or not there is a metric.
    """
    check_worthwhile(prepared, for_models)
    job = job_of(prepared)

    def settings_of(secret: bytes) -> list[Setting]:
        # Each setting of a release has its own noise: the same noise at two scales would cancel.
        return [
            Setting(
                spec.lr,
                spec.plans,
                job.method.traced_values(spec.values),
                spec.own_values,
                trial=number if secret else 0,
            )
            for number, spec in enumerate(prepared.specs)
        ]

    return TrainingRun(prepared, job, settings_of, place, watch, keep_models, programs)


def job_of(prepared: Prepared) -> Job:
    """The engine's job: all that shapes the compiled program."""
    spec, federation = prepared.specs[0], prepared.federations[0]
    request = spec.request
    counts = federation.public_counts.astype(float)
    weights = counts if request.weights == "records" else np.ones_like(counts)
    return Job(
        model=spec.model,
        method=spec.method,
        rounds=spec.rounds,
        weights=weights / weights.sum(),
        fixed=spec.method.fixed_values(spec.values),
        subjects=federation.by_subject,
        regulariser=spec.regulariser,
        optimiser=request.optimiser,
        select_mechanism=request.select_mechanism,
        select_score=spec.select_score,
        select_bound=request.select_bound,
        metric=spec.metric,
        metric_bound=request.metric_bound if request.metric_share else math.inf,
    )


def metrics_of(prepared: Prepared, training: TrainingRun, number: int) -> np.ndarray:
    """The metric of one setting [evaluations, seeds, silos], noisy if `metric_share` is set."""
    exact = training.execution.metrics[:, :, number]
    spec = prepared.specs[number]
    request = spec.request
    if not request.metric_share:
        return exact
    largest = mean_metric(spec.metric, "--metric-share").largest(request.metric_bound)
    noisy, paid = np.empty_like(exact), training.session.pay(0, spec.rounds + 1)
    for s, seed in enumerate(training.seeds):
        for k, plan in enumerate(spec.plans):
            noisy[:, s, k] = training.session.noisy_mean(
                paid,
                seed,
                f"metric {number} {plan.silo}",
                prepared.federations[s].silos[k],
                exact[:, s, k],
                largest,
                plan.metric_noise,
            )
    return noisy
