"""Who holds what: a federation of named silos with train and test records.

Every check of the records themselves lives here, so that whatever reaches an engine is known to be
whole: finite numbers, one shape, labels that fit the task, no empty silo.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.html_table import html_table
from silodp.base.text import shown
from silodp.config.choices import TaskName
from silodp.data.tasks import PublicKnowledge, get_task

if TYPE_CHECKING:
    from silodp.data.encoders.encoder import EncoderInfo
    from silodp.data.preparation import Preparation

BOUND_TOLERANCE = 1e-6

# Larger ones have gradients beyond single precision, and no gradient that can be clipped.
_LARGEST = 1e12


@dataclass(frozen=True)
class Records:
    """Records of one silo: `x` is [n, *input_shape]; `y` is [n], or [n, ...] as the task has it.

    `y` holds real numbers (regression), -1 and +1 (binary), class numbers from 0 (multiclass,
    ordinal), counts [n] or counts with exposures [n, 2] (count), or times with events, as
    `silodp.data.tasks.hazard.labels_of_times` makes labels of them (hazard).
    `x` holds numbers, or (in a federation that says so by `pixels`) images in one byte a value.
    `subject` [n] is the number of the person that each record is about, where a person may have
    several: from 0, without gaps, within these records alone.
    `absent` [n, *input_shape] says which features stand for a missing value that is to count as the
    silo's noisy mean, once a run has paid for it.

    Examples:
      >>> import numpy as np
      >>> records = silodp.Records(x=np.zeros((3, 2)), y=np.array([0.0, 1.0, 2.0]))
      >>> len(records), records.units
      (3, 3)
    """

    x: np.ndarray
    y: np.ndarray
    subject: np.ndarray | None = None
    absent: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def units(self) -> int:
        """How many there are of what privacy protects: subjects if they are known, else records."""
        return len(self) if self.subject is None else len(np.unique(self.subject))

    def take(self, rows: np.ndarray) -> "Records":
        """The records at these rows, in that order; their subjects are numbered anew."""
        subject = None
        if self.subject is not None:
            subject = np.unique(self.subject[rows], return_inverse=True)[1]
        absent = None if self.absent is None else self.absent[rows]
        return Records(self.x[rows], self.y[rows], subject, absent)


@dataclass(frozen=True)
class ExpectedCounts:
    """What is public of a silo whose records are parted by coins.

    How many of them are for training hangs on what each record holds, and so is a secret. These
    numbers follow from how many records (or subjects) the silo has, and from public options.

    Attributes:
      train: training units (records or subjects) that are expected; at least 1.
      test: test records that are expected; at least 1.
      max_count: units that the silo has: no more can be for training.
    """

    train: int
    test: int
    max_count: int


@dataclass(frozen=True)
class Silo:
    """A site that holds records which may not leave it.

    `preparation` says how they were made from what the silo has, where that is known. `expected` is
    what is public instead of the numbers of records that are really there; None says that these
    are no secret of single records (as where a silo's parts were given, not drawn by coins).

    Examples:
      >>> import numpy as np
      >>> records = silodp.Records(x=np.zeros((3, 2)), y=np.array([0.0, 1.0, 2.0]))
      >>> silodp.Silo("north", train=records, test=records).public_count
      3
    """

    name: str
    train: Records
    test: Records
    preparation: "Preparation | None" = None
    expected: ExpectedCounts | None = None

    @property
    def public_count(self) -> int:
        """n_k as far as it is public: training units, expected or real."""
        return self.train.units if self.expected is None else self.expected.train

    @property
    def public_test_count(self) -> int:
        """Test records, expected or real."""
        return len(self.test) if self.expected is None else self.expected.test

    @property
    def max_test_count(self) -> int:
        """Test records that there may be; by subject, noisy metrics have no price."""
        return len(self.test) if self.expected is None else self.expected.max_count

    @property
    def max_count(self) -> int:
        """Training units that there may be."""
        return self.train.units if self.expected is None else self.expected.max_count


@dataclass(frozen=True, repr=False)
class Federation:
    """Named silos that learn one task together.

    Attributes:
      name: what the data are called in results.
      silos: at least one, with distinct names.
      task: regression, binary, multiclass, count, ordinal or hazard.
      num_classes: of a multiclass or ordinal task, or how many intervals of time a hazard task
        has; else 0. Public: neither classes nor cut points are learned from the records.
      uncovered: what was released about the records before any query, in words (such as
        standardising by training statistics). It is repeated in every result, because no epsilon
        covers it.
      declared: the kinds of public knowledge that loading made use of: what a feature may hold (its
        bounds or levels), the range of the labels, the list of the classes.
      feature_bound: a public bound on |x| of every feature, where preprocessing guarantees one.
      pixels: what 0 and 255 stand for, of images kept in one byte a value (dtype uint8).
        They take a quarter of the memory, and become numbers where a model uses them.
      class_names: names of the classes in the order of the labels, where they have names.
      feature_names: names of one record's features, flattened, where they have names.
      left_out: silos that options left out (see `silo_choice`), by name.

    Examples:
      >>> import numpy as np
      >>> records = silodp.Records(x=np.zeros((3, 2)), y=np.array([0.0, 1.0, 2.0]))
      >>> north = silodp.Silo("north", train=records, test=records)
      >>> federation = silodp.Federation("clinics", (north,), task="regression")
      >>> federation.names, federation.task, federation.input_shape
      (('north',), 'regression', (2,))
    """

    name: str
    silos: tuple[Silo, ...]
    task: TaskName
    num_classes: int = 0
    uncovered: tuple[str, ...] = ()
    declared: tuple[PublicKnowledge, ...] = ()
    feature_bound: float | None = None
    pixels: tuple[float, float] | None = None
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __post_init__(self):
        silos = tuple(
            _in_own_types(silo, self.task, self.pixels is not None) for silo in self.silos
        )
        object.__setattr__(self, "silos", silos)
        if self.pixels is not None:
            if "feature bounds" not in self.declared:
                object.__setattr__(self, "declared", ("feature bounds", *self.declared))
            object.__setattr__(self, "feature_bound", float(max(map(abs, self.pixels))))
        check_federation(self)

    def __repr__(self) -> str:
        silos, shape = len(self.silos), "x".join(map(str, self.input_shape))
        return (
            f"Federation({shown(self.name)}: {self.task}, {silos} silo{'s' * (silos != 1)}, "
            f"{self.public_counts.sum()} to train on, features {shape})"
        )

    def _repr_html_(self) -> str:
        rows = [(silo.name, silo.public_count, silo.public_test_count) for silo in self.silos]
        unit = "subjects" if self.by_subject else "records"
        return html_table(
            repr(self), ("silo", f"training {unit}", "test records"), rows, self.uncovered
        )

    @classmethod
    def from_frame(
        cls, frame: Any, *, silo: str, target: str, seed: int = 0, **options: Any
    ) -> "Federation":
        """The federation of a DataFrame, read, split and scaled as a file is.

        Args:
          frame: of pandas, or with a method `to_pandas` (Polars, Arrow).
          silo: the column that names each row's silo.
          target: the column to predict.
          seed: of the coins by which records are for training or testing.
          **options: see `DataOptions`: what a run takes of a table (`subject_column`,
            `test_fraction`, ...), and `bounds`, `levels`, `other`, `missing`, `target_range`,
            `classes`, which are public knowledge as in a schema.

        Examples:
          >>> import pandas as pd
          >>> stays = pd.DataFrame({"ward": ["a", "b"] * 20, "age": range(40), "days": range(40)})
          >>> federation = silodp.Federation.from_frame(stays, silo="ward", target="days")
          >>> federation.names, federation.feature_names
          (('a', 'b'), ('age',))
        """
        from silodp.data.tables.frame import source_and_options  # which makes federations

        source, wanted = source_and_options(frame, silo, target, options)
        return source.load(seed, wanted)

    @classmethod
    def from_images(cls, folder: Path | str, *, seed: int = 0, **options: Any) -> "Federation":
        """The federation of a folder of images, laid out as silo/class/image.

        Args:
          folder: the folder.
          seed: of the coins by which images are for training or testing.
          **options: see `DataOptions`: what a run takes of such a folder (`features`, `image_size`,
            ...), `classes`, and `encoders={"image": silodp.encoder(...)}`.
        """
        from silodp.data.images import folders  # which makes federations
        from silodp.data.source import DataOptions

        wanted = DataOptions(**options)
        return folders.source(Path(folder), wanted).load(seed, wanted)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record's features."""
        return self.silos[0].train.x.shape[1:]

    def class_name(self, label: float) -> str:
        """What a label of a classification stands for: the name of its class, else its number."""
        if self.class_names:
            return self.class_names[int(get_task(self.task).class_numbers(label))]
        return f"{label:g}"

    def decoded(self) -> "Federation":
        """This federation with images as numbers: four times the memory."""
        if self.pixels is None:
            return self
        low, high = self.pixels

        def numbers(records: Records) -> Records:
            return replace(records, x=pixel_values(records.x.astype(np.float32), low, high))

        silos = (
            replace(silo, train=numbers(silo.train), test=numbers(silo.test)) for silo in self.silos
        )
        return replace(self, silos=tuple(silos), pixels=None)

    @property
    def names(self) -> tuple[str, ...]:
        """The silos' names, in order."""
        return tuple(silo.name for silo in self.silos)

    @property
    def train_counts(self) -> np.ndarray:
        """n_k: training records of each silo."""
        return np.array([len(silo.train) for silo in self.silos])

    @property
    def test_counts(self) -> np.ndarray:
        """Test records of each silo."""
        return np.array([len(silo.test) for silo in self.silos])

    @property
    def waits_for_means(self) -> bool:
        """Whether missing values are to count as noisy means, by the rules for their columns."""
        silo = self.silos[0]
        return silo.preparation is not None and silo.train.absent is not None

    @property
    def by_subject(self) -> bool:
        """Whether privacy protects a subject with all its records in a silo, not one record."""
        return self.silos[0].train.subject is not None

    @property
    def encoders(self) -> tuple["EncoderInfo", ...]:
        """What made features of images and texts, in the order of the columns."""
        preparation = self.silos[0].preparation
        columns = () if preparation is None else preparation.encoder.columns
        found = [column.encoder for column in columns if column.encoder is not None]
        return tuple(dict.fromkeys(found))

    @property
    def unit_counts(self) -> np.ndarray:
        """What privacy protects in each silo, counted: training subjects or training records.

        Not for publication: see `public_counts`.
        """
        return np.array([silo.train.units for silo in self.silos])

    @property
    def public_counts(self) -> np.ndarray:
        """`unit_counts` as far as they are public; all that is public follows from these."""
        return np.array([silo.public_count for silo in self.silos])

    @property
    def public_test_counts(self) -> np.ndarray:
        """Test records of each silo, as far as they are public."""
        return np.array([silo.public_test_count for silo in self.silos])


def pixel_values(x, low: float, high: float):
    """What pixels from 0 to 255 stand for; for arrays of numpy and of JAX."""
    return low + (high - low) / 255 * x


def _in_own_types(silo: Silo, task: TaskName, pixels: bool) -> Silo:
    """Features as float32 (pixels as uint8), labels in the task's own type, subjects as int32."""

    def convert(records: Records, part: str) -> Records:
        for field in ("x", "y"):
            array = np.asarray(getattr(records, field))
            if array.dtype.kind not in "fiub":
                raise SilodpError(
                    f"Silo {silo.name!r}: {part} {field} has dtype {array.dtype}, which is not a "
                    "number: encode text and dates as numbers first."
                )
        y = get_task(task).own_labels(f"Silo {silo.name!r}: {part}", np.asarray(records.y))
        subject = records.subject
        if subject is not None:
            subject = np.asarray(subject)
            # Before they become int32, in which a number too large would pass for another.
            _check_subjects(f"Silo {silo.name!r}: {part}", subject, y.shape[:1])
            subject = subject.astype(np.int32)
        x = np.asarray(records.x)
        if pixels and x.dtype != np.uint8:
            raise SilodpError(
                f"Silo {silo.name!r}: {part} x has dtype {x.dtype}, but by pixels it is said "
                "to hold images in one byte a value: give uint8, or leave out pixels."
            )
        return replace(records, x=x if pixels else x.astype(np.float32), y=y, subject=subject)

    return replace(silo, train=convert(silo.train, "train"), test=convert(silo.test, "test"))


def check_federation(federation: Federation) -> None:
    """Raises `SilodpError` naming the silo, the field and the remedy if anything does not fit."""
    get_task(federation.task).check_num_classes(federation.name, federation.num_classes)
    if not federation.silos:
        raise SilodpError(
            f"Federation {federation.name!r} has no silo: give at least one with records."
        )
    repeated = [name for name, count in Counter(federation.names).items() if count > 1]
    if repeated:
        raise SilodpError(
            f"Silo name {repeated[0]!r} is used more than once: give each silo a name of its own."
        )
    _check_public(federation)
    for silo in federation.silos:
        if not silo.name:
            raise SilodpError("A silo has an empty name: give each silo a name.")
        for part, records in (("train", silo.train), ("test", silo.test)):
            # To refuse coins that left none for training would tell how they fell.
            may_be_empty = part == "test" or silo.expected is not None
            _check_records(federation, silo.name, part, records, may_be_empty)
        _check_labels(federation, silo)
        if silo.expected is not None and not _are_possible(silo.expected, silo.train.units):
            raise SilodpError(
                f"Silo {silo.name!r}: expected is {silo.expected}, but it has {silo.train.units} "
                "to train on: give at least 1 for each, and at most as many as there may be."
            )
        if (silo.train.subject is not None) != federation.by_subject:
            has, has_not = federation.silos[0].name, silo.name
            if not federation.by_subject:
                has, has_not = has_not, has
            raise SilodpError(
                f"Silo {has_not!r}: train subject is missing, but silo {has!r} has it: give every "
                "silo's training records subjects, or none's."
            )


def _are_possible(expected: ExpectedCounts, units: int) -> bool:
    """Whether public counts can be those of a silo with so many units to train on."""
    return expected.train >= 1 and expected.test >= 1 and units <= expected.max_count


def _check_public(federation: Federation) -> None:
    for kind in federation.declared:
        if kind not in get_args(PublicKnowledge):
            raise SilodpError(
                f"Federation {federation.name!r}: declared holds {kind!r}: choose from "
                f"{', '.join(get_args(PublicKnowledge))}."
            )
    pixels, bound = federation.pixels, federation.feature_bound
    if pixels is not None and not -np.inf < pixels[0] < pixels[1] < np.inf:
        raise SilodpError(
            f"Federation {federation.name!r}: pixels are {pixels!r}: give what 0 and 255 stand "
            "for, the lower number first."
        )
    classes = get_task(federation.task).count_classes(federation.num_classes)
    if federation.class_names and len(federation.class_names) != classes:
        raise SilodpError(
            f"Federation {federation.name!r}: class_names has {len(federation.class_names)} names "
            f"for {classes} classes: name each once, or none."
        )
    features, named = math.prod(federation.input_shape), len(federation.feature_names)
    if named not in (0, features):
        raise SilodpError(
            f"Federation {federation.name!r}: feature_names has {named} names for {features} "
            "features: name each once, or none."
        )
    if bound is not None and not 0 < bound < np.inf:
        raise SilodpError(
            f"Federation {federation.name!r}: feature_bound is {bound!r}: give a number above 0, "
            "or None where no bound is public."
        )


def _check_subjects(where: str, subject: np.ndarray, records: tuple[int, ...]) -> None:
    if subject.dtype.kind not in "iu":
        raise SilodpError(
            f"{where} subject has dtype {subject.dtype}: number the subjects with whole numbers "
            "from 0."
        )
    if subject.shape != records:
        raise SilodpError(
            f"{where} subject has shape {subject.shape}, but the records have {records}: give the "
            "number of each record's subject."
        )
    numbers = np.unique(subject)
    strange = numbers[numbers != np.arange(len(numbers))]
    if len(strange):
        raise SilodpError(
            f"{where} subject holds the number {strange[0]}, but {len(numbers)} subjects are "
            f"numbered 0 to {len(numbers) - 1}: number them so."
        )


def _check_records(
    federation: Federation, silo: str, part: str, records: Records, may_be_empty: bool
) -> None:
    where = f"Silo {silo!r}: {part}"
    label = get_task(federation.task).label_shape
    if records.y.shape[1:] != label or records.x.ndim < 2 or len(records.x) != len(records.y):
        shape = ", ".join(["records", *map(str, label)])
        raise SilodpError(
            f"{where} x has shape {records.x.shape} and y has shape {records.y.shape}: x must be "
            f"[records, features...] and y [{shape}], with as many records."
        )
    if len(records) == 0 and not may_be_empty:
        raise SilodpError(f"{where} has no records: leave the silo out, or give it records.")
    if records.x.shape[1:] != federation.input_shape or 0 in records.x.shape[1:]:
        raise SilodpError(
            f"{where} x has records of shape {records.x.shape[1:]}, but silo "
            f"{federation.silos[0].name!r} has {federation.input_shape}: all silos need the same "
            "features, at least one."
        )
    check_numbers(f"{where} y", records.y)
    if federation.pixels is not None:
        return  # every byte stands for a number within the bound
    check_numbers(f"{where} x", records.x)
    bound = federation.feature_bound
    if bound is not None:
        # Single precision rounds; more than that is not within the bound.
        outside = np.abs(records.x) > bound + BOUND_TOLERANCE * max(1.0, bound)
        if outside.any():
            row = int(np.argwhere(outside)[0][0])
            raise SilodpError(
                f"{where} x holds {int(outside.sum())} values beyond the feature_bound {bound:g} "
                f"(the first in record {row}): clip the features to it, or declare no bound."
            )


def check_numbers(where: str, array: np.ndarray) -> None:
    """Refuses what is no number, and what is too large for single precision."""
    bad = ~np.isfinite(array)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise SilodpError(
            f"{where} holds {int(bad.sum())} NaN or infinite values (the first in record {row}): "
            "drop or fill those records."
        )
    if np.abs(array).max(initial=0) > _LARGEST:
        row = int(np.argwhere(np.abs(array) > _LARGEST)[0][0])
        raise SilodpError(
            f"{where} holds values beyond {_LARGEST:g} (the first in record {row}), whose "
            "gradients single precision cannot hold: scale them."
        )


def _check_labels(federation: Federation, silo: Silo) -> None:
    task = get_task(federation.task)
    for part, records in (("train", silo.train), ("test", silo.test)):
        if strange := task.strange_labels(records.y, federation.num_classes):
            raise SilodpError(
                f"Silo {silo.name!r}: {part} y holds the label {strange[0]:g}, but a {task.name} "
                f"task here takes {task.allowed_labels(federation.num_classes)}: encode the "
                "labels so."
            )
