"""Missing values that count as the silo's noisy mean: paid for, filled in, kept by the model."""

import math

import numpy as np
import pandas as pd
import pytest

import silodp
from silodp.config.data_options import DataOptions
from silodp.data.tables.schema import read_schema
from silodp.data.tables.table import table_of_frames
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.storage import ledger_paths, read_path

BOUNDS = {"age": (0, 100), "bmi": (10, 60)}
QUICK = {"method": "local", "rounds": 1, "batch_size": 16, "delta": 1e-4}


def visits(n=120, seed=0):
    """Two clinics with people of different ages, a third of which nobody wrote down."""
    rng = np.random.default_rng(seed)
    site = rng.choice(["north", "south"], n)
    age = np.where(site == "north", rng.normal(30, 4, n), rng.normal(70, 4, n)).round(1)
    return pd.DataFrame(
        {
            "site": site,
            "age": np.where(rng.random(n) < 1 / 3, np.nan, age),
            "bmi": rng.normal(25, 4, n).round(1),
            "days": rng.integers(0, 30, n),
        }
    )


def federation(rule="noisy mean", frame=None, bounds=BOUNDS, **more):
    return silodp.Federation.from_frame(
        *(visits() if frame is None else frame,),
        **{"silo": "site", "target": "days", "bounds": bounds, "target_range": (0, 30)},
        **{"missing": {"age": rule}, **more},
    )


def test_without_noise_missing_values_count_as_the_mean_of_the_training_records():
    """And each silo's own model keeps what its missing values count as."""
    records = federation()
    result = silodp.run(
        federation=records, epsilon=math.inf, statistics_share=0.1, keep_models=True, **QUICK
    )
    for silo in records.silos:
        age = (silo.train.x[:, 0].astype(float) + 1) * 50
        assert 0 < silo.train.absent[:, 0].sum() < len(age)
        mean = age[~silo.train.absent[:, 0]].mean()
        model = result.model(silo.name)
        (own, _) = model.about.preparation.encoder.columns
        assert own.noisy_mean
        assert own.missing == pytest.approx(mean, rel=1e-6)
        table = pd.DataFrame({"age": [None, mean], "bmi": [25.0, 25.0]})
        gone, there = model.predict(table).values
        assert gone == pytest.approx(there, rel=1e-5)


def test_they_are_paid_from_the_statistics_share(tmp_path):
    options = {
        "federation": federation(),
        "epsilon": 3,
        "statistics_share": 0.2,
        **QUICK,
    }
    (plan, _) = silodp.plan(**options).plans[0]
    price = epsilon_of(plan.queries()["statistics"], 1e-4)
    assert price == pytest.approx(0.6, rel=1e-3)
    assert plan.epsilon <= 3
    result = silodp.run(**options, ledger=tmp_path / "ledger", lifetime_epsilon=9)
    assert all(silo["proven"] for silo in result.privacy)
    for path in ledger_paths(tmp_path / "ledger"):
        (run,) = account_of(read_path(path)).runs.values()
        assert run.closed == "finished"
        assert [(block.first, block.last) for block in run.blocks][:1] == [(-1, 0)]


def test_nothing_is_filled_in_unless_it_is_paid_for(tmp_path):
    with pytest.raises(silodp.SilodpError, match="--statistics-share: missing values of 'age'"):
        silodp.run(federation=federation(), epsilon=3, **QUICK)
    with pytest.raises(silodp.SilodpError, match="public bound"):
        silodp.run(
            federation=federation(preprocess="paper"), epsilon=3, statistics_share=0.1, **QUICK
        )
    with pytest.raises(
        silodp.SilodpError, match=r"bounds: declare those of 'age' under \[bounds\]"
    ):
        federation(bounds={"bmi": (10, 60)})
    schema = tmp_path / "s.toml"
    schema.write_text(
        '[bounds]\nage = [0, 9]\n[missing]\nage = {value = "noisy mean", indicator = 1}'
    )
    with pytest.raises(silodp.SilodpError, match="write true or false"):
        read_schema(schema)


def test_with_an_indicator_and_by_subject():
    frame = visits().assign(who=np.arange(120) // 2)
    records = federation({"value": "noisy mean", "indicator": True}, frame, subject_column="who")
    assert records.feature_names == ("age", "age is missing", "bmi")
    silo = records.silos[0]
    np.testing.assert_array_equal(silo.train.x[:, 1], silo.train.absent[:, 0])
    assert not silo.train.absent[:, 1:].any()
    result = silodp.run(federation=records, epsilon=3, statistics_share=0.2, **QUICK)
    assert result.unproven == []


def test_checking_a_table_needs_no_share(cli, tmp_path):
    visits().to_csv(tmp_path / "v.csv", index=False)
    schema = tmp_path / "s.toml"
    schema.write_text(
        '[bounds]\nage = [0, 100]\nbmi = [10, 60]\n[missing]\nage = "noisy mean"\n'
        "[target]\nrange = [0, 30]\n"
    )
    options = (tmp_path / "v.csv", "--silo-column", "site", "--target", "days", "--schema", schema)
    done = cli("data", "check", *options, "--json")
    assert done.exit_code == 0, done.output
    assert "give a run --statistics-share" in done.stdout
    assert cli("data", "check", *options, "--preprocess", "paper").exit_code == 2


@pytest.mark.parametrize("lacks", [True, False])
def test_who_waits_is_said_by_the_rules_alone(lacks):
    """At a site too: where no value is missing, the run asks for, and pays, the same."""
    frame = visits()
    frame = frame if lacks else frame.fillna({"age": 50.0})
    assert federation(frame=frame).waits_for_means
    options = DataOptions(
        **{"target": "days", "task": "regression", "target_range": (0, 30)},
        **{"bounds": BOUNDS, "missing": {"age": "noisy mean"}},
    )
    table = table_of_frames("t", {"north": frame.drop(columns="site")}, options, total=True)
    absent = table.records["north"].absent
    np.testing.assert_array_equal(absent[:, 0], frame.age.isna())
    assert (table.records["north"].x[absent[:, 0], 0] == 50).all()  # the middle, for the time being


def test_what_the_run_set_apart_is_asked_with_what_missing_values_count_as(tmp_path):
    visits().to_csv(tmp_path / "v.csv", index=False)
    (tmp_path / "s.toml").write_text(
        '[bounds]\nage = [0, 100]\nbmi = [10, 60]\n[missing]\nage = "noisy mean"\n'
        "[target]\nrange = [0, 30]\n"
    )
    result = silodp.run(
        **{"data": str(tmp_path / "v.csv"), "silo_column": "site", "target": "days"},
        **{"schema": tmp_path / "s.toml", "epsilon": 3, "statistics_share": 0.2, "lr": 0.5},
        **{**QUICK, "rounds": 3, "metric": "mae", "keep_models": True, "out": tmp_path / "run"},
    )
    (tmp_path / "p.toml").write_text("[default]\nepsilon = 3\ndelta = 1e-4\n")
    asked = silodp.question(
        *(tmp_path / "run", None, tmp_path / "ledgers"),
        **{"silo": "north", "policies": tmp_path / "p.toml", "at_most": 20, "metric": "mae"},
    )
    own = next(silo for silo in result.per_silo if silo["silo"] == "north")
    # Results have errors as parts of the target's range, 30.
    assert np.mean(asked._scores.values) == pytest.approx(30 * own["mean"], rel=1e-3)


def test_a_card_keeps_the_rule(tmp_path):
    result = silodp.run(
        **{"federation": federation(), "epsilon": 3, "statistics_share": 0.2},
        **{**QUICK, "keep_models": True, "out": tmp_path / "run"},
    )
    for name in ("north", "south"):
        kept = silodp.load_model(tmp_path / "run", silo=name)
        assert kept.about.preparation == result.model(name).about.preparation
        age, _ = kept.about.preparation.encoder.columns
        assert 0 <= age.missing <= 100
