"""Options of the data: those of a user, and those of a data source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silodp.config.choices import Split, TaskName
from silodp.config.declared import listed, option


@dataclass(frozen=True)
class DataRequest:
    """A user's options of the data; `None` takes the source's default.

    The source says which of them it takes, and refuses the others.
    """

    preprocess: str | None = option(
        None,
        "How features are scaled: paper, bounds, norm or none, as the data set has it.",
        group="Data",
    )
    test_fraction: float | None = option(
        None, "Share of each silo's records kept for testing.", group="Data", tags={"records"}
    )
    split: Split | None = option(
        None,
        "coin: each record by itself (default of your own data), or paper: a draw over all of a "
        "silo's records, not proven (default of the paper's data).",
        group="Data",
        tags={"records"},
    )
    density: float | None = option(
        None,
        "Share of each silo's training records that is used.",
        group="Data",
        tags={"records"},
    )
    no_cache: bool | None = option(
        None,
        "Decode images again; keep no decoded copy of them.",
        group="Data",
        tags={"outside", "single"},
    )
    data_dir: Path | None = option(None, "Folder with data files, looked into first.", group="Data")
    silos: int | None = option(
        None,
        "How many silos to make (synthetic, mnist, digits, cifar10, cifar10_clip).",
        group="Data",
        least=1,
        tags={"records"},
    )
    rotations: int | None = option(
        None,
        "Groups of silos, each turned by its own angle: 1, 2 or 4 (mnist, digits).",
        group="Data",
        least=1,
        tags={"records"},
    )
    mask_ratio: float | None = option(
        None,
        "Share of white 2x2 patches in a silo's mask (mnist, digits).",
        group="Data",
        tags={"records"},
    )
    classes_per_silo: int | None = option(
        None,
        "Classes that a silo has images of (cifar10, cifar10_clip).",
        group="Data",
        least=1,
        tags={"records"},
    )
    records_per_subject: int | None = option(
        None, "Records of one subject (synthetic).", group="Data", least=1, tags={"records"}
    )
    heterogeneity: float | None = option(
        None, "How far silos lie apart (synthetic).", group="Data", tags={"records"}
    )
    only_silos: str | Sequence[str] | None = option(
        None,
        "Silos that take part, separated by commas; no others do.",
        group="Data",
        tags={"records"},
    )
    exclude_silos: str | Sequence[str] | None = option(
        None,
        "Silos to leave out, separated by commas.",
        group="Data",
        tags={"records"},
    )
    min_records: int | None = option(
        None,
        "Leaves out silos with fewer records (subjects, where they are protected), by public "
        "count.",
        group="Data",
        least=1,
        tags={"records"},
    )
    subject_column: str | None = option(
        None,
        "Column that says whom a record is about: protects people, not single records.",
        group="Privacy",
        tags={"records"},
    )
    task: TaskName | None = option(
        None,
        f"Task of a table: {listed(TaskName)}.",
        group="Your own data",
        tags={"records"},
    )
    silo_column: str | None = option(
        None,
        "Column that names a record's silo.",
        group="Data",
        basic=True,
        tags={"records"},
    )
    target: str | None = option(
        None,
        "Column of a table to predict.",
        group="Data",
        basic=True,
        tags={"records"},
    )
    schema: Path | None = option(
        None,
        "TOML file: what columns may hold; classes.",
        group="Data",
        basic=True,
        tags={"records", "named_file"},
    )
    sheet: str | None = option(
        None,
        "Sheet of a workbook that holds the table (or in a schema).",
        group="Your own data",
        tags={"records"},
    )
    ignore: str | Sequence[str] | None = option(
        None,
        "Columns of a table to leave out, separated by commas (or in a schema).",
        group="Your own data",
        tags={"records"},
    )
    drop_missing: bool | None = option(
        None,
        "Drop rows with missing values (tables), images without a label (adni).",
        group="Your own data",
        tags={"records"},
    )
    id_column: str | None = option(
        None,
        "Column of a table that names a record for good: its coin in the split goes by that.",
        group="Your own data",
        tags={"records"},
    )
    time_column: str | None = option(
        None,
        "Column of a table that orders records: each silo's latest are for testing (not proven "
        "without --test-from).",
        group="Your own data",
        tags={"records"},
    )
    test_from: str | None = option(
        None,
        "With --time-column: records of this date (or number) and later are for testing.",
        group="Your own data",
        tags={"records"},
    )
    group_column: str | None = option(
        None,
        "Column of a table whose groups the split keeps together.",
        group="Your own data",
        tags={"records"},
    )
    exposure_column: str | None = option(
        None,
        "Column of a table with each count's exposure: for how long, or of how many (count).",
        group="Your own data",
        tags={"records"},
    )
    event_column: str | None = option(
        None,
        "Column of a table that says whether a time is that of the event: 1, or 0 where it was "
        "not seen (hazard).",
        group="Your own data",
        tags={"records"},
    )
    cut_points: str | Sequence[float] | None = option(
        None,
        "Where time is cut into intervals, separated by commas (hazard; or in a schema).",
        group="Your own data",
        tags={"records"},
    )
    features: str | Sequence[str] | None = option(
        None,
        "Public encoder of images, or column=encoder of a table: scattering, efficientnet-lite0, "
        "minilm, a file FILE.onnx, none.",
        group="Data",
        tags={"records"},
    )
    image_size: int | None = option(
        None,
        "Pixels to a side that images are scaled to (adni, folders of images, --features).",
        group="Your own data",
        least=1,
        tags={"records"},
    )
    channels: str | None = option(
        None,
        "Channels of images in a folder: colour (the default) or grey.",
        group="Your own data",
        tags={"records"},
    )


@dataclass(frozen=True)
class DataOptions(DataRequest):
    """Options of a data source: a user's, and those that only a schema or Python can give.

    Attributes:
      levels: declared levels of category columns (tables).
      bounds: declared lowest and highest value of number columns (tables).
      other: by category column, the level for values that are not among the levels (tables).
      missing: by column, the number or level that a missing value counts as, "drop", or a mapping
        with value and indicator (tables).
      dates: by column of dates, origin and format (tables).
      words: by number column, what words among its numbers stand for (tables).
      encoders: by column of images or texts (of a folder of images: "image"), what makes features
        of it: a name or file as for `features`, or what `silodp.encoder` makes.
      file: how a text table is written: delimiter, decimal, thousands, encoding.
      target_range: declared lowest and highest target (tables).
      classes: declared class list (tables, folders of images); of two classes the second is +1.
      exposure_range: declared lowest and highest exposure (tables; count).
      event_value: what stands for the event in the event column (tables; hazard).
      records: record counts of the smallest and of the largest silo (synthetic).
      num_features: the number of features of a record (synthetic).
      noise: standard deviation of the noise on a regression target (synthetic).
    """

    levels: Mapping[str, Sequence] | None = None
    bounds: Mapping[str, tuple[float, float]] | None = None
    other: Mapping[str, str] | None = None
    missing: Mapping[str, Any] | None = None
    dates: Mapping[str, Any] | None = None
    words: Mapping[str, Mapping[str, float | str | None]] | None = None
    encoders: Mapping[str, Any] | None = None
    file: Mapping[str, str] | None = None
    target_range: tuple[float, float] | None = None
    classes: Sequence | None = None
    exposure_range: tuple[float, float] | None = None
    event_value: str | float | None = None
    records: tuple[int, int] | None = None
    num_features: int | None = None
    noise: float | None = None
