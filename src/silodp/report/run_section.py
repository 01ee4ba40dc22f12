"""The part of a report about one run."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from silodp.baselines import BASELINES, SEEN_TOGETHER
from silodp.figures.looks import Look, look_of
from silodp.names import shown
from silodp.options import RunOptions
from silodp.privacy.plan import NOT_PRIVATE
from silodp.report import answer, charts, meaning, tables
from silodp.report.answer import WHAT, method_name
from silodp.report.drawing import Line, Point, colour_of
from silodp.report.gains import Gain, gains_by_silo, overall
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import Run
from silodp.report.numbers import (
    MINUS,
    budget,
    count,
    duration,
    measured,
    percent,
    plus_minus,
    small,
)
from silodp.report.relations import relations_of
from silodp.report.tables import Cell, folded
from silodp.result import AT_SITES, Result

_ENDS = tag(
    "p",
    "Local training: each silo alone, with its own records. FedAvg: one model for all silos.",
    class_="note",
)


def run_section(run: Run, number: int, left: Mapping[str, Mapping[str, Any]]) -> Html:
    """All about one run.

    Args:
      run: and its baselines.
      number: of the section, for addresses within the page.
      left: by silo, what its ledger says (`spending.remaining`), where it is known.
    """
    result = run.result
    return tag(
        "section",
        tag("h2", name_of_run(run), id=f"run-{number}"),
        tag("p", answer.headline(run), class_="headline"),
        _tiles(run),
        tag("ul", [tag("li", said) for said in answer.sentences(run)]),
        _warnings(run),
        tag("h3", "Each silo"),
        _by_silo(run),
        tag("h3", "While it was trained"),
        _history(run),
        tag("h3", "Privacy"),
        _privacy(run, left),
        relations_of(run),
        tag("h3", "How to get this again"),
        _settings(result),
        aria_labelledby=f"run-{number}",
    )


def name_of_run(run: Run) -> str:
    """Told apart from others of the same data and method."""
    result = run.result
    finite = [epsilon for epsilon in result.epsilons if math.isfinite(epsilon)]
    budgets = answer.epsilon_range(finite).split(",")[0] if finite else "no privacy"
    return f"{shown(result.data)}, {method_name(result)}, {budgets}"


def _tiles(run: Run) -> Html:
    result = run.result
    what = "test error" if result.metric == "mse" else "test accuracy"
    tiles = [
        _tile(
            what, measured(result.mean, result.metric), f"{_seeds(result)}, {method_name(result)}"
        )
    ]
    for method in BASELINES:
        if method in run.baselines:
            found = overall(result, run.baselines[method])
            tiles.append(_tile(f"against {WHAT[method]}", *_gain_words(found, result)))
    finite = [epsilon for epsilon in result.epsilons if math.isfinite(epsilon)]
    if finite:
        low, high = budget(min(finite)), budget(max(finite))
        said = low if low == high else f"{low} to {high}"
        tiles.append(_tile("epsilon", said, _proven(result)))
    else:
        tiles.append(_tile("epsilon", "none", "not private"))
    return tag("div", tiles, class_="tiles")


def _tile(name: str, value: str, note: str) -> Html:
    return tag(
        "div",
        tag("div", name, class_="name"),
        tag("div", value, class_="value"),
        tag("div", note, class_="note"),
        class_="tile",
    )


def _gain_words(found: Gain, result: Result) -> tuple[str, str]:
    sign = MINUS if (found.mean > 0) == (result.metric == "mse") else "+"
    size = abs(found.mean)
    value = f"{sign}{percent(size)}" if result.metric == "mse" else f"{sign}{100 * size:.1f} points"
    way = "better" if found.mean > 0 else "worse"
    if math.isnan(found.error):
        return value, f"{way}, but too few seeds to tell"
    return value, f"clearly {way}" if found.clear else f"{way}, but perhaps by chance"


def _seeds(result: Result) -> str:
    return f"mean over {count(len(result.test['per_seed']), 'seed')}"


def _proven(result: Result) -> str:
    return "NOT proven, see below" if _reasons(result) else "proven"


def _reasons(result: Result) -> list[str]:
    """Why epsilon is not proven, of silos that have one."""
    if all(math.isinf(epsilon) for epsilon in result.epsilons):
        return []
    return [reason for reason in result.unproven if reason != NOT_PRIVATE]


def _warnings(run: Run) -> Html | None:
    result = run.result
    told = [f"Epsilon is not proven: {reason.rstrip('.')}." for reason in _reasons(result)]
    told += [f"{warning.rstrip('.')}." for warning in result.warnings]
    if missing := answer.missing_baselines(run):
        told.append(missing)
    if result.tuning is not None:
        told.append(
            "Hyperparameters were tuned, and the tuning is part of epsilon: see the settings below."
        )
    if not told:
        return None
    items = tag("ul", [tag("li", said) for said in told])
    return tag("div", tag("strong", "Mind this"), items, class_="warning", role="note")


# Each silo


def _by_silo(run: Run) -> Html:
    result = run.result
    others = [(m, run.baselines[m]) for m in BASELINES if m in run.baselines]
    gains = {method: gains_by_silo(result, other) for method, other in others}
    drawn: list[Html] = []
    if len(result.per_silo) <= charts.MOST_ROWS:
        drawn.append(_dots(run, others, gains))
    else:
        for method, _ in others:
            drawn.append(_sorted(result, method, gains[method]))
    if not others and len(result.per_silo) > charts.MOST_ROWS:
        bars = [
            charts.Bar(s["silo"], [(colour_of(_look(result)), s["mean"])], _silo_words(s, result))
            for s in sorted(result.per_silo, key=lambda s: s["mean"])
        ]
        said = charts.METRIC_NAMES[result.metric].split(":")[-1].strip()
        drawn.append(charts.bars_chart("Each silo's test metric", bars, said, _alt_silos(run)))
    listed = _silo_table(run, others, gains)
    if len(result.per_silo) > charts.MOST_ROWS:
        listed = folded(f"All {len(result.per_silo):,} silos as a table", listed)
    return joined(drawn, listed)


def _look(result: Result) -> Look:
    return look_of(result.method)


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
            charts.Dot(
                _look(one), one.per_silo[place]["mean"], _silo_words(one.per_silo[place], one)
            )
            for one in shown_results
        ]
        rows.append((result.per_silo[place]["silo"], dots))
    sorted_by = f", the largest gain over {WHAT[others[0][0]]} first" if others else ""
    title = f"Each silo's test metric{sorted_by}"
    drawn = charts.rows_of_dots(title, rows, result.metric, _alt_silos(run))
    return joined(drawn, _ENDS if others else None)


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
    return charts.sorted_gains(title, told, result.metric, alt)


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
    caption = (
        f"Each silo's test metric ({_seeds(result)}, ± standard deviation over seeds); a gain is "
        "a smaller error"
        if result.metric == "mse"
        else f"Each silo's test accuracy ({_seeds(result)}, ± standard deviation over seeds)"
    )
    return tables.table(caption, columns, rows)


# Rounds


def _history(run: Run) -> Html:
    results = [*(run.baselines[m] for m in BASELINES if m in run.baselines), run.result]
    lines = [history_line(one) for one in results]
    lines = [line for line in lines if line.points]
    if not lines:
        return tag("p", "The result holds no test metric by round.")
    last = run.result.history[-1] if run.result.history else None
    alt = "Test metric against rounds"
    if last is not None:
        alt += f"; {method_name(run.result)} ends at {measured(last['mean'], run.result.metric)}"
    title = "Test metric against rounds"
    if all(len(line.points) == 1 for line in lines):
        return tag("p", f"The test metric was worked out once: {lines[-1].points[0].label}.")
    return charts.lines_chart(title, lines, run.result.metric, "round", alt)


def history_line(result: Result) -> Line:
    """The metric over rounds."""
    points = []
    for at in result.history:
        error = at["std"] / math.sqrt(len(at["per_seed"])) if at["per_seed"] else 0.0
        value = plus_minus(at["mean"], at["std"], result.metric)
        label = f"{method_name(result)}, round {at['round']:g}: {value}"
        points.append(Point(at["round"], at["mean"], at["std"], error, label))
    return Line(_look(result), points, marked=len(points) <= 12)


# Privacy


def _privacy(run: Run, left: Mapping[str, Mapping[str, Any]]) -> Html:
    result = run.result
    budgets = [p for p in result.privacy if math.isfinite(p["epsilon"])]
    parts: list[Html | None] = [_budgets(result, left)]
    if not budgets:
        return joined(parts, meaning.explained(math.inf, 1.0, "record", "add-remove"))
    if reasons := _reasons(result):
        told = (
            "What follows would hold if epsilon were proven for what the run did. It is not, for "
            f"{count(len(reasons), 'reason')} told at the top."
        )
        parts.append(tag("p", tag("strong", told)))
    weakest = max(budgets, key=lambda p: p["epsilon"])
    strictest = min(budgets, key=lambda p: p["epsilon"])
    parts.append(tag("h4", f"What this means for {_silo_of(weakest, budgets, 'largest')}"))
    parts.append(_explained(weakest))
    if budget(strictest["epsilon"]) != budget(weakest["epsilon"]):
        said = f"For {_silo_of(strictest, budgets, 'strictest')}"
        parts.append(folded(said, _explained(strictest)))
    epsilons = [p["epsilon"] for p in budgets]
    parts.append(meaning.guessing_chart(epsilons, max(p["delta"] for p in budgets)))
    if result.person is not None:
        parts.append(tag("p", _person(result.person)))
    taken_for_granted = [*result.assumptions, *([SEEN_TOGETHER] if run.baselines else [])]
    if taken_for_granted:
        taken = tag(
            "ul", [tag("li", f"{said[:1].upper()}{said[1:]}.") for said in taken_for_granted]
        )
        parts.append(tag("h4", "What the promise takes for granted"))
        parts.append(taken)
    return joined(parts)


def _explained(privacy: Mapping[str, Any]) -> Html:
    return meaning.explained(
        privacy["epsilon"], privacy["delta"], privacy["unit"], privacy["relation"]
    )


def _silo_of(privacy: Mapping[str, Any], budgets: Sequence[Mapping[str, Any]], which: str) -> str:
    same = sum(budget(p["epsilon"]) == budget(privacy["epsilon"]) for p in budgets)
    if same == len(budgets):
        return "each silo" if same > 1 else f"silo {shown(privacy['silo'])}"
    if same > 1:
        return f"the {same} silos with the {which} budget"
    return f"silo {shown(privacy['silo'])}, which has the {which} budget"


def _person(person: Mapping[str, Any]) -> str:
    who = f"Somebody who is in up to {person['silos']} silos"
    if not math.isfinite(person["epsilon"]):
        return f"{who} has no guarantee, because not every silo is private."
    return f"{who} has epsilon {person['epsilon']:.4g} at delta {small(person['delta'])} over all."


def _budgets(result: Result, left: Mapping[str, Mapping[str, Any]]) -> Html | None:
    if not any(math.isfinite(epsilon) for epsilon in result.epsilons):
        return None
    counted = [left[p["silo"]] for p in result.privacy if p["silo"] in left]
    if counted:
        return lifetime_bars(counted)
    bars = []
    silos = list(result.privacy)
    if len(silos) > charts.MOST_ROWS:
        silos.sort(key=lambda p: p["epsilon"])
    for p in silos:
        finite = math.isfinite(p["epsilon"])
        said = f"epsilon {budget(p['epsilon'])}, delta {small(p['delta'])}" if finite else "none"
        parts = [("c-blue", p["epsilon"] if finite else 0.0)]
        bars.append(charts.Bar(p["silo"], parts, f"{shown(p['silo'])}: {said}"))
    return joined(
        charts.bars_chart(
            "What each silo spent in this run",
            bars,
            "epsilon",
            f"Budgets of {len(bars)} silos: {answer.epsilon_range(result.epsilons)}",
        ),
        tag(
            "p",
            "No ledger was given: what earlier runs spent on the same records is not in these "
            "bars. With --ledger, runs are charged to each silo's ledger, and this report shows "
            "what is left.",
            class_="note",
        ),
    )


def lifetime_bars(counted: Sequence[Mapping[str, Any]]) -> Html:
    """By ledger: what was spent, and what is left of the lifetime allowance."""
    bars, allowed = [], []
    for told in counted:
        lifetime, spent = told["lifetime_epsilon"], told["spent_epsilon"]
        if lifetime is None:
            continue
        rest = max(lifetime - spent, 0.0)
        more = f"room for one more run of epsilon {budget(told['remaining_epsilon'])}"
        label = f"{shown(told['silo'])}: spent {budget(spent)} of {budget(lifetime)}; {more}"
        allowed.append(lifetime)
        bars.append(
            charts.Bar(
                told["silo"],
                [("c-blue", min(spent, lifetime)), ("c-rest", rest)],
                label,
            )
        )
    if not bars:
        return tag("p", "No lifetime allowance was set in any ledger yet.")
    alt = f"Of {len(bars)} silos: what was spent of the lifetime allowance"
    rows = [
        [
            told["silo"],
            Cell(budget(told["spent_epsilon"]), told["spent_epsilon"]),
            Cell(budget(told["lifetime_epsilon"]), told["lifetime_epsilon"]),
            Cell(budget(told["remaining_epsilon"]), told["remaining_epsilon"]),
            Cell(str(told["runs"]), told["runs"]),
        ]
        for told in counted
        if told["lifetime_epsilon"] is not None
    ]
    columns = ["silo", "spent", "lifetime", "left for one more run", "runs"]
    listed = tables.table("Budgets by ledger (epsilon)", columns, rows)
    return joined(
        charts.bars_chart(
            "What each silo has spent of its lifetime allowance",
            bars,
            "epsilon",
            alt,
            legend=[("c-blue", "spent"), ("c-rest", "not spent")],
            largest=max(allowed),
        ),
        tag(
            "p",
            "What is left for one more run is more than lifetime less spent: costs compose, they "
            "do not add up.",
            class_="note",
        ),
        folded("The same as a table", listed),
    )


# Settings


def _settings(result: Result) -> Html:
    rows = [(name, _plain(value)) for name, value in sorted(result.options.items())]
    versions = [(name, str(value)) for name, value in result.versions.items()]
    seconds = [
        (name, duration(float(value)))
        for name, value in result.seconds.items()
        if isinstance(value, int | float)
    ]
    parts = [
        *_again(result),
        folded("All settings", tables.pairs(rows)),
        folded("Versions", tables.pairs(versions)),
        folded("What took how long", tables.pairs(seconds)),
    ]
    if result.tuning is not None:
        tuned = [(name, _plain(value)) for name, value in result.tuning.items()]
        parts.append(folded("What was tuned", tables.pairs(tuned)))
    return joined(parts)


def _again(result: Result) -> list[Html]:
    """How to ask for it again; what has secret noise comes out otherwise each time."""
    if result.options.get("engine") == AT_SITES:
        said = (
            "Trained across sites: the coordinator asks for it again with silodp federation submit."
        )
        return [tag("p", said)]
    said = "The command that gives this result again:"
    if result.options.get("entropy") == "os":
        said = (
            "The command that asks for the same again. Its noise is drawn anew, so that numbers "
            "will differ, and it costs its epsilon again:"
        )
    return [tag("p", said), _command(command_of(result))]


def _command(command: str) -> Html:
    copy = tag("button", "Copy", type="button", class_="copy")
    return tag("div", tag("pre", tag("code", command), tabindex=0), copy, class_="command")


def command_of(result: Result) -> str:
    """The run as one would ask for it: what is not a default."""
    defaults = {
        option.name: option.default
        for option in fields(RunOptions)
        if option.default is not MISSING
    }
    given = []
    for name, value in result.options.items():
        if name in ("data", "method") or value is None or value == defaults.get(name):
            continue
        if isinstance(value, Mapping):  # of silos or of a method: a file, or name=number
            said = ",".join(f"{key}={number}" for key, number in value.items())
            given.append(("silo-lam", "FILE") if name == "silo_lam" else (name, said))
        elif value is True:
            given.append((name, None))
        else:
            given.append((name, str(value)))
    command = "tune" if result.tuning is not None else "run"
    words = ["silodp", command, "--data", result.options.get("data") or result.data]
    words += ["--method", result.method]
    for name, value in given:
        words += [f"--{name.replace('_', '-')}", *([] if value is None else [value])]
    return " ".join(shlex.quote(str(word)) for word in words)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else str(value)
