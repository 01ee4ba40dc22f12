"""From what a user asks for to results: load, plan, charge, train, sum up.

import silodp
result = silodp.run(data="school", method="mrmtl", lam=1, epsilon=6, delta=1e-3, seeds=5)
print(result.mean, result.std)
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.base.progress_file import kept_progress
from silodp.engines.job import Job, Setting
from silodp.engines.programs import Programs
from silodp.methods import get_method
from silodp.models.metrics import mean_metric
from silodp.models.model import Model
from silodp.results.result import FROM_PYTHON, Result
from silodp.runs.accounts import ledgers_of, refuse_early
from silodp.runs.baselines import forget_baselines, train_baselines
from silodp.runs.prepare import (
    Data,
    Prepared,
    check_measurable,
    grid,
    load,
    prepare,
    prepare_loaded,
)
from silodp.runs.run_folder import RunFolder
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
    **options: Any,
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
      reporter: told about progress.
      **options: fields of `RunOptions`.

    Examples:
      >>> result = silodp.run(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> result.metric, len(result.per_silo), max(result.epsilons) <= 3
      ('mse', 2, True)
    """
    place = _place(out, resume, overwrite)
    if baselines and place is None:
        raise SilodpError("--baselines needs a folder to write to: give --out.")
    if baselines and place is not None:
        (asked,) = grid(options)  # what would be refused is refused before anything is trained
        get_method(asked.method)
        own = {"federation": federation, "custom_model": custom_model, "reporter": reporter}
        train_baselines(run, place.folder, resume, overwrite, **own, **options)
    training, (result,) = _trained(federation, custom_model, keep_models, place, reporter, options)
    with training.closed_on_failure():
        check_finite(result)
        if place is not None:
            if not baselines:  # those of another run would be taken for this one's
                forget_baselines(place.folder)
            # In this order: whenever the process is killed, the work is in one of the two.
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
    **options: Any,
) -> list[Result]:
    """As `run`, with lists for any of `prepare.SWEPT` (lam, lr, epsilon...): the grid.

    All of it is trained in as few compiled programs as memory allows. Returns one result for each
    point of the grid, the last-named list moving fastest (in the order of SWEPT). A setting that
    diverged has a NaN metric. `out` holds a checkpoint while it goes on, and no results.

    Examples:
      >>> results = silodp.sweep(
      ...     data="synthetic", silos=2, method="fedavg", epsilon=[1, 3], rounds=2
      ... )
      >>> [max(result.epsilons) <= epsilon for result, epsilon in zip(results, [1, 3])]
      [True, True]
    """
    place = _place(out, resume, overwrite)
    training, results = _trained(federation, custom_model, keep_models, place, reporter, options)
    training.close()
    return results


def plan(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> Prepared:
    """What a run with these options would ask of each silo, and with how much noise.

    Trains nothing. With a ledger, refuses as the run would be refused. Arguments as for `run`.

    Examples:
      >>> prepared = silodp.plan(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> small, large = prepared.plans[0]
      >>> small.records < large.records, small.noise_multiplier > large.noise_multiplier
      (True, True)
    """
    reporter = reporter or Reporter()
    asked = grid(options)
    if federation is None:
        refuse_early(asked[0])
    prepared = prepare(asked, federation, custom_model, reporter)
    check_measurable(prepared)
    ledgers = ledgers_of(prepared)
    if ledgers is not None:
        ledgers.check()
    return prepared


def _place(out: Path | str | None, resume: bool, overwrite: bool) -> RunFolder | None:
    return None if out is None else RunFolder(Path(out), resume, overwrite)


def _trained(
    federation: Data | None,
    custom_model: Model | None,
    keep_models: bool,
    place: RunFolder | None,
    reporter: Reporter | None,
    options: dict[str, Any],
) -> tuple[TrainingRun, list[Result]]:
    asked = grid(options)
    about = {"data": asked[0].data, "method": asked[0].method, "settings": len(asked)}
    with kept_progress(place and place.folder, reporter or Reporter(), about) as told:
        watch = Watch(told)
        # An interrupted run is charged already.
        if federation is None and not (place and place.interrupted):
            refuse_early(asked[0])
        get_method(asked[0].method)  # refused before anything is loaded
        loaded = load(asked[0], federation, watch)
        watch.done("load")
        prepared = prepare_loaded(asked, loaded, custom_model, watch)
        training = train(prepared, place, watch, keep_models)
    models = training.execution.models or [None] * len(asked)
    with training.closed_on_failure():
        results = [
            result_of(
                prepared,
                training.federations,
                number,
                training.execution.rounds,
                metrics_of(prepared, training, number),
                training.seconds,
                models[number],
                training.execution.learned[number],
                noisy_metric=asked[0].metric_share > 0,
            )
            for number in range(len(asked))
        ]
    if federation is not None:
        results = [replace(one, options=one.options | {"data": FROM_PYTHON}) for one in results]
    return training, results


def train(
    prepared: Prepared,
    place: RunFolder | None,
    watch: Watch,
    keep_models: bool = False,
    programs: Programs | None = None,
) -> TrainingRun:
    """Trains all that was prepared; who calls it closes the run once the results are kept."""
    check_measurable(prepared)
    job = job_of(prepared)

    def settings_of(secret: bytes) -> list[Setting]:
        # Settings of a release have noise of their own: one noise at two scales can be taken off.
        return [
            Setting(
                one.lr or 0.0,
                plans,
                job.method.traced_values(one),
                of_silos,
                trial=number if secret else 0,
            )
            for number, (one, plans, of_silos) in enumerate(
                zip(prepared.asked, prepared.plans, prepared.of_silos, strict=True)
            )
        ]

    return TrainingRun(prepared, job, settings_of, place, watch, keep_models, programs)


def job_of(prepared: Prepared) -> Job:
    """What the engine is asked to do."""
    asked, federation = prepared.asked[0], prepared.federations[0]
    counts = federation.public_counts.astype(float)
    weights = counts if asked.weights == "records" else np.ones_like(counts)
    return Job(
        model=prepared.model,
        method=prepared.method,
        rounds=asked.rounds or 0,
        weights=weights / weights.sum(),
        fixed=prepared.method.fixed_values(asked),
        subjects=federation.by_subject,
        regulariser=asked.regulariser or prepared.method.regulariser,
        optimiser=asked.optimiser,
        select_mechanism=asked.select_mechanism,
        select_score=asked.select_score or "loss",
        select_bound=asked.select_bound,
        metric=prepared.metric,
        metric_bound=asked.metric_bound if asked.metric_share else math.inf,
    )


def metrics_of(prepared: Prepared, training: TrainingRun, number: int) -> np.ndarray:
    """The metric of one setting [evaluations, seeds, silos], with noise if it was asked for."""
    exact = training.execution.metrics[:, :, number]
    asked = prepared.asked[number]
    if not asked.metric_share:
        return exact
    largest = mean_metric(prepared.metric, "--metric-share").largest(asked.metric_bound)
    noisy, paid = np.empty_like(exact), training.session.pay(0, (asked.rounds or 0) + 1)
    for s, seed in enumerate(training.seeds):
        for k, plan in enumerate(prepared.plans[number]):
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
