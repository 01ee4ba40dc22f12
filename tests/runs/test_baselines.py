"""`silodp run --baselines`: what is trained beside a run, kept, gone on with, and left alone."""

import json

import pytest

import silodp
from silodp.base.errors import SilodpError
from silodp.runs.baselines import baselines_of, seen_together

pytestmark = pytest.mark.usefixtures("kept_programs")

ASKED = {"data": "synthetic", "silos": 3, "rounds": 2, "epsilon": 2.0, "method": "mrmtl"}


@pytest.fixture
def trained(monkeypatch):
    """Which methods were trained, in order."""
    from silodp.runs import run as runs

    methods, real = [], runs._trained

    def noted(*args, **more):
        methods.append(args[-1].get("method"))
        return real(*args, **more)

    monkeypatch.setattr(runs, "_trained", noted)
    return methods


def test_they_are_the_runs_that_one_would_ask_for(tmp_path, trained):
    silodp.run(**ASKED, lam=0.3, baselines=True, out=tmp_path)
    assert trained == ["local", "fedavg", "mrmtl"]
    found = baselines_of(tmp_path)
    assert found.keys() == {"local", "fedavg"}
    for method, result in found.items():
        assert result.test == silodp.run(**ASKED | {"method": method}).test
        assert [p["epsilon"] for p in result.privacy] == pytest.approx([2.0] * 3, rel=0.01)


def test_a_method_is_not_its_own_baseline(tmp_path, trained):
    silodp.run(**ASKED | {"method": "local"}, baselines=True, out=tmp_path)
    assert trained == ["fedavg", "local"]


def test_what_was_interrupted_goes_on_with_what_is_left(tmp_path, trained, monkeypatch):
    silodp.run(**ASKED, clip=0.5, baselines=True, out=tmp_path)
    (tmp_path / "result.json").unlink()  # as if the run itself had been interrupted
    trained.clear()
    silodp.run(**ASKED, clip=0.5, baselines=True, out=tmp_path, resume=True)
    assert trained == ["mrmtl"]
    (tmp_path / "result.json").unlink()
    trained.clear()
    # An option that is left out now is another option too.
    silodp.run(**ASKED, baselines=True, out=tmp_path, resume=True)
    assert trained == ["local", "fedavg", "mrmtl"]
    assert baselines_of(tmp_path)["local"].options["clip"] != 0.5


def test_those_of_another_run_are_forgotten_and_nothing_else(tmp_path):
    silodp.run(**ASKED, baselines=True, out=tmp_path)
    mine = tmp_path / "baselines" / "my results.csv"
    mine.write_text("x")
    with pytest.raises(SilodpError, match="--lam is -1"):
        silodp.run(**ASKED, lam=-1, out=tmp_path, overwrite=True)
    assert baselines_of(tmp_path)  # refused before anything was touched
    silodp.run(**ASKED, out=tmp_path, overwrite=True)
    assert baselines_of(tmp_path) == {}
    assert mine.read_text() == "x"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lam": -1}, "--lam is -1"),
        ({"method": "nothing"}, "nothing"),
        ({"ledger": "ledgers"}, "--baselines trains two runs more"),
    ],
)
def test_what_would_be_refused_is_refused_before_anything_is_trained(
    tmp_path, trained, wrong, said
):
    with pytest.raises(SilodpError, match=said):
        silodp.run(**ASKED | wrong, baselines=True, out=tmp_path / "out")
    assert trained == []
    assert not (tmp_path / "out").exists()


def test_they_need_a_folder():
    with pytest.raises(SilodpError, match="--baselines needs a folder"):
        silodp.run(**ASKED, baselines=True)


def test_a_damaged_note_is_no_reason_to_trust(tmp_path, trained):
    silodp.run(**ASKED, baselines=True, out=tmp_path)
    (tmp_path / "result.json").unlink()
    (tmp_path / "baselines" / "local" / "asked.json").write_text(json.dumps(None))
    trained.clear()
    silodp.run(**ASKED, baselines=True, out=tmp_path, resume=True)
    assert trained == ["local", "mrmtl"]


def test_runs_seen_together_are_counted():
    assert "has seen 3 runs" in seen_together(["local", "fedavg"], noise_from_seeds=False)
    assert "has seen 2 runs" in seen_together(["local"], noise_from_seeds=False)
    assert seen_together(["fedavg"], noise_from_seeds=True).startswith("FedAvg was trained beside")
    assert "promise nothing" in seen_together(["fedavg"], noise_from_seeds=True)
