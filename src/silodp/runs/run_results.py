"""From the metrics of a setting to its result: options, metrics and privacy statements."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path

from silodp.base.errors import SilodpError
from silodp.config.options import RunRequest
from silodp.data.federation import Federation
from silodp.data.preparation import preparation_of
from silodp.data.tasks import get_task
from silodp.methods.clusters import CHOSEN
from silodp.privacy.policy import RECORD_COUNT, Policy
from silodp.results.cluster_members import cluster_members
from silodp.results.few_messages import SHOWN, is_of_messages, said
from silodp.results.learned import MOST_RELATED, feature_names, summed_up
from silodp.results.result import Result, summary
from silodp.runs.draft_cards import draft_cards
from silodp.runs.feature_units import units_of
from silodp.runs.prepare import Prepared, person_guarantee

COUNTS_ARE_PUBLIC = (
    "each silo's number of records is public: its weight, sampling rate and steps follow from it"
)
TEST_IS_NOT_COVERED = (
    "epsilon is about models, not about metrics: these are computed on test records without noise, "
    "and what they are without skill on training labels"
)
ENCODER_IS_PUBLIC = (
    "the encoder {encoder} is public: it was made without these records, and each record went "
    "through it alone"
)
ONE_RUN_EACH = "epsilon is that of one run; whoever releases the runs of several seeds spends more"
NOISE_FROM_A_SEED = "whoever knows the seed knows the noise: an experiment, not a release"


def result_of(
    prepared: Prepared,
    federations: Sequence[Federation],
    number: int,
    rounds: Sequence[int],
    by_silo: np.ndarray,
    seconds: dict[str, float],
    models: Any = None,
    learned: dict[str, Any] | None = None,
    noisy_metric: bool = False,
    measured: Sequence[dict[str, Any]] = (),
) -> Result:
    """The result of a setting.

    Args:
      prepared: the run's specs and data.
      federations: the records that models were trained and tested on, one per seed.
      number: the number of the setting.
      rounds: the evaluated rounds.
      by_silo: the metric, [rounds, seeds, silos].
      seconds: how long each part took, by name.
      models: the silos' own, if they are kept.
      learned: what the method learned about the silos: arrays [seeds, ...], by name.
      noisy_metric: whether the metric has noise that was paid for.
      measured: all metrics, as `evaluation.evaluated` gives them.
    """
    spec, federation = prepared.specs[number], federations[0]
    request = spec.request
    has_value = where_measured(prepared, federations, noisy_metric)
    overall = over_silos(by_silo, federations, has_value)
    return Result(
        data=federation.name,
        method=request.method,
        options=_described(prepared, number),
        metric=prepared.metric.name,
        test=summary(overall[-1]),
        per_silo=[
            {
                "silo": silo.name,
                "records": silo.public_count if policy.count_is_public else None,
                "test_records": silo.public_test_count if _shown(policy) else None,
                **summary_of_known(by_silo[-1, :, place], has_value[:, place]),
            }
            for place, (silo, policy) in enumerate(
                zip(federation.silos, spec.policies, strict=True)
            )
        ],
        privacy=[plan.statement() for plan in spec.plans],
        assumptions=_assumptions(request, federation, spec.policies),
        warnings=prepared.warnings,
        chosen=prepared.chosen,
        left_out=list(federation.left_out),
        person=person_guarantee(spec.plans, request.max_silos_per_subject),
        history=[
            {"round": rounds, **summary(values)}
            for rounds, values in zip(rounds, overall, strict=True)
        ],
        seconds=seconds,
        learned=_learned(prepared, number, learned, federation) if learned else None,
        models=models,
        cards=None if models is None else draft_cards(prepared, federation, noisy_metric),
        metrics=list(measured),
        problem=_problem(federation),
        encoders=[encoder.to_plain() for encoder in federation.encoders],
    )


def _problem(federation: Federation) -> dict[str, Any]:
    """What is learned from what; classes only if they are public."""
    preparation = preparation_of(federation, federation.silos[0])
    target, task = preparation.target, get_task(federation.task)
    return {
        "task": task.name,
        "target": target.name,
        "unit": None if task.of_classes else target.unit,
        "classes": list(target.classes) if target.declared else [],
        "columns": [column.name for column in preparation.encoder.columns],
    }


def check_finite(result: Result) -> None:
    """Refuses a result with a model that diverged."""
    for silo in result.per_silo:
        if silo["mean"] is not None and not math.isfinite(silo["mean"]):
            raise SilodpError(
                f"Silo {silo['silo']!r}: the model is not finite any more after training: lower "
                f"--lr (it is {result.options['lr']}) or --lam, or use --regulariser proximal; "
                "--engine debug says in which round it happened."
            )


def where_measured(
    prepared: Prepared, federations: Sequence[Federation], noisy: bool
) -> np.ndarray:
    """Which silos can measure the metric on their test records: [seeds, silos].

    Every silo releases a metric with noise: to leave one out would reveal its records.
    """
    if noisy:
        return np.ones((len(federations), len(federations[0].silos)), bool)
    return prepared.metric.where_known(federations)


def over_silos(
    by_silo: np.ndarray, federations: Sequence[Federation], has_value: np.ndarray
) -> np.ndarray:
    """The metric [..., seeds] over silos [..., seeds, silos], weighted by their test records.

    Silos without it (`has_value` [seeds, silos]) are left out; NaN if none has it, or a model
    diverged.
    """
    # Public counts, because these weights are part of what is shown.
    counts = np.stack([one.public_test_counts for one in federations]) * has_value
    totals = counts.sum(axis=1, keepdims=True)
    weights = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    # A model that diverged shows as NaN even where the metric cannot be measured.
    return (np.where(has_value | np.isnan(by_silo), by_silo, 0.0) * weights).sum(axis=-1)


def summary_of_known(per_seed: np.ndarray, has_value: np.ndarray) -> dict[str, Any]:
    """Summary over the seeds in which there is the metric; None stands for the others.

    NaN is different: the metric of a model that diverged, whether it could be measured or not.
    """
    known = has_value | np.isnan(per_seed)
    if known.all():
        return summary(per_seed)
    if not known.any():
        return {"mean": None, "std": None, "per_seed": [None] * len(per_seed)}
    values = [
        float(value) if is_known else None for value, is_known in zip(per_seed, known, strict=True)
    ]
    return summary(per_seed[known]) | {"per_seed": values}


def _learned(
    prepared: Prepared, number: int, learned: dict[str, Any], trained_on: Federation
) -> dict[str, Any]:
    """Means over seeds of what was learned, and a summary in words where there is one."""
    federation, spec = prepared.federations[0], prepared.specs[number]
    if is_of_messages(learned):
        words = said(learned, spec.plans, units_of(trained_on))
        # What the words are made of is left out: with many silos it would be most of the result.
        return _over_seeds({name: learned[name] for name in SHOWN & learned.keys()}) | words
    features = feature_names(federation.input_shape, federation.feature_names)
    budgets = [policy.epsilon for policy in spec.policies]
    words = summed_up(learned, federation.names, budgets, features if spec.model.linear else None)
    if CHOSEN in learned:
        words |= cluster_members(learned[CHOSEN], federation.names)
        # A mean of labels over seeds would be meaningless.
        learned = {name: value for name, value in learned.items() if name != CHOSEN}
    if words and len(federation.silos) > MOST_RELATED:
        learned = {name: value for name, value in learned.items() if name != "relations"}
    return _over_seeds(learned) | words


def _over_seeds(learned: Any) -> Any:
    """Means over seeds of arrays [seeds, ...], to 6 digits, as dictionaries and lists."""
    if isinstance(learned, np.ndarray):
        return _rounded(np.mean(learned, axis=0, dtype=np.float64).tolist())
    inside = tree_leaves_with_path(learned, is_leaf=lambda node: node is not learned)
    if type(learned) in (list, tuple):
        return [_over_seeds(value) for _, value in inside]
    return {keystr(path, simple=True): _over_seeds(value) for path, value in inside}


def _rounded(values: Any) -> Any:
    """Numbers in nested lists, to 6 significant digits."""
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return float(f"{values:.6g}")


def _described(prepared: Prepared, number: int) -> dict[str, Any]:
    """The options that a result shows: all that are set."""
    spec = prepared.specs[number]
    shown = {name: value for name, value in spec.values.items() if value is not None}
    if lams := spec.own_values.get("lam"):  # the numbers: a file may change
        shown["silo_lam"] = dict(zip(prepared.federations[0].names, lams, strict=True))
    return shown


def _shown(policy: Policy) -> bool:
    """Whether a count of records may be shown; by subject only that of subjects is public."""
    return policy.count_is_public and (policy.unit == "record" or RECORD_COUNT in policy.public)


def _assumptions(
    request: RunRequest, federation: Federation, policies: Sequence[Policy]
) -> list[str]:
    """The assumptions of the privacy statement, in words."""
    assumed = []
    if any(policy.count_is_public for policy in policies):
        assumed.append(COUNTS_ARE_PUBLIC)
    if not request.metric_share:
        assumed.append(TEST_IS_NOT_COVERED)
    assumed += [ENCODER_IS_PUBLIC.format(encoder=own.words) for own in federation.encoders]
    if federation.declared:
        assumed.append(f"public, because declared: {', '.join(federation.declared)}")
    if request.prevalence is not None:
        assumed.append(
            f"public, because declared: the second class has {request.prevalence:g} of the records"
        )
    if any(math.isfinite(policy.epsilon) for policy in policies):
        assumed += [ONE_RUN_EACH] if request.seeds > 1 else []
        assumed += [NOISE_FROM_A_SEED] if request.entropy == "seed" else []
    return assumed
