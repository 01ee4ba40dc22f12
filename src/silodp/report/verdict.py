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
from silodp.report.gains import (
    Gain,
    few_in_silo,
    few_records,
    gain,
    gains_by_silo,
    overall,
    test_records,
)
from silodp.report.numbers import measured, plus_minus
from silodp.results.few_messages import fallback_words
from silodp.results.result import Result
from silodp.runs.baselines import NAMES

# A gain below this over no skill is none that anybody could use, however clear it is: as a part of
# the error, or in the metric's own unit.
NEGLIGIBLE_PART, NEGLIGIBLE = 0.05, 0.01
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
    known = [result, *(other for other in others if not math.isnan(other.mean))]
    best = min(known, key=lambda one: metric.loss_like(one.mean))
    if not overall(best, result).mean > 0:  # a difference of zero is no gain of another
        best = result
    skill = skill_of(best)
    if skill is not None and not (skill.clear and skill.some(metric)):
        headline = _without_skill(best, skill, known)
    elif best is not result:
        headline = _beaten(result, best, len(known)) + _with_skill(best, skill)
    elif len(known) > 1:
        headline = _ahead(result, known[1:]) + _with_skill(best, skill)
    else:
        headline = f"{name} reaches a test {metric.noun} of {_value(result)} over {silos}"
        if skill is not None:
            headline += f", {metric.size(skill.gain)} {metric.way(skill.gain)} than {skill.name}"
        headline += "."
    headline += fallback_words(result)
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
        few = {one["silo"] for one in result.per_silo if few_records(result) or few_in_silo(one)}
        clear = [
            silo["silo"]
            for silo in without
            if silo["silo"] not in few and _clearly_without(silo, metric)
        ]
        maybe = [silo["silo"] for silo in without if silo["silo"] not in clear]
        words = f"orse with {name} than {no_skill_name(result)}"
        if clear:
            found.append(f"Clearly w{words}: {listed(clear)}.")
        if maybe:
            found.append(f"W{words}, which may be chance: {listed(maybe)}.")
    return found


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


def _without_skill(best: Result, skill: Skill, known: Sequence[Result]) -> str:
    metric, records = get_metric(best.metric), test_records(best)
    which = ""
    if len(known) > 1:
        which = f", the best of {len(known)} methods,"
        if any(other is not best and overall(best, other).mean == 0 for other in known):
            which = f", than which none of {len(known)} methods is better,"
    values = (
        f"test {metric.noun} {_value(best)} with {called(best)}{which} and "
        f"{measured(skill.value, best.metric)} for {skill.name}"
    )
    if not skill.gain > 0:
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
    if not one.clear:
        return (
            f"No method is clearly best of {methods}: test {metric.noun} {_value(best)} with "
            f"{called(best)} and {_value(result)} with {name}; the difference of "
            f"{metric.size(one.mean)} may be chance{_because(one, result)}."
        )
    size = f"{metric.size(one.mean)} {metric.way(one.mean)} than that of {name}"
    return (
        f"{called(best, starts=True)} does better than {name} (clear): its test "
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
    elif not gains[0][1].clear:
        start = (
            f"{called(result, starts=True)} is not clearly the best of {len(others) + 1} methods"
        )
    return f"{start}: its test {metric.noun} of {_value(result)} is {', and '.join(parts)}."


def _with_skill(best: Result, skill: Skill | None) -> str:
    """A sentence on what the best method has over no skill, where that is clear."""
    if skill is None:
        return ""
    metric = get_metric(best.metric)
    return (
        f" {called(best, starts=True)} clearly beats {skill.name} "
        f"({measured(skill.value, best.metric)}), by {metric.size(skill.gain)}."
    )


def _sure(one: Gain, result: Result) -> str:
    """Whether a difference is clear, in brackets."""
    return " (clear)" if one.clear else f" (may be chance{_because(one, result)})"


def _because(one: Gain, result: Result) -> str:
    """Why a difference that is not clear is not."""
    if few_records(result):
        return f": {count(test_records(result) or 0, 'test record')}"
    if math.isnan(one.error):
        return f": {count(len(result.test['per_seed']), 'seed')}"
    return ""


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
