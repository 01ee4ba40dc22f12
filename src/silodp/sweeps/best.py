"""The best setting of each method in a sweep's table, with standard errors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from silodp.config.options import tagged
from silodp.sweeps.settings import at_last_round, best_of, options_of, over_seeds

if TYPE_CHECKING:
    import pandas as pd

# The tuned options: settings that differ in any other option are not compared.
TUNED = tagged("tuned")
TUNING_NOTE = (
    "the best setting is chosen by its test metric over all that were tried, and this choice is "
    "not in epsilon: silodp tune chooses privately, and counts it"
)


def best_by_method(table: "pd.DataFrame", by: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The setting with the best mean, for each method and each value of the options `by`.

    By default `by` is every option of the table that is not tuned: data, epsilon and so on. Each
    row also says how many settings it is the best of (`tried`), and how many of these `diverged`;
    where all did, its `mean` is NaN. Rows are in the order of the table.
    """
    settings = over_seeds(at_last_round(table))
    if by is None:
        by = [name for name in options_of(table) if name not in TUNED]
    keys = list(dict.fromkeys([*(name for name in by if name != "method"), "metric", "method"]))
    rows = []
    for _, group in settings.groupby(keys, sort=False, dropna=False):
        best = best_of(group, ["method"])
        chosen = dict((group if best.empty else best).iloc[0])
        diverged = int(np.isnan(group["mean"].to_numpy(float)).sum())
        rows.append(chosen | {"tried": len(group), "diverged": diverged})
    # Sorted by budget and so on, then by method; each in the order of the table.
    order = {key: {_key(v): n for n, v in enumerate(settings[key].unique())} for key in keys}
    return sorted(rows, key=lambda row: [order[key][_key(row[key])] for key in keys])


def _key(value: Any) -> Any:
    """The value as a dictionary key: NaN (no such option) is not equal to itself."""
    return None if value != value else value
