"""Columns of images (paths of their files) and of texts, which an encoder makes features of."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.config.data_options import DataOptions
from silodp.data.encoders.encoder import EncoderInfo
from silodp.data.encoders.encoding import Record, features_of
from silodp.data.encoders.named import encoder_info, encoder_of
from silodp.data.images.images import ENDINGS, is_image_name
from silodp.data.problems import Fault
from silodp.data.tables.by_value import is_missing
from silodp.data.tables.files import Frames, values_of
from silodp.data.tables.schema import Schema


class ImagePath(str):
    """The path of an image as a table has it, which knows the folder that it starts from.

    No path of a table that was read from a file leads out of the folder of that file: a table may
    come from anybody.
    """

    folder: str

    @classmethod
    def within(cls, path: str, folder: Path) -> "ImagePath":
        """The path, from this folder on."""
        made = cls(path)
        made.folder = str(folder)
        return made


def column_encoders(schema: Schema, options: DataOptions) -> dict[str, EncoderInfo]:
    """The encoder of each column that has one."""
    return {
        column: encoder_info(wanted, size=options.image_size, no_cache=bool(options.no_cache))
        for column, wanted in schema.features.items()
    }


def with_image_paths(frames: Frames, encoders: Mapping[str, EncoderInfo], folder: Path) -> Frames:
    """The frames, whose paths of images now start from this folder."""
    columns = [column for column, info in encoders.items() if info.takes == "image"]
    return {silo: image_paths_in(frame, columns, folder) for silo, frame in frames.items()}


def image_paths_in(frame: pd.DataFrame, columns: Iterable[str], folder: Path) -> pd.DataFrame:
    """The frame, whose paths of images in these columns now start from this folder."""
    frame = frame.copy(deep=False)
    for column in columns:
        if column in frame:
            values = [
                value if is_missing(value) else ImagePath.within(str(value), folder)
                for value in values_of(frame, column)
            ]
            frame[column] = pd.Series(values, index=frame.index, dtype=object)
    return frame


def encoded_values(silo: str, column: str, values: pd.Series, info: EncoderInfo) -> np.ndarray:
    """The features of images or texts [rows, width]."""
    if info.takes == "text":
        records: list[Record] = [str(value) for value in values]
    else:
        records = [_image_file(silo, column, value) for value in values]
    try:
        return features_of(encoder_of(info), records).astype(np.float64)
    except SilodpError as error:
        raise SilodpError(f"Silo {silo!r}: column {column!r}: {error}") from None


def _image_file(silo: str, column: str, value: object) -> Path:
    path = Path(str(value))
    if isinstance(value, ImagePath):
        folder = os.path.realpath(value.folder)
        path = Path(folder) / str(value)
        if not Path(os.path.realpath(path)).is_relative_to(folder):
            raise _fault(
                silo, column, value, "leads out of the table's folder", "put the images there"
            )
    if not path.is_file():
        raise _fault(silo, column, value, "is no file", "write its path from the table's folder")
    if not is_image_name(path):
        remedy = f"give images that end in {', '.join(ENDINGS)}"
        raise _fault(silo, column, value, "is no image", remedy)
    return path


def _fault(silo: str, column: str, value: object, what: str, remedy: str) -> Fault:
    return Fault(
        f"Silo {silo!r}: column {column!r}",
        f"holds {str(value)!r}, which {what}",
        remedy,
        silo=silo,
        column=column,
    )
