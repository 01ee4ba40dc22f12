"""The best setting of each method in a sweep's table, with standard errors."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from silodp.methods import METHOD_OPTIONS
from silodp.sweeps.table import MEASURED

if TYPE_CHECKING:
    import pandas as pd

# What one tunes; settings that differ in anything else are not compared with each other.
TUNED = (
    *METHOD_OPTIONS,
    *("lr", "clip", "batch_size", "epochs", "rounds", "optimiser", "regulariser", "silo_lam"),
    *("select_share", "select_mechanism", "select_score", "select_bound", "method_options"),
)
TUNING_NOTE = (
    "the best setting is chosen by its test metric over all that were tried, and this choice is "
    "not in epsilon: silodp tune chooses privately, and counts it"
)


def over_seeds(table: "pd.DataFrame") -> "pd.DataFrame":
    """One row for each setting: `mean`, `std` and `standard_error` over its `seeds`, last round.

    Of one seed, the last two are not known. A setting that diverged with any seed has no mean.
    """
    last = table[table["round"] == table.groupby("run")["round"].transform("max")]
    options = [name for name in table.columns if name not in MEASURED]
    same = ("metric", "epsilon_spent", "noise_multiplier", "proven")
    first = last.groupby("run", sort=False)[[*options[1:], *same]].first()
    values = last.groupby("run", sort=False)["value"]
    diverged = values.apply(lambda of_seeds: of_seeds.isna().any())
    found = first.assign(mean=values.mean().where(~diverged), std=values.std(), seeds=values.size())
    found["standard_error"] = found["std"] / found["seeds"].map(math.sqrt)
    return found.reset_index()


def best_by_method(table: "pd.DataFrame", by: Sequence[str] | None = None) -> "pd.DataFrame":
    """For each method, and each value of `by`, the setting with the best mean.

    `by` is, unless given, every option of the table that is not a matter of tuning: data, epsilon
    and so on. Besides, each row says how many settings it is the best of (`tried`), and how many of
    these diverged.
    """
    found = over_seeds(table)
    options = [name for name in table.columns if name not in MEASURED and name != "run"]
    if by is None:
        by = [name for name in options if name not in TUNED]
    keys = list(dict.fromkeys([*(name for name in by if name != "method"), "method"]))
    signs = found["metric"].map({"mse": 1.0, "accuracy": -1.0})
    found = found.assign(_rank=signs * found["mean"])
    best = []
    for _, same in found.groupby(keys, sort=False, dropna=False):
        row = same.sort_values("_rank", kind="stable").iloc[0].drop("_rank")  # NaN last
        tried = {"tried": len(same), "diverged": int(same["mean"].isna().sum())}
        best.append(row.to_dict() | tried)
    # By budget and so on, methods within; each in the order of the table.
    order = {name: {v: n for n, v in enumerate(found[name].unique())} for name in keys}
    best.sort(key=lambda row: [order[name][row[name]] for name in keys])
    return type(found)(best)
