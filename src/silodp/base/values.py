"""Converts values to those that JSON can hold."""

import math
from pathlib import Path
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """The value in JSON's types; infinity, which JSON lacks, becomes "inf", and NaN null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
