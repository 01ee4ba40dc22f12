"""The words and names that options take, in one light place.

The command line offers them in help texts and completions, and must not wait for JAX to do so: this
file imports nothing. What they stand for is where it is implemented.
"""

from typing import Literal

TaskName = Literal["regression", "binary", "multiclass"]
MetricName = Literal["mse", "mae", "r2", "accuracy"]
# Each is the name of a file: see `data.tasks` and `models.metrics`.

Relation = Literal["add-remove", "replace-one"]
"""Which data sets are neighbours: one record more or less, or one record changed for another."""

LifetimeFilter = Literal["renyi", "gaussian"]
"""What decides, for good, whether a run fits a lifetime: Rényi divergence at one order (for all
events), or Gaussian differential privacy (tighter, for ledgers of Gaussian mechanisms alone)."""

Accountant = Literal["best", "pld", "rdp"]
"""How an event is charged: by its privacy loss distribution, by Rényi divergence, or by the
better of those that know every step."""

Entropy = Literal["seed", "os"]
"""Where keys come from: a seed (whoever knows it knows the noise), or the operating system."""

Sampling = Literal["poisson", "shuffle"]
SelectMechanism = Literal["exponential", "permute-and-flip"]
SelectScore = Literal["error", "loss"]
Regulariser = Literal["outside", "inside", "proximal"]
Optimiser = Literal["sgd", "momentum", "adam"]
ServerOptimiserName = Literal["average", "fedavgm", "fedadam"]
Weights = Literal["records", "uniform"]
Split = Literal["coin", "paper"]
"""How records are parted for training and testing: by a coin for each record, or by a draw over all
of a silo's records, as in the paper."""
Engine = Literal["simulation", "debug"]
SmallSilos = Literal["refuse", "full-batch"]

# Those of `models.model`, `data.registry` and `methods`: a test holds them equal.
MODEL_NAMES = ("linear", "svm", "logistic", "softmax", "convnet", "convnet5")
DATA_SETS = ("school", "vehicle", "gleam", "cifar10", "mnist", "adni", "digits", "synthetic")
METHOD_NAMES = (
    *("ebmtl", "local", "fedavg", "finetune", "mrmtl", "meanpull", "ditto", "mocha", "ifca"),
    "hypcluster",
)
WARM_STARTS = tuple(
    f"ifca+{name}" for name in ("local", "fedavg", "finetune", "mrmtl", "meanpull", "ditto")
)

METHOD_GROUP = "silodp.methods"
"""Where packages announce methods of their own: name = "module:entry"."""
