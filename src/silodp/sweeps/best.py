"""The best setting of each method in a sweep's table, with standard errors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from silodp.config.options import tagged
from silodp.sweeps.settings import at_last_round, best_of, options_of, over_seeds

if TYPE_CHECKING:
    import pandas as pd

# What one tunes; settings that differ in anything else are not compared with each other.
TUNED = tagged("tuned")
TUNING_NOTE = (
    "the best setting is chosen by its test metric over all that were tried, and this choice is "
    "not in epsilon: silodp tune chooses privately, and counts it"
)


def best_by_method(table: "pd.DataFrame", by: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """For each method, and each value of `by`, the setting with the best mean.

    `by` is, unless given, every option of the table that is not a matter of tuning: data, epsilon
    and so on. Besides, each row says how many settings it is the best of (`tried`), and how many of
    these diverged; where all did, its `mean` is NaN. Rows are in the order of the table.
    """
    settings = over_seeds(at_last_round(table))
    if by is None:
        by = [name for name in options_of(table) if name not in TUNED]
    keys = list(dict.fromkeys([*(name for name in by if name != "method"), "metric", "method"]))
    rows = []
    for _, same in settings.groupby(keys, sort=False, dropna=False):
        best = best_of(same, ["method"])
        chosen = dict((same if best.empty else best).iloc[0])
        rows.append(
            chosen
            | {"tried": len(same), "diverged": int(np.isnan(same["mean"].to_numpy(float)).sum())}
        )
    # By budget and so on, methods within; each in the order of the table.
    order = {key: {_key(v): n for n, v in enumerate(settings[key].unique())} for key in keys}
    return sorted(rows, key=lambda row: [order[key][_key(row[key])] for key in keys])


def _key(value: Any) -> Any:
    """NaN (no such option) is not equal to itself, and would not be found."""
    return None if value != value else value
