"""Every benchmark runs to its end, small; and its contenders do the same work."""

import importlib
import json
import math
import pkgutil
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import benchmarks
from benchmarks import (
    agreement,
    convnets,
    ebmtl,
    privacy,
    scaling,
    sites,
    sweeps,
    throughput,
    tuning,
    workloads,
)
from benchmarks.plain_loop import CarefulLoop, convnet_step
from silodp.base.progress_file import PROGRESS_FILE
from silodp.sites.coordinator import STATE

ROOT = Path(__file__).parents[2]
# Those that measure nothing by themselves: what others are made of.
# And the claims of the paper, which have tests of their own.
PARTS = {"agreement", "convnets", "machine", "plain_loop", "workloads", "results"}


@pytest.fixture
def bench(monkeypatch, capsys):
    """Runs a benchmark as its command line does, in this process; returns what it prints."""
    monkeypatch.chdir(ROOT)  # some start processes of their own

    def run(name, *args):
        monkeypatch.setattr(sys, "argv", [name, *map(str, args)])
        importlib.import_module(f"benchmarks.{name}").main()
        return capsys.readouterr().out

    return run


def test_none_is_forgotten():
    """Each benchmark is run below; and by `make bench`, unless it is a child or part of another."""
    text = Path(__file__).read_text()
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name not in PARTS:
            assert re.search(rf'"(benchmarks\.)?{module.name}"', text), module.name
    made = (ROOT / "Makefile").read_text()
    for name in ("throughput", "privacy", "release", "loading", "methods", "tuning", "ebmtl"):
        assert f"-m benchmarks.{name}" in made
    for name in ("sites", "sweeps", "report", "fewround", "encoding"):
        assert f"-m benchmarks.{name}" in made


# Nobody compares different work


@pytest.mark.parametrize(("model", "clip"), [("linear", 0.5), ("svm", 2.0)])
def test_loops_and_the_simulation_agree(model, clip):
    assert agreement._linear_gap(model, clip, None) <= agreement.TOLERANCE


@pytest.mark.parametrize("name", ["MNIST", pytest.param("CIFAR", marks=pytest.mark.slow)])
def test_steps_of_a_convnet_agree(name):
    assert agreement._convnet_gap(name, None) <= agreement.TOLERANCE


class Peer:
    """Stands in for Opacus, which is not among what tests need: its answers come from the loop."""

    def __init__(self, off):
        self.off = off

    def OpacusLoop(self, *args):
        off = self.off

        class Loop(CarefulLoop):
            def step(self, number, params, drawn=None):
                if drawn is not None:
                    return super().step(number, params, drawn)
                first = super().step(number, self.models[number], params)
                self.models[number] = first + off
                return None

        return Loop(*args)

    def OpacusConvNet(self, params, x, y, clip, noise_multiplier, lr):
        after = convnet_step(clip, noise_multiplier, lr)(params, jax.random.key(0), x, y)

        def gaps(expected):
            both = zip(jax.tree.leaves(after), jax.tree.leaves(expected), strict=True)
            return [float(np.abs(a - b).max()) + self.off for a, b in both]

        return SimpleNamespace(step=lambda: None, gaps=gaps)

    def threads(self):
        return 1


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_a_peer_that_does_other_work_is_found(monkeypatch, off):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=lambda array: array))
    monkeypatch.setattr(convnets, "SHAPES", {"MNIST": convnets.SHAPES["MNIST"]})
    if off:
        with pytest.raises(AssertionError, match="do not do the same work"):
            agreement.check_agreement(Peer(off))
    else:
        assert agreement.check_agreement(Peer(off)) <= agreement.TOLERANCE


def test_opacus_itself_agrees():
    pytest.importorskip("opacus")
    assert agreement.check_agreement(importlib.import_module("benchmarks.opacus_peer")) <= 1e-4


# Each of them, to its end


def test_throughput(bench, tmp_path, monkeypatch):
    """But for scaling, which is below, and (b), which is (a) with other records.

    The cold start is told by a stand-in.
    """
    asked = []

    def child(module, *args, cache):
        asked.append((module, args, cache.is_dir()))
        return 1.5, {"seconds": {}, "peak_gb": 0.1}

    monkeypatch.setattr(throughput.machine, "run_child", child)
    monkeypatch.setattr(convnets, "SHAPES", {"MNIST": convnets.SHAPES["MNIST"]})
    out = tmp_path / "deep" / "bench.json"
    shown = bench("throughput", "--quick", "--cases", "a,c,total", "--json", out)
    assert "all contenders agree" in shown
    assert asked == [("benchmarks.cold_sweep", ("--quick",), True)]
    cases = {case["case"]: case for case in json.loads(out.read_text())}
    assert set(cases) == {"a", "a-seeds", "c-mnist", "total"}
    for case in cases.values():
        assert case["seconds_ours"] > 0
        assert case["ratio_loop"] == case["seconds_loop"] / case["seconds_ours"]


def test_cold_sweep(bench):
    told = json.loads(bench("cold_sweep", "--quick"))
    assert told["seconds"]["train"] > 0


def test_scaling(bench, tmp_path, monkeypatch):
    """Two sizes of each; in this process, not in one each."""
    points = [scaling.Point(3, 40, 2, 2), scaling.Point(4, 40, 2, 2)]
    monkeypatch.setattr(scaling, "series", lambda quick: {"silos": points, "memory": points[:1]})

    def child(module, flag, text, cache):
        assert module == "benchmarks.scaling"
        return 0.1, json.loads(bench("scaling", flag, text).splitlines()[-1])

    monkeypatch.setattr(scaling, "run_child", child)
    monkeypatch.setattr(sys, "argv", ["scaling", "--quick", "--json", str(tmp_path / "s.json")])
    scaling.main()
    (found,) = json.loads((tmp_path / "s.json").read_text())
    assert len(found["points"]) == 2
    assert len(found["growth"]["silos"]) == 1


def test_privacy(bench, monkeypatch):
    """The peer's search takes its seconds: a stand-in looks at what it would be given."""
    monkeypatch.setattr(privacy, "calibrate_dp_mechanism", lambda _, event, *given: event(1.0))
    shown = bench("privacy", "--quick")
    assert "charged to 3 ledgers" in shown
    assert "times as long" in shown


def test_loading(bench):
    shown = bench("loading", "--quick")
    assert shown.count("silodp, ") == 2
    assert "peer: pickle" in shown


def test_methods(bench, tmp_path):
    bench("methods", "--quick", "--only", "local", "--json", tmp_path / "m.json")
    yardstick, other = json.loads((tmp_path / "m.json").read_text())
    assert (yardstick["method"], yardstick["ratio"], other["method"]) == ("mrmtl", 1, "local")


def test_tuning(bench, tmp_path, monkeypatch):
    """Of two silos: the noise of a tuned run is looked for in each size by itself."""
    monkeypatch.setattr(tuning, "LAMBDAS", (1.0,))
    shaped = workloads._school_shaped
    monkeypatch.setattr(workloads, "_school_shaped", lambda seed, silos: shaped(seed, silos=2))
    bench("tuning", "--quick", "--json", tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text())
    assert found["ratio"] == found["alone"] / found["tuned"]


def test_encoding(bench):
    printed = bench("encoding", "--quick")
    (row,) = [line.split() for line in printed.splitlines() if line.startswith("scattering")]
    assert all(float(rate) > 0 for rate in row[1:])


def test_fewround(bench, tmp_path):
    printed = bench("fewround", "--quick", "--json", tmp_path / "f.json")
    beside, made_up, *predicted = json.loads((tmp_path / "f.json").read_text())
    assert np.isfinite([beside["fewround"], beside["ebmtl"], made_up["mse"]]).all()
    assert all(0 <= row["low"] <= row["high"] <= 1 for row in predicted)
    assert len(predicted) == 4
    assert "ebmtl" in printed


def test_ebmtl(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(ebmtl, "EPSILONS", (1.0, math.inf))
    monkeypatch.setattr(ebmtl, "LEARNING_RATES", [0.01])
    monkeypatch.setitem(ebmtl.GRIDS, "mrmtl", {"lam": [1.0]})
    bench("ebmtl", "--quick", "--json", tmp_path / "e.json")
    rows = json.loads((tmp_path / "e.json").read_text())
    assert {row["method"] for row in rows} <= {"local", "mrmtl"}
    assert all(np.isfinite(row["ebmtl"]) for row in rows)


def test_sweeps(bench, tmp_path, monkeypatch):
    few = {"epsilon": [1, 2], "lr": [0.01], "rounds": 2, "silos": 3}
    monkeypatch.setattr(sweeps, "QUICK", sweeps.QUICK | few)
    bench("sweeps", "--quick", "--json", tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["runs"] == 8


def test_report(bench):
    shown = bench("report", "--quick")
    assert "30 silos" in shown
    assert "matplotlib takes" in shown


def test_release(bench, tmp_path):
    """Two runs that differ in where their noise comes from, and in nothing else."""
    shown = bench("release", "--quick", "--json", tmp_path / "r" / "r.json")
    assert "6 rounds, 12 silos" in shown
    found = json.loads((tmp_path / "r" / "r.json").read_text())
    for part in ("train", "total"):
        own = found["release"][part], found["experiment"][part]
        assert found["ratio"][part] == own[0] / own[1] > 0
    assert workloads.school(quick=False).rounds == 200


def test_sites(bench, tmp_path, monkeypatch):
    """FLARE's processes are tested by themselves: here the rounds go on in this process."""
    for name in ("start_server", "start_site", "stop"):
        monkeypatch.setattr(sites, name, lambda *_: None)
    whole = sites.fed_text
    monkeypatch.setattr(sites, "fed_text", lambda *a: whole(*a).replace('"ebmtl"', '"local"'))
    met = {}

    def run_job(folder, job, names, **_):
        told = {"round": 0, "rounds": 3}
        path = folder / STATE / job / PROGRESS_FILE
        path.parent.mkdir(parents=True)
        for number in (1, 2, 3):
            path.with_suffix(".new").write_text(json.dumps(told | {"round": number}))
            path.with_suffix(".new").replace(path)
            time.sleep(0.05)
        met["sites"] = list(names)

    monkeypatch.setattr(sites, "run_job", run_job)
    bench("sites", "--quick", "--json", tmp_path / "s.json")
    told = json.loads((tmp_path / "s.json").read_text())
    assert met["sites"] == ["north", "south"]
    assert told["in one process, median"] > 0
    assert told["ratio"] == told["seconds a round, median"] / told["in one process, median"]
