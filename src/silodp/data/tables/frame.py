"""A table in memory: its options by name, and the source that is bound to it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from silodp.base.errors import SilodpError, meant
from silodp.config.data_options import DataOptions
from silodp.config.options import OPTIONS
from silodp.data.source import DataSource
from silodp.data.tables.table import TAKES, source_of_frame

# Named by arguments of their own.
_OWN_ARGUMENTS = {"silo_column": "silo", "target": "target"}


def source_and_options(
    frame: Any, silo: str, target: str, options: Mapping[str, Any]
) -> tuple[DataSource, DataOptions]:
    """The source bound to a DataFrame, and the options that it was bound with.

    Args:
      frame: the table.
      silo: the column that names each row's silo.
      target: the column to predict.
      options: by name, as `DataOptions` has them.
    """
    known = [field.name for field in fields(DataOptions)]
    for name in options:
        if name in _OWN_ARGUMENTS:
            raise SilodpError(f"{name} is given by {_OWN_ARGUMENTS[name]}=: leave it out.")
        if name not in known:
            raise SilodpError(f"Option {name!r} is unknown: {meant(name, TAKES)}")
    given = {}
    for name, value in options.items():
        if name in OPTIONS:
            OPTIONS[name].check(value)
            value = OPTIONS[name].parted(OPTIONS[name].converted(value))
        given[name] = value
    wanted = DataOptions(silo_column=silo, target=target, **given)
    return source_of_frame(frame, wanted), wanted
