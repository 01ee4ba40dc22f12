"""From what a user asks for to results: load, plan, train, sum up.

import silodp
result = silodp.run(data="school", method="mrmtl", lam=1, epsilon=6, delta=1e-3, seeds=5)
print(result.mean, result.std)
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from silodp import datasets
from silodp.datasets import Defaults
from silodp.engines.checkpoint import Place
from silodp.engines.devices import prepare_jax
from silodp.engines.execution import Execution, Reporter, execute
from silodp.engines.job import Job, Setting
from silodp.errors import SilodpError, one_of
from silodp.federation import Federation
from silodp.methods import MethodEntry, get_method
from silodp.models import Model, get_model
from silodp.options import RunOptions
from silodp.privacy.plan import SiloPlan, TrainingSettings, make_plans
from silodp.privacy.policy import Policy, read_policies
from silodp.result import Result, summary

COUNTS_ARE_PUBLIC = (
    "each silo's number of training records is public: it sets its weight, sampling rate and steps"
)
TEST_IS_NOT_COVERED = (
    "epsilon protects training records; metrics on test records are computed without noise"
)


Data = Federation | Callable[[int], Federation]


def run(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    keep_models: bool = False,
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
      keep_models: whether the result holds the personal models.
      out: folder for `result.json`, and for a checkpoint while the run goes on.
      resume: go on from the folder's checkpoint, if there is one.
      overwrite: replace what is in the folder.
      reporter: told about progress.
      **options: fields of `RunOptions`.
    """
    place = _place(out, resume, overwrite)
    (result,) = _train_grid(federation, custom_model, keep_models, place, reporter, options)
    if any(math.isnan(silo["mean"]) for silo in result.per_silo):
        worst = next(silo["silo"] for silo in result.per_silo if math.isnan(silo["mean"]))
        raise SilodpError(
            f"Silo {worst!r}: the model is not finite any more after training: lower --lr (it is "
            f"{result.options['lr']}) or --lam; --engine debug says in which round it happened."
        )
    if place is not None:
        # In this order: whenever the process is killed, the work is in one of the two.
        result.write(place.folder)
        place.clear()
    return result


# What may differ between the runs of one compiled program.
_SWEPT = ("lam", "finetune_fraction", "lr", "epsilon", "policies")


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
    """As `run`, with lists for any of lam, finetune_fraction, lr, epsilon, policies: the grid.

    All of it is trained in as few compiled programs as memory allows. Returns one result for each
    point of the grid, the last-named list moving fastest (in the order above). A setting that
    diverged has a NaN metric. `out` holds a checkpoint while it goes on, and no results.
    """
    place = _place(out, resume, overwrite)
    results = _train_grid(federation, custom_model, keep_models, place, reporter, options)
    if place is not None:
        place.clear()
    return results


def _place(out: Path | str | None, resume: bool, overwrite: bool) -> Place | None:
    return None if out is None else Place(Path(out), resume, overwrite)


def _train_grid(
    federation: Data | None,
    custom_model: Model | None,
    keep_models: bool,
    place: Place | None,
    reporter: Reporter | None,
    options: dict[str, Any],
) -> list[Result]:
    reporter = reporter or Reporter()
    options = dict(options)
    axes = {
        name: list(options.pop(name))
        for name in _SWEPT
        if isinstance(options.get(name), list | tuple | np.ndarray)
    }
    points = [
        dict(zip(axes, (_as_number(v) for v in values), strict=True))
        for values in itertools.product(*axes.values())
    ]
    if not points:
        raise SilodpError("A list to sweep over is empty: give at least one value.")
    _refuse_unknown(options)
    asked = [RunOptions(**options, **point) for point in points]

    started = time.perf_counter()
    federations, defaults = _load(asked[0], federation, reporter)
    first = federations[0]
    asked = [_filled(one, defaults, custom_model) for one in asked]
    model = custom_model or get_model(
        asked[0].model or "", first.task, first.input_shape, first.num_classes
    )
    if model.task != first.task:
        raise SilodpError(
            f"Model {model.name!r} is for a {model.task} task, but the data are {first.task}: give "
            "a model for that task."
        )
    method = get_method(asked[0].method)
    loaded = time.perf_counter()

    plans = _plans(asked, first, method, model, reporter)
    planned = time.perf_counter()

    prepare_jax()
    job = _job(asked[0], first, method, model)
    settings = [
        Setting(one.lr or 0.0, plan, {name: getattr(one, name) for name in method.options})
        for one, plan in zip(asked, plans, strict=True)
    ]
    seeds = list(range(asked[0].first_seed, asked[0].first_seed + asked[0].seeds))
    execution = execute(
        job,
        seeds,
        federations,
        settings,
        evaluate_every=asked[0].evaluate_every or 1,
        engine=asked[0].engine,
        keep_models=keep_models,
        place=place,
        reporter=reporter,
    )
    seconds = {
        "load": loaded - started,
        "calibrate": planned - loaded,
        **execution.seconds,
        "total": time.perf_counter() - started,
    }
    return [
        _result(one, first, plan, execution, number, seconds)
        for number, (one, plan) in enumerate(zip(asked, plans, strict=True))
    ]


def _as_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _refuse_unknown(options: dict[str, Any]) -> None:
    known = [field.name for field in fields(RunOptions)]
    for name in options:
        if name not in known:
            raise SilodpError(f"Option {name!r} is unknown: use {one_of(name, known)}.")


def _load(
    asked: RunOptions, data: Data | None, reporter: Reporter
) -> tuple[list[Federation], Defaults]:
    """The federation of each seed, and the training settings that fit."""
    reporter.stage("loading data")
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    if data is None:
        wanted = _data_options(asked)
        source = datasets.resolve(asked.data, wanted)
        return [source.load(seed, wanted) for seed in seeds], source.defaults
    federations = [data if isinstance(data, Federation) else data(seed) for seed in seeds]
    return federations, datasets.defaults_of(federations[0].task)


def _data_options(asked: RunOptions) -> datasets.DataOptions:
    names = {field.name for field in fields(datasets.DataOptions)}
    return datasets.DataOptions(**{n: v for n, v in asdict(asked).items() if n in names})


def _filled(asked: RunOptions, defaults: Defaults, custom_model: Model | None) -> RunOptions:
    """What was left open, filled with what fits the data."""
    rounds = asked.rounds or defaults.rounds
    model = custom_model.name if custom_model else asked.model or defaults.model
    return replace(
        asked,
        model=model,
        rounds=rounds,
        batch_size=asked.batch_size or defaults.batch_size,
        clip=asked.clip or defaults.clip,
        lr=asked.lr or defaults.lr,
        delta=asked.delta or defaults.delta,
        preprocess=asked.preprocess or defaults.preprocess,
        small_silos=asked.small_silos or defaults.small_silos,
        evaluate_every=min(asked.evaluate_every or max(1, rounds // 20), rounds),
    )


def _plans(
    asked: Sequence[RunOptions],
    federation: Federation,
    method: MethodEntry,
    model: Model,
    reporter: Reporter,
) -> list[tuple[SiloPlan, ...]]:
    """Each setting's plans; settings that differ in nothing private share them."""
    reporter.stage("calibrating noise")
    budgets = [(one.epsilon, one.policies) for one in asked]
    plans: dict[tuple, tuple[SiloPlan, ...]] = {}
    distinct = list(dict.fromkeys(budgets))
    for part, budget in enumerate(distinct):
        one = asked[budgets.index(budget)]
        anything = {name: getattr(one, name) for name in method.options}
        rounds = one.rounds or 0
        plans[budget] = make_plans(
            federation.names,
            federation.train_counts.tolist(),
            _policies(one, federation),
            method.build(rounds=rounds, **anything).schedule(rounds),
            TrainingSettings(
                rounds=rounds,
                batch_size=one.batch_size or 0,
                clip=one.clip or 0.0,
                epochs=one.epochs,
                sampling=one.sampling,
                small_silos=one.small_silos or "refuse",
            ),
            one.accountant,
            heavy=model.heavy,
            unproven=federation.uncovered,
            progress=lambda done, total, part=part: reporter.calibrated(
                done + part * total, total * len(distinct)
            ),
        )
    return [plans[budget] for budget in budgets]


def _policies(asked: RunOptions, federation: Federation) -> Sequence[Policy]:
    if asked.policies is not None:
        given = {"epsilon": asked.epsilon, "delta": asked.delta}
        given = {name: value for name, value in given.items() if value is not None}
        return read_policies(asked.policies, federation.names, given)
    if asked.epsilon is None or asked.delta is None:
        raise SilodpError(
            "No privacy budget is given: add --epsilon (a number, or inf for no privacy) or "
            "--policies FILE."
        )
    return [Policy(asked.epsilon, asked.delta)] * len(federation.silos)


def _job(asked: RunOptions, federation: Federation, method: MethodEntry, model: Model) -> Job:
    counts = federation.train_counts.astype(float)
    weights = counts if asked.weights == "records" else np.ones_like(counts)
    return Job(
        model=model,
        method=method,
        rounds=asked.rounds or 0,
        clip=asked.clip or 0.0,
        weights=weights / weights.sum(),
        regulariser=asked.regulariser,
        optimiser=asked.optimiser,
    )


def _described(asked: RunOptions) -> dict[str, Any]:
    """The options as a result shows them: without those that say nothing."""
    return {name: value for name, value in asdict(asked).items() if value is not None}


def _result(
    asked: RunOptions,
    federation: Federation,
    plans: Sequence[SiloPlan],
    execution: Execution,
    number: int,
    seconds: dict[str, float],
) -> Result:
    weights = federation.test_counts / federation.test_counts.sum()
    by_silo = execution.metrics[:, :, number]  # [evaluations, seeds, silos]
    overall = by_silo @ weights
    return Result(
        data=federation.name,
        method=asked.method,
        options=_described(asked),
        metric=federation.metric,
        test=summary(overall[-1]),
        per_silo=[
            {
                "silo": silo.name,
                "records": len(silo.train),
                "test_records": len(silo.test),
                **summary(by_silo[-1, :, place]),
            }
            for place, silo in enumerate(federation.silos)
        ],
        privacy=[
            {
                "silo": plan.silo,
                "epsilon": plan.epsilon,
                "delta": plan.delta,
                "noise_multiplier": plan.noise_multiplier,
                "sampling_rate": plan.sampling_rate,
                "steps": plan.total_steps,
                "accountant": plan.accountant,
                "proven": plan.private and not plan.unproven,
                "unproven": list(plan.unproven) if plan.private else ["no privacy was asked for"],
            }
            for plan in plans
        ],
        assumptions=[COUNTS_ARE_PUBLIC, TEST_IS_NOT_COVERED],
        history=[
            {"round": rounds, **summary(values)}
            for rounds, values in zip(execution.rounds, overall, strict=True)
        ],
        seconds=seconds,
        models=None if execution.models is None else execution.models[number],
    )
