"""Writes a preparation into a card and reads it back, exactly."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from silodp.base.errors import SilodpError
from silodp.config.choices import TaskName
from silodp.data.encoders.encoder import EncoderInfo, info_of_plain
from silodp.data.preparation import Preparation, Scaling, ScalingKind
from silodp.data.tables.beside import checked_beside
from silodp.data.tables.columns import NO_LEVEL, Column, Encoder
from silodp.data.tables.schema import DateForm
from silodp.data.tables.target import Target
from silodp.data.tasks import get_task
from silodp.results.model_export.plain_values import (
    choice_of,
    list_of,
    number_of,
    numbers_of,
    part_of,
    text_of,
    texts_of,
    value_of,
    wrong,
)

DECLARED = "declared before anyone looked at a record: public"
FROM_ALL_SILOS = "the records of all silos; epsilon does not cover it"
BY_RECORD = "each record by itself, by an encoder that is taken to be public, and to unit norm"
PAID_FOR = "noisy statistics of this silo's training records; epsilon covers them"
# The names of the two numbers of each column.
_NUMBERS_OF: dict[ScalingKind, tuple[str, ...]] = {
    "none": (),
    "standardised": ("mean", "deviation"),
    "bounds": ("low", "high"),
    "unit norm": (),
}
# Their source, in words.
_SOURCE_OF: dict[ScalingKind, str] = {
    "none": "nothing is scaled",
    "standardised": "this silo's own training records; epsilon does not cover it",
    "bounds": DECLARED,
    "unit norm": "each record by itself, whatever the others are",
}
_MISSING = {False: "refused", True: "rows left out"}


def described(preparation: Preparation) -> dict[str, Any]:
    """A preparation in plain values, for people to read and for `preparation_of_card`."""
    kind, noisy = preparation.scaling.kind, preparation.noisy
    numbers = iter(zip(preparation.scaling.first, preparation.scaling.second, strict=True))
    return {
        "ready_made": preparation.ready_made,
        "columns": [
            _encoded(column, column.encoder)
            if column.encoder is not None
            else _category(column)
            if column.levels
            else _number(column, kind, numbers)
            for column in preparation.encoder.columns
        ],
        "missing_values": _MISSING[preparation.drop_missing],
        "noisy_standardisation": None
        if noisy is None
        else {"mean": list(noisy.first), "deviation": list(noisy.second), "source": PAID_FOR},
        "target": _target(preparation.target),
    }


def preparation_of_card(where: str, plain: Any, task: TaskName) -> Preparation:
    """The preparation that a card states; `where` names the card in errors."""
    at = f"{where}: preparation"
    columns = [
        _column(f"{at}, column {place}", one)
        for place, one in enumerate(list_of(at, plain, "columns"), start=1)
    ]
    names = [column.name for column, _, _ in columns]
    kinds: list[ScalingKind] = list({kind for _, kind, _ in columns if kind is not None})
    if len(kinds) > 1 or len(set(names)) < len(names):
        raise SilodpError(f"{at}: its columns do not fit together: get the file again.")
    numbers = [own for _, kind, own in columns if kind is not None and _NUMBERS_OF[kind]]
    scaling = Scaling(
        kinds[0] if kinds else "none",
        tuple(first for first, _ in numbers),
        tuple(second for _, second in numbers),
    )
    missing = choice_of(at, plain, "missing_values", tuple(_MISSING.values()))
    noisy = plain.get("noisy_standardisation")
    return Preparation(
        Encoder(tuple(column for column, _, _ in columns)),
        scaling,
        _target_of(at, part_of(at, plain, "target"), task),
        drop_missing=missing == _MISSING[True],
        noisy=None if noisy is None else _noisy_of(at, noisy),
        ready_made=choice_of(at, plain, "ready_made", (False, True)),
    )


def _category(column: Column) -> dict[str, Any]:
    source = DECLARED if column.declared else FROM_ALL_SILOS
    levels = list(column.levels)
    plain = {"name": column.name, "kind": "category", "levels": levels, "source": source}
    return {**plain, **_rules(column)}


def _encoded(column: Column, encoder: EncoderInfo) -> dict[str, Any]:
    plain = {"name": column.name, "kind": "encoded", "encoder": encoder.to_plain()}
    rules = {"drops": True} if column.drops else {}
    return {**plain, "source": BY_RECORD, **rules}


def _rules(column: Column) -> dict[str, Any]:
    """What odd values count as, where values are read one by one; levels by place from 0."""
    if not column.by_value:
        return {}
    rules: dict[str, Any] = {"unlisted": column.unlisted} if column.levels else {}
    rules["missing"] = column.missing
    # Left out where they say nothing: cards from before there were these are the same.
    if column.indicator:
        rules["indicator"] = True
    if column.drops:
        rules["drops"] = True
    if column.noisy_mean:
        rules["noisy_mean"] = True
    if column.words:
        rules["words"] = [[word, number] for word, number in column.words]
    if column.date is not None:
        rules["date"] = column.date.to_plain()
    return {"by_value": rules}


def _number(
    column: Column, kind: ScalingKind, numbers: Iterator[tuple[float, float]]
) -> dict[str, Any]:
    own = dict(zip(_NUMBERS_OF[kind], next(numbers, ()), strict=True))
    plain = {"name": column.name, "kind": "number", "scaling": kind, **own}
    return {**plain, "source": _SOURCE_OF[kind], **_rules(column)}


def _target(target: Target) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": target.name, **target.beside.to_plain()}
    if get_task(target.task).of_classes:
        source = DECLARED if target.declared else FROM_ALL_SILOS
        return {**plain, "classes": list(target.classes), "source": source}
    if target.range is not None:
        return {**plain, "range": list(target.range), "source": DECLARED}
    if target.spread is not None:
        return {**plain, "spread": list(target.spread), "source": FROM_ALL_SILOS}
    return {**plain, "source": _SOURCE_OF["none"]}


def _column(at: str, plain: Any) -> tuple[Column, ScalingKind | None, tuple[float, ...]]:
    name = text_of(at, plain, "name")
    kind = choice_of(at, plain, "kind", ("number", "category", "encoded"))
    if kind == "encoded":
        info = info_of_plain(f"{at}, encoder", plain.get("encoder"))
        drops = "drops" in plain and choice_of(at, plain, "drops", (False, True))
        return Column(name, declared=True, drops=drops, encoder=info), None, ()
    if kind == "category":
        levels = texts_of(at, plain, "levels")
        column = Column(name, levels, plain.get("source") == DECLARED)
        return _with_rules(at, column, plain), None, ()
    kind = choice_of(at, plain, "scaling", get_args(ScalingKind))
    numbers = tuple(number_of(at, plain, one) for one in _NUMBERS_OF[kind])
    return _with_rules(at, Column(name), plain), kind, numbers


def _with_rules(at: str, column: Column, plain: Any) -> Column:
    if "by_value" not in plain:
        return column
    at, rules = f"{at}, by_value", part_of(at, plain, "by_value")
    column = replace(
        column,
        indicator="indicator" in rules and choice_of(at, rules, "indicator", (False, True)),
        drops="drops" in rules and choice_of(at, rules, "drops", (False, True)),
        noisy_mean="noisy_mean" in rules and choice_of(at, rules, "noisy_mean", (False, True)),
        words=_words_of(at, rules) if "words" in rules else (),
        date=_date_of(at, part_of(at, rules, "date")) if "date" in rules else None,
    )
    if not column.levels:
        missing = value_of(at, rules, "missing")
        missing = None if missing is None else number_of(at, rules, "missing")
        return replace(column, by_value=True, missing=missing)
    places = (None, NO_LEVEL, *range(len(column.levels)))
    return replace(
        column,
        by_value=True,
        unlisted=choice_of(at, rules, "unlisted", places),
        missing=choice_of(at, rules, "missing", places),
    )


def _words_of(at: str, rules: Mapping[str, Any]) -> tuple[tuple[str, float | None], ...]:
    words = []
    for pair in list_of(at, rules, "words"):
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise wrong(at, "words", "a list of words, each with its number")
        number = None if pair[1] is None else number_of(at, {"words": pair[1]}, "words")
        words.append((pair[0], number))
    return tuple(words)


def _date_of(at: str, plain: Mapping[str, Any]) -> DateForm:
    form = DateForm(text_of(at, plain, "origin"), text_of(at, plain, "format"))
    try:
        form.start  # noqa: B018
    except ValueError:
        raise wrong(at, "origin", "a date") from None
    return form


def _target_of(at: str, plain: Mapping[str, Any], task: TaskName) -> Target:
    at, name = f"{at}, target", text_of(f"{at}, target", plain, "name")
    declared, beside = plain.get("source") == DECLARED, checked_beside(at, plain)
    if get_task(task).of_classes:
        return Target(name, task, texts_of(at, plain, "classes"), declared=declared, beside=beside)
    ends = {
        key: (low, high)
        for key in ("range", "spread")
        if key in plain
        for low, high in [numbers_of(at, plain, key, 2)]
    }
    for low, high in ends.values():
        if not low < high:
            raise SilodpError(f"{at}: {low:g} to {high:g} is not a range: get the file again.")
    return Target(
        name,
        task,
        range=ends.get("range"),
        spread=ends.get("spread"),
        declared=declared,
        beside=beside,
    )


def _noisy_of(at: str, plain: Any) -> Scaling:
    at = f"{at}, noisy_standardisation"
    mean = numbers_of(at, plain, "mean")
    return Scaling("standardised", mean, numbers_of(at, plain, "deviation", len(mean)))
