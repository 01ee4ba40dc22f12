"""The part of a report about many settings: privacy against utility, the best by budget."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from silodp.base.text import count, shown
from silodp.figures.looks import curve_name, in_order, look_of
from silodp.models.metrics import get_metric
from silodp.report import charts, tables
from silodp.report.drawing import Line, Point, name_of
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import Run, SweepTable, data_of
from silodp.report.numbers import budget, measured, one_budget, plus_minus
from silodp.report.tables import Cell, folded

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 2000


class Settings:
    """Settings of one data set and metric, as rows of means over seeds, the best first."""

    def __init__(self, data: str, metric: str, rows: list[dict[str, Any]], options: list[str]):
        self.data, self.metric, self.options = data, metric, options
        self.rows = sorted(rows, key=self._key)

    def _key(self, row: Mapping[str, Any]) -> float:
        mean = row["mean"]
        if math.isnan(mean):
            return math.inf
        return get_metric(self.metric).loss_like(mean)

    def best(self) -> dict[tuple[str, float], dict[str, Any]]:
        """The best row of each curve at each budget."""
        best_rows: dict[tuple[str, float], dict[str, Any]] = {}
        for row in self.rows:  # the best first
            if not math.isnan(row["mean"]):
                best_rows.setdefault((row["curve"], row["epsilon"]), row)
        return best_rows


def sweep_section(sweep: SweepTable, number: int) -> Html:
    """The section about a sweep, data set by data set."""
    from silodp.sweeps.best import TUNING_NOTE

    title = f"Sweep {shown(sweep.folder.name)}"
    groups = settings_of_table(sweep.table, sweep.folder.name)
    note = tag("p", f"{TUNING_NOTE[:1].upper()}{TUNING_NOTE[1:]}.", class_="warning", role="note")
    return tag(
        "section",
        tag("h2", title, id=f"sweep-{number}"),
        note,
        [_group(group, number, place) for place, group in enumerate(groups)],
        aria_labelledby=f"sweep-{number}",
    )


def runs_section(runs: Sequence[Run]) -> Html:
    """The section that compares several runs."""
    groups = settings_of_runs(runs)
    return tag(
        "section",
        tag("h2", "All runs beside each other", id="runs"),
        [_group(group, "runs", place) for place, group in enumerate(groups)],
        aria_labelledby="runs",
    )


def settings_of_table(table: "pd.DataFrame", name: str) -> list[Settings]:
    """The settings in a sweep's table at their last round, by data set and metric."""
    from silodp.sweeps.settings import at_last_round, options_of, over_seeds

    options = [name for name in options_of(table) if len(set(table[name].astype(str))) > 1]
    settings = over_seeds(at_last_round(table))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in settings.to_dict("records"):
        row = {str(key): value for key, value in row.items()}
        data = str(row.get("data") or name)
        row["curve"] = curve_name(row["method"], _number(row.get("select_fraction")))
        row["epsilon"] = _budget_of(row)
        row["proven"] = bool(row["proven"])
        groups.setdefault((data, row["metric"]), []).append(row)
    hidden = ("data", "method", "epsilon")
    shown_options = [option for option in options if option not in hidden]
    return [Settings(d, m, rows, shown_options) for (d, m), rows in groups.items()]


def _budget_of(row: Mapping[str, Any]) -> float:
    """The requested epsilon; with policies, the largest that a silo spent."""
    requested = _number(row.get("epsilon"))
    return float(row["epsilon_spent"]) if math.isnan(requested) else requested


def _number(value: Any) -> float:
    """A value as float; NaN if it is no number, or an integer too large for a float."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


def settings_of_runs(runs: Sequence[Run]) -> list[Settings]:
    """Settings made of runs, one per run, by data and metric."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        result = run.result
        seeds = len(result.test["per_seed"])
        requested = _number(result.options.get("epsilon"))
        row = {
            "run": run.folder.name,
            "method": result.method,
            "curve": curve_name(result.method, _number(result.options.get("select_fraction"))),
            "epsilon": requested if requested > 0 else max(result.epsilons),
            "mixed": len({f"{epsilon:.2g}" for epsilon in result.epsilons}) > 1,
            "mean": result.mean,
            "std": result.std,
            "seeds": seeds,
            "standard_error": result.std / math.sqrt(seeds),
            "proven": result.proven,
            **{name: result.options.get(name) for name in ("lam", "lr", "rounds")},
        }
        rows = groups.setdefault((data_of(result), result.data, result.metric), [])
        # Calibrated to one budget, runs end a little below it, each elsewhere: it is one budget.
        alike = [one["epsilon"] for one in rows if one_budget([one["epsilon"], row["epsilon"]])]
        rows.append(row | {"epsilon": alike[0]} if alike else row)
    return [
        Settings(data, metric, rows, ["run", "lam", "lr", "rounds"])
        for (_, data, metric), rows in groups.items()
    ]


def _group(group: Settings, section: int | str, place: int) -> Html:
    best = group.best()
    if not best:
        return tag("p", f"{shown(group.data)}: every setting diverged. Lower the learning rates.")
    curves = in_order(curve for curve, _ in best)
    budgets = sorted({epsilon for _, epsilon in best})
    chart = None
    if len(budgets) > 1 and budgets[0] > 0:  # a log axis has no place for 0
        lines = [_line(group, curve, best) for curve in curves]
        title = f"{shown(group.data)}: privacy against utility, the best setting of each method"
        chart = charts.tradeoff_chart(title, lines, group.metric, _alt(group, budgets, best))
    lost = len([row for row in group.rows if math.isnan(row["mean"])])
    facts = [count(len(group.rows), "setting"), count(len(budgets), "budget")]
    if any(row.get("mixed") for row in group.rows):
        facts.append("where silos have budgets of their own, the largest is shown")
    facts += [f"{lost:,} of them diverged and have no mean"] if lost else []
    return joined(
        tag("h3", f"{shown(group.data)}: {_winner(group, budgets, best)}"),
        tag("p", f"{'; '.join(facts)}."),
        chart,
        _best_table(group, budgets, curves, best),
        _all_table(group, f"{section}-{place}"),
    )


def _line(group: Settings, curve: str, best: Mapping[tuple[str, float], Mapping[str, Any]]) -> Line:
    points = []
    for (name, epsilon), row in sorted(best.items(), key=lambda item: item[0][1]):
        if name == curve:
            label = f"{name_of(look_of(curve))}, {_at(epsilon)}: {_value(row, group.metric)}"
            points.append(Point(epsilon, row["mean"], _known(row["std"]), _error(row), label))
    return Line(look_of(curve), points)


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else float(value)


def _error(row: Mapping[str, Any]) -> float:
    return _known(row["standard_error"])


def _at(epsilon: float) -> str:
    return charts.NO_PRIVACY if math.isinf(epsilon) else f"epsilon {budget(epsilon)}"


def _value(row: Mapping[str, Any], metric: str) -> str:
    return plus_minus(row["mean"], _known(row["std"]), metric)


def _winner(group: Settings, budgets: Sequence[float], best) -> str:
    """Says which method is ahead, in a few words."""
    ahead = [_best_at(epsilon, best, group.metric)[0] for epsilon in budgets]
    if all(_level(epsilon, best) for epsilon in budgets):
        return "no method is ahead"
    most = max(dict.fromkeys(ahead), key=ahead.count)
    name = name_of(look_of(most))
    if len(budgets) == 1:
        return f"{name} is ahead"
    if ahead.count(most) == len(budgets):
        return f"{name} is ahead at every budget"
    return f"{name} is ahead at {ahead.count(most)} of {len(budgets)} budgets"


def _level(epsilon: float, best) -> bool:
    """Whether several methods have the same metric there, all of them."""
    means = [row["mean"] for (_, at), row in best.items() if at == epsilon]
    return len(means) > 1 and len(set(means)) == 1


def _best_at(epsilon: float, best, metric: str) -> tuple[str, Mapping[str, Any]]:
    here = [(curve, row) for (curve, at), row in best.items() if at == epsilon]
    return min(here, key=lambda pair: get_metric(metric).loss_like(pair[1]["mean"]))


def _alt(group: Settings, budgets: Sequence[float], best) -> str:
    winners = []
    for epsilon in budgets:
        curve, row = _best_at(epsilon, best, group.metric)
        value = measured(row["mean"], group.metric)
        winners.append(f"at {_at(epsilon)} {name_of(look_of(curve))} with {value}")
    return f"Test metric over privacy budgets. Best: {'; '.join(winners)}."


def _best_table(group: Settings, budgets: Sequence[float], curves: Sequence[str], best) -> Html:
    rows = []
    for epsilon in budgets:
        ahead, _ = _best_at(epsilon, best, group.metric)
        row: list[Any] = [Cell(budget(epsilon), epsilon), name_of(look_of(ahead))]
        for curve in curves:
            row_of_curve = best.get((curve, epsilon))
            if row_of_curve is None:
                row.append(Cell("", math.nan))
                continue
            text = _value(row_of_curve, group.metric)
            row.append(Cell(tag("strong", text) if curve == ahead else text, row_of_curve["mean"]))
        rows.append(row)
    columns = ["epsilon", "best", *(name_of(look_of(curve)) for curve in curves)]
    caption = "The best setting of each method at each budget (± standard deviation over seeds)"
    return tables.table(caption, columns, rows)


def _all_table(group: Settings, name: str) -> Html:
    columns = ["method", "epsilon", *group.options, "mean", "± std", "seeds", "proven"]
    rows = []
    for row in group.rows[:MOST_ROWS]:
        mean = row["mean"]
        rows.append(
            [
                row["curve"],
                Cell(budget(row["epsilon"]), row["epsilon"]),
                *(_option(row.get(option)) for option in group.options),
                Cell("diverged" if math.isnan(mean) else measured(mean, group.metric), mean),
                Cell(f"{_known(row['std']):.2g}" if row["seeds"] > 1 else "", _known(row["std"])),
                Cell(str(row["seeds"]), float(row["seeds"])),
                "yes" if row["proven"] else "no",
            ]
        )
    cut = ""
    if len(group.rows) > MOST_ROWS:
        cut = f" (the best {MOST_ROWS:,} of {len(group.rows):,}; results.csv has all)"
    title = f"All settings, the best first{cut}"
    return folded(title, tables.table(title, columns, rows))


def _option(value: Any) -> Cell | str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int | float):
        number = _number(value)
        return Cell("" if math.isnan(number) else f"{number:g}", number)
    return str(value)
