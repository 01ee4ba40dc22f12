"""A model's card for people, in Markdown: what the model is for, what it is worth, what it cost.

It says nothing that `card.json` does not say. Names come from others: none of them can become a
heading, a link, a table's border or HTML.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from silodp.base.text import shown
from silodp.models.metrics import get_metric

# What Markdown reads as a mark anywhere (bare addresses included), and at the beginning of a text.
_MARKS = re.compile(r"[\\`*_{}\[\]<>#|~&$@]|:(?=//)|(?<=www)\.", re.IGNORECASE)
_FIRST = re.compile(r"^(\s*\d*)([-+=.)])(?=\s|$)")
_MOST_LEVELS = 12
_UNITS = {"record": "one record", "subject": "one person with all records"}


def markdown_card(card: Mapping[str, Any]) -> str:
    """The text of `card.md`, from the content of `card.json`."""
    parts = [
        f"# Model of {escaped(card['silo'])}",
        _purpose(card),
        "## Data",
        *_data(card),
        "## Columns",
        *_columns(card["preparation"]),
        "## How well it does",
        *_test(card["test"]),
        "## Privacy",
        *_privacy(card["privacy"]),
        "## Limits",
        _listed(_limits(card)),
        "## To use it",
        "    silodp predict THIS_FOLDER TABLE",
        f"The numbers of the model are in `model.npz` (sha256 `{card['model']['sha256']}`); "
        "`card.json` holds all of this, and more, for programs.",
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: object) -> str:
    """The text as Markdown shows it, letter by letter, on one line."""
    marked = _MARKS.sub(lambda mark: f"\\{mark[0]}", shown(str(text), None))
    return _FIRST.sub(r"\1\\\2", marked)


def _purpose(card: Mapping[str, Any]) -> str:
    target = card["preparation"]["target"]
    what = f"the class of {escaped(target['name'])}"
    if "classes" not in target:
        what = f"the number {escaped(target['name'])}"
    purpose = card["purpose"]
    meant = (
        ""
        if purpose is None
        else f"\n\nWhat it is for, in the words of the run: {escaped(purpose)}"
    )
    return (
        f"It predicts {what} for records of {escaped(card['silo'])} (task: {card['task']}). It was "
        f"made by the method {escaped(card['method'])}, together with other silos, and is meant "
        f"for records of this one: for those of others it may be worse.{meant}"
    )


def _data(card: Mapping[str, Any]) -> list[str]:
    training, target = card["training"], card["preparation"]["target"]
    count = training["records"]
    rows = [
        f"Data: {escaped(card['data'])}",
        f"Training: {_unit_count(count, card['privacy']['unit'])}",
        f"Model: {escaped(card['model']['name'])}",
    ]
    if "classes" in target:
        rows.append(f"Classes: {', '.join(map(escaped, target['classes']))}")
    for key in ("range", "spread"):
        if key in target:
            low, high = target[key]
            rows.append(f"Target: from {low:g} to {high:g} ({escaped(target['source'])})")
    return [_listed(rows), escaped(training["meaning"])]


def _unit_count(count: int | None, unit: str) -> str:
    return "a number of records that is not public" if count is None else f"{count} {unit}s"


def _columns(preparation: Mapping[str, Any]) -> list[str]:
    if not preparation["columns"]:
        return ["None: it takes images or features without names."]
    rows = ["| column | holds | where that comes from |", "|---|---|---|"]
    for column in preparation["columns"]:
        cells = (column["name"], _held(column), column["source"])
        rows.append(f"| {' | '.join(map(escaped, cells))} |")
    return ["\n".join(rows), f"Missing values: {escaped(preparation['missing_values'])}."]


def _held(column: Mapping[str, Any]) -> str:
    if column["kind"] == "encoded":
        made = column["encoder"]
        return (
            f"{made['takes']}s, as {made['width']} features by {made['name']} (sha256 "
            f"{made['sha256'][:16]}; licence: {made['licence']}; trained on: {made['trained_on']})"
        )
    if column["kind"] == "category":
        levels = column["levels"]
        more = f" and {len(levels) - _MOST_LEVELS} more" if len(levels) > _MOST_LEVELS else ""
        return f"one of {', '.join(levels[:_MOST_LEVELS])}{more}"
    if column["scaling"] == "bounds":
        return f"a number from {column['low']:g} to {column['high']:g}"
    return f"a number ({column['scaling']})"


def _test(test: Mapping[str, Any]) -> list[str]:
    metric = get_metric(test["metric"])
    if test["value"] is None:
        return [f"Not measured: {escaped(metric.missing_in(['this silo']))}"]
    count = "" if test["records"] is None else f" ({test['records']} test records)"
    said = [
        f"**{escaped(metric.words)}: {escaped(metric.text(float(test['value'])))}**{count}, "
        f"{metric.better} is better. {escaped(test['meaning'])}"
    ]
    if test["no_skill"] is not None:
        without = metric.text(float(test["no_skill"]))
        said.append(f"The best prediction without features, which takes no skill: {without}.")
    return said


def _privacy(privacy: Mapping[str, Any]) -> list[str]:
    epsilon = float(privacy["epsilon"])
    if math.isinf(epsilon):
        head = "**Not private.**"
    else:
        proven = "proven" if privacy["proven"] else "not proven"
        head = (
            f"**Epsilon {epsilon:.4g}, delta {float(privacy['delta']):.3g}** for "
            f"{_UNITS[privacy['unit']]}, {escaped(privacy['relation'])}: {proven}."
        )
    return [head, _listed(map(escaped, privacy["meaning"]))]


def _limits(card: Mapping[str, Any]) -> list[str]:
    privacy = card["privacy"]
    limits = [f"Not proven: {escaped(reason)}" for reason in privacy["unproven"]]
    limits += [f"Taken for granted: {escaped(one)}" for one in privacy["assumptions"]]
    tested = card["test"]["records"]
    if tested is not None and tested < 100:
        limits.append(f"It was tested on {tested} records: another hundred may say otherwise.")
    limits.append(
        "It was tested on records like those that it was trained on. It says nothing of causes, "
        "and was not checked for fairness between groups."
    )
    return limits


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
