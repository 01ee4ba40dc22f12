"""What a run comes to: who does best, whether that is clear, and whether it beats no skill.

For the top of a report and for the last words of `silodp run`. It goes by the best of the methods
that were trained on the same silos, budgets and seeds, whichever the run was meant to show. A
difference is called clear only if seeds and test records are enough to tell it from chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from silodp.base.text import MOST_NAMED, amount, count, shown, silo_names
from silodp.data.tasks import TASKS
from silodp.figures.looks import look_of
from silodp.models.metrics import METRICS, Metric, get_metric
from silodp.report.drawing import name_of
from silodp.report.gains import Gain, gain, gains_by_silo, overall
from silodp.report.numbers import measured, plus_minus
from silodp.results.result import Result
from silodp.runs.baselines import NAMES

FEWEST_RECORDS = 30  # test records: of fewer, nothing is clear
# A gain below this over no skill is none that anybody could use, however clear it is: as a part of
# the error, or in the metric's own unit.
NEGLIGIBLE_PART, NEGLIGIBLE = 0.05, 0.01
_ROUNDING = 1e-6  # differences below this are those of single precision
ALONE = "local"


@dataclass(frozen=True)
class Verdict:
    """The answer in sentences.

    Attributes:
      headline: the answer.
      more: what has to be known beside it, such as what accuracy hides.
      left_behind: which silos are better off otherwise; empty if none is.
    """

    headline: str
    more: list[str]
    left_behind: list[str]


class Skill(NamedTuple):
    """A result beside the best prediction without features.

    Attributes:
      name: what that prediction is called.
      value: its test metric.
      gain: what the models gain over it.
      clear: whether that is more than chance.
    """

    name: str
    value: float
    gain: float
    clear: bool

    def some(self, metric: Metric) -> bool:
        """Whether the gain is one that anybody could use."""
        return self.gain > (NEGLIGIBLE_PART if metric.by_ratio else NEGLIGIBLE)


def verdict(result: Result, others: Sequence[Result] = ()) -> Verdict:
    """What a result comes to, beside others of the same silos, budgets and seeds."""
    metric, name = get_metric(result.metric), called(result, starts=True)
    silos = count(len(result.per_silo), "silo")
    if math.isnan(result.mean):
        missing = f"{name} was trained over {silos}; their test records have no {metric.noun}."
        return Verdict(missing, [], [])
    # Of equal ones the run's own comes first: a difference of zero is no gain of another.
    known = [result, *(other for other in others if not math.isnan(other.mean))]
    best = min(known, key=lambda one: metric.loss_like(one.mean))
    skill = skill_of(best)
    if skill is not None and not (skill.clear and skill.some(metric)):
        headline = _without_skill(best, skill, len(known))
    elif best is not result:
        headline = _beaten(result, best, len(known))
    elif len(known) > 1:
        headline = _ahead(result, known[1:])
    else:
        headline = f"{name} reaches a test {metric.noun} of {_value(result)} over {silos}"
        if skill is not None:
            headline += f", {metric.size(skill.gain)} {metric.way(skill.gain)} than {skill.name}"
        headline += "."
    return Verdict(headline, _more(result, best, skill), left_behind(result, others))


def method_name(result: Result) -> str:
    """Name of the result's method, as in figures."""
    return name_of(look_of(result.method))


def called(result: Result, starts: bool = False) -> str:
    """What sentences call the result's method; `starts` with a capital where one begins."""
    words = NAMES.get(result.method, method_name(result))
    return words[:1].upper() + words[1:] if starts else words


def skill_of(result: Result) -> Skill | None:
    """The result beside no skill, in the metric that it goes by; None where it does not say."""
    entry = first_entry(result)
    return None if entry is None else _skill_in(result, entry)


def _skill_in(result: Result, entry: Mapping[str, Any]) -> Skill | None:
    none = entry["no_skill"]
    if none is None or none["mean"] is None or none["gain"]["mean"] is None:
        return None
    about = none["gain"]
    clear = about["low"] is not None and about["low"] > 0 and not few_records(result)
    by_seed = gain(entry["test"]["per_seed"], none["per_seed"], entry["metric"])
    if not math.isnan(by_seed.error):
        clear = clear and by_seed.clear
    return Skill(no_skill_name(result), none["mean"], about["mean"], clear)


def first_entry(result: Result) -> Mapping[str, Any] | None:
    """What the result says of the metric that it goes by, beside no skill; None in older ones."""
    return result.metrics[0] if result.metrics else None


def no_skill_name(result: Result) -> str:
    """What the best prediction without features is called."""
    task = (result.problem or {}).get("task")
    names = {one.name: one.no_skill for one in TASKS.values()}
    return next((words for known, words in names.items() if known == task), "no skill")


def test_records(result: Result) -> int | None:
    """Test records of all silos together; None where a silo's are secret."""
    counts = [silo["test_records"] for silo in result.per_silo]
    return None if None in counts else sum(counts)


def few_records(result: Result) -> bool:
    """Whether test records are too few for anything to be clear."""
    records = test_records(result)
    return records is not None and records < FEWEST_RECORDS


def is_clear(one: Gain, result: Result) -> bool:
    """Whether a gain is more than chance: over seeds, and over enough test records."""
    return one.mean != 0 and one.clear and not few_records(result)


def left_behind(result: Result, others: Sequence[Result] = ()) -> list[str]:
    """Sentences that name the silos which are better off alone, or without any model."""
    found = []
    name = called(result)
    alone = next((other for other in others if other.method == ALONE), None)
    if alone is not None and len(result.per_silo) > 1:
        gains = gains_by_silo(result, alone)
        names = [silo["silo"] for silo in result.per_silo]
        worse = [(silo, one) for silo, one in zip(names, gains, strict=True) if one.mean < 0]
        clear = [silo for silo, one in worse if one.clear]
        maybe = [silo for silo, one in worse if not one.clear]
        if clear:
            found.append(f"Clearly worse with {name} than alone: {listed(clear)}.")
        if maybe:
            found.append(f"Worse with {name} than alone, which may be chance: {listed(maybe)}.")
    entry, metric = first_entry(result), get_metric(result.metric)
    if entry is not None and entry["no_skill"] is not None and entry["release"] == "exact":
        without = [
            silo
            for silo in entry["per_silo"]
            if None not in (silo["mean"], silo["no_skill"])
            and metric.loss_like(silo["mean"]) > metric.loss_like(silo["no_skill"])
        ]
        enough = _with_records(result)
        clear = [
            silo["silo"]
            for silo in without
            if silo["silo"] in enough and _clearly_without(silo, metric)
        ]
        maybe = [silo["silo"] for silo in without if silo["silo"] not in clear]
        words = f"orse with {name} than {no_skill_name(result)}"
        if clear:
            found.append(f"Clearly w{words}: {listed(clear)}.")
        if maybe:
            found.append(f"W{words}, which may be chance: {listed(maybe)}.")
    return found


def _with_records(result: Result) -> set[str]:
    """The silos with test records enough for something to be clear of them."""
    return {
        silo["silo"]
        for silo in result.per_silo
        if silo["test_records"] is None or silo["test_records"] >= FEWEST_RECORDS
    }


def _clearly_without(silo: Mapping[str, Any], metric: Metric) -> bool:
    """Whether even the better end of the silo's interval is worse than no skill."""
    ends = silo["interval"]
    return ends is not None and min(map(metric.loss_like, ends)) > metric.loss_like(
        silo["no_skill"]
    )


def listed(silos: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    text = silo_names(silos)
    return f"{text} ({len(silos):,} silos)" if len(silos) > MOST_NAMED else text


def _value(result: Result) -> str:
    return plus_minus(result.mean, result.std, result.metric)


def _without_skill(best: Result, skill: Skill, methods: int) -> str:
    metric, records = get_metric(best.metric), test_records(best)
    which = f"the best of {methods} methods" if methods > 1 else "the one that was trained"
    values = (
        f"test {metric.noun} {_value(best)} with {called(best)}, {which}, and "
        f"{measured(skill.value, best.metric)} for {skill.name}"
    )
    if skill.gain <= _ROUNDING:
        return f"No model beats {skill.name}: {values}."
    if skill.clear:
        size = metric.size(skill.gain)
        return f"No model beats {skill.name} by more than {size}: {values}."
    of = "" if records is None else f", with {count(records, 'test record')}"
    return f"No model clearly beats {skill.name}: {values}; the difference may be chance{of}."


def _beaten(result: Result, best: Result, methods: int) -> str:
    metric = get_metric(result.metric)
    one = overall(best, result)
    name = called(result)
    size = f"{metric.size(one.mean)} {metric.way(one.mean)} than that of {name}"
    return (
        f"{called(best, starts=True)} does better than {name}{_sure(one, result)}: its test "
        f"{metric.noun} is {_value(best)}, {size} ({_value(result)}); it is the best of {methods} "
        "methods."
    )


def _ahead(result: Result, others: Sequence[Result]) -> str:
    metric = get_metric(result.metric)
    gains = [(other, overall(result, other)) for other in others]
    gains.sort(key=lambda pair: pair[1].mean)
    parts = [
        f"the same as that of {called(other)}"
        if one.mean == 0
        else f"{metric.size(one.mean)} {metric.way(one.mean)} than that of {called(other)}"
        f"{_sure(one, result)}"
        for other, one in gains
    ]
    start = f"{called(result, starts=True)} is the best of {len(others) + 1} methods"
    if gains[0][1].mean == 0:
        start = f"No method is better than {called(result)}"
    return f"{start}: its test {metric.noun} of {_value(result)} is {', and '.join(parts)}."


def _sure(one: Gain, result: Result) -> str:
    """Whether a difference is clear, in brackets."""
    if is_clear(one, result):
        return " (clear)"
    seeds, records = len(result.test["per_seed"]), test_records(result)
    if few_records(result):
        return f" (may be chance: {records} test records)"
    if math.isnan(one.error):
        return f" (may be chance: {count(seeds, 'seed')})"
    return " (may be chance)"


def _more(result: Result, best: Result, skill: Skill | None) -> list[str]:
    lines = []
    metric = get_metric(result.metric)
    entries = {
        entry["metric"]: entry for entry in best.metrics if entry["test"]["mean"] is not None
    }
    beside = [entries[name] for name in metric.companions if name in entries]
    if beside and skill is not None:
        parts = [
            f"its {get_metric(entry['metric']).noun} is "
            f"{measured(entry['test']['mean'], entry['metric'])}"
            for entry in beside
        ]
        lines.append(
            f"The {metric.noun} of {called(best)} alone says little where one class is common: "
            f"{skill.name} has {measured(skill.value, best.metric)}, and {', '.join(parts)}"
            f"{_class_of(best)}."
        )
    if skill is not None and not (skill.clear and skill.some(metric)):
        lines += _skilled_otherwise(best)
    if own := in_own_unit(best):
        lines.append(own)
    if few_records(result):
        records = count(test_records(result) or 0, "test record")
        lines.append(f"All of it rests on {records}: differences may be chance.")
    return lines


def _skilled_otherwise(result: Result) -> list[str]:
    """A sentence on other metrics in which the models beat no skill, where there are any."""
    found = []
    for entry in result.metrics[1:]:
        metric, skill = get_metric(entry["metric"]), _skill_in(result, entry)
        if metric.shows_skill and skill is not None and skill.clear and skill.some(metric):
            value = measured(entry["test"]["mean"], metric.name)
            found.append(f"{metric.short} {value} ({measured(skill.value, metric.name)} without)")
    if not found:
        return []
    name = called(result, starts=True)
    return [f"{name} has learned something all the same, as others show: {', '.join(found)}."]


def _class_of(result: Result) -> str:
    classes = (result.problem or {}).get("classes") or []
    return f' (of "{shown(str(classes[-1]))}")' if len(classes) == 2 else ""


def in_own_unit(result: Result) -> str | None:
    """A sentence with errors in the target's own unit; None where they are in it already."""
    problem = result.problem or {}
    unit = problem.get("unit")
    if not unit or unit == 1:
        return None
    parts = []
    for entry in result.metrics:
        metric = METRICS.get(entry["metric"])
        value = entry["test"]["mean"]
        if metric is None or metric.power_of_unit != 1 or value is None:
            continue
        text = f"{metric.short} {amount(metric.in_own_unit(value, unit))}"
        if (none := entry["no_skill"]) is not None and none["mean"] is not None:
            other = metric.in_own_unit(none["mean"], unit)
            text += f" ({no_skill_name(result)}: {amount(other)})"
        parts.append(text)
    if not parts:
        return None
    target = shown(str(problem.get("target", "")))
    return f'In the unit of "{target}" itself, {called(result)} has {", ".join(parts)}.'
