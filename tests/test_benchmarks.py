"""The benchmark runs, and its contenders do the same work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_quick_benchmark(tmp_path):
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "benchmarks.throughput", "--quick", "--json", str(out)]
    root = Path(__file__).parent.parent
    done = subprocess.run([*command, "--cases", "a,b,c"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cases = {case["case"]: case for case in json.loads(out.read_text())}
    assert {"a", "b", "c-mnist", "c-cifar"} <= set(cases)
    for case in cases.values():
        assert case["seconds_ours"] > 0
        assert case["ratio_loop"] == case["seconds_loop"] / case["seconds_ours"]
