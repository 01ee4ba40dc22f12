"""From a table of runs to settings: means over seeds, and the best setting of each curve.

A table has one row per run, seed and round (`run` is the id of a setting). Pictures show what these
functions return, and `numbers` of a picture is the same as a table.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from silodp.figures.style import curve_name

# Columns that are no options of the sweep.
_KEYS = ("run", "seed", "round", "metric")
_OUTCOMES = ("value", "epsilon_spent", "noise_multiplier", "proven", "seconds")
_NUMBERS = ("panel", "curve", "method", "metric", "x", "mean", "std", "standard_error", "seeds")
LOWER_IS_BETTER = {"mse": True, "accuracy": False}


def select(table: pd.DataFrame, wanted: Any) -> pd.DataFrame:
    """The rows for which `wanted` holds."""
    return cast(pd.DataFrame, table.loc[wanted])


def where(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows with these values."""
    wanted = np.ones(len(table), bool)
    for column, value in values.items():
        wanted &= (table[column] == value).to_numpy(bool)
    return select(table, wanted)


def values_of(table: pd.DataFrame, column: str) -> list[Any]:
    """The different values of a column, sorted, without empty ones."""
    return sorted(table[column].dropna().unique().tolist())


def options_of(table: pd.DataFrame) -> list[str]:
    """The columns that say what a run was asked for, `method` and `epsilon` among them."""
    return [name for name in table.columns if name not in (*_KEYS, *_OUTCOMES)]


def with_curves(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the name of the curve that a row belongs to, and numbers as numbers."""
    numeric = {n: table[n].astype(float) for n in ("epsilon", "lam") if n in table.columns}
    selects = table["select_fraction"] if "select_fraction" in table.columns else None
    fractions = [np.nan] * len(table) if selects is None else selects.astype(float)
    pairs = zip(table["method"], fractions, strict=True)
    return table.assign(**numeric, curve=[curve_name(*pair) for pair in pairs])


def at_last_round(table: pd.DataFrame) -> pd.DataFrame:
    """Of each run, the rows of its last round."""
    return select(table, table["round"] == table.groupby("run")["round"].transform("max"))


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """One row per setting and round: its options, and mean, deviation and error over seeds.

    A setting that diverged with any seed has the mean NaN: it is no setting to recommend. The
    deviation of a single seed is 0, as in results of runs.
    """
    rows = []
    columns = ["run", "round", "metric", *options_of(table)]
    for _, group in table.groupby(["run", "round"], sort=False):
        values = group["value"].to_numpy(float)
        std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        row: dict[str, Any] = {name: group[name].iloc[0] for name in columns}
        row |= {"mean": float(np.mean(values)), "std": std, "seeds": len(values)}
        row["standard_error"] = std / np.sqrt(len(values))
        row["noise_multiplier"] = float(np.mean(group["noise_multiplier"].to_numpy(float)))
        rows.append(row)
    return pd.DataFrame(rows)


def metric_of(table: pd.DataFrame) -> str:
    """The one metric of a table."""
    (metric,) = table["metric"].unique()
    return metric


def best_of(settings: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The row with the best mean for each value of the columns `by`; the first of equals."""
    sound = select(settings, settings["mean"].notna())
    if sound.empty:
        return sound
    sign = 1 if LOWER_IS_BETTER[metric_of(sound)] else -1
    order = np.argsort(sign * sound["mean"].to_numpy(float), kind="stable")
    return sound.iloc[order].drop_duplicates(list(by)).sort_index()


def best_runs(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """All rounds, over seeds, of the settings that are best at the last round."""
    best = best_of(over_seeds(at_last_round(table)), by)
    return over_seeds(select(table, table["run"].isin(best["run"].tolist())))


def as_numbers(parts: Iterable[tuple[str, pd.DataFrame]], more: Sequence[str] = ()) -> pd.DataFrame:
    """One table of what is drawn, of panels by name: the points, then the options behind them.

    `more` are columns of the picture's own. Options that no point has are left out.
    """
    rows = [part.assign(panel=name) for name, part in parts if not part.empty]
    if not rows:
        return pd.DataFrame(columns=[*_NUMBERS, *more])
    table = pd.concat(rows, ignore_index=True)
    first = [*_NUMBERS, *more]
    skipped = {*first, *_KEYS, *_OUTCOMES, "data"}
    options = [n for n in table.columns if n not in skipped and bool(table[n].notna().any())]
    return cast(pd.DataFrame, table[[*first, *options]])
