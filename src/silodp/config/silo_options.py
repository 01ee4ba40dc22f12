"""Reads options with a value for each silo, from a TOML file or a dictionary."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from silodp.base.documents import read_toml
from silodp.base.errors import SilodpError, meant
from silodp.config.declared import LARGEST


def lambda_of_each(
    given: Path | str | Mapping[str, float], silos: Sequence[str], usual: float
) -> tuple[float, ...]:
    """Each silo's own lambda; silos that are not named have the usual one."""
    values = dict(given) if isinstance(given, Mapping) else _read(given)
    for silo, value in values.items():
        if silo not in silos:
            raise SilodpError(f"--silo-lam: silo {silo!r} is unknown: {meant(silo, silos)}")
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
            value, bool
        )
        if not number or not value >= 0 or LARGEST < value < math.inf:
            raise SilodpError(
                f"--silo-lam: lambda of silo {silo!r} is {value!r}: give a number of at least 0 "
                f"and below {LARGEST:g}, or inf."
            )
    return tuple(float(values.get(silo, usual)) for silo in silos)


def _read(path: Path | str) -> dict[str, Any]:
    if not isinstance(path, Path | str):
        raise SilodpError(f"--silo-lam is {path!r}: give a TOML file, or a dictionary.")
    hint = 'write a line such as "silo name" = 0.5 for each silo'
    return read_toml(path, f"--silo-lam: file {path}", hint=hint)
