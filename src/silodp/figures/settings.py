"""From a table of runs to the points that pictures show and that a figure's CSV file holds."""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.figures.definition import Definition
from silodp.figures.looks import curve_name
from silodp.sweeps.settings import at_last_round, best_of, over_seeds, select
from silodp.sweeps.table import MEASURED

_NUMBERS = (
    *("panel", "curve", "method", "metric", "x"),
    *("mean", "std", "standard_error", "seeds", "per_seed"),
)


def with_curves(table: pd.DataFrame) -> pd.DataFrame:
    """Adds the name of each row's curve to the table, and makes its numbers floats."""
    numeric = {n: table[n].astype(float) for n in ("epsilon", "lam") if n in table.columns}
    selects = table["select_fraction"] if "select_fraction" in table.columns else None
    fractions = [np.nan] * len(table) if selects is None else selects.astype(float)
    pairs = zip(table["method"], fractions, strict=True)
    return table.assign(**numeric, curve=[curve_name(*pair) for pair in pairs])


def settings_of(table: pd.DataFrame) -> pd.DataFrame:
    """Each setting's results at the last round, over seeds."""
    return over_seeds(at_last_round(with_curves(table)))


def best_runs(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """All rounds, over seeds, of the settings that are best at the last round."""
    best = best_of(over_seeds(at_last_round(table)), by)
    return over_seeds(select(table, table["run"].isin(best["run"].tolist())))


def as_numbers(
    definition: Definition,
    parts: Iterable[tuple[str, pd.DataFrame]],
    more: Sequence[str] = (),
) -> pd.DataFrame:
    """Joins the points of panels into one table, with the options behind them.

    `more` are further columns of the picture. Options that no point has are left out.
    """
    rows = [part.assign(panel=name) for name, part in parts if not part.empty]
    if not rows:
        raise SilodpError(
            f"Figure {definition.name!r}: there is nothing to draw, since every run diverged or "
            "has no place in this picture: look at the tables of its panels."
        )
    table = pd.concat(rows, ignore_index=True)
    first = [*_NUMBERS, *more]
    skipped = {*first, "run", *MEASURED, "data"}
    options = [n for n in table.columns if n not in skipped and bool(table[n].notna().any())]
    return cast(pd.DataFrame, table[[*first, *options]])
