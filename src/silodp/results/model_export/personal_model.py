"""A silo's model, loaded from its files: predictions for new records, and their metric.

model = silodp.load_model("runs/patients/models/north")
model.predict(pandas.read_csv("new.csv")).values
"""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from silodp.base.arrays import array_name, read_arrays
from silodp.base.errors import SilodpError, by_closeness
from silodp.base.text import shown
from silodp.config.choices import MetricName, TaskName
from silodp.data.encoders.encoder import Takes
from silodp.data.encoders.encoding import features_of
from silodp.data.encoders.named import check_same, encoder_info, encoder_of
from silodp.data.federation import check_numbers, pixel_values
from silodp.data.formats.bounded import read_bounded
from silodp.data.problems import Problems
from silodp.data.tables.columns import numbers
from silodp.data.tables.files import checked_names
from silodp.data.tasks import get_task
from silodp.models.metrics import METRICS, Metric, metric_for
from silodp.models.model import Model, get_model, on_pixels
from silodp.results.model_export.card import Card, read_card
from silodp.results.model_export.files import MODEL_FILE
from silodp.results.model_export.markdown_card import markdown_card
from silodp.results.model_export.torch_module import torch_module

MOST_BYTES = 1 << 31


class Predictions(NamedTuple):
    """Predictions of a model.

    Attributes:
      whole: which rows lack no value that the model needs. A value for which training had no rule
        says nothing: a number is the middle one, a category none of the levels.
      outputs: the model's outputs, [rows] or [rows, classes].
      values: numbers in the target's own units, or the name of each record's class; None where two
        classes are exactly as likely, which a run counts as wrong. Counts are those expected at the
        table's exposures (without such a column, at an exposure of 1); for times it is the
        probability of no event up to the last cut point.
      probabilities: of each class, [rows, classes], or of no event up to each cut point; None where
        outputs do not give any.
    """

    whole: np.ndarray
    outputs: np.ndarray
    values: list[float] | list[str | None]
    probabilities: np.ndarray | None

    @property
    def chances(self) -> np.ndarray | None:
        """`probabilities` by their former name."""
        warnings.warn(
            "Predictions.chances leaves with the next minor release: it is `probabilities` now.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.probabilities


class Score(NamedTuple):
    """The metric of predictions.

    Attributes:
      metric: the name of the result's metric, or the task's usual one where these records have no
        such metric. For numbers it is about the scaled target.
      value: its value.
      records: the number of records with a target.
      error: root mean squared error in the target's own units; None for classes.
    """

    metric: MetricName
    value: float
    records: int
    error: float | None


@dataclass(frozen=True)
class PersonalModel:
    """A silo's own model, with its card.

    Examples:
      >>> import numpy as np
      >>> from pathlib import Path
      >>> result = silodp.run(
      ...     data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2,
      ...     keep_models=True, out="runs/predict",
      ... )
      >>> first, second = sorted(Path("runs/predict/models").iterdir())
      >>> len(silodp.load_model(first).predict(np.zeros((5, 20))).values)
      5
    """

    about: Card
    model: Model
    params: Any

    def __repr__(self) -> str:
        about = self.about
        return (
            f"PersonalModel(silo {shown(about.silo)!r}: {about.name}, {about.task}; columns "
            f"{', '.join(map(shown, self.columns[:5]))}{', ...' if len(self.columns) > 5 else ''})"
        )

    def _repr_markdown_(self) -> str:
        """The card for people, in a notebook."""
        return markdown_card(self.card)

    @property
    def card(self) -> dict[str, Any]:
        """The whole card, as JSON holds it."""
        return self.about.whole

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table needs."""
        return tuple(column.name for column in self.about.preparation.encoder.columns)

    @property
    def text_columns(self) -> set[str]:
        """The columns to read as text, so that "007" is not 7."""
        preparation = self.about.preparation
        columns = preparation.encoder.columns
        texts = {
            column.name
            for column in columns
            if column.levels or column.by_value or column.encoder is not None
        }
        target, event = preparation.target, preparation.target.beside.event_column
        texts |= set() if event is None else {event}
        return texts | ({target.name} if target.classes else set())

    @property
    def image_columns(self) -> tuple[str, ...]:
        """The columns that hold paths of images."""
        return self._columns_of("image")

    @property
    def text_features(self) -> tuple[str, ...]:
        """The columns that hold texts of which an encoder makes features."""
        return self._columns_of("text")

    @property
    def only_encoded(self) -> Takes | None:
        """What a record is, if it is one image or one text and nothing else."""
        columns = self.about.preparation.encoder.columns
        own = columns[0].encoder if len(columns) == 1 else None
        return None if own is None else own.takes

    def _columns_of(self, takes: Takes) -> tuple[str, ...]:
        columns = self.about.preparation.encoder.columns
        return tuple(c.name for c in columns if c.encoder is not None and c.encoder.takes == takes)

    def predict(self, records: pd.DataFrame | np.ndarray) -> Predictions:
        """Predicts for a table with the card's columns (others are ignored), or for features.

        Features are an array [n, ...] as in `Records.x`: already prepared, or images in bytes. A
        column of images holds paths of their files; a model of images takes an array of them
        [n, height, width, 3] of dtype uint8 as well.
        """
        problems, prepared, exposures = Problems(), None, None
        with problems.noted():
            prepared = self._prepared(records)
        with problems.noted():
            exposures = self._exposures(records) if isinstance(records, pd.DataFrame) else None
        problems.check("`faults` of this error are all")
        assert prepared is not None  # or that was refused
        x, whole = prepared
        outputs = np.asarray(self.model.predict(self.params, jnp.asarray(x)))
        if not np.isfinite(outputs).all():
            raise SilodpError(
                f"Silo {self.about.silo!r}: the model's outputs are not finite for some records: "
                "check their values."
            )
        target = self.about.preparation.target
        values = self.model.deciding.predicted(outputs, target, exposures)
        return Predictions(whole, outputs, values, self._probabilities(outputs))

    def features(self, records: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Records as the model itself takes them: encoded, scaled, in single precision."""
        return self._prepared(records)[0]

    def to_torch(self) -> Any:
        """The model as a `torch.nn.Module` of plain layers, which takes `features`."""
        return torch_module(self)

    def score(self, table: pd.DataFrame, predictions: Predictions | None = None) -> Score | None:
        """The metric of predictions, as in a run; None if no row has a target.

        Args:
          table: as for `predict`.
          predictions: predictions for this table; by default they are made.
        """
        predictions = self.predict(table) if predictions is None else predictions
        target = self.about.preparation.target
        if not set(target.columns) <= set(table.columns):
            return None
        frame = table.loc[:, list(target.columns)]
        # Of rows that lack something, no run would have worked out a metric.
        known = np.flatnonzero(frame.notna().all(axis=1).to_numpy() & predictions.whole)
        if not len(known):
            return None
        y = target.encode(self.about.silo, frame.iloc[known])
        task, outputs = self.model.deciding, predictions.outputs[known]
        y = y.astype(task.label_dtype)
        metric = self._metric(y)
        mask = jnp.ones(len(known), bool)
        value = float(metric.value(task, jnp.asarray(outputs), jnp.asarray(y), mask))
        error = task.typical_error(outputs, y)
        own = None if error is None else error * target.unit
        return Score(metric.name, value, len(known), own)

    def _metric(self, y: np.ndarray) -> Metric:
        """The card's metric, if these labels have it; else the task's usual one."""
        test = self.card.get("test")
        named = test.get("metric") if isinstance(test, dict) else None
        for metric in METRICS.values():
            if metric.name == named and self.about.task in metric.tasks and metric.has_value(y):
                return metric
        return metric_for(self.about.task)

    def _prepared(self, records: pd.DataFrame | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features, and which records lack no value."""
        if isinstance(records, pd.DataFrame):
            frame = self._own_columns(records)
            x = self._encoded(frame)
            whole = np.all(~self.about.preparation.encoder.lacks(frame), axis=1)
        else:
            x = self._features(np.asarray(records))
            whole = np.ones(len(x), bool)
        if x.dtype != np.uint8:
            check_numbers(f"Silo {self.about.silo!r}: features", x)
        return x, whole

    def _own_columns(self, table: pd.DataFrame) -> pd.DataFrame:
        """The columns that the model needs."""
        where = f"Silo {self.about.silo!r}"
        if not self.columns:
            raise SilodpError(
                f"{where}: its model takes records of shape {list(self.about.input_shape)}, such "
                "as images, and no rows of a table: give an array in Python "
                "(silodp.load_model(...).predict(images))."
            )
        names = checked_names("The table", [str(name) for name in table.columns])
        table = table.set_axis(names, axis=1)
        for column in self.columns:
            if column not in names:
                nearest = "".join(
                    f" (the nearest is {n!r})" for n in by_closeness(column, names)[:1]
                )
                raise SilodpError(
                    f"{where}: the table has no column {column!r}, which its model needs: give the "
                    f"column that name{nearest}, or an empty one if nothing is known."
                )
        return table.loc[:, list(self.columns)]

    def _exposures(self, table: pd.DataFrame) -> np.ndarray | None:
        """The exposures of the rows, if the model has them and the table says any."""
        beside, names = self.about.preparation.target.beside, [str(n).strip() for n in table]
        if beside.exposure_column not in names:
            return None
        values = table.iloc[:, names.index(beside.exposure_column)]
        if (missing := values.isna().to_numpy()).any():
            row = int(np.flatnonzero(missing)[0]) + 1
            raise SilodpError(
                f"Silo {self.about.silo!r}: the exposure {beside.exposure_column!r} is missing in "
                f"row {row}: fill it, or leave the column out, and predictions are for an exposure "
                "of 1."
            )
        exposures = numbers(self.about.silo, beside.exposure_column or "", values)
        if not (exposures > 0).all():
            raise SilodpError(
                f"Silo {self.about.silo!r}: the exposure {beside.exposure_column!r} is "
                f"{exposures.min():g} in a row: give exposures above 0."
            )
        return exposures

    def _encoded(self, frame: pd.DataFrame) -> np.ndarray:
        try:
            return self.about.preparation.features(self.about.silo, frame)
        except TypeError as error:  # values such as lists, which cannot be categories
            raise SilodpError(
                f"Silo {self.about.silo!r}: the table holds values that are not categories "
                f"({error}): give words, numbers or true/false."
            ) from None

    def _features(self, x: np.ndarray) -> np.ndarray:
        about = self.about
        if self.only_encoded == "image" and x.dtype == np.uint8 and x.ndim == 4 and len(x):
            info = about.preparation.encoder.columns[0].encoder
            assert info is not None
            x = features_of(encoder_of(info), list(x))
        if x.shape[1:] != about.input_shape or not len(x) or x.dtype.kind not in "fiub":
            raise SilodpError(
                f"Silo {about.silo!r}: features are {x.dtype} {list(x.shape)}, but its model takes "
                f"numbers [records, {', '.join(map(str, about.input_shape))}]: give these."
            )
        noisy = about.preparation.noisy is not None
        if about.pixels is not None and x.dtype == np.uint8:
            if not noisy:
                return x
            x = pixel_values(x.astype(np.float32), *about.pixels)
        return about.preparation.finished(x.astype(np.float32))

    def _probabilities(self, outputs: np.ndarray) -> np.ndarray | None:
        if not self.model.has_probabilities:
            return None
        return get_task(self.about.task).probabilities(outputs.astype(np.float64))


def load_model(
    path: Path | str,
    custom_model: Model | None = None,
    silo: str | None = None,
    encoders: Sequence[Any] = (),
) -> PersonalModel:
    """Loads a silo's own model, as `--save-models` writes it.

    Args:
      path: the silo's folder or its card; or the folder of the run.
      custom_model: the `custom_model` of the run, if it had one; it must be that model.
      silo: whose model it is, where `path` is the folder of a run.
      encoders: what made features of images or texts, where it is not built in: files of ONNX, or
        what `silodp.encoder` makes. Others than those of the run are refused.

    Examples:
      >>> from pathlib import Path
      >>> result = silodp.run(
      ...     data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2,
      ...     keep_models=True, out="runs/models",
      ... )
      >>> silodp.load_model("runs/models", silo="silo-01").card["method"]
      'fedavg'
    """
    card = read_card(path, silo)
    _take_encoders(card, encoders)
    file = card.path.parent / MODEL_FILE
    if not file.is_file():
        raise SilodpError(f"{file} does not exist, but its card does: get the folder again.")
    content = read_bounded(file, MOST_BYTES, "get the file again")
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise SilodpError(
            f"{file} is not the model of its card (another sha256): it is damaged, or it was "
            "exchanged; get both again."
        )
    model = model_of_card(card, custom_model)
    like = jax.eval_shape(model.init, jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(like)
    arrays = read_arrays(file, content, {array_name(path): leaf for path, leaf in leaves})
    params = jax.tree.unflatten(jax.tree.structure(like), map(jnp.asarray, arrays.values()))
    return PersonalModel(card, model, params)


def _take_encoders(card: Card, encoders: Sequence[Any]) -> None:
    """Makes the encoders that were given ready; refuses those that did not make the features."""
    columns = card.preparation.encoder.columns
    needed = [column.encoder for column in columns if column.encoder is not None]
    for wanted in encoders:
        if not needed:
            raise SilodpError(f"{card.path}: its model takes no features of an encoder: give none.")
        sizes = [one.size or None for one in needed] if isinstance(wanted, str | Path) else [None]
        given = [encoder_info(wanted, size=size, no_cache=True) for size in dict.fromkeys(sizes)]
        if not {one.sha256 for one in given} & {one.sha256 for one in needed}:
            nearest = next((one for one in needed if one.name == given[0].name), needed[0])
            check_same(nearest, given[0])


def model_of_card(card: Card, custom: Model | None) -> Model:
    """The model that a card names; `custom` where it is one of the user's own."""
    if card.built_in:
        model = _built_in(card.name, card.task, card.input_shape, card.num_classes, card.pixels)
    elif custom is None:
        raise SilodpError(
            f"{card.path}: the model {card.name!r} is a custom one: load it in Python, with "
            "silodp.load_model(..., custom_model=...)."
        )
    else:
        model = custom if card.pixels is None else on_pixels(custom, *card.pixels)
    return model._replace(threshold=card.threshold)


@lru_cache(maxsize=16)
def _built_in(
    name: str,
    task: TaskName,
    input_shape: tuple[int, ...],
    num_classes: int,
    pixels: tuple[float, float] | None,
) -> Model:
    """The same functions for silos alike, so that they are compiled once for all."""
    model = get_model(name, task, input_shape, num_classes)
    return model if pixels is None else on_pixels(model, *pixels)


def unused_columns(model: PersonalModel, columns: Sequence[str]) -> list[str]:
    """The columns of a table that the model does not use."""
    known = {*model.columns, *model.about.preparation.target.columns}
    return [column for column in columns if column not in known]
