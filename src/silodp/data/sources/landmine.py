"""Landmine: mines and clutter in 29 fields, by radar (Xue et al. 2007).

The published features are standardised over all fields. What was known of them beforehand is
nothing but that: they are cut off at four standard deviations.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError
from silodp.base.text import numbered
from silodp.config.data_options import DataOptions
from silodp.data.files import DataFile
from silodp.data.formats.mat import read_cells
from silodp.data.source import DataSource
from silodp.data.sources.declared_table import DeclaredTable, Paths
from silodp.data.tables.table import defaults_of

FILE = DataFile(name="LandmineData.mat", origin=None, checksum=None)
FEATURES = tuple(f"feature {number}" for number in range(1, 10))
CUT_OFF = 4.0
REMEDY = "get it again (silodp data show landmine)"


def _frame(paths: Paths, options: DataOptions) -> pd.DataFrame:
    path = paths[FILE.name]
    cells = read_cells(path, ("feature", "label"), REMEDY)
    fields = zip(cells["feature"], cells["label"], strict=False)
    count = len(cells["feature"])
    if len(cells["label"]) != count or not count:
        raise _not_landmine(path)
    return pd.concat(
        [_of_field(path, numbered("field", k, count), x, y) for k, (x, y) in enumerate(fields)],
        ignore_index=True,
    )


def _of_field(path: Path, name: str, x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    if x.ndim != 2 or x.shape != (y.size, len(FEATURES)) or not np.isin(y, (0, 1)).all():
        raise _not_landmine(path)
    frame = pd.DataFrame(x.astype(np.float64), columns=list(FEATURES))
    return frame.assign(field=name, mine=np.where(y.ravel() > 0, "yes", "no"))


def _not_landmine(path: Path) -> SilodpError:
    return SilodpError(
        f"{path} does not hold features [n, {len(FEATURES)}] and labels 0 and 1 of fields: "
        f"{REMEDY}."
    )


def _declared(options: DataOptions) -> DataOptions:
    return DataOptions(
        silo_column="field",
        target="mine",
        classes=("no", "yes"),
        bounds=dict.fromkeys(FEATURES, (-CUT_OFF, CUT_OFF)),
        test_fraction=0.3,
    )


SOURCE = DataSource(
    name="landmine",
    summary="mines in 29 fields, 6 % of 14,820 places, by radar (binary, 9 features)",
    citation=(
        "Y. Xue, X. Liao, L. Carin, B. Krishnapuram, Multi-task learning for classification with "
        "Dirichlet process priors, Journal of Machine Learning Research 8 (2007) 35-63"
    ),
    licence="none stated: public, to be cited",
    files=(FILE,),
    by_hand=(
        f"get {FILE.name} from its authors (Duke University) or from a copy with code for "
        "multi-task learning, and put it into landmine/ in the data folder"
    ),
    defaults=replace(defaults_of("binary", "bounds"), delta=1e-4),
    preprocessings=("bounds", "none"),
    takes=frozenset({"data_dir", "test_fraction", "split"}),
    read=DeclaredTable("landmine", (FILE,), _frame, _declared),
)
