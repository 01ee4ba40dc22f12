"""The models of a result that still holds them: one by name, or all for the rows of a table."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from silodp.base.arrays import array_name, arrays_content
from silodp.base.errors import SilodpError, meant
from silodp.data.tables.files import check_column, values_of
from silodp.data.tables.schema import level_text
from silodp.models.model import Model
from silodp.results.model_export.card import checked_card
from silodp.results.model_export.files import card_of
from silodp.results.model_export.personal_model import PersonalModel, model_of_card

if TYPE_CHECKING:
    from silodp.results.result import Result


def personal_model(result: "Result", silo: str, custom_model: Model | None = None) -> PersonalModel:
    """The model of a silo that a result holds, as `load_model` gives it of files."""
    names = [one["silo"] for one in result.per_silo]
    if result.models is None or not result.cards:
        raise SilodpError(
            "The result holds no models: run with keep_models=True (silodp.fit does), or load a "
            "model from its folder (silodp.load_model)."
        )
    if silo not in names:
        raise SilodpError(f"Silo {silo!r} is unknown: {meant(silo, names)}")
    place = names.index(silo)
    card = checked_card(Path(f"(silo {silo!r} of a result)"), card_of_silo(result, place))
    params = jax.tree.map(jnp.asarray, _params(result, place))
    return PersonalModel(card, model_of_card(card, custom_model), params)


def card_of_silo(result: "Result", place: int) -> dict[str, Any]:
    """The content of the card of the silo at that place, of a result that holds models."""
    assert result.cards is not None
    leaves = jax.tree_util.tree_leaves_with_path(_params(result, place))
    arrays = {array_name(path): array for path, array in leaves}
    digest = hashlib.sha256(arrays_content(arrays)).hexdigest()
    return card_of(result, place, result.cards[place], arrays, digest)


def _params(result: "Result", place: int) -> Any:
    """The silo's model of the first seed: see `meaning_of_seed`."""
    return jax.tree.map(lambda array: np.asarray(array)[0, place], result.models)


def predicted(result: "Result", frame: pd.DataFrame, silo: str | None) -> pd.Series:
    """Predictions for the rows of a table, each by the model of its silo, with the table's index.

    `silo` is the column that names a row's silo; by default, that of the run.
    """
    column = silo or result.options.get("silo_column")
    if column is None:
        raise SilodpError(
            "The run's records came without a silo column: give the column that names each row's "
            "silo (silo=...), or predict with one silo's model (result.model(...))."
        )
    check_column("The frame", frame, column, "silo")
    owners = np.array([level_text(value) for value in values_of(frame, column)], dtype=object)
    values: list[Any] = [None] * len(frame)
    for name in dict.fromkeys(owners):
        rows = np.flatnonzero(owners == name)
        said = personal_model(result, name).predict(frame.iloc[rows])
        for row, value in zip(rows, said.values, strict=True):
            values[row] = value
    return pd.Series(values, index=frame.index, name=result.options.get("target")).infer_objects()
