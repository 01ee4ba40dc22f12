"""What a user can ask of a data source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from silodp.config.choices import Split, TaskName


@dataclass(frozen=True)
class DataOptions:
    """What the user asks of a source; `None` takes the source's default.

    Attributes:
      data_dir: folder that holds the data files, looked into first.
      preprocess: one of the source's `preprocessings`.
      test_fraction: share of each silo's records that is kept for testing; by coins it is what is
        expected.
      density: share of each silo's training records that is used; likewise.
      split: "coin" or "paper"; see `datasets.split`.
      no_cache: read the files anew, and keep no decoded copy of them.
      task: regression, binary or multiclass (tables, synthetic).
      silo_column: column that names a record's silo (tables in one file).
      subject_column: column that names the person a record is about (tables; adni: patient);
        privacy then protects a person with all records in a silo.
      id_column: column that names a record for good, by which its coin falls (tables); without it
        by all that the record holds.
      time_column: column that says when a record was made; each silo's latest are for testing
        (tables).
      test_from: with it, the records that are for testing: those of this time or later.
      group_column: column whose values are never parted by the split (tables).
      target: column to predict (tables).
      drop_missing: drop rows with missing values (tables), or images without a label (adni),
        instead of refusing them.
      schema: TOML file of declarations (tables, folders of images); what is given directly goes
        before it.
      ignore: columns to leave out (tables).
      levels: declared levels of category columns (tables).
      bounds: declared lowest and highest value of number columns (tables).
      other: of category columns, the level that takes what is not among the levels (tables).
      missing: of columns, the number or level that a missing value counts as (tables).
      target_range: declared lowest and highest target (tables).
      classes: declared class list (tables, folders of images); of two classes the second is +1.
      silos: how many silos to make (synthetic, mnist, digits, cifar10).
      rotations: groups of silos, each turned by its own angle (mnist, digits).
      mask_ratio: share of white patches in a silo's mask (mnist, digits).
      classes_per_silo: classes of which a silo holds images (cifar10).
      image_size: pixels to a side that images are brought to (adni, folders of images).
      channels: "colour" (the default) or "grey", which images are taken as (folders of images).
      records: records of the smallest and of the largest silo (synthetic).
      records_per_subject: how many records each subject has; without it there are none (synthetic).
      features: how many features a record has (synthetic).
      heterogeneity: how far silos lie apart (synthetic).
      noise: standard deviation of the noise on a regression target (synthetic).
    """

    data_dir: Path | None = None
    preprocess: str | None = None
    test_fraction: float | None = None
    density: float | None = None
    split: Split | None = None
    no_cache: bool | None = None
    task: TaskName | None = None
    silo_column: str | None = None
    subject_column: str | None = None
    id_column: str | None = None
    time_column: str | None = None
    test_from: str | None = None
    group_column: str | None = None
    target: str | None = None
    drop_missing: bool | None = None
    schema: Path | None = None
    ignore: Sequence[str] | None = None
    levels: Mapping[str, Sequence] | None = None
    bounds: Mapping[str, tuple[float, float]] | None = None
    other: Mapping[str, str] | None = None
    missing: Mapping[str, float | str] | None = None
    target_range: tuple[float, float] | None = None
    classes: Sequence | None = None
    silos: int | None = None
    rotations: int | None = None
    mask_ratio: float | None = None
    classes_per_silo: int | None = None
    image_size: int | None = None
    channels: str | None = None
    records: tuple[int, int] | None = None
    records_per_subject: int | None = None
    features: int | None = None
    heterogeneity: float | None = None
    noise: float | None = None
