"""Each silo of a run, against local training and FedAvg."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.base.text import shown
from silodp.report import answer, charts, silo_charts, tables
from silodp.report.answer import WHAT, method_name
from silodp.report.drawing import colour_of
from silodp.report.gains import Gain, gains_by_silo
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import Run
from silodp.report.numbers import (
    MINUS,
    budget,
    measured,
    percent,
    plus_minus,
)
from silodp.report.tables import Cell, folded
from silodp.results.result import Result
from silodp.runs.baselines import BASELINES


def silos_part(run: Run) -> Html:
    """Each silo against local training and FedAvg: a chart and a table."""
    result = run.result
    others = [(m, run.baselines[m]) for m in BASELINES if m in run.baselines]
    gains = {method: gains_by_silo(result, other) for method, other in others}
    drawn: list[Html] = []
    if len(result.per_silo) <= silo_charts.MOST_ROWS:
        drawn.append(_dots(run, others, gains))
    else:
        for method, _ in others:
            drawn.append(_sorted(result, method, gains[method]))
    if not others and len(result.per_silo) > silo_charts.MOST_ROWS:
        bars = [
            silo_charts.Bar(
                s["silo"], [(colour_of(answer.look(result)), s["mean"])], _silo_words(s, result)
            )
            for s in sorted(result.per_silo, key=lambda s: s["mean"])
        ]
        said = charts.METRIC_NAMES[result.metric].split(":")[-1].strip()
        drawn.append(silo_charts.bars_chart("Each silo's test metric", bars, said, _alt_silos(run)))
    listed = _silo_table(run, others, gains)
    if len(result.per_silo) > silo_charts.MOST_ROWS:
        listed = folded(f"All {len(result.per_silo):,} silos as a table", listed)
    return joined(drawn, _ends(run), listed)


def _ends(run: Run) -> Html | None:
    """What silos are measured against, and where that comes from."""
    if not run.baselines:
        return None
    what = {"local": "each silo alone, with its own records", "fedavg": "one model for all silos"}
    said = [
        f"{WHAT[m][:1].upper()}{WHAT[m][1:]}: {what[m]} (from {shown(str(run.sources[m]), 80)})."
        for m in BASELINES
        if m in run.baselines
    ]
    return tag("p", " ".join(said), class_="note")


def _dots(run: Run, others: Sequence[tuple[str, Result]], gains: Mapping[str, list[Gain]]) -> Html:
    result = run.result
    places = list(range(len(result.per_silo)))
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
    drawn = silo_charts.rows_of_dots(title, rows, result.metric, _alt_silos(run))
    return drawn


def _alt_silos(run: Run) -> str:
    means = [silo["mean"] for silo in run.result.per_silo]
    metric = run.result.metric
    said = f"Test metric of each silo, from {measured(min(means), metric)} to "
    return (
        f"{said}{measured(max(means), metric)}. {answer.headline(run)} The table has the numbers."
    )


def _silo_words(silo: Mapping[str, Any], result: Result) -> str:
    value = plus_minus(silo["mean"], silo["std"], result.metric)
    return f"{shown(silo['silo'])}, {method_name(result)}: {value}"


def _sorted(result: Result, method: str, gains: Sequence[Gain]) -> Html:
    told = [
        (found.mean, f"{shown(silo['silo'])}: {_gain_text(found, result.metric)}")
        for silo, found in zip(result.per_silo, gains, strict=True)
    ]
    better = sum(found.mean > 0 for found in gains)
    title = f"Gain of each silo over {WHAT[method]}"
    alt = f"{title}: {better} of {len(gains)} silos gain. The table below has the numbers."
    return silo_charts.sorted_gains(title, told, result.metric, alt)


def _gain_text(found: Gain, metric: str) -> str:
    sign = "+" if found.mean >= 0 else MINUS
    size = abs(found.mean)
    said = f"{sign}{percent(size)}" if metric == "mse" else f"{sign}{100 * size:.1f} points"
    return said if math.isnan(found.error) or not found.clear else f"{said} (clear)"


def _silo_table(
    run: Run, others: Sequence[tuple[str, Result]], gains: Mapping[str, list[Gain]]
) -> Html:
    result = run.result
    columns = ["silo", "records", "epsilon", method_name(result)]
    for method, _ in others:
        columns += [WHAT[method], f"vs {WHAT[method]}"]
    rows = []
    for place, (silo, privacy) in enumerate(zip(result.per_silo, result.privacy, strict=True)):
        records = silo["records"]
        row: list[Any] = [
            silo["silo"],
            Cell("secret" if records is None else f"{records:,}", float(records or math.nan)),
            Cell(budget(privacy["epsilon"]), privacy["epsilon"]),
            Cell(plus_minus(silo["mean"], silo["std"], result.metric), silo["mean"]),
        ]
        for method, other in others:
            theirs, found = other.per_silo[place], gains[method][place]
            row.append(
                Cell(plus_minus(theirs["mean"], theirs["std"], other.metric), theirs["mean"])
            )
            row.append(Cell(_gain_text(found, result.metric), found.mean))
        rows.append(row)
    what = "error (a gain is a smaller one)" if result.metric == "mse" else "accuracy"
    caption = f"Each silo's test {what}: {answer.over_seeds(result)}, ± standard deviation"
    return tables.table(caption, columns, rows)
