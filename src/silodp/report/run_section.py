"""The part of a report about one run: the answer, then the details."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.base.text import count, shown, silo_names
from silodp.models.metrics import get_metric
from silodp.report import answer, tables
from silodp.report.answer import WHAT
from silodp.report.findings_part import findings_part
from silodp.report.gains import Gain, overall
from silodp.report.history_part import history_part
from silodp.report.html import Child, Html, tag
from silodp.report.inputs import Run
from silodp.report.measured_part import measured_part
from silodp.report.numbers import (
    MINUS,
    budget,
    measured,
    one_budget,
)
from silodp.report.privacy_part import Left, privacy_part
from silodp.report.relations import relations_of
from silodp.report.settings_part import settings_part
from silodp.report.silos_part import silos_part
from silodp.report.verdict import method_name, verdict
from silodp.results.result import Result
from silodp.runs.baselines import BASELINES

_MOST_NAMED = 12  # classes in a sentence
_MOST_COLUMNS = 12


def run_section(run: Run, number: int, left: Left | None) -> Html:
    """The section about one run.

    Args:
      run: the run with its baselines.
      number: number of the section, for anchors within the page.
      left: what each silo's ledger says, by silo; None if no ledgers were given.
    """
    result = run.result
    said = verdict(result, run.rivals)
    return tag(
        "section",
        tag("h2", name_of_run(run), id=f"run-{number}"),
        _about(result),
        tag("p", said.headline, class_="headline"),
        [tag("p", sentence) for sentence in said.more],
        _left_behind(said.left_behind),
        _tiles(run),
        tag("ul", [tag("li", sentence) for sentence in answer.sentences(run)]),
        _warnings(run),
        tag("h3", "What was measured"),
        measured_part(result),
        tag("h3", "Each silo"),
        silos_part(run),
        tag("h3", "While it was trained"),
        history_part(run),
        tag("h3", "Privacy"),
        privacy_part(run, left),
        findings_part(result),
        relations_of(run),
        tag("h3", "How to get this again"),
        settings_part(result),
        aria_labelledby=f"run-{number}",
    )


def name_of_run(run: Run) -> str:
    """Name of a run that differs from others of the same data and method."""
    result = run.result
    finite = [epsilon for epsilon in result.epsilons if math.isfinite(epsilon)]
    budgets = answer.epsilon_range(finite).split(",")[0] if finite else "no privacy"
    if finite and len(finite) < len(result.epsilons):
        budgets += " or none"
    return f"{shown(result.data)}, {method_name(result)}, {budgets}"


def _about(result: Result) -> Html | None:
    """What is predicted, from what, and what for."""
    problem = result.problem
    rows: list[tuple[str, Child]] = []
    if purpose := result.options.get("purpose"):
        rows.append(("purpose", str(purpose)))
    if problem is not None:
        rows.append(("predicted", _predicted(problem)))
        columns = [shown(str(name)) for name in problem["columns"]]
        if columns:
            more = len(columns) - _MOST_COLUMNS
            listed_columns = ", ".join(columns[:_MOST_COLUMNS])
            listed_columns += f" and {more:,} more" if more > 0 else ""
            rows.append(("from", listed_columns))
    return tables.pairs(rows) if rows else None


def _predicted(problem: Mapping[str, Any]) -> str:
    classes = [shown(str(name)) for name in problem["classes"]]
    more = f": {', '.join(classes[:_MOST_NAMED])}" if classes else ""
    return f"{shown(str(problem['target']))} ({problem['task']}{more})"


def _left_behind(sentences: Sequence[str]) -> Html | None:
    if not sentences:
        return None
    items = tag("ul", [tag("li", sentence) for sentence in sentences])
    return tag("div", tag("strong", "Left behind"), items, class_="warning", role="note")


def _tiles(run: Run) -> Html:
    result = run.result
    what = f"test {get_metric(result.metric).noun}"
    note = f"{answer.over_seeds(result)}, {method_name(result)}"
    tiles = [_tile(what, measured(result.mean, result.metric), note)]
    for method in BASELINES:
        if method in run.baselines:
            gain = overall(result, run.baselines[method])
            tiles.append(_tile(f"against {WHAT[method]}", *_gain_words(gain, result)))
    finite = [epsilon for epsilon in result.epsilons if math.isfinite(epsilon)]
    if finite:
        low, high = budget(min(finite)), budget(max(finite))
        value = high if one_budget(finite) else f"{low} to {high}"
        value += " or none" if answer.without_privacy(result) else ""
        tiles.append(_tile("epsilon", value, _proven(result)))
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


def _gain_words(gain: Gain, result: Result) -> tuple[str, str]:
    if gain.mean == 0:
        return "0", "the same"
    metric = get_metric(result.metric)
    sign = MINUS if (gain.mean > 0) == (metric.better == "lower") else "+"
    value = f"{sign}{metric.size(gain.mean)}"
    way = "better" if gain.mean > 0 else "worse"
    if math.isnan(gain.error):
        return value, f"{way}, but too few seeds to tell"
    return value, f"clearly {way}" if gain.clear else f"{way}, but perhaps by chance"


def _proven(result: Result) -> str:
    if answer.unproven_reasons(result):
        return "NOT proven, see below"
    if without := answer.without_privacy(result):
        return f"{count(without, 'silo has', 'silos have')} no privacy"
    return "an experiment: noise from seeds" if result.experiment else "proven"


def _warnings(run: Run) -> Html | None:
    result = run.result
    notes = [
        f"Epsilon is not proven: {reason.rstrip('.')}."
        for reason in answer.unproven_reasons(result)
    ]
    notes += [f"{warning.rstrip('.')}." for warning in result.warnings]
    if result.chosen:
        notes.append(f"No method was named. Chosen was {result.chosen}.")
    if missing := answer.missing_baselines(run):
        notes.append(missing)
    if 0 < (without := answer.without_privacy(result)) < len(result.epsilons):
        notes.append(
            f"{count(without, 'silo has', 'silos have')} no privacy at all: what is said of "
            "budgets here is about the others."
        )
    if result.options.get("metric_share"):
        notes.append(
            "Test metrics carry noise that is paid for out of epsilon, and each record's error is "
            "bounded in them: they, and the gains worked out from them, are that uncertain."
        )
    if result.unmeasured:
        notes.append(get_metric(result.metric).missing_in(result.unmeasured))
    if result.left_out:
        names = f"{count(len(result.left_out), 'silo')}: {silo_names(result.left_out)}"
        notes.append(f"Left out, {names}.")
    if result.tuning is not None:
        notes.append(
            "Hyperparameters were tuned, and the tuning is part of epsilon: see the settings below."
        )
    if not notes:
        return None
    items = tag("ul", [tag("li", note) for note in notes])
    return tag("div", tag("strong", "Mind this"), items, class_="warning", role="note")
