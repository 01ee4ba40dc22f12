"""The part of a report about how silos relate: who is alike, who keeps how much."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.text import percent, shown
from silodp.report import silo_charts, tables
from silodp.report.checks import CLUSTERS, NUMBER, fits
from silodp.report.findings_part import has_findings
from silodp.report.html import Html, joined, tag
from silodp.report.inputs import Run
from silodp.report.tables import Cell, folded
from silodp.results.learned import MOST_RELATED, in_order, is_summed_up, sentences
from silodp.results.result import MODELS_FILE, RESULT_FILE, read_models


def relations_of(run: Run) -> Html | None:
    """The part of a report about relations; None where nothing is known."""
    result, learned = run.result, run.result.learned or {}
    parts: list[Html | None] = []
    if (lines := sentences(result)) and not has_findings(result):  # which are told apart
        parts.append(tag("ul", [tag("li", sentence) for sentence in lines]))
    if is_summed_up(result):
        parts.append(_kept(learned))
    if learned.get("clusters") and fits(learned["clusters"], CLUSTERS):
        parts.append(_clusters(learned["clusters"]))
    names = [silo["silo"] for silo in result.per_silo]
    alike = _alike(run, learned, len(names))
    if alike is not None:
        matrix, where_from = alike
        told = ~np.isnan(matrix[~np.eye(len(names), dtype=bool)])
        note = "Which silos are alike is not told by what was released."
        parts.append(_map(matrix, names, where_from) if told.any() else tag("p", note))
    elif not parts and len(names) > 1:
        note = (
            f"{result.method} finds out nothing about how silos relate. Train with --save-models, "
            "and this report compares the silos' own models; or with --method ebmtl, which learns "
            "from what is released anyway how much each silo should keep of its own."
        )
        if len(names) > MOST_RELATED:
            note = f"Relations between more than {MOST_RELATED} silos are not drawn."
        parts.append(tag("p", note))
    return tag("div", tag("h3", "How silos relate"), parts) if parts else None


def _kept(learned: Mapping[str, Any]) -> Html:
    """Bars of the shrinkage s_k: 0 is FedAvg, 1 local training."""
    silos = sorted(learned["silos"], key=lambda silo: -silo["kept"])
    bars = [
        silo_charts.Bar(
            silo["silo"],
            [("c-purple", max(silo["kept"], 0.0))],
            f"{shown(silo['silo'])} keeps {percent(silo['kept'])} of its own (epsilon "
            f"{silo['epsilon']:.3g})",
        )
        for silo in silos
    ]
    low, high = silos[-1]["kept"], silos[0]["kept"]
    return silo_charts.bars_chart(
        "How much each silo keeps of its own (shrinkage s_k)",
        bars,
        "kept of its own",
        f"Silos keep {percent(low)} to {percent(high)} of what is their own",
        ends=("0: FedAvg", "1: local"),
        largest=max(1.0, high),
    )


def _clusters(clusters: Sequence[Mapping[str, Any]]) -> Html:
    """Lists the silos of each cluster model, and a table of the choices."""
    members: dict[int, list[str]] = {}
    for one in clusters:
        members.setdefault(one["cluster"], []).append(one["silo"])
    items = [
        tag("li", tag("strong", f"Cluster {number}: "), _some(names))
        for number, names in sorted(members.items())
    ]
    rows = [
        [
            one["silo"],
            Cell(str(one["cluster"]), one["cluster"]),
            Cell(percent(one["agreement"]), one["agreement"]),
        ]
        for one in clusters
    ]
    listed = tables.table(
        "Clusters that silos chose, and in how many of the runs", ["silo", "cluster", "runs"], rows
    )
    return joined(tag("ul", items), folded("Every silo's cluster", listed))


def _some(names: Sequence[str]) -> str:
    most = 20
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in names[:most]) + more


def _alike(run: Run, learned: Mapping[str, Any], silos: int) -> tuple[np.ndarray, str] | None:
    """Cosines between the silos' own parts, and where they come from; None if unknown."""
    if silos < 2:  # no pairs
        return None
    if _is_square(learned.get("relations"), silos):
        # None, where what was released does not tell, becomes NaN.
        matrix = np.array(learned["relations"], float)
        return matrix, "what the method learned from released updates"
    if silos > MOST_RELATED or not (run.folder / MODELS_FILE).is_file():
        return None
    models = read_models(run.folder)
    seeds = len(run.result.test["per_seed"])
    if not models or any(array.shape[:2] != (seeds, silos) for array in models.values()):
        raise SilodpError(
            f"{run.folder / MODELS_FILE} is not of the {silos} silos and {seeds} seeds in "
            f"{RESULT_FILE} beside it: train again with --save-models."
        )
    with np.errstate(all="ignore"):  # refused below
        cosines = _cosines(models)
    if not np.isfinite(cosines).all():
        raise SilodpError(
            f"{run.folder / MODELS_FILE} holds numbers that are not finite, or too large: train "
            "again with --save-models and a lower --lr."
        )
    return cosines, "the silos' own models, saved with the run"


def _is_square(value: Any, silos: int) -> bool:
    """Whether there is a number for every pair of silos: a method may call anything relations."""
    return (
        fits(value, [[(NUMBER,)]])
        and len(value) == silos
        and all(len(row) == silos for row in value)
    )


def _cosines(models: Mapping[str, np.ndarray]) -> np.ndarray:
    """Cosines [silos, silos] of models less their mean over silos; a mean over seeds."""
    flat = [array.reshape(*array.shape[:2], -1).astype(float) for array in models.values()]
    rows = np.concatenate(flat, axis=2)  # [seeds, silos, parameters]
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=2, keepdims=True), 1e-30)
    return (rows @ rows.transpose(0, 2, 1)).mean(axis=0)


def _map(matrix: np.ndarray, names: Sequence[str], where_from: str) -> Html:
    order = in_order(np.nan_to_num(matrix))
    pairs = matrix[np.triu_indices(len(names), 1)]
    not_told = int(np.isnan(pairs).sum())
    least = 0.0 if not_told else 0.5  # where it is told which, it may be by little
    alike, opposite = int((pairs > least).sum()), int((pairs < -least).sum())
    alt = (
        f"Map of {len(names)} silos: {alike} pairs differ from the mean alike, {opposite} as "
        "opposites"
    )
    alt += f"; {not_told} are not told apart by what was released" if not_told else ""
    grey = "Grey: not told apart by what was released, which may be either. " if not_told else ""
    below = tag(
        "p",
        "Blue: two silos differ from the mean in the same way. Orange: in opposite ways. White: "
        f"nothing in common. {grey}Those alike stand next to each other. From {where_from}.",
        class_="note",
    )
    placed = matrix[np.ix_(order, order)]
    in_place = [names[place] for place in order]
    return silo_charts.map_chart("Who is alike", placed, in_place, alt, below)
