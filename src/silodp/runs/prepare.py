"""From requests to specs: loads data, fills in defaults, and plans noise."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter, heard_by
from silodp.base.text import few_of
from silodp.config.choices import AUTO_METHOD, Accountant
from silodp.config.data_options import DataOptions
from silodp.config.declared import flag
from silodp.config.options import DATA_OPTIONS, OPTIONS, RunRequest, tagged
from silodp.data import registry as datasets
from silodp.data.federation import ExpectedCounts, Federation
from silodp.data.preparation import preparation_of
from silodp.data.problems import Problems, reported
from silodp.data.registry import DataSource, Defaults
from silodp.data.tasks import get_task
from silodp.engines.execution import check_equal_shapes, evaluated_rounds
from silodp.methods import MethodEntry, get_method
from silodp.models.metrics import Metric, mean_metric, metrics_for
from silodp.models.model import MOST_SCORED, Model, get_model, on_pixels
from silodp.privacy.accounting.across_silos import composed_guarantee
from silodp.privacy.plan import SideQueries, SiloPlan, TrainingSettings, make_plans
from silodp.privacy.policy import RECORD_COUNT, Policy, check_declared, concerns
from silodp.privacy.policy_files import read_policies
from silodp.privacy.tuning import Tuning
from silodp.runs.method_choice import check_choice, own_values_of, schedule_of
from silodp.runs.prepared_view import prepared_as_html, prepared_by_silo, prepared_in_a_line
from silodp.runs.resolve import ResolvedOptions, RunSpec, resolve, spec_of
from silodp.runs.usual_method import (
    CHOSEN_FEW,
    MOMENTS_HIDDEN,
    MOST_HIDDEN,
    hidden_moments,
    unlike_messages,
)

Data = Federation | DataSource | Callable[[int], Federation]


class Prepared(NamedTuple):
    """All that is known before training.

    Attributes:
      specs: the spec of each setting.
      federations: the data of each seed.
      warnings: sentences on what is allowed but unwise.
      chosen: which method was chosen by the data, and why, if none was named.

    Examples:
      >>> prepared = silodp.plan(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> prepared.specs[0].model_name, prepared.specs[0].policies[0].epsilon
      ('linear', 3.0)
    """

    specs: list[RunSpec]
    federations: list[Federation]
    warnings: list[str]
    chosen: str | None = None

    @property
    def metric(self) -> Metric:
        """The metric on test records that runs go by."""
        return self.specs[0].metric

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All that is measured on test records; the first is `metric`."""
        return self.specs[0].metrics

    @property
    def is_tested(self) -> bool:
        """Whether any silo has test records, by public counts."""
        return any(one.public_test_counts.any() for one in self.federations)

    @property
    def plans(self) -> list[tuple[SiloPlan, ...]]:
        """The plans of each setting, one per silo."""
        return [spec.plans for spec in self.specs]

    def __repr__(self) -> str:
        return prepared_in_a_line(self)

    def _repr_html_(self) -> str:
        return prepared_as_html(self)

    def to_frame(self, number: int = 0) -> pd.DataFrame:
        """A row for each silo of a setting: its records, noise and epsilon."""
        return prepared_by_silo(self, number)

    def replanned(self, number: int, accountant: Accountant) -> tuple[SiloPlan, ...]:
        """The plans of a setting by another accountant."""
        spec = self.specs[number]
        return plans_of(
            replace(spec, request=replace(spec.request, accountant=accountant)),
            self.federations[0].names,
            _unit_counts(self.federations),
            spec.policies,
            spec.method,
            spec.model.heavy,
            expected=_expected(self.federations),
        )


class Loaded(NamedTuple):
    """The federation of each seed, the training settings that fit, and how a table was read."""

    federations: list[Federation]
    defaults: Defaults
    said: tuple[str, ...] = ()


def prepare(
    requests: Sequence[RunRequest],
    data: Data | None,
    custom_model: Model | None,
    reporter: Reporter,
) -> Prepared:
    """Loads the data, fills in defaults, and calibrates each silo's noise to its policy."""
    if requests[0].method != AUTO_METHOD:
        get_method(requests[0].method)  # refused before anything is loaded
    return prepare_loaded(requests, load(requests[0], data, reporter), custom_model, reporter)


def prepare_loaded(
    requests: Sequence[RunRequest],
    loaded: Loaded,
    custom_model: Model | None,
    reporter: Reporter,
    tuning: Tuning | None = None,
    policies: tuple[Policy, ...] | None = None,
    of_federation: Sequence[str] | None = None,
) -> Prepared:
    """Prepares requests with data that are loaded.

    Args:
      requests: one per setting.
      loaded: the data.
      custom_model: as for `run`.
      reporter: hears about progress.
      tuning: what silos try besides, if anything.
      policies: the silos' policies; by default they are found by the options.
      of_federation: the names of all silos, where the data are those of some of them.
    """
    if requests[0].method == AUTO_METHOD:

        def with_method(name: str) -> Prepared:
            named = [replace(request, method=name) for request in requests]
            return prepare_loaded(
                named, loaded, custom_model, reporter, tuning, policies, of_federation
            )

        return _by_data(requests[0], loaded, custom_model, with_method)
    method = get_method(requests[0].method)
    federations, defaults, _ = loaded
    check_equal_shapes(federations)
    first = federations[0]
    settings = [resolve(request, defaults, custom_model, first.task) for request in requests]
    model = custom_model or get_model(
        settings[0].model_name,
        first.task,
        first.input_shape,
        first.num_classes,
        requests[0].prevalence,
        get_task(first.task).first_output(preparation_of(first, first.silos[0]).target),
    )
    if custom_model is not None and requests[0].prevalence is not None:
        raise SilodpError(
            "--prevalence weighs records in the loss, and a custom model has its own: leave it "
            "out, and give custom_model a loss with weights."
        )
    if model.task != first.task:
        raise SilodpError(
            f"Model {model.name!r} is for a {model.task} task, but the data are {first.task}: give "
            "a model for that task."
        )
    model = _decided(model, requests[0].cost_ratio)
    if first.pixels is not None:
        model = on_pixels(model, *first.pixels)
    if settings[0].select_score == "error" and not get_task(first.task).of_classes:
        raise SilodpError(f"--select-score is 'error', but a {first.task} has none: choose loss.")
    _check_side_queries(requests, first)
    # Refuses one of another task.
    metrics = metrics_for(
        first.task, requests[0].metric, requests[0].metrics, model.has_probabilities
    )
    own_values = [
        own_values_of(request, method, first.names, first.left_out) for request in requests
    ]
    values = [options.values for options in settings]
    check_choice(values, method, model, own_values, of_federation or first.names)
    reporter.stage("calibrating noise")
    own_policies, plans = _plans_of_all(
        settings, federations, method, model, reporter, tuning, policies
    )
    counted = [[plan.public_count for plan in own] for own in plans]
    warnings = list(
        dict.fromkeys(
            warning
            for own, counts in zip(own_policies, counted, strict=True)
            for warning in concerns(first.names, own, counts)
        )
    )
    specs = [
        spec_of(
            options,
            method=method,
            model=model,
            metrics=metrics,
            policies=own,
            plans=planned,
            own_values=silos,
        )
        for options, own, planned, silos in zip(
            settings, own_policies, plans, own_values, strict=True
        )
    ]
    return Prepared(specs, federations, warnings)


def _by_data(
    request: RunRequest,
    loaded: Loaded,
    custom_model: Model | None,
    with_method: Callable[[str], Prepared],
) -> Prepared:
    """Prepared with the method that suits the data, by what is public of them."""
    why_not = unlike_messages(request, loaded.federations[0], loaded.defaults.model, custom_model)
    if why_not is None:
        prepared = with_method("fewround")
        hidden = max(hidden_moments(spec.plans, loaded.federations[0]) for spec in prepared.specs)
        if hidden <= MOST_HIDDEN:
            return prepared._replace(chosen=CHOSEN_FEW)
        why_not = MOMENTS_HIDDEN
    return with_method("ebmtl")._replace(chosen=f"ebmtl, because {why_not}")


def _decided(model: Model, cost_ratio: float | None) -> Model:
    """The model with the threshold that costs least by this ratio.

    With probability p, "yes" costs (1 - p) false alarms and "no" p times the ratio: "yes" costs
    less where p / (1 - p) is above 1 / ratio.
    """
    if cost_ratio is None:
        return model
    decided = model._replace(threshold=-math.log(cost_ratio))
    _ = decided.deciding  # refuses another task
    if not model.has_probabilities:
        raise SilodpError(
            f"--cost-ratio needs probabilities, which the model {model.name!r} does not give: "
            "choose another --model, or leave it out."
        )
    return decided


def load(
    request: RunRequest, data: Data | None, reporter: Reporter, problems: Problems | None = None
) -> Loaded:
    """Reads the data of every seed.

    `problems` gets all that is wrong with them; else the first is raised, with the number of
    others.
    """
    reporter.stage("loading data")
    seeds = range(request.first_seed, request.first_seed + request.seeds)
    if data is None or isinstance(data, DataSource):
        wanted = data_options(request)
        with reported(problems) as own:
            with heard_by(reporter):
                source = data or datasets.resolve(request.data, wanted, own)
                federations = [source.load(seed, wanted) for seed in seeds]
            return Loaded(federations, _fitting(source.defaults, federations[0]), source.said)
    federations = [data if isinstance(data, Federation) else data(seed) for seed in seeds]
    return Loaded(federations, datasets.defaults_of(federations[0].task))


def _fitting(defaults: Defaults, federation: Federation) -> Defaults:
    """The defaults, for features in the place of images too."""
    if not federation.encoders:
        return defaults
    task = get_task(federation.task)
    return replace(defaults, model=task.model, lr=task.lr)


def check_all(request: RunRequest, reporter: Reporter, problems: Problems) -> Loaded:
    """Loads the data of every seed and makes the checks of a run; `problems` gets what they find.

    What hangs on a budget is left to `plan`: the checks are those of a run without privacy.
    """
    loaded = load(request, None, reporter, problems)
    if loaded.federations[0].waits_for_means and not request.statistics_share:
        request = replace(request, statistics_share=0.5)  # any: it is a share of no budget here
    if len(problems):  # seeds may have left different silos
        names = set.intersection(*(set(one.names) for one in loaded.federations))
        silos = [[s for s in one.silos if s.name in names] for one in loaded.federations]
        if not names:
            return loaded
        loaded = loaded._replace(
            federations=[
                replace(one, silos=tuple(own))
                for one, own in zip(loaded.federations, silos, strict=True)
            ]
        )

    else:
        first = loaded.federations[0]
        parts = [part.y for silo in first.silos for part in (silo.train, silo.test)]
        target = preparation_of(first, first.silos[0]).target
        with problems.noted():
            get_task(first.task).check_labels(np.concatenate(parts), target)

    def prepared(federations: list[Federation]) -> None:
        check_worthwhile(
            prepare_loaded([request], loaded._replace(federations=federations), None, reporter)
        )

    try:
        prepared(loaded.federations)
    except SilodpError as error:
        before = len(problems)
        for name in loaded.federations[0].names:  # each silo by itself, to find all
            with problems.noted():
                prepared([only_silo(one, name) for one in loaded.federations])
        if len(problems) == before:
            problems.add(error)
    return loaded


def only_silo(federation: Federation, name: str) -> Federation:
    """The federation with one of its silos alone, if it has it."""
    own = tuple(silo for silo in federation.silos if silo.name == name)
    return replace(federation, silos=own) if own else federation


def data_options(request: RunRequest) -> DataOptions:
    """The part of the options that data sources take."""
    given = {name: OPTIONS[name].parted(getattr(request, name)) for name in DATA_OPTIONS}
    if given["cut_points"] is not None:
        given["cut_points"] = _numbers("--cut-points", given["cut_points"])
    return DataOptions(**given)


def _numbers(what: str, values: Sequence[object]) -> list[float]:
    """Numbers, some of which may be text."""
    try:
        return [float(str(value)) for value in values]
    except ValueError:
        raise SilodpError(
            f"{what} is {list(values)!r}: give numbers separated by commas."
        ) from None


def _check_side_queries(requests: Sequence[RunRequest], federation: Federation) -> None:
    one = requests[0]
    if federation.waits_for_means and not one.statistics_share:
        columns = preparation_of(federation, federation.silos[0]).encoder.columns
        names = [repr(column.name) for column in columns if column.noisy_mean]
        raise SilodpError(
            f"--statistics-share: missing values of {few_of(names)} count as each silo's noisy "
            "mean, and nothing is given to pay for it: give a share such as 0.05, or the schema "
            "another rule under [missing]."
        )
    if one.statistics_share and federation.feature_bound is None:
        raise SilodpError(
            "--statistics-share: a noisy mean needs a public bound on every feature, and these "
            "data have none: declare bounds (--schema) and use --preprocess bounds."
        )
    if one.statistics_share and len({(other.epsilon, other.policies) for other in requests}) > 1:
        raise SilodpError(
            "--statistics-share: settings with other budgets would see other features: sweep one "
            "budget at a time."
        )
    if one.metric_share:
        first, *_ = metrics_for(federation.task, one.metric, one.metrics)
        mean_metric(first, "--metric-share")
    if one.metric_share and federation.by_subject:
        raise SilodpError(
            "--metric-share: noisy metrics are priced by record, but here a subject may have "
            "several: leave it out, or protect records."
        )
    for silo in federation.silos if one.metric_share else ():
        if not silo.public_test_count:
            raise SilodpError(
                f"--metric-share: silo {silo.name!r} has no test record: give it some, or leave it "
                "out (--exclude-silos)."
            )
        if silo.max_test_count > MOST_SCORED:
            raise SilodpError(
                f"--metric-share: silo {silo.name!r} may have {silo.max_test_count} test records, "
                f"more than the {MOST_SCORED} over which a noisy metric can be summed: leave the "
                "option out."
            )


def check_worthwhile(prepared: Prepared, for_models: bool = False) -> None:
    """Refuses a run without a training record, or with a metric that no silo can measure.

    It would be paid for in vain. Sites do not call it: they have promised to answer, and a refusal
    would reveal their records. A metric with noise is not refused, because every silo releases it.
    Nor is a run `for_models` whose silos were given without records to test with: it has no metric.
    """
    if not any(federation.train_counts.any() for federation in prepared.federations):
        raise SilodpError(
            "No silo has a record to train on: give larger silos, or change --test-fraction (with "
            "--test-from, the date)."
        )
    metric = prepared.metric
    if prepared.specs[0].request.metric_share:
        return
    if for_models and not prepared.is_tested:
        return
    if not metric.where_known(prepared.federations).any(axis=1).all():
        raise SilodpError(
            f"--metric {metric.name}: it needs {metric.needs} in a silo, and no silo has them: "
            "leave it out, or give larger test parts (--test-fraction)."
        )


def _plans_of_all(
    settings: Sequence[ResolvedOptions],
    federations: Sequence[Federation],
    method: MethodEntry,
    model: Model,
    reporter: Reporter,
    tuning: Tuning | None,
    given: tuple[Policy, ...] | None,
) -> tuple[list[tuple[Policy, ...]], list[tuple[SiloPlan, ...]]]:
    """Policies and plans of each setting; settings with one budget share them."""
    federation = federations[0]
    budgets = [(one.request.epsilon, one.request.policies) for one in settings]
    distinct = list(dict.fromkeys(budgets))
    policies: dict[tuple, tuple[Policy, ...]] = {}
    plans: dict[tuple, tuple[SiloPlan, ...]] = {}
    for part, budget in enumerate(distinct):
        one = settings[budgets.index(budget)]
        own = given or policies_of(
            one, federation.names, federation.by_subject, federation.left_out
        )
        policies[budget] = own
        for silo, policy in zip(federation.names, own, strict=True):
            _check_policy(silo, policy, one.request, federation)
        plans[budget] = plans_of(
            one,
            federation.names,
            _unit_counts(federations),
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


def _unit_counts(federations: Sequence[Federation]) -> list[int]:
    """The largest number of training units of each silo over the seeds."""
    return np.max([federation.unit_counts for federation in federations], axis=0).tolist()


def _expected(federations: Sequence[Federation]) -> list[ExpectedCounts | None]:
    """The public counts of each silo, the same in every seed; None where counts are exact."""
    return [silo.expected for silo in federations[0].silos]


def plans_of(
    options: ResolvedOptions,
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
    """The plan of each silo, from record counts alone."""
    request = options.request
    evaluated = (
        evaluated_rounds(options.rounds, options.evaluate_every) if request.metric_share else []
    )
    return make_plans(
        silos,
        units,
        policies,
        schedule_of(options.values, method),
        TrainingSettings(
            batch_size=options.batch_size,
            clip=options.clip,
            epochs=request.epochs,
            sampling=request.sampling,
            small_silos=options.small_silos,
        ),
        request.accountant,
        expected=expected,
        side=SideQueries(
            request.select_share,
            request.select_mechanism,
            request.statistics_share,
            request.metric_share,
            tuple(evaluated),
        ),
        tuning=tuning,
        heavy=heavy,
        unproven=unproven,
        release=options.entropy == "os",
        progress=progress,
    )


def policies_of(
    options: ResolvedOptions,
    silos: Sequence[str],
    by_subject: bool,
    left_out: Sequence[str] = (),
) -> tuple[Policy, ...]:
    """The policy of each silo, from its file or else from options; never looser than either.

    Silos that were `left_out` may have one as well. Where silos are left out by their number of
    records, all must allow that it is public, also if none was: that says something of them too.
    """
    everybody = (*silos, *left_out)
    policies = _policies_of_all(options, everybody, by_subject)
    for silo, policy in zip(everybody, policies, strict=True):
        if options.request.min_records and not policy.count_is_public:
            raise SilodpError(
                f"Silo {silo!r}: its {RECORD_COUNT} is not public, but --min-records would tell "
                "something of it: name the silos that are to be left out (--exclude-silos)."
            )
    return policies[: len(silos)]


def _policies_of_all(
    options: ResolvedOptions, silos: Sequence[str], by_subject: bool
) -> tuple[Policy, ...]:
    request = options.request
    given = {name: options.values[name] for name in tagged("policy")}
    given["subject"] = request.subject_column or ("subject" if by_subject else None)
    given = {name: value for name, value in given.items() if value is not None}
    if request.policies is not None:
        return tuple(
            _stricter(silo, policy, request)
            for silo, policy in zip(
                silos, read_policies(request.policies, silos, given), strict=True
            )
        )
    if request.epsilon is None:
        raise SilodpError(
            "No privacy budget is given: add --epsilon (a number, or inf for no privacy) or "
            "--policies FILE."
        )
    return (Policy(**given),) * len(silos)


def _stricter(silo: str, policy: Policy, request: RunRequest) -> Policy:
    """The silo's own policy, made as strict as the options for all silos.

    For numbers the smaller one holds. Words cannot be compared: they must agree.
    """
    tighter = {}
    for name in tagged("policy"):
        requested, own = getattr(request, name), getattr(policy, name)
        if requested is None:
            continue
        if OPTIONS[name].kind is float:
            tighter[name] = min(requested, own)
        elif requested not in (OPTIONS[name].default, own):
            raise SilodpError(
                f"Silo {silo!r}: its policy has {name} {own!r}, but {flag(name)} is {requested!r}: "
                f"leave out {flag(name)}, or let the silo change its policy."
            )
    return replace(policy, **tighter, silo=silo)


def _check_policy(silo: str, policy: Policy, request: RunRequest, federation: Federation) -> None:
    """Refuses what the silo's policy does not allow these data and options to do."""
    if math.isinf(policy.epsilon):
        return
    check_declared(silo, policy, federation.declared)
    check_unit(silo, policy, request, federation)
    in_messages = get_method(request.method).in_messages  # which takes no weights
    if not policy.count_is_public and request.weights == "records" and not in_messages:
        raise SilodpError(
            f"Silo {silo!r}: its {RECORD_COUNT} is not public, but --weights records would tell "
            "it: give --weights uniform."
        )
    if not policy.count_is_public and request.metric_share:
        raise SilodpError(
            f"Silo {silo!r}: its {RECORD_COUNT} is not public, but a mean over its test records "
            "would tell it: leave out --metric-share."
        )


def check_unit(silo: str, policy: Policy, request: RunRequest, federation: Federation) -> None:
    """Refuses data that are not counted by what the silo's policy protects."""
    if policy.unit == "subject" and not federation.by_subject:
        raise SilodpError(
            f"Silo {silo!r}: its policy protects subjects (column {policy.subject!r}), but the "
            f"data are not loaded by subject: give --subject-column {policy.subject}."
        )
    if request.subject_column is not None and policy.subject != request.subject_column:
        raise SilodpError(
            f"Silo {silo!r}: its policy protects the subjects of column {policy.subject!r}, but "
            f"the data are loaded by {request.subject_column!r}: give --subject-column "
            f"{policy.subject}."
        )


def person_guarantee(plans: Sequence[SiloPlan], most: int) -> dict[str, float] | None:
    """The guarantee for a person with data in up to `most` silos; None if `most` is 1.

    Where records are protected, it holds for somebody with one record in each of them.
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
