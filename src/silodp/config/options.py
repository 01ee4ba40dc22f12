"""What a run can be asked for, and the checks of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from silodp.base.errors import SilodpError
from silodp.config.choices import (
    MODEL_NAMES,
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
    ServerOptimiser,
    SmallSilos,
    Split,
    TaskName,
    Weights,
)


def _option(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


def _listed(choices: Any) -> str:
    return ", ".join(get_args(choices))


@dataclass(frozen=True)
class RunOptions:
    """Everything that a run can be asked for; `None` takes what fits the data set.

    The command line, `--config` files and `silodp.run` all take these names.

    Examples:
      >>> silodp.plan(data="synthetic", epsilon=3, rounds=0)
      Traceback (most recent call last):
      ...
      silodp.base.errors.SilodpError: --rounds is 0: give a number of at least 1.
    """

    data: str = _option(
        "synthetic", "A data set's name (silodp data list), or your own data's path."
    )
    method: str = _option(
        "ebmtl", "How silos learn together (silodp methods); ifca+NAME is a warm start."
    )
    model: str | None = _option(None, f"One of {', '.join(MODEL_NAMES)}.")
    lam: float = _option(
        1.0, "lambda: how strongly silos are pulled together (mrmtl, meanpull, ditto, mocha)."
    )
    silo_lam: Path | Mapping[str, float] | None = _option(
        None, "TOML file with a lambda of its own for each silo that it names."
    )
    finetune_fraction: float = _option(0.5, "Part of the rounds that finetune federates.")
    clusters: int = _option(2, "Models to choose from (ifca, ifca+...).")
    select_fraction: float = _option(0.1, "Part of the rounds in which silos choose (ifca).")
    shared_passes: int = _option(1, "Training passes of the shared model in a round (ditto).")
    personal_passes: int = _option(1, "Training passes of a silo's own model in a round (ditto).")
    method_options: str | Mapping[str, float] | None = _option(
        None, "Options of a method of your own: name=number, separated by commas."
    )
    server_optimiser: ServerOptimiser = _option(
        "average", f"How the server uses the silos' mean update: {_listed(ServerOptimiser)}."
    )
    server_lr: float | None = _option(
        None, "Learning rate of the server; else 1, or 0.01 for fedadam."
    )
    server_momentum: float = _option(0.9, "Of fedavgm; beta_1 of fedadam.")
    epsilon: float | None = _option(None, "Privacy budget of every silo; inf for no privacy.")
    delta: float | None = _option(None, "Chance with which the bound may fail.")
    relation: Relation = _option(
        "add-remove", "Neighbours differ by one record more, or by one exchanged: replace-one."
    )
    policies: Path | None = _option(None, "TOML file, or folder of files, with silos' policies.")
    ledger: Path | None = _option(None, "Folder of the silos' ledgers: charges and limits runs.")
    lifetime_epsilon: float | None = _option(
        None, "Budget over all runs in the ledger; else as for one run."
    )
    lifetime_delta: float | None = _option(None, "Its delta; else as for one run.")
    lifetime_filter: LifetimeFilter = _option(
        "renyi",
        "What decides whether a run fits the lifetime, fixed when the ledger is opened: renyi (any "
        "run), or gaussian (Gaussian mechanisms on all records alone, more tightly).",
    )
    subject_column: str | None = _option(
        None, "Column that says whom a record is about: protects people, not single records."
    )
    max_silos_per_subject: int = _option(
        1, "A person may be in so many silos: the result says what that adds up to."
    )
    rounds: int | None = _option(None, "Rounds of communication.")
    batch_size: int | None = _option(None, "Expected records in a step.")
    clip: float | None = _option(None, "Largest norm of a record's gradient.")
    lr: float | None = _option(None, "Learning rate of local training.")
    epochs: int = _option(1, "Local epochs in a round.")
    optimiser: Optimiser = _option("sgd", f"Of local training: {_listed(Optimiser)}.")
    seeds: int = _option(1, "How many runs, each with its own split of the data and noise.")
    first_seed: int = _option(0, "The first of them.")
    sampling: Sampling = _option(
        "poisson", "poisson (proven), or shuffle as in the authors' code (not proven)."
    )
    accountant: Accountant = _option("best", "best (the tighter of the two), pld or rdp.")
    select_share: float = _option(0.03, "Share of epsilon that one private selection takes.")
    select_mechanism: SelectMechanism = _option(
        "exponential", "Of private selections: exponential or permute-and-flip."
    )
    select_score: SelectScore | None = _option(
        None, "What selections go by: error (default of classifiers) or loss, clipped."
    )
    select_bound: float = _option(1.0, "Where the loss of a record is clipped in selections.")
    statistics_share: float = _option(
        0.0, "Share of epsilon for a noisy mean and variance to standardise features with."
    )
    metric: MetricName | None = _option(
        None, f"What is measured on test records: {_listed(MetricName)}; else the task's own."
    )
    metric_share: float = _option(
        0.0, "Share of epsilon for noisy test metrics; 0 leaves them exact and not private."
    )
    metric_bound: float = _option(
        1.0,
        "Where a record's error (squared for mse) is clipped in noisy metrics and trials' scores.",
    )
    entropy: Entropy | None = _option(
        None,
        "Source of noise: seed (repeatable, fast: an experiment) or os (secret, exact: a release; "
        "always with --ledger).",
    )
    regulariser: Regulariser | None = _option(
        None,
        "The pull: outside the clip, proximal (stable for any lambda; default of ditto), or inside "
        "the clip as in the authors' code.",
    )
    weights: Weights = _option("records", "Of silos when merging: by records, or uniform.")
    small_silos: str | None = _option(
        None, "Silos with fewer records than a batch: refuse, or train on the full-batch."
    )
    preprocess: str | None = _option(
        None, "How features are scaled: paper, bounds, norm or none, as the data set has it."
    )
    test_fraction: float | None = _option(None, "Share of each silo's records kept for testing.")
    split: Split | None = _option(
        None,
        "coin: each record by itself (default of your own data), or paper: a draw over all of a "
        "silo's records, not proven (default of the paper's data).",
    )
    density: float | None = _option(None, "Share of each silo's training records that is used.")
    no_cache: bool | None = _option(None, "Read images anew; keep no decoded copy of them.")
    evaluate_every: int | None = _option(None, "Rounds between evaluations; else 20 in a run.")
    engine: Engine = _option(
        "simulation", "simulation, or debug: slow, names the silo and stage that failed."
    )
    data_dir: Path | None = _option(None, "Folder with data files, looked into first.")
    task: TaskName | None = _option(None, f"Of a table: {_listed(TaskName)}.")
    silo_column: str | None = _option(None, "Column of a table that names a record's silo.")
    id_column: str | None = _option(
        None, "Column of a table that names a record for good: its coin in the split goes by that."
    )
    time_column: str | None = _option(
        None,
        "Column of a table that orders records: each silo's latest are for testing (not proven "
        "without --test-from).",
    )
    test_from: str | None = _option(
        None, "With --time-column: records of this date (or number) and later are for testing."
    )
    group_column: str | None = _option(
        None, "Column of a table whose groups are never parted by the split."
    )
    target: str | None = _option(None, "Column of a table to predict.")
    ignore: str | None = _option(
        None, "Columns of a table to leave out, separated by commas (or in a schema)."
    )
    drop_missing: bool | None = _option(
        None, "Drop rows with missing values (tables), images without a label (adni)."
    )
    schema: Path | None = _option(
        None,
        "TOML file declaring a table's levels, bounds, rules for odd values and target, or images' "
        "classes.",
    )
    silos: int | None = _option(None, "How many silos to make (synthetic, mnist, digits, cifar10).")
    rotations: int | None = _option(
        None, "Groups of silos, each turned by its own angle: 1, 2 or 4 (mnist, digits)."
    )
    mask_ratio: float | None = _option(
        None, "Share of white 2x2 patches in a silo's mask (mnist, digits)."
    )
    classes_per_silo: int | None = _option(None, "Classes that a silo has images of (cifar10).")
    image_size: int | None = _option(
        None, "Pixels to a side that images are brought to (adni, folders of images)."
    )
    channels: str | None = _option(
        None, "What images of a folder are taken as: colour (the default) or grey."
    )
    records_per_subject: int | None = _option(None, "Records of one subject (synthetic).")
    heterogeneity: float | None = _option(None, "How far silos lie apart (synthetic).")

    def __post_init__(self):
        for name in ("policies", "ledger", "data_dir", "schema", "silo_lam"):
            if isinstance(value := getattr(self, name), str):  # from Python
                object.__setattr__(self, name, Path(value))
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise SilodpError(
                    f"{_flag(name)} is {value!r}: choose one of {', '.join(choices)}."
                )
        for name in (
            *("rounds", "batch_size", "epochs", "seeds", "evaluate_every", "silos"),
            *("clusters", "max_silos_per_subject", "records_per_subject"),
            *("shared_passes", "personal_passes"),
            *("rotations", "classes_per_silo", "image_size"),
        ):
            _check_number(name, getattr(self, name), whole=True, least=1)
        _check_number("first_seed", self.first_seed, whole=True, least=0)
        for name in (
            *("lr", "clip", "epsilon", "lifetime_epsilon", "select_bound", "metric_bound"),
            "server_lr",
        ):
            _check_number(name, getattr(self, name), above=0)
        _check_number("lam", self.lam, least=0)
        _check_number("clip", self.clip, least=1e-12)  # less is lost in single precision
        for name in ("lr", "lam", "clip", "select_bound", "metric_bound", "server_lr"):
            value = getattr(self, name)
            infinite = name == "lam" and value == math.inf  # the method says whether it can
            if value is not None and value > LARGEST and not infinite:
                raise SilodpError(f"{_flag(name)} is {value}: give a number below {LARGEST:g}.")
        if isinstance(self.silo_lam, Mapping):  # of any kind; copied as a plain one
            object.__setattr__(self, "silo_lam", dict(self.silo_lam))
        if not isinstance(self.method, str):
            raise SilodpError(f"--method is {self.method!r}: give one name (silodp methods).")
        for name in ("shared_passes", "personal_passes"):
            if getattr(self, name) > _MOST_PASSES:
                raise SilodpError(
                    f"{_flag(name)} is {getattr(self, name)}: give at most {_MOST_PASSES}; each "
                    "pass costs privacy."
                )
        for name in ("finetune_fraction", "select_fraction"):
            value = getattr(self, name)
            _check_kind(name, value)
            if not 0 <= value <= 1:
                raise SilodpError(f"{_flag(name)} is {value}: give a number from 0 to 1.")
        for name in ("select_share", "statistics_share", "metric_share", "server_momentum"):
            value = getattr(self, name)
            _check_kind(name, value)
            if not 0 <= value < 1:
                raise SilodpError(f"{_flag(name)} is {value}: give a number from 0 to below 1.")
        for name in ("delta", "lifetime_delta"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise SilodpError(f"{_flag(name)} is {value}: give a number above 0 and below 1.")
        if self.ledger is not None and self.entropy == "seed":
            raise SilodpError(
                "--entropy is 'seed', but runs that are charged to a ledger need secret noise: two "
                "runs of one seed would share it; leave out --entropy or --ledger."
            )


# Models are in single precision.
LARGEST = 1e30
_MOST_PASSES = 100
CHOICES: dict[str, tuple[str, ...]] = {
    "optimiser": get_args(Optimiser),
    "sampling": get_args(Sampling),
    "accountant": get_args(Accountant),
    "regulariser": get_args(Regulariser),
    "lifetime_filter": get_args(LifetimeFilter),
    "relation": get_args(Relation),
    "select_mechanism": get_args(SelectMechanism),
    "select_score": get_args(SelectScore),
    "entropy": get_args(Entropy),
    "weights": get_args(Weights),
    "server_optimiser": get_args(ServerOptimiser),
    "small_silos": get_args(SmallSilos),
    "engine": get_args(Engine),
    "metric": get_args(MetricName),
    "task": get_args(TaskName),
    "split": get_args(Split),
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_kind(name: str, value: Any, whole=False) -> None:
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    if not isinstance(value, kinds):
        import numpy as np  # not before it is needed: the command line's help is to be fast

        kinds = (np.integer,) if whole else (np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a whole number" if whole else "a number"
        raise SilodpError(f"{_flag(name)} is {value!r}: give {kind}.")


def _check_number(name: str, value: Any, *, whole=False, least=-math.inf, above=-math.inf) -> None:
    if value is None:
        return
    _check_kind(name, value, whole)
    if not (value >= least and value > above):
        bound = f"of at least {least:g}" if least > -math.inf else f"above {above:g}"
        raise SilodpError(f"{_flag(name)} is {value}: give a number {bound}.")
