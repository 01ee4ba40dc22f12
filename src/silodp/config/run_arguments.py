"""The options of a run as keyword arguments, for completion and type checkers.

Generated from the declarations in `options.py` and `data_options.py`; write it again with
python -m silodp.config.write_arguments
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from silodp.config.choices import (
    Accountant,
    Engine,
    Entropy,
    LifetimeFilter,
    MetricName,
    Optimiser,
    Regulariser,
    Relation,
    Sampling,
    SelectMechanism,
    SelectScore,
    ServerOptimiserName,
    SmallSilos,
    Split,
    TaskName,
    Weights,
)


class _Arguments(TypedDict, total=False):
    """Arguments of runs and sweeps alike."""

    preprocess: str | None
    """How features are scaled: paper, bounds, norm or none, as the data set has it."""
    test_fraction: float | None
    """Share of each silo's records kept for testing."""
    split: Split | None
    """coin: each record by itself (default of your own data), or paper: a draw over all of a silo's
    records, not proven (default of the paper's data)."""
    density: float | None
    """Share of each silo's training records that is used."""
    no_cache: bool | None
    """Decode images again; keep no decoded copy of them."""
    data_dir: Path | str | None
    """Folder with data files, looked into first."""
    silos: int | None
    """How many silos to make (synthetic, mnist, digits, cifar10, cifar10_clip)."""
    rotations: int | None
    """Groups of silos, each turned by its own angle: 1, 2 or 4 (mnist, digits)."""
    mask_ratio: float | None
    """Share of white 2x2 patches in a silo's mask (mnist, digits)."""
    classes_per_silo: int | None
    """Classes that a silo has images of (cifar10, cifar10_clip)."""
    records_per_subject: int | None
    """Records of one subject (synthetic)."""
    heterogeneity: float | None
    """How far silos lie apart (synthetic)."""
    only_silos: str | Sequence[str] | None
    """Silos that take part, separated by commas; no others do."""
    exclude_silos: str | Sequence[str] | None
    """Silos to leave out, separated by commas."""
    min_records: int | None
    """Leaves out silos with fewer records (subjects, where they are protected), by public count."""
    subject_column: str | None
    """Column that says whom a record is about: protects people, not single records."""
    task: TaskName | None
    """Task of a table: regression, binary, multiclass, count, ordinal, hazard."""
    silo_column: str | None
    """Column that names a record's silo."""
    target: str | None
    """Column of a table to predict."""
    schema: Path | str | None
    """TOML file: what columns may hold; classes."""
    sheet: str | None
    """Sheet of a workbook that holds the table (or in a schema)."""
    ignore: str | Sequence[str] | None
    """Columns of a table to leave out, separated by commas (or in a schema)."""
    drop_missing: bool | None
    """Drop rows with missing values (tables), images without a label (adni)."""
    id_column: str | None
    """Column of a table that names a record for good: its coin in the split goes by that."""
    time_column: str | None
    """Column of a table that orders records: each silo's latest are for testing (not proven without
    --test-from)."""
    test_from: str | None
    """With --time-column: records of this date (or number) and later are for testing."""
    group_column: str | None
    """Column of a table whose groups the split keeps together."""
    exposure_column: str | None
    """Column of a table with each count's exposure: for how long, or of how many (count)."""
    event_column: str | None
    """Column of a table that says whether a time is that of the event: 1, or 0 where it was not
    seen (hazard)."""
    cut_points: str | Sequence[float] | None
    """Where time is cut into intervals, separated by commas (hazard; or in a schema)."""
    features: str | Sequence[str] | None
    """Public encoder of images, or column=encoder of a table: scattering, efficientnet-lite0,
    minilm, a file FILE.onnx, none."""
    image_size: int | None
    """Pixels to a side that images are scaled to (adni, folders of images, --features)."""
    channels: str | None
    """Channels of images in a folder: colour (the default) or grey."""
    data: str
    """Path, or data set's name."""
    method: str
    """How silos learn (silodp methods)."""
    model: str | None
    """svm, convnet, convnet5; else the task's own."""
    silo_lam: Path | str | Mapping[str, float] | None
    """TOML file with a lambda of its own for each silo that it names."""
    clusters: int
    """Models to choose from (ifca, ifca+...)."""
    select_fraction: float
    """Part of the rounds in which silos choose (ifca)."""
    shared_passes: int
    """Training passes of the shared model in a round (ditto)."""
    personal_passes: int
    """Training passes of a silo's own model in a round (ditto)."""
    method_options: str | Mapping[str, float] | None
    """Options of a method of your own: name=number, separated by commas."""
    server_optimiser: ServerOptimiserName
    """How the server uses the silos' mean update: average, fedavgm, fedadam."""
    server_momentum: float
    """Momentum of fedavgm; beta_1 of fedadam."""
    regulariser: Regulariser | None
    """The pull: outside the clip, proximal (stable for any lambda; default of ditto), or inside the
    clip as in the authors' code."""
    weights: Weights
    """Weights of silos when merging: by records, or uniform."""
    messages: int | None
    """Messages of each silo in place of rounds (fewround): 1, 2, 3 or 5; else 3 (of several classes
    2)."""
    rounds: int | None
    """Rounds of communication."""
    batch_size: int | None
    """Expected records in a step."""
    clip: float | None
    """Largest norm of a record's gradient."""
    seeds: int
    """Runs: each has a split of its own."""
    first_seed: int
    """The first seed."""
    epochs: int
    """Local epochs in a round."""
    optimiser: Optimiser
    """Optimiser of local training: sgd, momentum, adam."""
    small_silos: SmallSilos | None
    """Silos with fewer records than a batch: refuse, or train on the full-batch."""
    evaluate_every: int | None
    """Rounds between evaluations; else 20 in a run."""
    engine: Engine
    """simulation, or debug: slow, names the silo and stage that failed."""
    delta: float | None
    """Chance with which that bound may fail."""
    ledger: Path | str | None
    """Ledgers' folder: charges and limits runs."""
    relation: Relation
    """Neighbours differ by one record more, or by one exchanged: replace-one."""
    lifetime_epsilon: float | None
    """Budget over all runs in the ledger; else as for one run."""
    lifetime_delta: float | None
    """Its delta; else as for one run."""
    lifetime_filter: LifetimeFilter
    """Rule by which a run fits the lifetime, fixed when the ledger is opened: renyi (any run), or
    gaussian (Gaussian mechanisms on all records alone, more tightly)."""
    max_silos_per_subject: int
    """Most silos that a person may be in: the result says what that adds up to."""
    entropy: Entropy | None
    """Source of noise: seed (repeatable, fast: an experiment) or os (secret, exact: a release;
    always with --ledger)."""
    sampling: Sampling
    """poisson (proven), or shuffle as in the authors' code (not proven)."""
    accountant: Accountant
    """best (the tighter of the two), pld or rdp."""
    select_share: float
    """Share of epsilon that one private selection takes."""
    select_mechanism: SelectMechanism
    """Mechanism of private selections: exponential or permute-and-flip."""
    select_score: SelectScore | None
    """Score of selections: error (default of classifiers) or loss, clipped."""
    select_bound: float
    """Bound to which a record's loss is clipped in selections."""
    statistics_share: float
    """Share of epsilon for noisy statistics: the means that missing values count as, where a schema
    has that rule; else a mean and variance to standardise features with."""
    metric: MetricName | None
    """Metric on test records: mse, mae, rmse, r2, accuracy, auc, average_precision, recall,
    precision, brier, log_loss, calibration, deviance, rank_error, kappa, c_index; else the task's
    own."""
    prevalence: float | None
    """Share of the second of two classes that is known beforehand: both then weigh alike in
    training, and probabilities stay true (model logistic)."""
    cost_ratio: float | None
    """How many false alarms a missed case of the second class is worth: it is predicted from a
    probability of 1 / (1 + ratio) on, not of 1/2 (binary)."""
    metrics: str | None
    """What to measure besides, separated by commas; the first is --metric if that is left out."""
    purpose: str | None
    """What the model is for, in a sentence: it stands on top of a report."""
    metric_share: float
    """Share of epsilon for noisy test metrics; 0 leaves them exact and not private."""
    metric_bound: float
    """Bound to which a record's error (squared for mse) is clipped in noisy metrics and trials'
    scores."""


class RunArguments(_Arguments, total=False):
    """Arguments of `silodp.run`; options that are left out fit the data set."""

    lam: float
    """lambda: how hard silos are pulled."""
    finetune_fraction: float
    """Part of the rounds that finetune federates."""
    server_lr: float | None
    """Learning rate of the server; else 1, or 0.01 for fedadam."""
    lr: float | None
    """Learning rate of local training."""
    epsilon: float | None
    """Most that a silo may spend; inf: no privacy."""
    policies: Path | str | None
    """Silos' own policies; the stricter limit holds."""


class SweepArguments(_Arguments, total=False):
    """Arguments of `silodp.sweep`, where some options take lists of values."""

    lam: float | Sequence[float]
    """lambda: how hard silos are pulled."""
    finetune_fraction: float | Sequence[float]
    """Part of the rounds that finetune federates."""
    server_lr: float | Sequence[float] | None
    """Learning rate of the server; else 1, or 0.01 for fedadam."""
    lr: float | Sequence[float] | None
    """Learning rate of local training."""
    epsilon: float | Sequence[float] | None
    """Most that a silo may spend; inf: no privacy."""
    policies: Path | str | Sequence[Path | str] | None
    """Silos' own policies; the stricter limit holds."""
