"""Every example runs, as a user would run it."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import silodp
import silodp.data.registry

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_runs(name, capsys, monkeypatch, tmp_path):
    if name == "own_model.py":
        pytest.importorskip("equinox")
    monkeypatch.chdir(tmp_path)  # examples write to ./runs
    monkeypatch.syspath_prepend(EXAMPLES)  # as for a script: examples may import each other
    monkeypatch.setattr("sys.argv", [name])
    monkeypatch.setattr(silodp.data.registry, "SOURCES", dict(silodp.data.registry.SOURCES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_notebook_runs(name, tmp_path):
    """Its cells one after another, in a process of their own: it needs no Jupyter."""
    cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown = "print(repr(predicted), result.to_frame(), result._repr_html_())"
    script = tmp_path / "cells.py"
    script.write_text(
        f"own = {{}}\nfor cell in {[*sources, shown]!r}:\n    exec(cell, own)\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Name: days" in done.stdout
    assert "<table>" in done.stdout
    assert all(not cell.get("outputs") for cell in cells)  # nothing that was run elsewhere


def test_the_plain_version_does_what_the_engine_does():
    """Without noise and clip, on full batches, nothing is random: equal models."""
    rng = np.random.default_rng(0)
    silos, records = [], []
    for k in range(3):
        x = rng.normal(size=(20, 3))
        y = x @ rng.normal(size=3)
        silos.append((np.c_[x, np.ones(20)], y))
        records.append(silodp.Silo(f"s{k}", silodp.Records(x, y), silodp.Records(x, y)))
    plain = runpy.run_path(str(EXAMPLES / "plain_mrmtl.py"))["mrmtl"]
    models, _ = plain(silos, rounds=7, lam=0.4, clip=1e9, noise=0.0, batch=20)
    result = silodp.run(
        federation=silodp.Federation("f", tuple(records), "regression"),
        method="mrmtl",
        lam=0.4,
        epsilon=float("inf"),
        rounds=7,
        lr=0.1,
        batch_size=20,
        keep_models=True,
    )
    np.testing.assert_allclose(result.models[0], models, rtol=1e-4, atol=1e-6)
