"""GLEAM: head movements of 38 wearers of Google Glass, eating or not (Rahman et al. 2015).

The file is the authors' MATLAB file with cell arrays X and Y; the silos are the wearers. The paper
counts 27,800 records in all and 699 to 776 a wearer. That fits (38 times 731) only if those are
counted before the split into 75% for training and 25% for testing, although the paper's table calls
them training records.
"""

from silodp.data.federation import Federation
from silodp.data.files import DataFile, find_file
from silodp.data.source import DataOptions, DataSource, Defaults, InPaper
from silodp.data.sources.cell_silos import read_cell_silos
from silodp.data.sources.sensors import (
    AUTHORS_ARCHIVE,
    DEFAULT_PREPROCESS,
    PREPROCESSINGS,
    sensor_federation,
)

FILE = DataFile(name="gleam.mat", origin=AUTHORS_ARCHIVE, checksum=None)


def read(seed: int, options: DataOptions) -> Federation:
    """The wearers, each split with the same seed, as in the authors' code."""
    path = find_file("gleam", FILE.name, options.data_dir)
    silos = read_cell_silos("gleam", "wearer", path)
    return sensor_federation("gleam", path, silos, seed, options)


SOURCE = DataSource(
    name="gleam",
    summary="head movements of 38 wearers of Google Glass, eating or not (binary, 180 features)",
    citation=(
        "S. A. Rahman et al., Unintrusive eating recognition using Google Glass, PervasiveHealth "
        "2015; http://www.healthailab.org/data.html"
    ),
    licence="for non-commercial purposes; see http://www.healthailab.org/data.html",
    files=(FILE,),
    defaults=Defaults(
        model="svm",
        rounds=200,
        batch_size=64,
        clip=6.0,
        lr=0.01,
        delta=1e-4,
        preprocess=DEFAULT_PREPROCESS,
    ),
    preprocessings=PREPROCESSINGS,
    takes=frozenset({"data_dir", "test_fraction", "split"}),
    read=read,
    # Counted before the split: see above.
    in_paper=InPaper(silos=38, features=(180,), least=699, most=776, before_split=True),
)
