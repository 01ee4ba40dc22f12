"""The part of a report about all metrics of a run, and how each of them may be seen."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.base.text import percent, shown
from silodp.models.metrics import Metric, get_metric
from silodp.report import tables
from silodp.report.html import Html, joined, tag
from silodp.report.numbers import measured, plus_minus
from silodp.report.tables import Cell
from silodp.report.verdict import no_skill_name
from silodp.results.result import Result


def measured_part(result: Result) -> Html:
    """A table of metrics, beside no skill; and sentences on who may see them."""
    if not result.metrics:
        words = "The result holds one metric alone, and no prediction without features beside it."
        return tag("p", words, class_="note")
    columns = ["metric", "value", "95 %", no_skill_name(result), "who may see it"]
    rows = [_row(entry) for entry in result.metrics]
    caption = (
        "Test metrics, means over silos by their test records, ± standard deviation over seeds"
    )
    words = (
        "95 %: where the value may lie for other test records of the same kind (Wilson for shares, "
        f"else resampled within silos). {_capital(no_skill_name(result))}: the best that can be "
        "said without looking at a record, from each silo's training labels, on the same test "
        "records."
    )
    return joined(tables.table(caption, columns, rows), tag("p", words, class_="note"))


def _row(entry: Mapping[str, Any]) -> list[Any]:
    metric, test, none = get_metric(entry["metric"]), entry["test"], entry["no_skill"]
    better = f"{metric.short} ({metric.better} is better)"
    if test["mean"] is None:
        without = Cell("", math.nan)
        return [better, Cell("none", math.nan), without, without, release_words(entry, metric)]
    ends = test["interval"]
    return [
        better,
        Cell(plus_minus(test["mean"], test["std"], metric.name), test["mean"]),
        Cell(interval_of(entry), ends[0] if ends else math.nan),
        Cell("", math.nan)
        if none is None or none["mean"] is None
        else Cell(measured(none["mean"], metric.name), none["mean"]),
        release_words(entry, metric),
    ]


def release_words(entry: Mapping[str, Any], metric: Metric) -> str:
    """Who may see a metric, and what it cost or would cost."""
    if entry["release"] == "none":
        return "not released: only the first metric was paid for"
    private, noisy = entry["private"], entry["release"] == "noisy"
    start = "exact: stays in the silo"
    if noisy:
        start = f"noisy: it took {percent(entry['share'])} of epsilon"
    if private is None:
        return start
    if private["noise"] is None:
        return f"{start}; cannot be had privately: {private['reason']}"
    noise, records = noise_text(private, metric), f"{private['test_records']:,} test records"
    price = "" if noisy else f" for {percent(private['share'])} of epsilon"
    if not private["useful"]:
        return f"{start}; cannot be had privately at {records}: noise of ± {noise}{price}"
    if noisy:
        return f"{start}, noise of ± {noise} on {records}"
    return f"{start}; can be had privately, with noise of ± {noise} on {records}{price}"


def silos_with_noise(entry: Mapping[str, Any], metric: Metric) -> str:
    """In which silos noise hides the metric, where that differs; else nothing."""
    own = [(silo["silo"], silo.get("private")) for silo in entry["per_silo"]]
    known = [(name, private) for name, private in own if private is not None]
    hidden = [(name, private) for name, private in known if not private["useful"]]
    if not hidden or len(hidden) == len(known):
        return ""
    named = [
        f"{shown(name)} (± {noise_text(private, metric)} at {private['test_records']:,} records)"
        for name, private in hidden[:_MOST_NAMED]
    ]
    more = len(hidden) - len(named)
    named += [f"and {more:,} more"] if more else []
    return f"It cannot be had privately in {', '.join(named)}."


_MOST_NAMED = 5


def noise_text(private: Mapping[str, Any], metric: Metric) -> str:
    """The standard deviation of noise, as people read it."""
    return metric.text(private["noise"]) if metric.by_ratio else metric.size(private["noise"])


def interval_of(entry: Mapping[str, Any]) -> str:
    """The interval over silos of an entry of `metrics`; none where there is no exact value."""
    if entry["release"] != "exact" or entry["test"]["mean"] is None:
        return ""
    return interval_text(entry["test"]["interval"], entry["metric"])


def interval_text(ends: Sequence[float] | None, metric: str) -> str:
    """An interval as people read it."""
    if ends is None:
        return "too few records"
    return f"{measured(ends[0], metric)} to {measured(ends[1], metric)}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
