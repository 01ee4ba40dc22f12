"""Seconds of silodp, of the plain loop and of Opacus for the same work, side by side.

python -m benchmarks.throughput [--json FILE] [--cases a,b,c,total,scaling] [--quick] [--full]

The peers take minutes for one run, and are exactly linear in rounds: they are timed on a few rounds
after a warm-up, and scaled to all; `--full` times all.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import silodp
from benchmarks import convnets, machine, plain_loop, scaling, workloads
from benchmarks.agreement import check_agreement
from benchmarks.plain_loop import CarefulLoop, PlainLoop
from benchmarks.workloads import LAMBDA, Work
from silodp.engines.devices import prepare_jax

CASES = ("a", "b", "c", "total", "scaling")
LOOP_ROUNDS, OPACUS_ROUNDS = 4, 2
REPEATS = 3
STEPS, BATCH = 31, 100  # repetitions of case (c), and its images
NOT_INSTALLED = "Opacus is not installed: its columns are empty. pip install 'silodp[bench]'"
# How our 60 runs compare with 60 of the peers'.
CAREFUL = "careful: the same loop by someone who knows what each call costs (see plain_loop.py)"
OURS_EVALUATES = "ours also evaluates 20 times in a run; the peers never"
GRID = "one sweep; runs of one seed share batches and unit noise"
NO_SHARING = "one sweep of as many seeds: nothing is shared between runs"


@dataclass
class Row:
    """One case: what each contender took, in seconds, every time it was measured."""

    case: str  # a word for programs to look for
    title: str
    ours: Sequence[float]
    loop: Sequence[float]
    careful: Sequence[float]  # the careful loop; empty where there is none
    opacus: Sequence[float]
    target_loop: float | None
    target_opacus: float | None
    runs: int
    notes: list[str]
    extra: dict[str, Any]

    def ratio(self, peer: Sequence[float], of: Callable = median) -> float | None:
        """How many times faster we are."""
        return of(peer) / of(self.ours) if peer else None

    def as_json(self, quick: bool) -> dict[str, Any]:
        """The object of `--json`: medians, and minima beside them."""
        contenders = {
            "ours": self.ours,
            "loop": self.loop,
            "careful_loop": self.careful,
            "opacus": self.opacus,
        }
        return {
            "case": self.case,
            "title": self.title,
            **{f"seconds_{name}": median(t) if t else None for name, t in contenders.items()},
            "ratio_loop": self.ratio(self.loop),
            "ratio_careful_loop": self.ratio(self.careful),
            "ratio_opacus": self.ratio(self.opacus),
            "target_loop": self.target_loop,
            "target_opacus": self.target_opacus,
            "met": None if quick else self.met,
            "quick": quick,
            "runs": self.runs,
            "notes": self.notes,
            **{f"min_seconds_{name}": min(t) if t else None for name, t in contenders.items()},
            "min_ratio_loop": self.ratio(self.loop, min),
            "min_ratio_opacus": self.ratio(self.opacus, min),
            "samples": {name: list(t) for name, t in contenders.items()},
            **self.extra,
        }

    @property
    def met(self) -> bool | None:
        """Whether all targets are met; None without any that was measured."""
        pairs = [
            (self.ratio(self.loop), self.target_loop),
            (self.ratio(self.opacus), self.target_opacus),
        ]
        known = [ratio >= target for ratio, target in pairs if ratio and target]
        return all(known) if known else None


class Peers:
    """The plain loop and Opacus on one case, timed a few rounds at a time."""

    def __init__(self, work: Work, noise: Sequence[float], opacus: ModuleType | None, full: bool):
        self._work = work
        self.loop_rounds = work.rounds if full else min(LOOP_ROUNDS, work.rounds)
        self.opacus_rounds = work.rounds if full else min(OPACUS_ROUNDS, work.rounds)
        settings = (work.model, work.batch_size, work.clip, work.lr, LAMBDA, noise)
        federation = work.federation(0)
        self._loop = PlainLoop(federation, *settings)
        self._careful = CarefulLoop(federation, *settings)
        self._opacus = opacus.OpacusLoop(federation, *settings) if opacus else None
        self._loop.run(1)  # compiles
        self._careful.run(1)
        if self._opacus:
            self._opacus.run(1)
        self.loop: list[float] = []
        self.careful: list[float] = []
        self.opacus: list[float] = []

    def time_loops(self) -> None:
        """Adds the seconds that all rounds take."""
        for loop, times in ((self._loop, self.loop), (self._careful, self.careful)):
            seconds = _seconds(partial(loop.run, self.loop_rounds))
            times.append(seconds * self._work.rounds / self.loop_rounds)

    def time_opacus(self) -> None:
        """Adds the seconds that all rounds take."""
        if self._opacus is not None:
            peer = self._opacus
            seconds = _seconds(lambda: peer.run(self.opacus_rounds))
            self.opacus.append(seconds * self._work.rounds / self.opacus_rounds)

    @property
    def extra(self) -> dict[str, Any]:
        """For the JSON."""
        return {
            "rounds": self._work.rounds,
            "rounds_timed_loop": self.loop_rounds,
            "rounds_timed_opacus": self.opacus_rounds if self._opacus else None,
        }


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def sweep_case(
    letter: str,
    work: Work,
    targets: tuple[float, float],
    opacus: ModuleType | None,
    repeats: int,
    full: bool,
) -> list[Row]:
    """Cases (a) and (b): seconds of a run within a sweep, compilation excluded."""
    grid = {"seeds": work.seeds, "lam": list(work.lambdas)}
    many_seeds = {"seeds": work.lone_seeds, "lam": LAMBDA}

    def ours(asked: dict[str, Any]) -> tuple[float, silodp.Result]:
        results = silodp.sweep(**work.options, **asked)
        return results[0].seconds["train"] / (len(results) * asked["seeds"]), results[0]

    times: dict[str, list[float]] = {"grid": [], "seeds": []}
    peers: Peers | None = None
    for _ in range(repeats):
        seconds, result = ours(grid)
        times["grid"].append(seconds)
        # The peers take the noise that the first sweep calibrated.
        noise = [silo["noise_multiplier"] for silo in result.privacy]
        peers = peers or Peers(work, noise, opacus, full)
        peers.time_loops()
        times["seeds"].append(ours(many_seeds)[0])
        peers.time_opacus()
    assert peers is not None
    rows = []
    for kind, case, of, shared in (
        ("grid", letter, f"{work.seeds} seeds x {len(work.lambdas)}", GRID),
        ("seeds", f"{letter}-seeds", f"{work.lone_seeds} seeds", NO_SHARING),
    ):
        rows.append(
            Row(
                case,
                f"{work.name}, a run of {of}",
                times[kind],
                peers.loop,
                peers.careful,
                peers.opacus,
                *(targets if kind == "grid" else (None, None)),
                work.runs if kind == "grid" else work.lone_seeds,
                [shared, OURS_EVALUATES, CAREFUL, *work.notes],
                peers.extra,
            )
        )
    return rows


def total_case(opacus: ModuleType | None, repeats: int, full: bool, quick: bool) -> Row:
    """A whole School sweep in a fresh process with an empty cache, against runs of the loop."""
    work = workloads.school(quick)
    first = silodp.run(**work.options, lam=LAMBDA)
    peers = Peers(work, [silo["noise_multiplier"] for silo in first.privacy], opacus, full)
    ours, parts = [], []
    for _ in range(repeats):
        peers.time_loops()
        with tempfile.TemporaryDirectory() as cache:
            options = ["--quick"] if quick else []
            seconds, told = machine.run_child("benchmarks.cold_sweep", *options, cache=Path(cache))
        ours.append(seconds)
        parts.append(told)
        peers.time_opacus()
    return Row(
        "total",
        f"{work.name}, {work.runs} runs, cold start",
        ours,
        [work.runs * t for t in peers.loop],
        [work.runs * t for t in peers.careful],
        [work.runs * t for t in peers.opacus],
        40.0,
        None,
        work.runs,
        [
            "ours counts everything from the start of Python; the peers' start, compilation and "
            "calibration are not counted",
            OURS_EVALUATES,
            *work.notes,
        ],
        {**peers.extra, "parts": parts},
    )


def convnet_case(name: str, opacus: ModuleType | None, quick: bool) -> Row:
    """Case (c): one step of DP-SGD."""
    clip, noise_multiplier, lr = 1.0, 1.0, 0.1
    count, repeats = (8, 3) if quick else (BATCH, STEPS)
    model, params, x, y = convnets.images(name, count)
    on_device = jax.device_put((x, y))
    key = jax.random.key(0)

    def jax_step(step: Callable) -> Callable[[], Any]:
        state = {"params": params}

        def run() -> None:
            state["params"] = jax.block_until_ready(step(state["params"], key, *on_device))

        return run

    contenders = {
        "ours": jax_step(convnets.our_step(model, clip, noise_multiplier, lr)),
        "loop": jax_step(plain_loop.convnet_step(clip, noise_multiplier, lr)),
    }
    if opacus is not None:
        peer = opacus.OpacusConvNet(params, x, y, clip, noise_multiplier, lr)
        contenders["opacus"] = peer.step
    for step in contenders.values():  # compiles, and fills the caches
        step()
        step()
    times: dict[str, list[float]] = {"ours": [], "loop": [], "opacus": []}
    order, shuffle = list(contenders), random.Random(0).shuffle
    for _ in range(repeats):
        # In a new order each time, and not before the threads of the last one are idle: else one
        # contender would always run beside another's spinning threads.
        shuffle(order)
        for contender in order:
            time.sleep(0.02)
            times[contender].append(_seconds(contenders[contender]))
    return Row(
        f"c-{name.lower()}",
        f"{name} ConvNet, step of {count}",
        times["ours"],
        times["loop"],
        [],
        times["opacus"],
        3.0,
        1.2,
        1,
        ["loop: jax.vmap(jax.grad)", "random images: the work does not depend on them"],
        {"steps_timed": repeats},
    )


def _table(rows: Sequence[Row], quick: bool) -> Table:
    table = Table(title="Seconds" + (" (QUICK: small sizes, not comparable)" if quick else ""))
    table.add_column("case", no_wrap=True)
    table.add_column("seconds for", no_wrap=True)
    for column in ("silodp", "loop", "Opacus", "x loop (target)", "x careful", "x Opacus (target)"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("targets", no_wrap=True)
    for row in rows:
        table.add_row(
            row.case,
            row.title,
            *(f"{median(t):.4g}" if t else "" for t in (row.ours, row.loop, row.opacus)),
            _with_target(row.ratio(row.loop), row.target_loop),
            _with_target(row.ratio(row.careful), None),
            _with_target(row.ratio(row.opacus), row.target_opacus),
            {True: "met", False: "[bold red]missed[/]", None: ""}[None if quick else row.met],
        )
    return table


def _with_target(ratio: float | None, target: float | None) -> str:
    if ratio is None:
        return ""
    # 1.2 needs its digit; hundreds do not.
    shown = f"{ratio:.2f}" if ratio < 20 else f"{ratio:,.0f}"
    return shown if target is None else f"{shown} ({target:,g})"


def find_opacus() -> ModuleType | None:
    """The Opacus peer, if its packages are there."""
    try:
        from benchmarks import opacus_peer
    except ImportError:
        return None
    return opacus_peer


def measure(asked: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Runs the cases, prints the tables and gives the objects of `--json`."""
    prepare_jax()  # before JAX starts; the peers' steps are on the first device
    opacus, quick = find_opacus(), asked.quick
    about = machine.describe()
    if opacus is None:
        console.print(NOT_INSTALLED, markup=False)
    else:
        about["torch_threads"] = opacus.threads()
    console.print(
        f"{about['cores']} cores of {about['cpu']}, load {about['load_average']}", style="dim"
    )
    rows: list[Row] = []
    repeats = 1 if quick else asked.repeats
    if set(asked.cases) - {"scaling"}:
        gap = check_agreement(opacus)
        console.print(f"Without noise all contenders agree: the largest gap is {gap:.1g}.")
    for case in asked.cases:
        console.print(f"case {case}", style="dim")
        if case == "a":
            work = workloads.school(quick)
            rows += sweep_case("a", work, (400.0, 1500.0), opacus, repeats, asked.full)
        elif case == "b":
            work = workloads.vehicle(quick)
            rows += sweep_case("b", work, (100.0, 300.0), opacus, repeats, asked.full)
        elif case == "c":
            rows += [convnet_case(name, opacus, quick) for name in convnets.SHAPES]
        elif case == "total":
            rows.append(total_case(opacus, repeats, asked.full, quick))
    found = [{**row.as_json(quick), "machine": about} for row in rows]
    if rows:
        console.print(_table(rows, quick))
        for note in dict.fromkeys(note for row in rows for note in row.notes):
            console.print(f"- {note}", style="dim")
        if not asked.full and any("rounds" in row.extra for row in rows):
            console.print(
                f"- loop and Opacus were timed on {LOOP_ROUNDS} and {OPACUS_ROUNDS} rounds and "
                "scaled to all; --full times all",
                style="dim",
            )
    if "scaling" in asked.cases:
        found.append(scaling.measure_all(console, quick))
    return found


def _cases(text: str) -> list[str]:
    chosen = text.split(",")
    for case in chosen:
        if case not in CASES:
            raise argparse.ArgumentTypeError(f"{case!r} is none of {', '.join(CASES)}")
    return chosen


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file")
    parser.add_argument(
        "--cases", type=_cases, default=list(CASES), help=f"of {','.join(CASES)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--full", action="store_true", help="time the peers on all rounds")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each measurement")
    asked = parser.parse_args()
    console = Console()
    # In a pipe rich assumes 80 columns, into which the table does not fit.
    found = measure(asked, console if console.is_terminal else Console(width=140))
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
