"""From a table of runs to settings: means over seeds, and the best of them.

A table has one row for each run, seed and round; `run` is the name of a setting.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from silodp.models.metrics import get_metric
from silodp.sweeps.table import MEASURED

if TYPE_CHECKING:
    import pandas as pd

_SAME = ("metric", "epsilon_spent", "noise_multiplier", "proven")


def select(table: "pd.DataFrame", wanted: Any) -> "pd.DataFrame":
    """The rows for which `wanted` holds."""
    return cast("pd.DataFrame", table.loc[wanted])


def where(table: "pd.DataFrame", **values: Any) -> "pd.DataFrame":
    """The rows with these values."""
    wanted = np.ones(len(table), bool)
    for column, value in values.items():
        wanted &= (table[column] == value).to_numpy(bool)
    return select(table, wanted)


def values_of(table: "pd.DataFrame", column: str) -> list[Any]:
    """The different values of a column, sorted, without empty ones."""
    return sorted(table[column].dropna().unique().tolist())


def options_of(table: "pd.DataFrame") -> list[str]:
    """The columns that hold options, `method` and `epsilon` among them."""
    return [name for name in table.columns if name not in ("run", *MEASURED)]


def metric_of(table: "pd.DataFrame") -> str:
    """The one metric of a table."""
    (metric,) = table["metric"].unique()
    return metric


def at_last_round(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of each run's last round."""
    return select(table, table["round"] == table.groupby("run")["round"].transform("max"))


def over_seeds(table: "pd.DataFrame") -> "pd.DataFrame":
    """One row for each setting and round: its options; mean, deviation and error over seeds.

    `per_seed` is the values themselves, as text: seeds share splits of the data, so that settings
    are best compared seed by seed.

    The mean of a setting that diverged with any seed is NaN, and so is the deviation of a single
    seed.
    """
    names = options_of(table)
    rows = []
    for (run, number), group in table.groupby(["run", "round"], sort=False):  # type: ignore[misc]
        values = group["value"].to_numpy(float)
        values = np.where(np.isfinite(values), values, np.nan)
        std = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
        first = group.iloc[0]
        row: dict[str, Any] = {"run": run, "round": number}
        row |= {name: first[name] for name in (*names, *_SAME)}
        row |= {"mean": float(np.mean(values)), "std": std, "seeds": len(values)}
        row |= {"standard_error": std / np.sqrt(len(values))}
        rows.append(row | {"per_seed": " ".join(f"{value:.7g}" for value in values)})
    columns = ["run", "round", *names, *_SAME, "mean", "std", "seeds", "standard_error", "per_seed"]
    return type(table)(rows, columns=columns)


def best_of(settings: "pd.DataFrame", by: Sequence[str]) -> "pd.DataFrame":
    """The row with the best mean for each value of the columns `by`; the first of equals.

    Empty where all settings diverged.
    """
    finite = select(settings, settings["mean"].notna())
    if finite.empty:
        return finite
    metric = get_metric(metric_of(finite))
    order = np.argsort([metric.loss_like(mean) for mean in finite["mean"]], kind="stable")
    return finite.iloc[order].drop_duplicates(list(by)).sort_index()
