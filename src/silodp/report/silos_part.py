"""The part of a report about each silo, against local training and FedAvg."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.base.text import shown
from silodp.models.metrics import get_metric
from silodp.report import answer, silo_charts, tables
from silodp.report.answer import WHAT
from silodp.report.drawing import colour_of
from silodp.report.gains import Gain, gains_by_silo
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import Run
from silodp.report.measured_part import interval_text, noise_text, silos_with_noise
from silodp.report.numbers import (
    MINUS,
    budget,
    measured,
    one_budget,
    plus_minus,
)
from silodp.report.tables import Cell, folded
from silodp.report.verdict import first_entry, method_name, no_skill_name, verdict
from silodp.results.result import Result
from silodp.runs.baselines import BASELINES


def silos_part(run: Run) -> Html:
    """Charts and lists each silo against local training and FedAvg."""
    result = run.result
    others = [(m, run.baselines[m]) for m in BASELINES if m in run.baselines]
    gains = {method: gains_by_silo(result, other) for method, other in others}
    drawn: list[Html] = []
    if len(result.per_silo) <= silo_charts.MOST_ROWS:
        drawn += _dots(run, others, gains)
    else:
        for method, _ in others:
            drawn += _sorted(result, method, gains[method])
    if not others and len(result.per_silo) > silo_charts.MOST_ROWS:
        bars = [
            silo_charts.Bar(
                s["silo"], [(colour_of(answer.look(result)), s["mean"])], _silo_words(s, result)
            )
            for s in sorted(_measured(result), key=lambda s: s["mean"])
        ]
        label = get_metric(result.metric).brief
        if bars:
            title = "Each silo's test metric"
            drawn.append(silo_charts.bars_chart(title, bars, label, _alt_silos(run)))
    listed = _silo_table(run, others, gains)
    if len(result.per_silo) > silo_charts.MOST_ROWS:
        listed = folded(f"All {len(result.per_silo):,} silos as a table", listed)
    return joined(drawn, _ends(run), listed)


def _ends(run: Run) -> Html | None:
    """Says what silos are compared with, and where that comes from."""
    if not run.baselines:
        return None
    what = {"local": "each silo alone, with its own records", "fedavg": "one model for all silos"}
    sentences = [
        f"{WHAT[m][:1].upper()}{WHAT[m][1:]}: {what[m]} (from {shown(str(run.sources[m]), 80)})."
        for m in BASELINES
        if m in run.baselines
    ]
    return tag("p", " ".join(sentences), class_="note")


def _measured(result: Result) -> list[dict[str, Any]]:
    """Entries of the silos that have the metric."""
    return [silo for silo in result.per_silo if silo["mean"] is not None]


def _dots(
    run: Run, others: Sequence[tuple[str, Result]], gains: Mapping[str, list[Gain]]
) -> list[Html]:
    result = run.result
    every = (result, *(other for _, other in others))
    places = [
        place
        for place in range(len(result.per_silo))
        if all(one.per_silo[place]["mean"] is not None for one in every)
    ]
    if not places:
        return []
    first = gains[others[0][0]] if others else None
    if first is not None:
        places.sort(key=lambda place: -first[place].mean)
    rows = []
    for place in places:
        shown_results = [*(other for _, other in others), result]
        dots = [
            silo_charts.Dot(
                answer.look(one), one.per_silo[place]["mean"], _silo_words(one.per_silo[place], one)
            )
            for one in shown_results
        ]
        rows.append((result.per_silo[place]["silo"], dots))
    sorted_by = f", the largest gain over {WHAT[others[0][0]]} first" if others else ""
    title = f"Each silo's test metric{sorted_by}"
    return [silo_charts.rows_of_dots(title, rows, result.metric, _alt_silos(run))]


def _alt_silos(run: Run) -> str:
    means = [silo["mean"] for silo in _measured(run.result)]
    metric = run.result.metric
    start = f"Test metric of each silo, from {measured(min(means), metric)} to "
    said = verdict(run.result, run.rivals).headline
    return f"{start}{measured(max(means), metric)}. {said} The table has the numbers."


def _silo_words(silo: Mapping[str, Any], result: Result) -> str:
    value = plus_minus(silo["mean"], silo["std"], result.metric)
    return f"{shown(silo['silo'])}, {method_name(result)}: {value}"


def _sorted(result: Result, method: str, gains: Sequence[Gain]) -> list[Html]:
    labelled = [
        (gain.mean, f"{shown(silo['silo'])}: {_gain_text(gain, result.metric)}")
        for silo, gain in zip(result.per_silo, gains, strict=True)
        if not math.isnan(gain.mean)
    ]
    if not labelled:
        return []
    better = sum(gain > 0 for gain, _ in labelled)
    title = f"Gain of each silo over {WHAT[method]}"
    alt = f"{title}: {better} of {len(labelled)} silos gain. The table below has the numbers."
    return [silo_charts.sorted_gains(title, labelled, result.metric, alt)]


def _gain_text(gain: Gain, metric: str) -> str:
    if math.isnan(gain.mean):
        return ""
    if gain.mean == 0:
        return "the same"
    words = f"{'+' if gain.mean > 0 else MINUS}{get_metric(metric).size(gain.mean)}"
    return words if math.isnan(gain.error) or not gain.clear else f"{words} (clear)"


def _metric_cell(silo: Mapping[str, Any], result: Result) -> Cell:
    if silo["mean"] is None:
        return Cell("none", math.nan)
    return Cell(plus_minus(silo["mean"], silo["std"], result.metric), silo["mean"])


def _counts_cell(records: int | None, tests: int | None) -> Cell:
    """Records for training and for testing, as far as they are public; a cell each is too many."""
    known = "secret" if records is None else f"{records:,}"
    text = known if tests is None else f"{known} + {tests:,}"
    return Cell(text, float(records or math.nan))


def _noise_cell(private: Mapping[str, Any] | None, result: Result) -> Cell:
    if private is None:
        return Cell("", math.nan)
    return Cell(f"± {noise_text(private, get_metric(result.metric))}", private["noise"])


def _silo_table(
    run: Run, others: Sequence[tuple[str, Result]], gains: Mapping[str, list[Gain]]
) -> Html:
    result = run.result
    budgets = [] if one_budget(result.epsilons) else ["epsilon"]  # the same says nothing here
    columns = ["silo", "records + tests", *budgets, method_name(result)]
    entry = first_entry(result)
    if entry is not None and entry["release"] == "exact":
        columns += ["95 %", no_skill_name(result)]
        beside = entry["per_silo"]
    else:
        beside = None
    noisy = entry["per_silo"] if entry is not None and entry["release"] == "noisy" else None
    if noisy is not None:
        columns.append("noise")
    for method, _ in others:
        columns += [WHAT[method], f"vs {WHAT[method]}"]
    rows = []
    for place, (silo, privacy) in enumerate(zip(result.per_silo, result.privacy, strict=True)):
        row: list[Any] = [
            silo["silo"],
            _counts_cell(silo["records"], silo["test_records"]),
            *([Cell(budget(privacy["epsilon"]), privacy["epsilon"])] if budgets else []),
            _metric_cell(silo, result),
        ]
        if beside is not None:
            none, ends = beside[place]["no_skill"], beside[place]["interval"]
            row.append(Cell(interval_text(ends, result.metric), ends[0] if ends else math.nan))
            text = "" if none is None else measured(none, result.metric)
            row.append(Cell(text, math.nan if none is None else none))
        if noisy is not None:
            row.append(_noise_cell(noisy[place].get("private"), result))
        for method, other in others:
            theirs, gain = other.per_silo[place], gains[method][place]
            row.append(_metric_cell(theirs, other))
            row.append(Cell(_gain_text(gain, result.metric), gain.mean))
        rows.append(row)
    metric = get_metric(result.metric)
    what = f"{metric.noun} (a gain is a smaller one)" if metric.better == "lower" else metric.noun
    caption = f"Each silo's test {what}: {answer.over_seeds(result)}, ± standard deviation"
    if beside is not None:
        caption += "; 95 %: the interval by its test records. All exact: at a site they stay there"
    listed = tables.table(caption, columns, rows)
    words = "" if entry is None else silos_with_noise(entry, metric)
    return joined(listed, tag("p", words, class_="note")) if words else listed
