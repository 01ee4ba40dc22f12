"""What a data source is: how it is described, what it can be asked, and how it is loaded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from silodp.datasets.files import DataFile
from silodp.datasets.split import check_seed, check_test_fraction
from silodp.errors import SilodpError, one_of
from silodp.federation import Federation, Task

# Every source may be given these; what else it takes, it names in `DataSource.takes`.
COMMON_OPTIONS = frozenset({"preprocess", "test_fraction"})


@dataclass(frozen=True)
class Defaults:
    """Training settings that fit a data set; a run takes them where the user says nothing."""

    model: str
    rounds: int
    batch_size: int
    clip: float
    lr: float
    delta: float
    preprocess: str
    small_silos: Literal["refuse", "full-batch"] = "refuse"


@dataclass(frozen=True)
class DataOptions:
    """What the user asks of a source; `None` takes the source's default.

    Attributes:
      data_dir: folder that holds the data files, looked into first.
      preprocess: one of the source's `preprocessings`.
      test_fraction: share of each silo's records that is kept for testing.
      task: regression, binary or multiclass (tables, synthetic).
      silo_column: column that names a record's silo (tables in one file).
      subject_column: column that names the person a record is about (tables); privacy then protects
        a person with all records in a silo.
      target: column to predict (tables).
      drop_missing: drop rows with missing values instead of refusing them (tables).
      schema: TOML file of declarations (tables); what is given directly goes before it.
      ignore: columns to leave out (tables).
      levels: declared levels of category columns (tables).
      bounds: declared lowest and highest value of number columns (tables).
      target_range: declared lowest and highest target (tables).
      classes: declared class list (tables); of two classes the second is +1.
      silos: how many silos to make (synthetic).
      records: records of the smallest and of the largest silo (synthetic).
      records_per_subject: how many records each subject has; without it there are none (synthetic).
      features: how many features a record has (synthetic).
      heterogeneity: how far silos lie apart (synthetic).
      noise: standard deviation of the noise on a regression target (synthetic).
    """

    data_dir: Path | None = None
    preprocess: str | None = None
    test_fraction: float | None = None
    task: Task | None = None
    silo_column: str | None = None
    subject_column: str | None = None
    target: str | None = None
    drop_missing: bool | None = None
    schema: Path | None = None
    ignore: Sequence[str] | None = None
    levels: Mapping[str, Sequence] | None = None
    bounds: Mapping[str, tuple[float, float]] | None = None
    target_range: tuple[float, float] | None = None
    classes: Sequence | None = None
    silos: int | None = None
    records: tuple[int, int] | None = None
    records_per_subject: int | None = None
    features: int | None = None
    heterogeneity: float | None = None
    noise: float | None = None


@dataclass(frozen=True)
class DataSource:
    """A data set that can be loaded by name, or a user's own table.

    Attributes:
      name: what the user types.
      summary: one line.
      citation: where the data come from.
      licence: what is known of it.
      files: what `silodp data get` fetches; empty where no file is needed.
      defaults: training settings that fit.
      preprocessings: the names that `preprocess` may take.
      takes: options used besides the common ones; any other is refused rather than ignored.
      read: makes the federation from a seed and options that have been checked; use `load`.
      defaults_for: the defaults where they depend on the options (such as the task).
    """

    name: str
    summary: str
    citation: str
    licence: str
    files: tuple[DataFile, ...]
    defaults: Defaults
    preprocessings: tuple[str, ...]
    takes: frozenset[str]
    read: Callable[[int, DataOptions], Federation]
    defaults_for: Callable[[DataOptions], Defaults] | None = None

    def load(self, seed: int, options: DataOptions | None = None) -> Federation:
        """The federation drawn with `seed`; the same seed and options give the same one."""
        options = options or DataOptions()
        self.check_options(options)
        check_seed(seed)
        return self.read(int(seed), options)

    def check_options(self, options: DataOptions) -> None:
        """Refuses options that this source does not use, and values that no source can use."""
        for field in fields(options):
            given = getattr(options, field.name) is not None
            if given and field.name not in self.takes | COMMON_OPTIONS:
                raise SilodpError(
                    f"Data set {self.name!r} does not use the option {field.name!r}: leave it out."
                )
        if options.test_fraction is not None:
            check_test_fraction(options.test_fraction)
        if options.preprocess is not None and options.preprocess not in self.preprocessings:
            raise SilodpError(
                f"Data set {self.name!r} has no preprocessing {options.preprocess!r}: choose "
                f"{one_of(options.preprocess, self.preprocessings)}."
            )

    def with_options(self, options: DataOptions) -> "DataSource":
        """This source with the defaults that fit the options."""
        if self.defaults_for is None:
            return self
        return replace(self, defaults=self.defaults_for(options))
