"""What is timed: federations and training settings that every contender gets alike."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from silodp import Federation, Records, Silo, SilodpError
from silodp.config.choices import TaskName
from silodp.data.registry import DataOptions, find_file, resolve

SEEDS = 5
LAMBDAS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
LAMBDA = 1.0  # of the peers: it changes nothing about their work
SCHOOL_MISSING = "School-shaped synthetic records: school.mat was not found (set SILODP_DATA)"


@dataclass(frozen=True)
class Work:
    """One case: MR-MTL on a federation.

    Attributes:
      name: of the case.
      federation: seed -> records.
      source: the same, as options of `silodp.sweep`.
      model: linear (squared loss) or svm (hinge loss).
      seeds: of our sweep.
      lambdas: of our sweep.
      lone_seeds: of the sweep in which runs share nothing.
      notes: what a reader of the numbers must know.
    """

    name: str
    federation: Callable[[int], Federation]
    source: dict[str, Any]
    model: str
    rounds: int
    batch_size: int
    clip: float
    lr: float
    epsilon: float
    delta: float
    seeds: int = SEEDS
    lambdas: tuple[float, ...] = LAMBDAS
    lone_seeds: int = 60
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """Runs of our sweep."""
        return self.seeds * len(self.lambdas)

    @property
    def options(self) -> dict[str, Any]:
        """For `silodp.sweep`, without seeds and lam."""
        return {
            **self.source,
            "method": "mrmtl",
            "model": self.model,
            "rounds": self.rounds,
            "batch_size": self.batch_size,
            "clip": self.clip,
            "lr": self.lr,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "small_silos": "full-batch",
        }


def school(quick: bool = False) -> Work:
    """Case (a): the School data, or synthetic records of the same sizes where they are missing."""
    notes = ()
    if quick:
        source: dict[str, Any] = {"federation": partial(_school_shaped, silos=12)}
    elif (folder := school_folder()) is not None:
        source = {"data": "school", "data_dir": folder}
    else:
        source = {"federation": _school_shaped}
        notes = (SCHOOL_MISSING,)
    return Work(
        name="School",
        federation=source.get("federation", _school),
        source=source,
        model="linear",
        rounds=6 if quick else 200,
        batch_size=32,
        clip=1.0,
        lr=0.01,
        epsilon=6.0,
        delta=1e-3,
        lone_seeds=4 if quick else 60,
        seeds=2 if quick else SEEDS,
        lambdas=LAMBDAS[:3] if quick else LAMBDAS,
        notes=notes,
    )


def vehicle(quick: bool = False) -> Work:
    """Case (b): as large as the Vehicle data (23 sensors, 100 features), made up."""
    silos = 4 if quick else 23
    counts = np.linspace(900, 1900, silos).astype(int) // (3 if quick else 1)
    federation = partial(made_up, "vehicle-shaped", counts, 100, "binary")
    return Work(
        name="Vehicle-shaped",
        federation=federation,
        source={"federation": federation},
        model="svm",
        rounds=4 if quick else 400,
        batch_size=64,
        clip=6.0,
        lr=0.01,
        epsilon=0.5,
        delta=1e-7,
        lone_seeds=4 if quick else 12,  # it takes seconds a run
        seeds=2 if quick else SEEDS,
        lambdas=LAMBDAS[:3] if quick else LAMBDAS,
    )


def school_folder() -> Path | None:
    """The folder that holds school.mat, if one does."""
    try:
        return find_file("school", "school.mat").parent
    except SilodpError:
        return None


def _school(seed: int) -> Federation:
    options = DataOptions(data_dir=school_folder())
    return resolve("school", options).load(seed, options)


def _school_shaped(seed: int, silos: int = 139) -> Federation:
    # From 17 to 200 training records, 88 on average, as in School.
    counts = np.round(17 + 183 * np.linspace(0, 1, silos) ** 1.58).astype(int)
    return made_up("school-shaped", counts, 28, "regression", seed)


def made_up(name: str, counts: np.ndarray, features: int, task: TaskName, seed: int) -> Federation:
    """Silos whose linear models scatter around a common one; `counts` are training records."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=features)
    silos = []
    for number, n in enumerate(counts):
        weights = (common + 0.5 * rng.normal(size=features)) / np.sqrt(features)

        def records(n: int, weights=weights) -> Records:
            x = rng.standard_normal((n, features), np.float32)
            y = x @ weights + 0.1 * rng.normal(size=n)
            return Records(x, np.where(y > 0, 1.0, -1.0) if task == "binary" else y)

        silos.append(Silo(f"silo-{number:04d}", records(int(n)), records(max(2, int(n) // 4))))
    return Federation(name, tuple(silos), task)
