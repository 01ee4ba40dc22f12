"""What a run cost each silo, and what that promise is worth."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.baselines import SEEN_TOGETHER
from silodp.names import shown
from silodp.report import answer, charts, meaning, tables
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import Run
from silodp.report.numbers import (
    budget,
    count,
    small,
)
from silodp.report.tables import Cell, folded
from silodp.result import Result


def privacy_part(run: Run, left: Mapping[str, Mapping[str, Any]]) -> Html:
    """What was spent, what that means, and what it takes for granted."""
    result = run.result
    budgets = [p for p in result.privacy if math.isfinite(p["epsilon"])]
    parts: list[Html | None] = [_budgets(result, left)]
    if not budgets:
        return joined(parts, meaning.explained(math.inf, 1.0, "record", "add-remove"))
    if reasons := answer.unproven_reasons(result):
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
