"""How long `silodp report` takes, beside the same charts drawn with matplotlib, for 1,000 silos.

Both draw, from three results of 1,000 silos: each silo's gain over local training and over FedAvg,
the metric over rounds with bands, and budgets as bars. matplotlib writes SVG, as a page would hold
it; the report writes its whole page (tables, words and script included), each chart in two widths.
Medians of five, in turns.
"""

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from silodp.report import report_page
from silodp.report.gains import gains_by_silo
from silodp.results.result import Result, read_result, summary
from silodp.runs.baselines import BASELINES

TIMES = 5


def made_up(method: str, scale: float, silos: int) -> Result:
    """A result as a run would give it."""
    random = np.random.default_rng(0)
    values = scale * (0.05 + 0.1 * random.random((5, silos)))
    names = [f"hospital {number}" for number in range(silos)]
    privacy = {"delta": 1e-4, "unit": "record", "relation": "add-remove", "proven": True}
    return Result(
        data="made up",
        method=method,
        options={"data": "made up", "method": method, "seeds": 5},
        metric="mse",
        test=summary(values.mean(axis=1)),
        per_silo=[
            {"silo": name, "records": 100, "test_records": 20, **summary(values[:, k])}
            for k, name in enumerate(names)
        ],
        privacy=[
            {"silo": name, "epsilon": (1.0, 3.0, 10.0)[k % 3], "unproven": [], **privacy}
            for k, name in enumerate(names)
        ],
        assumptions=[],
        history=[{"round": r, **summary(values.mean(axis=1) * (1 + 5 / r))} for r in range(1, 51)],
        seconds={"total": 1.0},
    )


def with_matplotlib(folder: Path) -> int:
    """The same charts; returns how many bytes they take."""
    from matplotlib.figure import Figure

    own = read_result(folder / "mrmtl")
    others = {method: read_result(folder / method) for method in BASELINES}
    size = 0

    def save(figure: Figure) -> int:
        content = io.BytesIO()
        figure.savefig(content, format="svg")
        return content.tell()

    for other in others.values():
        figure = Figure(figsize=(7.2, 2.4))
        gains = sorted((g.mean for g in gains_by_silo(own, other)), reverse=True)
        figure.subplots().bar(range(len(gains)), gains)
        size += save(figure)
    figure = Figure(figsize=(7.2, 3))
    axes = figure.subplots()
    for result in (own, *others.values()):
        means = np.array([point["mean"] for point in result.history])
        stds = np.array([point["std"] for point in result.history])
        rounds = [point["round"] for point in result.history]
        axes.plot(rounds, means)
        axes.fill_between(rounds, means - stds, means + stds, alpha=0.2)
    size += save(figure)
    figure = Figure(figsize=(7.2, 2.4))
    figure.subplots().bar(range(len(own.privacy)), sorted(own.epsilons))
    return size + save(figure)


def timed(work: Callable[[], int]) -> tuple[float, int]:
    began = time.perf_counter()
    size = work()
    return time.perf_counter() - began, size


def main() -> None:
    parser = argparse.ArgumentParser(description="The report beside matplotlib.")
    parser.add_argument("--silos", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="30 silos, to try it out")
    asked = parser.parse_args()
    silos = 30 if asked.quick else asked.silos
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for method, scale in (("local", 1.3), ("fedavg", 1.5), ("mrmtl", 1.0)):
            made_up(method, scale, silos).write(folder / method)
        contenders = {
            "silodp report, the whole page": lambda: len(report_page([folder]).encode()),
            "matplotlib, the charts alone": lambda: with_matplotlib(folder),
        }
        for work in contenders.values():  # imports are not what is measured
            work()
        took: dict[str, list[tuple[float, int]]] = {name: [] for name in contenders}
        for _ in range(TIMES):
            for name, work in contenders.items():
                took[name].append(timed(work))
    seconds = {name: statistics.median(s for s, _ in all_) for name, all_ in took.items()}
    print(f"{silos} silos, medians of {TIMES}")
    for name in contenders:
        print(f"  {name:32s} {seconds[name]:7.3f} s  {took[name][0][1] / 1e6:6.2f} MB")
    ours, theirs = seconds.values()
    print(f"  matplotlib takes {theirs / ours:.1f} times as long")


if __name__ == "__main__":
    main()
