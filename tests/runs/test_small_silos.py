"""Silos with hardly a record, of one class or with none to test with: trained, not refused."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

import silodp
from silodp import SilodpError
from silodp.data.registry import DataOptions, resolve

pytestmark = pytest.mark.usefixtures("kept_programs")

SIZES = {"big": 60, "one": 1, "two": 2, "sided": 20, "few": 9}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = []
    for silo, size in SIZES.items():
        for person in range(size):
            age = rng.normal()
            ill = "yes" if silo == "sided" or age + rng.normal() > 0 else "no"
            rows.append((silo, age, rng.normal(), ill, person // 2))
    path = tmp_path_factory.mktemp("small") / "table.csv"
    columns = ["site", "age", "dose", "ill", "who"]
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    return path


def run(table, method="mrmtl", **options):
    given = {"silo_column": "site", "target": "ill", "ignore": "who", "task": "binary"}
    given |= {"epsilon": 3, "rounds": 2, "seeds": 2}
    return silodp.run(data=str(table), method=method, **{**given, **options})


def by_silo(result):
    return {silo["silo"]: silo["per_seed"] for silo in result.per_silo}


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize(
    ("method", "protected"),
    [("mrmtl", {}), ("ifca", {"subject_column": "who", "ignore": None})],
)
def test_they_are_trained_alike_by_both_engines(table, method, protected):
    simulated = run(table, method, keep_models=True, **protected)
    slow = run(table, method, keep_models=True, engine="debug", **protected)
    assert by_silo(simulated).keys() == SIZES.keys()
    for own, other in zip(*map(jax.tree.leaves, (simulated.models, slow.models)), strict=True):
        assert np.isfinite(own).all()
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    for silo, values in by_silo(simulated).items():
        assert by_silo(slow)[silo] == pytest.approx(values)
    # Of a single record, one seed or the other has none to test with.
    assert None in by_silo(simulated)["one"] + by_silo(simulated)["two"]
    assert None not in by_silo(simulated)["big"]


def test_budgets_are_kept_by_the_smallest(table):
    statements = {one["silo"]: one for one in run(table).privacy}
    assert all(0 < one["epsilon"] <= 3 for one in statements.values())
    assert statements["one"]["sampling_rate"] == 1  # full batch


def test_a_run_without_a_training_record_is_refused(table):
    given = {"only_silos": "one", "target": "dose", "task": "regression", "preprocess": "none"}
    for seed in range(40):  # until the one record is for testing
        options = DataOptions(
            silo_column="site", target="dose", ignore=["who", "ill"], only_silos=["one"]
        )
        (one,) = resolve(table, options).load(seed, replace(options, preprocess="none")).silos
        if not len(one.train):
            break
    with pytest.raises(SilodpError, match="No silo has a record to train on"):
        run(table, seeds=1, first_seed=seed, ignore="who,ill", **given)


def test_choices_are_kept_in_the_result(table):
    result = run(table, exclude_silos="one,two", min_records=10, seeds=1)
    assert by_silo(result).keys() == {"big", "sided"}
    assert result.left_out == ["few", "one", "two"]
    assert result.options["exclude_silos"] == "one,two"


def test_policies_and_choices(table, tmp_path):
    policies = tmp_path / "policies.toml"
    policies.write_text(
        '[default]\nepsilon = 3\ndelta = 1e-3\n[silos.one]\npublic = ["class list"]\nrecords = 5\n'
    )
    given = {"policies": policies, "epsilon": None, "seeds": 1}
    assert "one" not in by_silo(run(table, exclude_silos="one", **given))
    # Whether it was left out would tell how many records it has.
    with pytest.raises(
        SilodpError, match=r"'one': its record count is not public.*--exclude-silos"
    ):
        run(table, min_records=2, weights="uniform", **given)
    # Also where nobody was: that tells that it has as many.
    with pytest.raises(SilodpError, match="'one': its record count is not public"):
        run(table, min_records=1, weights="uniform", **given)
