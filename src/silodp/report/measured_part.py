"""The part of a report about all metrics of a run, and how each of them may be seen."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.base.text import percent
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
        Cell(interval_text(ends, metric.name), ends[0] if ends else math.nan),
        Cell("", math.nan)
        if none is None or none["mean"] is None
        else Cell(measured(none["mean"], metric.name), none["mean"]),
        release_words(entry, metric),
    ]


def release_words(entry: Mapping[str, Any], metric: Metric) -> str:
    """Who may see a metric, and what it cost or would cost."""
    if entry["release"] == "noisy":
        return f"noisy: it took {percent(entry['share'])} of epsilon"
    if entry["release"] == "none":
        return "not released: only the first metric was paid for"
    start = "exact: stays in the silo"
    private = entry["private"]
    if private is None:
        return f"{start}; cannot be had privately"
    noise = private["noise"]
    size = metric.text(noise) if metric.by_ratio else metric.size(noise)
    price = (
        f"for {percent(private['share'])} of epsilon, noise of ± {size} "
        f"on {private['test_records']:,} test records"
    )
    if not private["useful"]:
        return f"{start}; cannot be had privately at this size ({price})"
    return f"{start}; can be had privately ({price})"


def interval_text(ends: Sequence[float] | None, metric: str) -> str:
    """An interval as people read it."""
    if ends is None:
        return "too few records"
    return f"{measured(ends[0], metric)} to {measured(ends[1], metric)}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
