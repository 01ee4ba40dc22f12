"""What a data source is: how it is described, which options it takes, and how it is loaded."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import get_args

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import SmallSilos, Split
from silodp.config.data_options import DataOptions
from silodp.data.encoders.pixels import with_features
from silodp.data.federation import Federation
from silodp.data.files import DataFile
from silodp.data.silo_choice import leave_out
from silodp.data.split import check_density, check_seed, check_test_fraction

# Every source may be given these; what else it takes, it names in `DataSource.takes`.
COMMON_OPTIONS = frozenset(
    {
        *("preprocess", "density", "only_silos", "exclude_silos", "min_records"),
        *("features", "encoders"),
    }
)
# Besides these, where features are asked for.
_OF_FEATURES = frozenset({"image_size", "no_cache"})


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
    small_silos: SmallSilos = "refuse"


@dataclass(frozen=True)
class InPaper:
    """What the paper's table says of a data set."""

    silos: int
    features: tuple[int, ...]
    least: int  # records of the smallest silo, for training where nothing else is said
    most: int
    before_split: bool = False  # the two are of training and testing together


def whole_number(option: str, value: int | None, default: int) -> int:
    """The value of an option that counts something, by default `default`."""
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SilodpError(f"The option {option!r} is {value!r}: give a whole number of at least 1.")
    return value


@dataclass(frozen=True)
class DataSource:
    """A data set that can be loaded by name, or a user's own table.

    Attributes:
      name: what the user types.
      summary: one line.
      citation: where the data come from.
      licence: what is known of it.
      files: what `silodp data get` fetches; empty where no file is needed.
      by_hand: what a person must do where no file can be fetched without asking.
      defaults: training settings that fit.
      preprocessings: the names that `preprocess` may take.
      takes: options used besides the common ones; any other is refused rather than ignored.
      read: makes the federation from a seed and options that have been checked; use `load`.
      defaults_for: the defaults where they depend on the options (such as the task).
      in_paper: what the paper's table says, where it has the data set.
      chooses_silos: `read` leaves out silos by itself, before their records are checked.
      encodes: `read` makes the features that options ask for by itself.
      said: what a person should know of how a user's own table was read.
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
    by_hand: str = ""
    in_paper: InPaper | None = None
    chooses_silos: bool = False
    encodes: bool = False
    said: tuple[str, ...] = ()

    def load(self, seed: int, options: DataOptions | None = None) -> Federation:
        """The federation drawn with `seed`; the same seed and options give the same one."""
        options = options or DataOptions()
        self.check_options(options)
        check_seed(seed)
        federation = self.read(int(seed), options)
        if not self.chooses_silos:
            federation = leave_out(federation, options)
        if self.encodes:
            return federation
        return with_features(federation, options)

    def check_options(self, options: DataOptions) -> None:
        """Refuses options that this source does not use, and values that no source can use."""
        known = self.takes | COMMON_OPTIONS
        if options.features or options.encoders:
            known |= _OF_FEATURES
        for field in fields(options):
            given = getattr(options, field.name) is not None
            if given and field.name not in known:
                raise SilodpError(
                    f"Data set {self.name!r} does not use the option {field.name!r}: leave it out."
                )
        if options.test_fraction is not None:
            check_test_fraction(options.test_fraction)
        if options.density is not None:
            check_density(options.density)
        if options.split is not None and options.split not in get_args(Split):
            raise SilodpError(
                f"split is {options.split!r}: choose {one_of(options.split, get_args(Split))}."
            )
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
