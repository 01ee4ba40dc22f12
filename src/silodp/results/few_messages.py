"""What a run of few messages can say beside its models, as a result holds it, and in sentences.

How sure each silo's model is, in which features silos differ, who is alike, why a silo has the mean
model, and what another message or twice the budget would bring. All of it follows from what was
released, so it costs no privacy. Numbers are in the units of the features and of the target, as far
as these are public; where features were scaled by statistics of the records, they are per standard
deviation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian

from silodp.base.text import amount, count, percent, shown
from silodp.methods.fewround.expected import Truth, expected_errors, gradient_noise
from silodp.methods.fewround.findings import MOST_RELATED
from silodp.privacy.mechanisms.message_queries import MessageSchedule
from silodp.privacy.plan import SiloPlan
from silodp.results.result import Result

INTERVAL = 1.96  # standard errors on both sides of an interval that holds 95 %
CHANCE = 0.05
# A silo that keeps less than this of its own has the mean model; models that explain less than this
# part of what is left unexplained are no more than a constant.
OWN, EXPLAINED = 0.05, 0.01
CONSTANT, POOLED, ABSENT = "constant", "pooled", "absent"  # what a silo or a run falls back to
# More numbers than these, of silos and features together, would be most of the result.
_MOST_EFFECTS = 100_000
_MOST_NAMES = 4
_LONGEST_NAME = 30


@dataclass(frozen=True)
class Change:
    """The change of a feature whose effect is shown, in words and in the model's units.

    Attributes:
      feature: its name.
      words: such as "0 to 120", "yes" or "1 standard deviation".
      size: the change of the number that the model takes.
      per_own: what part of that a change of 1 in the feature's own unit is; None if not public.
    """

    feature: str
    words: str
    size: float
    per_own: float | None


@dataclass(frozen=True)
class Units:
    """What makes numbers of a model into those of the target.

    Attributes:
      target: what effects are in: the target, or the log-odds of a class.
      prediction: what stands behind numbers of predictions, if they are not in the target's unit.
      effect: of a weight on a vector of length 1 on the target, by a change of 1.
      label: of a label from -1 to 1 on what predictions are in.
      changes: of each feature.
      classes: names of classes, if public.
    """

    target: str
    prediction: str
    effect: float
    label: float
    changes: tuple[Change, ...]
    classes: tuple[str, ...] = ()


def is_of_messages(learned: Mapping[str, Any]) -> bool:
    """Whether a method of few messages learned this."""
    return {"kept_of_own", "prediction_errors"} <= learned.keys() or "frequency_errors" in learned


def said(
    learned: Mapping[str, np.ndarray], plans: Sequence[SiloPlan], units: Units
) -> dict[str, Any]:
    """What a run of few messages learned, as a result holds it.

    Args:
      learned: arrays [seeds, ...]; those of the first seed count, whose models are handed over.
      plans: of all silos.
      units: see `Units`.

    Returns:
      "findings": see docs/fewround.md; "relations": cosines of pairs, None where they are not told;
      "summary": sentences.
    """
    own = {name: np.asarray(values[0], np.float64) for name, values in learned.items()}
    if not all(np.isfinite(own[name]).all() for name in own.keys() & _FINITE):
        return {}
    if "frequency_errors" in own:
        return _of_classes(own, plans, units)
    silos = _silos(own, plans, units)
    features = _features(own, units)
    run = _fallback(own)
    findings: dict[str, Any] = {
        "unit": units.target,
        "prediction_unit": units.prediction,
        "fallback": run,
        "features": features,
        "silos": silos,
    }
    sizes = units.effect * np.array([change.size for change in units.changes])
    effects = own["models"][:, :-1] * own["slopes"][:, None] * sizes
    if effects.size <= _MOST_EFFECTS:
        errors = own["standard_errors"][:, :-1] * own["slopes"][:, None] * np.abs(sizes)
        findings |= {"effects": _rounded(effects), "effect_errors": _rounded(errors)}
    found: dict[str, Any] = {"findings": findings}
    if "relations" in own:
        told = np.where(own["told"] > 0, own["relations"], np.nan)
        found["relations"] = _rounded(told, 3)
    found["summary"] = [
        *_about_fallback(run, silos),
        *_about_errors(silos, units),
        *_about_features(features),
        *_about_relations(own),
        *_about_more(silos, units),
    ]
    return found


# Arrays that a result holds as they are, beside all that is said of them.
SHOWN = frozenset(
    {"mean_model", "spread", "residual", "standard_errors", "frequencies", "mean_frequencies"}
)
_FINITE = {"models", "standard_errors", "prediction_errors", "frequencies", "frequency_errors"}


def _silos(
    own: Mapping[str, np.ndarray], plans: Sequence[SiloPlan], units: Units
) -> list[dict[str, Any]]:
    outcome = np.sqrt(own["prediction_errors"] ** 2 + own["residual"] ** 2)
    more = _with_more(own, plans)
    rows = []
    for place, plan in enumerate(plans):
        kept, here = float(own["kept_of_own"][place]), math.isfinite(own["cross_noise"][place])
        error = float(own["prediction_errors"][place])
        rows.append(
            {
                "silo": plan.silo,
                "fallback": ABSENT if not here else POOLED if kept < OWN else None,
                "kept": _digits(kept),
                "prediction_error": _digits(units.label * error),
                # A class is no number that could be so far from its prediction.
                "outcome_error": None
                if units.prediction
                else _digits(units.label * float(outcome[place])),
                "more": {
                    name: {
                        "epsilon": _digits(epsilon),
                        "prediction_error": _digits(part * error * units.label),
                    }
                    for name, (epsilon, part) in more[place].items()
                }
                if here
                else {},
            }
        )
    return rows


def _with_more(
    own: Mapping[str, np.ndarray], plans: Sequence[SiloPlan]
) -> list[dict[str, tuple[float, float]]]:
    """What more would cost and bring if all silos had it: epsilon, and a part of the error."""
    plan = plans[0]
    if not all(plan.private for plan in plans) or not isinstance(plan.schedule, MessageSchedule):
        return [{} for _ in plans]
    last = plan.schedule.shares[-1]
    # What was released by a silo that is not here is nothing.
    noise = np.where(np.isfinite(own["cross_noise"]), own["cross_noise"], 1e30)
    whole = np.array([plan.noise_multiplier for plan in plans])
    residual, spread = float(own["residual"]) ** 2, float(own["expected_spread"]) ** 2
    # A silo by itself knows what all have said of the mean, and nothing of the others.
    weights = own["mean_errors"] ** 2
    if len(plans) > 1:
        weights = weights + own["mean_model"] ** 2
    truth = Truth(own["values"], float(weights[:-1].mean()) or 1.0, spread, residual)
    counts = np.maximum(own["public_counts"], 1.0)
    now = expected_errors(truth, counts, noise).own
    message = gradient_noise(whole / math.sqrt(last), residual)
    budget = np.array([_with_twice(plan.epsilon, plan.delta) for plan in plans])
    ratios = {
        "message": (
            [_epsilon_with(last, plan.epsilon, plan.delta) for plan in plans],
            1.0 / (1.0 / noise + 1.0 / message),
        ),
        "budget": ([2 * plan.epsilon for plan in plans], noise * budget),
    }
    found: list[dict[str, tuple[float, float]]] = [{} for _ in plans]
    for name, (spent, less) in ratios.items():
        parts = np.sqrt(expected_errors(truth, counts, less).own / now)
        for row, epsilon, part in zip(found, spent, parts.tolist(), strict=True):
            row[name] = (float(epsilon), part)
    return found


@cache
def _epsilon_with(share: float, epsilon: float, delta: float) -> float:
    """What a budget becomes with messages more that take such a share of 1/z^2."""
    noise = get_sigma_gaussian(epsilon, delta) / math.sqrt(1.0 + share)
    return float(get_epsilon_gaussian(noise, delta))


@cache
def _with_twice(epsilon: float, delta: float) -> float:
    """What part of the variance of noise is left with twice the epsilon."""
    return float((get_sigma_gaussian(2 * epsilon, delta) / get_sigma_gaussian(epsilon, delta)) ** 2)


def _features(own: Mapping[str, np.ndarray], units: Units) -> list[dict[str, Any]]:
    slope = float(np.median(own["slopes"]))
    differs = _clearly(own["chances"][:-1]) if "chances" in own else None
    rows = []
    for place, change in enumerate(units.changes):
        scale = units.effect * slope * change.size
        known = differs is not None  # of one silo alone, nothing is
        rows.append(
            {
                "feature": change.feature,
                "change": change.words,
                "per_own": change.per_own,
                "mean": _digits(scale * own["mean_model"][place]),
                "mean_error": _digits(abs(scale) * own["mean_errors"][place]),
                "spread": _digits(abs(scale) * own["differs"][place]) if known else None,
                "chance": _digits(own["chances"][place]) if known else None,
                "differs": bool(differs[place]) if known else None,
            }
        )
    return rows


def _clearly(chances: np.ndarray) -> np.ndarray:
    """Which are beyond chance, however many are looked at (S. Holm, 1979)."""
    order = np.argsort(chances)
    steps = chances[order] * np.arange(len(chances), 0, -1)
    beyond = np.zeros(len(chances), bool)
    beyond[order] = np.maximum.accumulate(steps) < CHANCE
    return beyond


def _fallback(own: Mapping[str, np.ndarray]) -> str | None:
    """What the run as a whole has fallen back to."""
    if float(own["kept_of_own"].mean()) >= OWN:
        return None
    # No vector is longer than 1, whatever noise makes of second moments.
    square = min(float(own["values"].mean()), 1.0 / len(own["values"]))
    explained = float((own["mean_model"][:-1] ** 2).sum()) * square
    return CONSTANT if explained < EXPLAINED * float(own["residual"]) ** 2 else POOLED


def fallback_words(result: Result) -> str:
    """Why all silos (or the only one) have the mean model, or less: for a headline."""
    findings = (result.learned or {}).get("findings")
    fallback = findings.get("fallback") if isinstance(findings, dict) else None
    if fallback == CONSTANT:
        return (
            " The budget buys no more than the mean of all: no feature can be seen to matter above "
            "noise."
        )
    if fallback == POOLED and len(result.per_silo) == 1:
        return (
            " It is the mean model of all silos: how this one differs cannot be seen above noise."
        )
    if fallback == POOLED:
        return (
            " All silos have the mean model: over all features together, no difference between "
            "silos could be seen above noise."
        )
    return ""


def _about_fallback(run: str | None, silos: Sequence[Mapping[str, Any]]) -> list[str]:
    if run is not None or len(silos) < 2:
        return []
    pooled = sum(silo["fallback"] == POOLED for silo in silos)
    absent = sum(silo["fallback"] == ABSENT for silo in silos)
    lines = []
    if pooled:
        lines.append(
            f"{count(pooled, 'silo has', 'silos have')} the mean model: what "
            f"{'it' if pooled == 1 else 'each of them'} released says too little of how it differs."
        )
    if absent:
        lines.append(
            f"{count(absent, 'silo was', 'silos were')} not there for the first message, and "
            f"{'has' if absent == 1 else 'have'} the mean model."
        )
    return lines


def _about_errors(silos: Sequence[Mapping[str, Any]], units: Units) -> list[str]:
    errors = np.array([silo["prediction_error"] for silo in silos])
    span = _plus_minus(float(np.median(errors)), units)
    ends = ""
    if len(silos) > 1 and amount(errors.min()) != amount(errors.max()):
        low, high = (amount(INTERVAL * float(end)) for end in (errors.min(), errors.max()))
        ends = f" (± {low} to ± {high})"
    unit = "" if units.prediction else f" (in the unit of {units.target})"
    whose = "the median" if len(silos) > 1 else "the"
    return [
        f"Predictions of {whose} silo are within {span}{ends} of those of the best linear model "
        f"that it could have, 95 times of 100{unit}."
    ]


def _plus_minus(error: float, units: Units) -> str:
    return f"± {amount(INTERVAL * error)}{units.prediction}"


def _about_features(features: Sequence[Mapping[str, Any]]) -> list[str]:
    if not features or features[0]["differs"] is None:
        return []
    beyond = sorted((one for one in features if one["differs"]), key=lambda one: -one["spread"])
    if not beyond:
        return ["In no single feature can silos be seen to differ above noise."]
    names = "; ".join(shown(one["feature"], _LONGEST_NAME) for one in beyond[:_MOST_NAMES])
    more = f" and {len(beyond) - _MOST_NAMES} more" if len(beyond) > _MOST_NAMES else ""
    of_all = f"{len(beyond)} of {count(len(features), 'feature')}"
    return [f"Silos clearly differ in {of_all}: {names}{more}."]


def _about_relations(own: Mapping[str, np.ndarray]) -> list[str]:
    if "relations" not in own:
        silos = len(own["kept_of_own"])
        if silos > MOST_RELATED:
            return [f"Relations between more than {MOST_RELATED} silos are left out."]
        return []
    pairs = np.triu_indices(len(own["relations"]), 1)
    told, relations = own["told"][pairs] > 0, own["relations"][pairs]
    alike, opposite = int((told & (relations > 0)).sum()), int((told & (relations < 0)).sum())
    if not alike and not opposite:
        return ["Which silos are alike is not told by what was released."]
    return [
        f"Of {count(len(relations), 'pair')} of silos, {alike:,} deviate from the mean alike and "
        f"{opposite:,} in opposite ways; what was released does not tell of the others."
    ]


def _about_more(silos: Sequence[Mapping[str, Any]], units: Units) -> list[str]:
    here = [silo for silo in silos if silo["more"]]
    if not here:
        return []
    now = float(np.median([silo["prediction_error"] for silo in here]))
    parts = []
    for name, words in (("message", "one more message each"), ("budget", "twice the budget")):
        then = float(np.median([silo["more"][name]["prediction_error"] for silo in here]))
        epsilons = [silo["more"][name]["epsilon"] for silo in here]
        low, high = (f"{end(epsilons):.3g}" for end in (min, max))
        spent = low if low == high else f"{low} to {high}"
        parts.append(f"{words} (epsilon {spent} in all) to about {_plus_minus(then, units)}")
    whose = "The median silo's" if len(here) > 1 else "The"
    return [f"{whose} {_plus_minus(now, units)} would come down, with {parts[0]}, with {parts[1]}."]


def _of_classes(
    own: Mapping[str, np.ndarray], plans: Sequence[SiloPlan], units: Units
) -> dict[str, Any]:
    frequencies, errors = own["frequencies"], own["frequency_errors"]
    findings = {
        "classes": list(units.classes),
        "mean": _rounded(own["mean_frequencies"]),
        "silos": [
            {"silo": plan.silo, "frequencies": _rounded(row), "error": _digits(error)}
            for plan, row, error in zip(plans, frequencies, errors.tolist(), strict=True)
        ],
    }
    typical = float(np.median(errors))
    summary = [
        f"A silo's class frequencies are known to within ± {percent(INTERVAL * typical)}, 95 times "
        f"of 100{', in the median silo' * (len(plans) > 1)}."
    ]
    if len(plans) > 1:
        beyond = np.abs(frequencies - own["mean_frequencies"]) > INTERVAL * errors[:, None]
        other = int(beyond.any(axis=1).sum())
        summary.append(
            f"{count(other, 'silo has', 'silos have')} a class that is clearly more or less "
            "frequent there than in all together."
        )
    return {"findings": findings, "summary": summary}


def _rounded(values: np.ndarray, digits: int = 6) -> Any:
    """Numbers in lists to so many digits, None in place of NaN."""
    if values.ndim > 1:
        return [_rounded(one, digits) for one in values]
    return [None if math.isnan(value) else _digits(value, digits) for value in values.tolist()]


def _digits(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")
