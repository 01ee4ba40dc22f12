"""A result as a line, as a table in a notebook, and as a DataFrame."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from silodp.base.html_table import html_table
from silodp.base.text import shown
from silodp.models.metrics import get_metric

if TYPE_CHECKING:
    from silodp.results.result import Result

EXPERIMENT = "An experiment: its noise comes from a seed, and protects nobody who is told the seed."
NOT_PRIVATE = "Not private: epsilon is infinite."


def in_a_line(result: "Result") -> str:
    """What was trained, how well it does, and at what epsilon."""
    metric, silos = get_metric(result.metric), len(result.per_silo)
    seeds = len(result.test["per_seed"])
    how_many = [f"{silos} silo{'s' * (silos != 1)}", f"{seeds} seed{'s' * (seeds != 1)}"]
    models = ", with models" if result.models is not None else ""
    measured = (
        f"test {metric.short} {metric.plus_minus(result.mean, result.std)} ({metric.better} is "
        "better)"
    )
    if len(result.unmeasured) == silos:
        measured = "not tested"
    return (
        f"Result({result.method} on {shown(result.data)}: {measured}, "
        f"{', '.join(how_many)}, epsilon {_epsilons(result)}{_standing(result)}{models})"
    )


def as_html(result: "Result") -> str:
    """A table of the silos below that line."""
    metric = get_metric(result.metric)
    rows = [
        (
            own["silo"],
            own["records"],
            None if own["mean"] is None else metric.plus_minus(own["mean"], own["std"]),
            None if none is None else metric.text(none),
            own["test_records"],
            f"{privacy['epsilon']:.3g}",
            f"{privacy['delta']:.3g}",
            "yes" if privacy["proven"] else "no",
        )
        for own, none, privacy in zip(
            result.per_silo, _no_skill(result), result.privacy, strict=True
        )
    ]
    header = (
        *("silo", "records", metric.heading, "no skill", "test records"),
        *("epsilon", "delta", "proven"),
    )
    notes = [EXPERIMENT] if result.experiment else []
    notes += [NOT_PRIVATE] if math.inf in result.epsilons else []
    return html_table(in_a_line(result), header, rows, [*notes, *result.unproven, *result.warnings])


def _no_skill(result: "Result") -> list[float | None]:
    """The metric in each silo of the best prediction without features, where it is known."""
    if not result.metrics:
        return [None] * len(result.per_silo)
    return [silo["no_skill"] for silo in result.metrics[0]["per_silo"]]


def by_silo(result: "Result") -> pd.DataFrame:
    """A row for each silo: its metrics beside no skill, its records, and what it spent."""
    rows = [
        {
            "silo": own["silo"],
            result.metric: own["mean"],
            f"{result.metric}_std": own["std"],
            **_measured(result, place),
            "records": own["records"],
            "test_records": own["test_records"],
            "epsilon": privacy["epsilon"],
            "delta": privacy["delta"],
            "proven": privacy["proven"],
        }
        for place, (own, privacy) in enumerate(zip(result.per_silo, result.privacy, strict=True))
    ]
    return pd.DataFrame(rows).set_index("silo")


def _measured(result: "Result", place: int) -> dict[str, float | None]:
    """All that was measured in a silo, with intervals and the best prediction without features."""
    values: dict[str, float | None] = {}
    for entry in result.metrics:
        if not entry["per_silo"]:  # beside a metric that was paid for, others are kept back
            continue
        own = entry["per_silo"][place]
        name, ends = entry["metric"], own["interval"] or (None, None)
        values |= {name: own["mean"], f"{name}_low": ends[0], f"{name}_high": ends[1]}
        values[f"{name}_no_skill"] = own["no_skill"]
    return values


def to_frame(results: "Iterable[Result]") -> pd.DataFrame:
    """A DataFrame of results such as those of a sweep: a row for each.

    It has the method, the options in which results differ, the mean of the test metric with its
    standard deviation over seeds, and the largest epsilon that a silo spent.

    Examples:
      >>> results = silodp.sweep(
      ...     data="synthetic", silos=2, method="mrmtl", lam=[0, 1], epsilon=3, rounds=2
      ... )
      >>> silodp.to_frame(results)[["method", "lam"]].to_dict("list")
      {'method': ['mrmtl', 'mrmtl'], 'lam': [0, 1]}
    """
    results = list(results)
    names = dict.fromkeys(name for result in results for name in result.options)
    differing = [
        name
        for name in names
        if name not in ("method", "epsilon")
        and any(result.options.get(name) != results[0].options.get(name) for result in results)
    ]
    return pd.DataFrame(
        [
            {
                "data": result.data,
                "method": result.method,
                **{name: result.options.get(name) for name in differing},
                "metric": result.metric,
                "mean": result.mean,
                "std": result.std,
                "epsilon": max(result.epsilons),
            }
            for result in results
        ]
    )


def _epsilons(result: "Result") -> str:
    low, high = (f"{one(result.epsilons):.3g}" for one in (min, max))
    return low if low == high else f"{low} to {high}"


def _standing(result: "Result") -> str:
    standing: list[Any] = [
        *(["an experiment"] if result.experiment else []),
        *(["proven"] if result.proven else []),
    ]
    return f" ({', '.join(standing)})" if standing else ""
