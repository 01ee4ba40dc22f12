"""Vehicle: acoustic and seismic features of passing vehicles, of two types (Duarte & Hu 2004).

The silos are 23 sensors. The file is the authors' MATLAB file with cell arrays X and Y, or json as
in the LEAF benchmark, such as the part of the data that comes with the code of Ditto. Which of the
two it is, its first bytes say, not its name.
"""

from pathlib import Path

from silodp.base.errors import SilodpError
from silodp.data.federation import Federation
from silodp.data.files import DataFile, find_file
from silodp.data.formats.leaf import read_leaf
from silodp.data.source import DataOptions, DataSource, Defaults, InPaper
from silodp.data.sources.cell_silos import read_cell_silos, refetch
from silodp.data.sources.sensors import (
    AUTHORS_ARCHIVE,
    DEFAULT_PREPROCESS,
    PREPROCESSINGS,
    sensor_federation,
)

FILE = DataFile(
    name="vehicle.mat",
    origin=AUTHORS_ARCHIVE,
    checksum="git:9f37fd4230ef0856f26449c28d5f6a7bdec3bd64",
    forms=("vehicle.json", "ditto_mytrain_subset.json"),
)


def is_json(path: Path) -> bool:
    """Whether the file starts as json does, rather than as a MATLAB file; it must be either."""
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise SilodpError(f"{path} cannot be read ({error}): check its permissions.") from error
    if start.startswith(b"MATLAB"):
        return False
    if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return True
    raise SilodpError(f"{path} starts neither as a MATLAB file nor as json: {refetch('vehicle')}.")


def read(seed: int, options: DataOptions) -> Federation:
    """The sensors, each split with the same seed, as in the authors' code."""
    path = find_file("vehicle", FILE.names, options.data_dir)
    from_json = is_json(path)
    if from_json:
        silos = read_leaf(path, "mend it, or fetch vehicle.mat with `silodp data get vehicle`")
    else:
        silos = read_cell_silos("vehicle", "sensor", path)
    return sensor_federation("vehicle", path, silos, seed, options, standardised_before=from_json)


SOURCE = DataSource(
    name="vehicle",
    summary="two types of vehicles as 23 road sensors hear and feel them (binary, 100 features)",
    citation=(
        "M. F. Duarte and Y. H. Hu, Vehicle classification in distributed sensor networks, Journal "
        "of Parallel and Distributed Computing 64 (2004) 826-838; "
        "https://web.archive.org/web/20110515133717/http://www.ece.wisc.edu:80/~sensit/"
    ),
    licence="unknown; made public by its authors for research, and used so since",
    files=(FILE,),
    defaults=Defaults(
        model="svm",
        rounds=400,
        batch_size=64,
        clip=6.0,
        lr=0.01,
        delta=1e-7,
        preprocess=DEFAULT_PREPROCESS,
        # Of the full data no sensor has so few; of the json part most have.
        small_silos="full-batch",
    ),
    preprocessings=PREPROCESSINGS,
    takes=frozenset({"data_dir", "test_fraction", "split"}),
    read=read,
    in_paper=InPaper(silos=23, features=(100,), least=872, most=1933),
)
