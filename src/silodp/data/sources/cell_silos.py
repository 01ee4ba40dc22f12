"""Silos from a MATLAB file with cell arrays X and Y: one matrix of each a silo.

The cells may stand in a row or in a column. How many silos and features there are is the file's
own affair: what must agree is the shapes.
"""

from pathlib import Path

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.text import numbered
from silodp.data.federation import Records
from silodp.data.formats.mat import read_cells


def read_cell_silos(dataset: str, kind: str, path: Path) -> dict[str, Records]:
    """The records of each silo, as in the file; `kind` is what a silo is, such as "school"."""
    remedy = refetch(dataset)
    cells = read_cells(path, ("X", "Y"), remedy)
    xs, ys = cells["X"], cells["Y"]
    if len(xs) != len(ys) or not xs:
        raise SilodpError(f"{path} has {len(xs)} {kind}s in X, but {len(ys)} in Y: {remedy}.")
    silos = {}
    for number, (x, y) in enumerate(zip(xs, ys, strict=True)):
        name = numbered(kind, number, len(xs), least=3)
        if x.ndim != 2 or x.shape[1] != xs[0].shape[-1] or y.size != len(x) or x.size == 0:
            raise SilodpError(
                f"{path}, silo {name!r}: X has shape {x.shape} and Y has shape {y.shape}, but "
                f"[records, {xs[0].shape[-1]}] and [records, 1] are expected: {remedy}."
            )
        # Whole numbers of one byte would wrap around in any arithmetic.
        silos[name] = Records(*(a.astype(np.float64, copy=False) for a in (x, y.ravel())))
    return silos


def refetch(dataset: str) -> str:
    """What to do about a file of a data set that is not as it was published."""
    return f"fetch it again with `silodp data get {dataset}`"
