"""The first thing that a newcomer runs."""

import json
import re
from pathlib import Path

import pytest

from silodp.base.progress import Reporter
from silodp.pictures.demo import BUDGETS, run_demo


def test_the_demo_shows_what_it_is_for(tmp_path):
    """Between local training and FedAvg lies something better than both, at the same budgets."""
    (local, fedavg, best, ours), picture = run_demo(tmp_path, Reporter())
    assert ours.mean < min(local.mean, fedavg.mean)
    assert best.mean < min(local.mean, fedavg.mean) - best.std / len(best.test["per_seed"]) ** 0.5
    assert picture.read_bytes().startswith(b"\x89PNG")
    for result in (local, fedavg, best, ours):
        assert result.unproven == []
        assert result.experiment
        written = json.loads((tmp_path / result.method / "result.json").read_text())
        assert written["test"]["mean"] == result.mean
        for number, silo in enumerate(result.privacy):
            budget = BUDGETS[number % len(BUDGETS)]
            assert 0.99 * budget < silo["epsilon"] <= budget
    for page in ("README.md", "docs/tutorial.md"):
        shown = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
        for result in (local, fedavg, best, ours):
            row = re.search(rf"^    {result.method}\b.*?  (0\.\d+) ± (0\.\d+)", shown, re.MULTILINE)
            assert row, f"{page} has no row of {result.method}"
            assert float(row[1]) == pytest.approx(result.mean, rel=0.01), page
            assert float(row[2]) == pytest.approx(result.std, rel=0.05), page
