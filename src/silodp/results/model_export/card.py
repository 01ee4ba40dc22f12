"""Reads a card; others may have written it, so every value is checked."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError, meant, one_of
from silodp.config.choices import TaskName
from silodp.data.formats.bounded import read_bounded
from silodp.data.preparation import Preparation
from silodp.data.tables.target import check_target
from silodp.data.tasks import TASKS, get_task
from silodp.results.model_export.described import preparation_of_card
from silodp.results.model_export.files import CARD_FILE, FORMAT, MODELS_FOLDER, VERSION
from silodp.results.model_export.plain_values import (
    choice_of,
    list_of,
    number_of,
    numbers_of,
    part_of,
    text_of,
    value_of,
    wrong,
)

MOST_BYTES = 1 << 26
_MOST_AXES, _MOST_FEATURES = 4, 1 << 28


@dataclass(frozen=True)
class Card:
    """A checked card: what is needed to use the model.

    Attributes:
      path: the card's file.
      whole: its whole content.
      silo: the silo that the model belongs to.
      task: the model's task.
      name: the model's name.
      built_in: whether it is one of silodp's models.
      input_shape: the shape of one record.
      num_classes: the number of classes, or of intervals of time; 0 where there are neither.
      pixels: the values of bytes 0 and 255, for images in bytes.
      sha256: the hash of the model's file.
      threshold: the log-odds above which the second of two classes is predicted.
      preparation: how records become features.
    """

    path: Path
    whole: dict[str, Any]
    silo: str
    task: TaskName
    name: str
    built_in: bool
    input_shape: tuple[int, ...]
    num_classes: int
    pixels: tuple[float, float] | None
    sha256: str
    threshold: float
    preparation: Preparation


def read_card(path: Path | str, silo: str | None = None) -> Card:
    """Reads the card in a silo's folder, or that file itself; in a run's folder, the silo's."""
    path = _place(Path(path), silo)
    card = checked_card(path, _content(path))
    if silo is not None and card.silo != silo:
        raise SilodpError(
            f"{path} is the card of silo {card.silo!r}, not of {silo!r}: leave the silo out, or "
            "give the folder of the run."
        )
    return card


def _content(path: Path) -> Any:
    content = read_bounded(path, MOST_BYTES, "give the card of a model")
    return json_of(content, str(path), "get the file again")


def checked_card(path: Path, whole: Any) -> Card:
    """Checks a card's JSON; refuses one with anything missing, wrong or contradictory."""
    where = str(path)
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise SilodpError(f"{where} is not the card of a model of silodp: give another file.")
    version = whole.get("version")
    if type(version) is not int or version < 1:
        raise wrong(where, "version", "a whole number")
    if version > VERSION:
        raise SilodpError(
            f"{where} is of version {version}, but this silodp knows cards up to {VERSION}: use a "
            "newer silodp."
        )
    at, model = f"{where}: model", part_of(where, whole, "model")
    task: TaskName = choice_of(where, whole, "task", tuple(TASKS))
    pixels = value_of(at, model, "pixels")
    if pixels is not None:
        low, high = numbers_of(at, model, "pixels", 2)
        pixels = (low, high)
    card = Card(
        path=path,
        whole=whole,
        silo=text_of(where, whole, "silo"),
        task=task,
        name=text_of(at, model, "name"),
        built_in=choice_of(at, model, "built_in", (False, True)),
        input_shape=_shape(at, list_of(at, model, "input_shape")),
        num_classes=_count(at, "num_classes", value_of(at, model, "num_classes")),
        pixels=pixels,
        sha256=text_of(at, model, "sha256"),
        threshold=number_of(at, model, "threshold") if "threshold" in model else 0.0,
        preparation=preparation_of_card(where, part_of(where, whole, "preparation"), task),
    )
    check_target(where, card.preparation.target)
    _check_agreement(where, card)
    return card


def _place(path: Path, silo: str | None) -> Path:
    if not path.is_dir():
        if not path.exists():
            raise SilodpError(f"{path} does not exist: give the folder of a silo's model.")
        return path
    if (path / CARD_FILE).is_file():
        return path / CARD_FILE
    # By what the cards say: folders of older runs have other names.
    cards = {_silo_of(card): card for card in sorted(path.glob(f"{MODELS_FOLDER}/*/{CARD_FILE}"))}
    if silo in cards:
        return cards[silo]
    if cards:
        if silo is not None:
            raise SilodpError(
                f"{path} has no model of a silo {silo!r} (--silo): {meant(silo, cards)}"
            )
        raise SilodpError(
            f"{path} is the folder of a run: say whose model, by --silo {one_of('', cards)}."
        )
    raise SilodpError(
        f"{path} holds no {CARD_FILE}: give the folder of a silo's model, as `silodp run "
        "--save-models` writes it."
    )


def _silo_of(card: Path) -> str:
    """The silo that a card names, whatever else is wrong with it."""
    whole = _content(card)
    return str(whole.get("silo")) if isinstance(whole, dict) else ""


def _shape(at: str, sizes: list[Any]) -> tuple[int, ...]:
    shape = tuple(_count(at, "input_shape", size) for size in sizes)
    if not 1 <= len(shape) <= _MOST_AXES or not 0 < math.prod(shape) <= _MOST_FEATURES:
        raise wrong(at, "input_shape", "the shape of a record")
    return shape


def _count(at: str, key: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise wrong(at, key, "a count")
    return value


def _check_agreement(where: str, card: Card) -> None:
    """Refuses a card whose fields contradict each other: predictions would be wrong."""
    preparation, classes = card.preparation, len(card.preparation.target.classes)
    features = len(preparation.encoder.feature_names)
    if features and card.input_shape != (features,):
        raise SilodpError(
            f"{where}: its columns make {features} features, but the model takes "
            f"{list(card.input_shape)}: get the file again."
        )
    noisy = preparation.noisy
    if noisy is not None and len(noisy.first) != math.prod(card.input_shape):
        raise SilodpError(
            f"{where}: preparation, noisy_standardisation is of {len(noisy.first)} features, but "
            f"the model takes {list(card.input_shape)}: get the file again."
        )
    task = get_task(card.task).deciding_at(card.threshold)
    expected = task.count_classes(card.num_classes)
    if classes != expected or card.num_classes != preparation.target.num_classes:
        raise SilodpError(
            f"{where}: it names {classes} classes, but the model has {expected}: get the file "
            "again."
        )
