"""School at epsilon 6, delta 1e-3, 200 rounds, 5 seeds: the authors' published numbers.

With their choices the numbers agree with theirs; with ours (proven) they are no worse.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import silodp
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.accounting.events import from_json
from silodp.privacy.ledger.storage import ledger_paths, read_path

PUBLISHED = {"fedavg": (0.02564, 0.02), "local": (0.02628, 0.03), "mrmtl": (0.02394, 0.02)}
AUTHORS = {
    "sampling": "shuffle",
    "accountant": "rdp",
    "preprocess": "paper",
}

pytestmark = pytest.mark.skipif(
    not (Path(os.environ.get("SILODP_DATA") or "nowhere") / "school" / "school.mat").exists(),
    reason="school.mat is not at hand: set SILODP_DATA to a folder that holds school/school.mat",
)


def school(method, **options):
    if method in ("mrmtl", "meanpull", "ditto", "mocha", "ifca+mrmtl"):
        options["lam"] = 1
    return silodp.run(
        data="school",
        method=method,
        epsilon=6,
        delta=1e-3,
        rounds=200,
        batch_size=32,
        clip=1,
        lr=0.01,
        seeds=5,
        **options,
    )


@pytest.mark.parametrize("method", PUBLISHED)
@pytest.mark.slow
def test_the_authors_choices_give_the_authors_numbers(method):
    published, tolerance = PUBLISHED[method]
    inside = {} if method in ("local", "fedavg") else {"regulariser": "inside"}
    result = school(method, **AUTHORS, **inside)
    assert result.mean == pytest.approx(published, rel=tolerance)
    assert not result.proven


@pytest.mark.slow
@pytest.mark.parametrize("method", PUBLISHED)
def test_the_defaults_are_no_worse_and_coins_make_them_proven(method):
    result = school(method)
    assert result.mean <= PUBLISHED[method][0]
    assert not result.proven  # but for the paper's split they would be
    result = school(method, split="coin")
    assert result.mean <= PUBLISHED[method][0]
    assert result.unproven == []
    assert max(result.epsilons) <= 6


@pytest.mark.parametrize(
    ("method", "theirs"),
    [
        pytest.param("mocha", 0.02627, marks=pytest.mark.slow),
        pytest.param("ditto", 0.02457, marks=pytest.mark.slow),
        pytest.param("finetune", 0.02481, marks=pytest.mark.slow),
        pytest.param("ifca+mrmtl", 0.02394, marks=pytest.mark.slow),
    ],
)
def test_the_other_methods_are_no_worse_than_the_authors_algorithms(method, theirs):
    """Of their algorithms with their choices in our engine; of IFCA with MR-MTL, MR-MTL alone."""
    clusters = {"clusters": 3} if method.startswith("ifca") else {}
    assert school(method, **clusters).mean <= theirs


@pytest.mark.slow
def test_poisson_and_pld_alone_are_no_worse():
    """The same preprocessing as the authors': what is gained is not the features' scaling."""
    assert school("mrmtl", preprocess="paper").mean <= PUBLISHED["mrmtl"][0]


@pytest.mark.slow
def test_a_tuned_run_stays_within_every_policy(tmp_path):
    """The pivot protocol on all 139 schools, charged to their ledgers; then with its seed shown."""
    asked = {"data": "school", "method": "meanpull", "lam": 0.3, "epsilon": 6.0, "delta": 1e-3}
    asked |= {"grid": {"lam": [0.03, 0.1, 0.3, 1.0, 3.0]}, "split": "coin"}
    charged = silodp.tune(**asked, ledger=tmp_path, keep_models=True)
    assert charged.proven
    assert 5.9 < min(charged.epsilons) <= max(charged.epsilons) <= 6
    for path in ledger_paths(tmp_path):
        entries = read_path(path).entries
        (reserve,) = (e.body for e in entries if e.kind == "reserve")
        assert reserve["about"]["queries"] == ["tuning"]
        (charge,) = (e.body for e in entries if e.kind == "charge")
        assert charge["event"] == reserve["event"]
        spent = epsilon_of(from_json(charge["event"]), 1e-3)
        assert 5.9 < spent <= 6
    assert np.asarray(charged.models).shape[:2] == (1, 139)
    assert "trials_of_silos" not in charged.tuning
    seen = silodp.tune(**asked)
    trials = [one for (one,) in seen.tuning["trials_of_silos"]]
    assert len(set(trials)) > 8
    assert np.mean(trials) == pytest.approx(5, abs=2)
    # Measured: 0.0233, with 0.0226 for the pivot's lambda and all of epsilon for one run.
    assert seen.mean < 0.0245
