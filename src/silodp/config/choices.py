"""The words and names that options take.

The command line offers them in help texts and completions without waiting for JAX: this file
imports nothing. Their meaning is where it is implemented.
"""

from typing import Literal

TaskName = Literal["regression", "binary", "multiclass", "count", "ordinal", "hazard"]
MetricName = Literal[
    "mse",
    "mae",
    "rmse",
    "r2",
    "accuracy",
    "auc",
    "average_precision",
    "recall",
    "precision",
    "brier",
    "log_loss",
    "calibration",
    "deviance",
    "rank_error",
    "kappa",
    "c_index",
]
# Each is the name of a file: see `data.tasks` and `models.metrics`.

Relation = Literal["add-remove", "replace-one"]
"""Neighbouring data sets: one record more or less, or one record replaced by another."""

LifetimeFilter = Literal["renyi", "gaussian"]
"""The rule by which a run fits a lifetime, fixed for a ledger: Rényi divergence at one order (for
all events), or Gaussian differential privacy (tighter, for Gaussian mechanisms alone)."""

Accountant = Literal["best", "pld", "rdp"]
"""The accountant of an event: its privacy loss distribution, Rényi divergence, or the tighter of
those that know every step."""

Entropy = Literal["seed", "os"]
"""The source of keys: a seed (whoever knows it knows the noise), or the operating system."""

Sampling = Literal["poisson", "shuffle"]
SelectMechanism = Literal["exponential", "permute-and-flip"]
SelectScore = Literal["error", "loss"]
Regulariser = Literal["outside", "inside", "proximal"]
Optimiser = Literal["sgd", "momentum", "adam"]
ServerOptimiserName = Literal["average", "fedavgm", "fedadam"]
Weights = Literal["records", "uniform"]
Split = Literal["coin", "paper"]
"""How records are split for training and testing: by a coin for each record, or by a draw over all
of a silo's records, as in the paper."""
Engine = Literal["simulation", "debug"]
SmallSilos = Literal["refuse", "full-batch"]

# The names of `models.model`, `data.registry` and `methods`; a test compares them.
MODEL_NAMES = (
    *("linear", "svm", "logistic", "softmax", "poisson", "ordered", "hazards"),
    *("convnet", "convnet5"),
)
DATA_SETS = (
    *("school", "vehicle", "gleam", "cifar10", "mnist", "adni", "digits", "heart", "tcga_brca"),
    *("diabetes130", "parkinsons", "pg15", "beijing_air", "wisdm", "landmine", "cifar10_clip"),
    "synthetic",
)
METHOD_NAMES = (
    *(
        "ebmtl",
        "fewround",
        "local",
        "fedavg",
        "finetune",
        "mrmtl",
        "meanpull",
        "ditto",
        "mocha",
        "ifca",
    ),
    "hypcluster",
)
AUTO_METHOD = "auto"
"""In place of a method's name: the one that suits the data, by what is public of them."""

WARM_STARTS = tuple(
    f"ifca+{name}" for name in ("local", "fedavg", "finetune", "mrmtl", "meanpull", "ditto")
)

METHOD_GROUP = "silodp.methods"
"""The group of entry points for methods from other packages: name = "module:entry"."""
