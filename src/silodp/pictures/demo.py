"""The first thing to run: four methods, three budgets in one federation, and the paper's bump.

A third of the silos has a strict budget, a third a medium and a third a generous one. The picture
shows the error of MR-MTL against lambda: with privacy the best lambda lies between local training
and FedAvg, and further towards FedAvg than without. `ebmtl` needs no lambda.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from silodp.base.files import write_file
from silodp.base.progress import Reporter
from silodp.models.metrics import get_metric
from silodp.pictures.pictures import COLOURS, new_figure, save
from silodp.results.result import Result
from silodp.runs.run import sweep

BUDGETS = (1.0, 3.0, 10.0)
LAMBDAS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6)
SILOS = 12
SEEDS = 5
_LABELS = {"local": "local", "fedavg": "FedAvg", "ebmtl": "ebmtl (no lambda)"}


def run_demo(out: Path, reporter: Reporter) -> tuple[list[Result], Path]:
    """Trains all methods, writes each result into its own folder, and draws the picture."""
    policies = [
        write_file(out / "policies.toml", _policies(BUDGETS)),
        write_file(out / "no-privacy.toml", _policies((math.inf,))),
    ]

    def train(method: str, **lams: Any) -> list[Result]:
        return sweep(
            data="synthetic",
            method=method,
            policies=policies,
            silos=SILOS,
            seeds=SEEDS,
            reporter=reporter,
            **lams,
        )

    # The grid's last axis moves fastest: private, not private, private, ...
    local, open_local = train("local")
    fedavg, open_fedavg = train("fedavg")
    ours, open_ours = train("ebmtl")
    curves = train("mrmtl", lam=LAMBDAS)
    private, without = curves[::2], curves[1::2]
    best = min(private, key=lambda result: result.mean)
    for result in (local, fedavg, best, ours):
        result.write(out / result.method)
    picture = draw_bump(
        [
            ("with privacy", private, [local, fedavg, ours]),
            ("without privacy", without, [open_local, open_fedavg, open_ours]),
        ],
        out / "bump.png",
        title=f"{SILOS} silos, a third each at epsilon {', '.join(f'{b:g}' for b in BUDGETS)}",
    )
    return [local, fedavg, best, ours], picture


def _policies(budgets: Sequence[float]) -> str:
    lines = ["# Each silo's own privacy budget for this run."]
    for number in range(SILOS):
        epsilon = budgets[number % len(budgets)]
        lines.append(f'[silos."silo-{number + 1:02d}"]\nepsilon = {epsilon}')
    return "\n".join(lines) + "\n"


def draw_bump(
    panels: Sequence[tuple[str, Sequence[Result], Sequence[Result]]], path: Path, title: str
) -> Path:
    """Draws the metric against lambda, one panel per (name, sweep, methods without a lambda).

    Local training and FedAvg are the two ends that lambda moves between: lines across the panel,
    as is any other method without a lambda.
    """
    figure, all_axes = new_figure(9.2, 4.2, panels=len(panels))
    figure.suptitle(title, fontsize=11)
    for axes, (name, results, others) in zip(all_axes, panels, strict=True):
        lams = [result.options["lam"] for result in results]
        means = [result.mean for result in results]
        errors = [result.std / len(result.test["per_seed"]) ** 0.5 for result in results]
        best = min(range(len(means)), key=lambda number: means[number])
        for other, colour, style in zip(others, COLOURS[1:], (":", "--", "-."), strict=False):
            axes.axhline(
                other.mean, color=colour, linestyle=style, linewidth=2, label=_LABELS[other.method]
            )
        axes.errorbar(
            lams, means, yerr=errors, color=COLOURS[0], marker="o", capsize=2, label="MR-MTL"
        )
        axes.plot(
            lams[best], means[best], color=COLOURS[0], marker="*", markersize=16, linestyle="none"
        )
        axes.annotate(
            f"best: lambda {lams[best]:g}",
            (lams[best], means[best]),
            xytext=(0, -18),
            textcoords="offset points",
            ha="center",
        )
        axes.set_xscale("log")
        axes.set(title=name, xlabel="lambda (to the right: federate more)")
        axes.margins(y=0.15)
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    all_axes[0].set_ylabel(f"{get_metric(panels[0][1][0].metric).label}, ± standard error")
    return save(figure, path)
