"""The one result format: a folder with `result.json`, and pictures where they help.

Everything that plots or reports reads this format.
"""

import json
import math
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from silodp.base.arrays import array_name, arrays_content, read_all_arrays
from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.values import plain
from silodp.base.version import own_version
from silodp.models.model import Model
from silodp.results.model_export.files import handover_files
from silodp.results.model_export.in_memory import personal_model, predicted
from silodp.results.model_export.personal_model import PersonalModel
from silodp.results.views import as_html, by_silo, in_a_line

RESULT_FILE, MODELS_FILE = "result.json", "models.npz"
# The format of `result.json` (docs/stability.md); results from before it had a number are 1.
FORMAT = 2
FROM_PYTHON = "(given from Python)"  # the option `data` of such records
AT_SITES = "sites"  # the engine of a result that a real site wrote about itself
# Fields of a result whose numbers may be infinite, at any depth; within `learned` all fields are
# numbers but `_NAMES`.
_NUMBERS = frozenset(
    {
        *("epsilon", "noise_multiplier", "mean", "std", "per_seed"),
        *("lam", "silo_lam", "method_options", "lifetime_epsilon", "learned"),
        *("interval", "no_skill", "low", "high"),
    }
)
_NAMES = frozenset({"silo", "groups", "summary", "feature", "layer"})
_INFINITE = {"inf": math.inf, "-inf": -math.inf}
_PACKAGES = ("jax", "jaxlib", "optax", "numpy", "scipy", "dp-accounting")


@dataclass(frozen=True, repr=False)
class Result:
    """The result of one setting of a method, over seeds.

    Attributes:
      data: name of the data.
      method: name of the method.
      options: all options, defaults filled in.
      metric: the metric's name (see `models.metrics`).
      test: {"mean", "std", "per_seed"}: the metric over silos, weighted by their test records, at
        the last round; the standard deviation is over seeds.
      per_silo: [{"silo", "records", "test_records", "mean", "std", "per_seed"}]; None stands where
        a silo's test records have no such metric.
      privacy: [{"silo", "epsilon", "delta", "noise_multiplier", "sampling_rate", "steps",
        "accountant", "experiment", "proven", "unproven"}]: what each silo spent; an experiment's
        noise comes from a seed, so that it protects nobody and nothing of it is proven.
      assumptions: the assumptions of the privacy statement, in words.
      warnings: sentences on what is allowed but unwise.
      chosen: which method was chosen by the data, and why, if none was named.
      left_out: silos that options left out, by name.
      person: {"silos", "epsilon", "delta"}: the guarantee for somebody with data in that many
        silos, if it was requested.
      history: [{"round", "mean", "std", "per_seed"}].
      metrics: [{"metric", "release", "test", "no_skill", "private", "per_silo"}], `metric` first:
        all that was measured at the last round, beside the best prediction without features, with
        intervals (see `runs.evaluation`). `release` says whether it is "exact" (and so stays with
        the records), "noisy" (and what part of epsilon it took, `share`) or "none"; `private`
        which noise it has or would have, and whether that hides it. Empty in results of sweeps and
        of format 1.
      problem: {"task", "target", "unit", "classes", "columns"}: what was learned from what, where
        known; `unit` is how much of the target's own unit a metric's 1 is.
      encoders: [{"name", "takes", "sha256", "licence", "trained_on", "width", "size"}]: what made
        features of images or texts; taken to be public.
      seconds: how long each part took, by name.
      versions: versions of the software.
      tuning: if hyperparameters were tuned: the grid, each silo's choice, and the cost.
      learned: what the method learned about the silos, if anything, by name: means over seeds,
        arrays as plain lists; for `ebmtl` also in words (see `learned.summed_up`), and for
        `fewround` of the first seed (see `few_messages.said`).
      models: the personal models, if requested: a pytree with leading axes [seeds, silos].
      cards: drafts of the silos' cards: what they say beyond this result (see
        `model_export.files`).

    Examples:
      >>> result = silodp.run(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> result.mean == result.test["mean"], result.history[-1]["round"], result.experiment
      (True, 2, True)
    """

    data: str
    method: str
    options: dict[str, Any]
    metric: str
    test: dict[str, Any]
    per_silo: list[dict[str, Any]]
    privacy: list[dict[str, Any]]
    assumptions: list[str]
    history: list[dict[str, Any]]
    seconds: dict[str, float]
    versions: dict[str, str] = field(default_factory=lambda: versions())
    warnings: list[str] = field(default_factory=list)
    chosen: str | None = None
    left_out: list[str] = field(default_factory=list)
    person: dict[str, float] | None = None
    tuning: dict[str, Any] | None = None
    learned: dict[str, Any] | None = None
    models: Any = None
    cards: list[dict[str, Any]] | None = None
    metrics: list[dict[str, Any]] = field(default_factory=list)
    problem: dict[str, Any] | None = None
    encoders: list[dict[str, Any]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean of the test metric over seeds; NaN where there is none."""
        return math.nan if self.test["mean"] is None else self.test["mean"]

    @property
    def std(self) -> float:
        """The standard deviation of the test metric over seeds; NaN where there is none."""
        return math.nan if self.test["std"] is None else self.test["std"]

    @property
    def unmeasured(self) -> list[str]:
        """The silos whose test records have no such metric."""
        return [silo["silo"] for silo in self.per_silo if silo["mean"] is None]

    @property
    def epsilons(self) -> list[float]:
        """The epsilon that each silo spent."""
        return [silo["epsilon"] for silo in self.privacy]

    @property
    def proven(self) -> bool:
        """Whether epsilon is proven for what the run did, in every silo."""
        return all(silo["proven"] for silo in self.privacy)

    @property
    def experiment(self) -> bool:
        """Whether noise came from a seed: whoever knows the seed knows the noise."""
        # Results of earlier versions do not say it for each silo.
        from_a_seed = self.options.get("entropy") == "seed"
        return any(
            silo.get("experiment", from_a_seed)
            for silo in self.privacy
            if math.isfinite(silo["epsilon"])
        )

    @property
    def unproven(self) -> list[str]:
        """Why epsilon is not proven, or would not be for secret noise; empty if it is."""
        return sorted({reason for silo in self.privacy for reason in silo["unproven"]})

    def __repr__(self) -> str:
        return in_a_line(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def to_frame(self) -> pd.DataFrame:
        """A row for each silo: metric, records, epsilon; for several results, `silodp.to_frame`."""
        return by_silo(self)

    def model(self, silo: str, custom_model: Model | None = None) -> PersonalModel:
        """The silo's own model (of the first seed), if the result holds models."""
        return personal_model(self, silo, custom_model)

    def predict(self, frame: pd.DataFrame, silo: str | None = None) -> pd.Series:
        """Predictions for the rows of a table, each by the model of its silo.

        Args:
          frame: the table, with the columns of the run's.
          silo: the column that names each row's silo; by default, that of the run.
        """
        return predicted(self, frame, silo)

    def as_json(self) -> dict[str, Any]:
        """The content of `result.json`."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del content["models"], content["cards"]
        return {"format": FORMAT} | plain(content)

    def write(self, folder: Path) -> Path:
        """Writes `result.json` into the folder, and before it the models if there are any.

        Models are written twice: all of them in one file, to compare, and each silo's in a folder
        of its own with its card, to take home.
        """
        if self.models is not None:
            names = [silo["silo"] for silo in self.per_silo]
            write_file(folder / MODELS_FILE, models_file(self.models, names))
            for path, content in handover_files(self):
                write_file(folder / path, content)
        return write_file(folder / RESULT_FILE, json.dumps(self.as_json(), indent=2) + "\n")


def models_file(models: Any, silos: list[str]) -> bytes:
    """The content of `models.npz`: each array of the model [seeds, silos, ...], and silos' names.

    Arrays have the names of `array_name`.
    """
    leaves = jax.tree_util.tree_leaves_with_path(models)
    arrays = {array_name(path): array for path, array in leaves}
    return arrays_content({"silos": np.array(silos), **arrays})


def read_models(folder: Path | str) -> dict[str, np.ndarray]:
    """The arrays of the personal models in a run's folder: [seeds, silos, ...], by name."""
    return read_all_arrays(Path(folder) / MODELS_FILE, "train again with --save-models").arrays


def read_result(folder: Path | str) -> Result:
    """Reads the result in a run's folder.

    Examples:
      >>> result = silodp.run(
      ...     data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2, out="runs/read"
      ... )
      >>> silodp.read_result("runs/read").test == result.test
      True
    """
    path = Path(folder) / RESULT_FILE
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise SilodpError(f"{path} is not a file: give the folder of a finished run.")
    content = read_json(path, missing="give the folder of a finished run", remedy="run it again")
    try:
        number = content.pop("format", 1) if isinstance(content, dict) else 1
        if type(number) is not int or not 1 <= number <= FORMAT:
            raise SilodpError(
                f"{path} has format {number!r}, but this silodp knows results up to {FORMAT}: "
                "use a newer silodp."
            )
        return Result(**_with_infinities(content))
    except (TypeError, RecursionError) as error:
        raise SilodpError(f"{path} is not a result ({error}): run it again.") from None


def versions() -> dict[str, str]:
    """Versions of all software that a result depends on."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "silodp": own_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def summary(per_seed: np.ndarray) -> dict[str, Any]:
    """Mean and standard deviation over seeds (0 for one seed), and the numbers themselves."""
    return {
        "mean": float(np.mean(per_seed)),
        "std": float(np.std(per_seed, ddof=1)) if len(per_seed) > 1 else 0.0,
        "per_seed": [float(value) for value in per_seed],
    }


def _with_infinities(value: Any, numbers: bool = False) -> Any:
    """Undoes `plain`: "inf" is a number in numeric fields; elsewhere it may be a silo's name."""
    if isinstance(value, dict):
        return {
            key: _with_infinities(item, key in _NUMBERS or (numbers and key not in _NAMES))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_with_infinities(item, numbers) for item in value]
    return _INFINITE.get(value, value) if numbers and isinstance(value, str) else value
