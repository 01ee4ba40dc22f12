"""Results that look like those of runs, without training: for tests of reports."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from silodp.data.tasks import get_task
from silodp.models.metrics import get_metric
from silodp.results.result import Result, summary

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    'O\'Neil & "Sons"\nsecond line',
    "\u202eturned round \x1b[31m",
    "javascript:alert(3)",
    "{{7*7}}</style><b>",
)
UNPROVEN = "Each silo's features <b>were</b> standardised with its own records."


def silo_names(count: int) -> list[str]:
    return [f"hospital {number}" for number in range(count)]


def made_up(
    method: str = "mrmtl",
    *,
    silos: list[str] | None = None,
    scale: float = 1.0,
    metric: str = "mse",
    seeds: int = 5,
    epsilons: tuple[float, ...] = (1.0, 3.0, 10.0),
    unproven: tuple[str, ...] = (),
    **more,
) -> Result:
    """Errors of about 0.1 times `scale`; silos and seeds differ alike whatever the method."""
    silos = silo_names(6) if silos is None else silos
    random = np.random.default_rng(0)
    values = scale * (0.05 + 0.1 * random.random((seeds, len(silos))))
    if metric == "accuracy":
        values = 1 - values
    mine = [epsilons[k % len(epsilons)] for k in range(len(silos))]
    rounds = np.array([1, 2, 5, 10])
    history = [values.mean(axis=1) * (1 + 1 / r) for r in rounds]
    given = {
        "data": "made up",
        "method": method,
        "options": {"data": "made up", "method": method, "rounds": 10, "lr": 0.1, "seeds": seeds},
        "metric": metric,
        "test": summary(values.mean(axis=1)),
        "per_silo": [
            {"silo": name, "records": 100 + k, "test_records": 20, **summary(values[:, k])}
            for k, name in enumerate(silos)
        ],
        "privacy": [
            {
                "silo": name,
                "epsilon": epsilon,
                "delta": 1e-4 if math.isfinite(epsilon) else 0.0,
                "unit": "record",
                "relation": "add-remove",
                "noise_multiplier": 1.0,
                "sampling_rate": 0.1,
                "steps": 10,
                "accountant": "pld",
                "proven": math.isfinite(epsilon) and not unproven,
                "unproven": list(unproven),
            }
            for name, epsilon in zip(silos, mine, strict=True)
        ],
        "assumptions": ["counts of records are public"],
        "history": [
            {"round": int(r), **summary(at)} for r, at in zip(rounds, history, strict=True)
        ],
        "seconds": {"total": 1.5},
    }
    return Result(**(given | more))


def with_no_skill(result: Result, ratio: float, low: float | None = None) -> Result:
    """The result with its metric beside no skill, which is so many times the value of each seed.

    `low` is the lower end of the gain; else it is clear if the gain is above 0.
    """
    metric = get_metric(result.metric)
    values = np.array(result.test["per_seed"])
    none = ratio * values
    gain = float(metric.gains(values, none).mean())
    low = gain / 2 if low is None else low
    about = {"mean": gain, "low": low, "high": gain + abs(gain)}
    (task,) = metric.tasks[:1]
    entry = {
        "metric": result.metric,
        "release": "exact",
        "share": None,
        "test": {**result.test, "interval": [0.9 * result.mean, 1.1 * result.mean]},
        "no_skill": {**summary(none), "gain": about},
        "private": {"share": 0.1, "noise": 0.5, "test_records": 20, "useful": False},
        "per_silo": [
            {
                "silo": silo["silo"],
                "mean": silo["mean"],
                "std": silo["std"],
                "interval": [0.5 * silo["mean"], 1.5 * silo["mean"]],
                "no_skill": ratio * silo["mean"],
            }
            for silo in result.per_silo
        ],
    }
    problem = {
        "task": task,
        "target": "outcome",
        "unit": 1.0,
        "classes": ["no", "yes"] if get_task(task).of_classes else [],
        "columns": ["age", "sex"],
    }
    return replace(result, metrics=[entry], problem=problem)


def write_runs(folder: Path, *results: Result) -> Path:
    """Each into a folder of its own, called by its method."""
    for result in results:
        result.write(folder / result.method)
    return folder


def write_federation(folder: Path, **more) -> Path:
    """Local training, FedAvg and MR-MTL, which is the best of them for everybody."""
    return write_runs(
        folder,
        made_up("local", scale=1.25, **more),
        made_up("fedavg", scale=1.6, **more),
        made_up("mrmtl", scale=1.0, **more),
    )
