"""Ten rounds of FedAvg without privacy, on the real images, as a user would run them."""

import json
import os
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "options", "least"),
    [("mnist", ("--rotations", 1, "--mask-ratio", 0), 0.9), ("cifar10", (), 0.35)],
)
def test_fedavg_learns(cli, data, options, least):
    folder = os.environ.get("SILODP_DATA")
    if not folder or not (Path(folder) / data).is_dir():
        pytest.skip(f"SILODP_DATA has no {data} folder")
    done = cli(
        *("run", "--data", data, "--method", "fedavg", "--epsilon", "inf", "--rounds", 10),
        *(*options, "--quiet", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["test"]["mean"] > least
