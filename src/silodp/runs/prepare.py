"""From what a user asks for to what will be done: data loaded, defaults filled, noise planned."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple

import numpy as np

from silodp.base.errors import SilodpError, one_of
from silodp.base.progress import Reporter
from silodp.config.choices import Accountant
from silodp.config.options import RunOptions
from silodp.data import registry as datasets
from silodp.data.federation import ExpectedCounts, Federation
from silodp.data.registry import Defaults
from silodp.data.tasks import get_task
from silodp.engines.execution import check_equal_shapes, evaluated_rounds
from silodp.methods import MethodEntry, get_method
from silodp.methods.server import SERVER_LR
from silodp.models.metrics import Metric, mean_metric, metric_for
from silodp.models.model import Model, get_model, on_pixels
from silodp.privacy.accounting.across_silos import composed_guarantee
from silodp.privacy.plan import SideQueries, SiloPlan, TrainingSettings, make_plans
from silodp.privacy.policy import RECORD_COUNT, Policy, check_declared, concerns
from silodp.privacy.policy_files import read_policies
from silodp.privacy.tuning import Tuning
from silodp.runs.method_choice import OfSilos, check_choice, options_of_silos, schedule_of

Data = Federation | Callable[[int], Federation]

# What may differ between the runs of one compiled program.
SWEPT = ("lam", "finetune_fraction", "server_lr", "lr", "epsilon", "policies")


class Prepared(NamedTuple):
    """All that is known before training.

    Attributes:
      asked: the options of each setting, defaults filled in.
      federations: of each seed.
      model: what is trained.
      method: how silos learn together.
      policies: of each setting, of each silo.
      plans: the same.
      of_silos: of each setting, the method's options that differ from silo to silo.
      warnings: what is allowed but hardly wise.

    Examples:
      >>> prepared = silodp.plan(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> prepared.model.name, prepared.policies[0][0].epsilon
      ('linear', 3.0)
    """

    asked: list[RunOptions]
    federations: list[Federation]
    model: Model
    method: MethodEntry
    policies: list[tuple[Policy, ...]]
    plans: list[tuple[SiloPlan, ...]]
    of_silos: list[OfSilos]
    warnings: list[str]

    @property
    def metric(self) -> Metric:
        """What is measured on test records."""
        return metric_for(self.federations[0].task, self.asked[0].metric)

    def replanned(self, number: int, accountant: Accountant) -> tuple[SiloPlan, ...]:
        """The plans of a setting, had another accountant been asked for."""
        return plans_of(
            replace(self.asked[number], accountant=accountant),
            self.federations[0].names,
            _held(self.federations),
            self.policies[number],
            self.method,
            self.model.heavy,
            expected=_expected(self.federations),
        )


def grid(options: Mapping[str, Any]) -> list[RunOptions]:
    """The options of each point: lists among those that may be swept span a grid."""
    options = dict(options)
    axes = {
        name: list(options.pop(name))
        for name in SWEPT
        if isinstance(options.get(name), list | tuple | np.ndarray)
    }
    points = [
        dict(zip(axes, (_as_number(v) for v in values), strict=True))
        for values in itertools.product(*axes.values())
    ]
    if not points:
        raise SilodpError("A list to sweep over is empty: give at least one value.")
    known = [field.name for field in fields(RunOptions)]
    for name in options:
        if name not in known:
            raise SilodpError(f"Option {name!r} is unknown: use {one_of(name, known)}.")
    return [RunOptions(**options, **point) for point in points]


class Loaded(NamedTuple):
    """The federation of each seed, and the training settings that fit."""

    federations: list[Federation]
    defaults: Defaults


def prepare(
    asked: Sequence[RunOptions],
    data: Data | None,
    custom_model: Model | None,
    reporter: Reporter,
) -> Prepared:
    """Loads the data, fills in defaults, and calibrates each silo's noise to its policy."""
    get_method(asked[0].method)  # refused before anything is loaded
    return prepare_loaded(asked, load(asked[0], data, reporter), custom_model, reporter)


def prepare_loaded(
    asked: Sequence[RunOptions],
    loaded: Loaded,
    custom_model: Model | None,
    reporter: Reporter,
    tuning: Tuning | None = None,
    policies: tuple[Policy, ...] | None = None,
    of_federation: Sequence[str] | None = None,
) -> Prepared:
    """The same with data that are at hand.

    Args:
      asked: the options of each setting.
      loaded: the data.
      custom_model: as for `run`.
      reporter: told about progress.
      tuning: what is tried besides.
      policies: of the silos, if they are at hand; else the options say where to find them.
      of_federation: the names of all silos, where the data are those of some of them.
    """
    method = get_method(asked[0].method)
    federations, defaults = loaded
    check_equal_shapes(federations)
    first = federations[0]
    asked = [filled(one, defaults, custom_model, first.task) for one in asked]
    model = custom_model or get_model(
        asked[0].model or "", first.task, first.input_shape, first.num_classes
    )
    if model.task != first.task:
        raise SilodpError(
            f"Model {model.name!r} is for a {model.task} task, but the data are {first.task}: give "
            "a model for that task."
        )
    if first.pixels is not None:
        model = on_pixels(model, *first.pixels)
    if asked[0].select_score == "error" and not get_task(first.task).of_classes:
        raise SilodpError(f"--select-score is 'error', but a {first.task} has none: choose loss.")
    _check_side_queries(asked, first)
    metric_for(first.task, asked[0].metric)  # refused, if it is not for the task
    of_silos = [options_of_silos(one, method, first.names) for one in asked]
    check_choice(asked, method, model, of_silos, of_federation or first.names)
    reporter.stage("calibrating noise")
    own_policies, plans = _plans_of_all(
        asked, federations, method, model, reporter, tuning, policies
    )
    counted = [[plan.records for plan in own] for own in plans]
    warnings = list(
        dict.fromkeys(
            warning
            for own, counts in zip(own_policies, counted, strict=True)
            for warning in concerns(first.names, own, counts)
        )
    )
    return Prepared(
        list(asked), federations, model, method, own_policies, plans, of_silos, warnings
    )


def _as_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def load(asked: RunOptions, data: Data | None, reporter: Reporter) -> Loaded:
    """Reads the data of every seed."""
    reporter.stage("loading data")
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    if data is None:
        wanted = data_options(asked)
        source = datasets.resolve(asked.data, wanted)
        return Loaded([source.load(seed, wanted) for seed in seeds], source.defaults)
    federations = [data if isinstance(data, Federation) else data(seed) for seed in seeds]
    return Loaded(federations, datasets.defaults_of(federations[0].task))


def data_options(asked: RunOptions) -> datasets.DataOptions:
    """The part of the options that data sources take."""
    names = {field.name for field in fields(datasets.DataOptions)}
    given = {n: v for n, v in asdict(asked).items() if n in names}
    if isinstance(asked.ignore, str):
        given["ignore"] = [column.strip() for column in asked.ignore.split(",")]
    return datasets.DataOptions(**given)


def filled(
    asked: RunOptions, defaults: Defaults, custom_model: Model | None, task: str
) -> RunOptions:
    """What was left open, filled with what fits the data."""
    rounds = asked.rounds or defaults.rounds
    model = custom_model.name if custom_model else asked.model or defaults.model
    # Each evaluation that is released costs privacy: one will do, unless more are asked for.
    usual = rounds if asked.metric_share else max(1, rounds // 20)
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
        evaluate_every=min(asked.evaluate_every or usual, rounds),
        select_score=asked.select_score or get_task(task).select_score,
        entropy=asked.entropy or ("os" if asked.ledger else "seed"),
        server_lr=asked.server_lr or SERVER_LR[asked.server_optimiser],
        regulariser=asked.regulariser or get_method(asked.method).regulariser,
    )


def _check_side_queries(asked: Sequence[RunOptions], federation: Federation) -> None:
    one = asked[0]
    if one.statistics_share and federation.feature_bound is None:
        raise SilodpError(
            "--statistics-share: a noisy mean needs a public bound on every feature, and these "
            "data have none: declare bounds (--schema) and use --preprocess bounds."
        )
    if one.statistics_share and len({(a.epsilon, a.policies) for a in asked}) > 1:
        raise SilodpError(
            "--statistics-share: settings with other budgets would see other features: sweep one "
            "budget at a time."
        )
    if one.metric_share:
        mean_metric(metric_for(federation.task, one.metric), "--metric-share")
    if one.metric_share and federation.by_subject:
        raise SilodpError(
            "--metric-share: noisy metrics are priced by record, but here a subject may have "
            "several: leave it out, or protect records."
        )


def check_measurable(prepared: Prepared) -> None:
    """Refuses a metric that no silo has: what a run costs would be paid for nothing.

    Not for sites, which have promised to answer: to refuse would tell of their labels. Nor for a
    metric with noise, which every silo releases.
    """
    metric = prepared.metric
    if prepared.asked[0].metric_share:
        return
    if not metric.where_known(prepared.federations).any(axis=1).all():
        raise SilodpError(
            f"--metric {metric.name}: it needs {metric.needs} in a silo, and no silo has them: "
            "leave it out, or give larger test parts (--test-fraction)."
        )


def _plans_of_all(
    asked: Sequence[RunOptions],
    federations: Sequence[Federation],
    method: MethodEntry,
    model: Model,
    reporter: Reporter,
    tuning: Tuning | None,
    given: tuple[Policy, ...] | None,
) -> tuple[list[tuple[Policy, ...]], list[tuple[SiloPlan, ...]]]:
    """Each setting's policies and plans; settings that differ in nothing private share them."""
    federation = federations[0]
    budgets = [(one.epsilon, one.policies) for one in asked]
    distinct = list(dict.fromkeys(budgets))
    policies: dict[tuple, tuple[Policy, ...]] = {}
    plans: dict[tuple, tuple[SiloPlan, ...]] = {}
    for part, budget in enumerate(distinct):
        one = asked[budgets.index(budget)]
        own = given or policies_of(one, federation.names, federation.by_subject)
        policies[budget] = own
        for silo, policy in zip(federation.names, own, strict=True):
            _check_policy(silo, policy, one, federation)
        plans[budget] = plans_of(
            one,
            federation.names,
            _held(federations),
            own,
            method,
            model.heavy,
            expected=_expected(federations),
            tuning=tuning,
            unproven=federation.uncovered,
            progress=lambda done, total, part=part: reporter.calibrated(
                done + part * total, total * len(distinct)
            ),
        )
    return [policies[budget] for budget in budgets], [plans[budget] for budget in budgets]


def _held(federations: Sequence[Federation]) -> list[int]:
    """The training units of each silo in the seed in which it has most."""
    return np.max([federation.unit_counts for federation in federations], axis=0).tolist()


def _expected(federations: Sequence[Federation]) -> list[ExpectedCounts | None]:
    """What may be told of these numbers: the same in every seed."""
    return [silo.expected for silo in federations[0].silos]


def plans_of(
    asked: RunOptions,
    silos: Sequence[str],
    units: Sequence[int],
    policies: Sequence[Policy],
    method: MethodEntry,
    heavy: bool,
    expected: Sequence[ExpectedCounts | None] | None = None,
    tuning: Tuning | None = None,
    unproven: tuple[str, ...] = (),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[SiloPlan, ...]:
    """The plan of each silo: needs no record, only how many there are."""
    rounds = asked.rounds or 0
    evaluated = evaluated_rounds(rounds, asked.evaluate_every or 1) if asked.metric_share else []
    return make_plans(
        silos,
        units,
        policies,
        schedule_of(asked, method),
        TrainingSettings(
            batch_size=asked.batch_size or 0,
            clip=asked.clip or 0.0,
            epochs=asked.epochs,
            sampling=asked.sampling,
            small_silos=asked.small_silos or "refuse",
        ),
        asked.accountant,
        expected=expected,
        side=SideQueries(
            asked.select_share,
            asked.select_mechanism,
            asked.statistics_share,
            asked.metric_share,
            tuple(evaluated),
        ),
        tuning=tuning,
        heavy=heavy,
        unproven=unproven,
        release=asked.entropy == "os",
        progress=progress,
    )


def policies_of(asked: RunOptions, silos: Sequence[str], by_subject: bool) -> tuple[Policy, ...]:
    """The policy of each silo: of its file, else of the options."""
    given: dict[str, Any] = {
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "lifetime_epsilon": asked.lifetime_epsilon,
        "lifetime_delta": asked.lifetime_delta,
        "lifetime_filter": asked.lifetime_filter,
        "relation": asked.relation,
        "subject": asked.subject_column or ("subject" if by_subject else None),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if asked.policies is not None:
        return read_policies(asked.policies, silos, given)
    if asked.epsilon is None or asked.delta is None:
        raise SilodpError(
            "No privacy budget is given: add --epsilon (a number, or inf for no privacy) or "
            "--policies FILE."
        )
    return (Policy(**given),) * len(silos)


def _check_policy(silo: str, policy: Policy, asked: RunOptions, federation: Federation) -> None:
    """Refuses what the silo's policy does not allow these data and options to do."""
    if math.isinf(policy.epsilon):
        return
    check_declared(silo, policy, federation.declared)
    check_unit(silo, policy, asked, federation)
    if not policy.count_is_public and asked.weights == "records":
        raise SilodpError(
            f"Silo {silo!r}: its {RECORD_COUNT} is not public, but --weights records would tell "
            "it: give --weights uniform."
        )
    if not policy.count_is_public and asked.metric_share:
        raise SilodpError(
            f"Silo {silo!r}: its {RECORD_COUNT} is not public, but a mean over its test records "
            "would tell it: leave out --metric-share."
        )


def check_unit(silo: str, policy: Policy, asked: RunOptions, federation: Federation) -> None:
    """Refuses data that are not counted by what the silo's policy protects."""
    if policy.unit == "subject" and not federation.by_subject:
        raise SilodpError(
            f"Silo {silo!r}: its policy protects subjects (column {policy.subject!r}), but the "
            f"data are not loaded by subject: give --subject-column {policy.subject}."
        )
    if asked.subject_column is not None and policy.subject != asked.subject_column:
        raise SilodpError(
            f"Silo {silo!r}: its policy protects the subjects of column {policy.subject!r}, but "
            f"the data are loaded by {asked.subject_column!r}: give --subject-column "
            f"{policy.subject}."
        )


def person_guarantee(plans: Sequence[SiloPlan], most: int) -> dict[str, float] | None:
    """What adds up for somebody who is in up to `most` of the silos; None if not asked for.

    By record it is for somebody with one record in each of them.
    """
    if most == 1:
        return None
    if not all(plan.private for plan in plans):
        return {"silos": min(most, len(plans)), "epsilon": math.inf, "delta": 0.0}
    relation = plans[0].relation
    if any(plan.relation != relation for plan in plans):
        raise SilodpError(
            "--max-silos-per-subject: silos with different neighbouring relations give no common "
            "guarantee: let all use one relation."
        )
    silos = min(most, len(plans))
    epsilons = sorted(plan.epsilon for plan in plans)
    # Draws that do not fit weigh as much as the epsilon that the rest is held to allows.
    weight = 1 + math.exp(min(sum(epsilons[-silos:]), 700.0))
    epsilon, delta = composed_guarantee(
        epsilons,
        [plan.delta for plan in plans],
        [plan.event for plan in plans],
        silos,
        relation,
        reserved=[weight * plan.overflow for plan in plans],
    )
    return {"silos": silos, "epsilon": epsilon, "delta": delta}
