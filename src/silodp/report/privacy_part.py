"""The part of a report about what a run cost each silo, and what that promise is worth."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from silodp.base.text import count, percent, shown
from silodp.privacy.attacker import guessed_right
from silodp.privacy.person_words import person_in_words
from silodp.report import answer, meaning, silo_charts, tables
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import Run
from silodp.report.numbers import budget, one_budget, small
from silodp.report.tables import Cell, folded
from silodp.results.result import Result
from silodp.runs.baselines import seen_together

Left = Mapping[str, Mapping[str, Any]]
"""What each silo's ledger says (`account.remaining`), by silo."""


class Promise(NamedTuple):
    """A promise that some of the silos share."""

    epsilon: float
    delta: float
    unit: str
    relation: str

    @property
    def attack_success(self) -> float:
        """How often the best attack is right."""
        return 1.0 if math.isinf(self.epsilon) else guessed_right(self.epsilon, self.delta)


def privacy_part(run: Run, left: Left | None) -> Html:
    """Shows what was spent, what that means, and what it assumes."""
    result = run.result
    parts: list[Html | None] = [_budgets(result, left)]
    if doubt := _doubt(result):
        parts.append(tag("p", tag("strong", doubt)))
    promises = _promises(result)
    weakest, strictest = promises[0], promises[-1]
    heading = f"What this means for {_whom(promises, 0, result)}"
    parts += [tag("h4", heading), meaning.explained(*weakest[0])]
    if len(promises) > 1:
        summary = f"For {_whom(promises, len(promises) - 1, result)}"
        parts.append(folded(summary, meaning.explained(*strictest[0])))
    budgets = [promise for promise, _ in promises if math.isfinite(promise.epsilon)]
    if budgets:
        epsilons = [promise.epsilon for promise in budgets]
        parts.append(meaning.guessing_chart(epsilons, max(p.delta for p in budgets)))
    if result.person is not None:
        parts.append(tag("p", person_in_words(result.person, result.privacy[0]["unit"])))
    assumptions = list(result.assumptions)
    if run.baselines and budgets:
        assumptions.append(seen_together(list(run.baselines), result.experiment))
    if assumptions:
        items = [tag("li", f"{text[:1].upper()}{text[1:]}.") for text in assumptions]
        parts += [tag("h4", "What the promise takes for granted"), tag("ul", items)]
    return joined(parts)


def _doubt(result: Result) -> str | None:
    """Says why what follows may not hold for what the run did; None if it holds."""
    if reasons := answer.unproven_reasons(result):
        return (
            "What follows would hold if epsilon were proven for what the run did. It is not, for "
            f"{count(len(reasons), 'reason')} given at the top."
        )
    if result.experiment:
        return (
            "What follows would hold for a release. This run is an experiment: its noise came from "
            "seeds, which whoever has this result knows (--entropy os, or --ledger, make a release "
            "of it)."
        )
    return None


def _promises(result: Result) -> list[tuple[Promise, list[str]]]:
    """Promises with the names of their silos, the weakest promise first."""
    promises: dict[tuple[str, ...], tuple[Promise, list[str]]] = {}
    for p in result.privacy:
        promise = Promise(p["epsilon"], p["delta"], p["unit"], p["relation"])
        # Noise is calibrated to a little below the budget: digits beyond the third say nothing.
        key = (budget(promise.epsilon), small(promise.delta), promise.unit, promise.relation)
        known, silos = promises.get(key, (promise, []))
        weaker = max(known, promise, key=lambda one: one.attack_success)
        promises[key] = (weaker, [*silos, p["silo"]])
    return sorted(promises.values(), key=lambda pair: -pair[0].attack_success)


def _whom(promises: Sequence[tuple[Promise, list[str]]], place: int, result: Result) -> str:
    silos = promises[place][1]
    if len(silos) == len(result.privacy):
        return "each silo" if len(silos) > 1 else f"silo {shown(silos[0])}"
    which = "weakest" if place == 0 else "strictest"
    if len(silos) > 1:
        return f"the {len(silos):,} silos with the {which} promise"
    return f"silo {shown(silos[0])}, which has the {which} promise"


def _budgets(result: Result, left: Left | None) -> Html | None:
    finite = [epsilon for epsilon in result.epsilons if math.isfinite(epsilon)]
    if not finite:
        return None
    rows = [left[p["silo"]] for p in result.privacy if p["silo"] in left] if left else []
    if rows:
        return lifetime_bars(rows)
    note = (
        "No ledger was given: what earlier runs spent on the same records is not in this. "
        "With --ledger, runs are charged to each silo's ledger, and this report shows what is left."
        if left is None
        else "The ledgers that were given are not of these silos."
    )
    if len(finite) == len(result.epsilons) > 1 and one_budget(finite):  # bars of one length
        same = (
            f"Each of the {len(finite):,} silos spent {answer.epsilon_range(finite)} in this run "
            f"({answer.delta_range(result)})."
        )
        return joined(tag("p", same), tag("p", note, class_="note"))
    bars = []
    silos = list(result.privacy)
    if len(silos) > silo_charts.MOST_ROWS:
        silos.sort(key=lambda p: p["epsilon"])
    for p in silos:
        if math.isfinite(p["epsilon"]):
            words = f"epsilon {budget(p['epsilon'])}, delta {small(p['delta'])}"
            part = ("c-blue", p["epsilon"])
        else:  # beyond every axis
            words, part = "no privacy at all", ("c-vermillion", 1.04 * max(finite))
        bars.append(silo_charts.Bar(p["silo"], [part], f"{shown(p['silo'])}: {words}"))
    legend = []
    if len(finite) < len(bars):
        legend = [("c-blue", "epsilon"), ("c-vermillion", "no privacy at all: no limit")]
    return joined(
        silo_charts.bars_chart(
            "What each silo spent in this run",
            bars,
            "epsilon",
            f"Budgets of {len(bars)} silos: {answer.epsilon_range(finite)}",
            legend=legend,
        ),
        tag("p", note, class_="note"),
    )


def lifetime_bars(standings: Sequence[Mapping[str, Any]]) -> Html:
    """Bars of what is spent, reserved and left of the lifetime allowance, one per ledger."""
    allowed = [row for row in standings if row["lifetime_epsilon"] is not None]
    if not allowed:
        return tag("p", "No lifetime allowance was set in any ledger yet.")
    bars = []
    for row in allowed:
        # A lifetime that is given to one run alone has nothing left, whatever that run takes.
        left = 0.0 if row["given_to"] is not None else row["left_share"]
        reserved = min(row["reserved_share"], 1 - left)
        spent = max(0.0, 1 - left - reserved)
        label = (
            f"{shown(row['silo'])}: {percent(spent)} spent, {percent(reserved)} reserved, "
            f"{percent(left)} left of a lifetime of epsilon {budget(row['lifetime_epsilon'])}; "
            f"spent so far: epsilon {budget(row['spent_epsilon'])}"
        )
        parts = [("c-blue", spent), ("c-orange", reserved), ("c-rest", left)]
        bars.append(silo_charts.Bar(row["silo"], [(c, 100 * share) for c, share in parts], label))
    alt = f"Of {len(bars)} silos: what was spent of the lifetime allowance"
    cells = [
        [
            row["silo"],
            # A run that has the lifetime alone may have taken more than the filter allows.
            Cell("all", 1.0)
            if row["given_to"] is not None
            else Cell(percent(row["spent_share"]), row["spent_share"]),
            Cell(percent(row["reserved_share"]), row["reserved_share"]),
            Cell(percent(row["given_back_share"]), row["given_back_share"]),
            Cell(percent(row["left_share"]), row["left_share"]),
            Cell(budget(row["spent_epsilon"]), row["spent_epsilon"]),
            Cell(budget(row["lifetime_epsilon"]), row["lifetime_epsilon"]),
            Cell(budget(row["remaining_epsilon"]), row["remaining_epsilon"]),
            Cell(str(row["runs"]), row["runs"]),
        ]
        for row in allowed
    ]
    columns = [
        *("silo", "spent", "reserved", "given back", "left", "epsilon spent", "lifetime epsilon"),
        *("epsilon of one more release", "runs"),
    ]
    listed = tables.table("Budgets by ledger", columns, cells)
    return joined(
        silo_charts.bars_chart(
            "What each silo has spent of its lifetime allowance",
            bars,
            "per cent of the lifetime",
            alt,
            legend=[("c-blue", "spent"), ("c-orange", "reserved"), ("c-rest", "left")],
            largest=100.0,
        ),
        tag(
            "p",
            "Shares of a lifetime add up, and hold however the next run is chosen after seeing the "
            "last. Epsilons do not add up.",
            class_="note",
        ),
        folded("As a table", listed),
    )
