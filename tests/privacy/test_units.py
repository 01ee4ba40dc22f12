"""What epsilon protects: a record or a person; and what is not public is not used."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from federations import small

import silodp
from silodp.runs.run_results import COUNTS_ARE_PUBLIC

COMMON = {"rounds": 3, "batch_size": 10, "epsilon": 4, "delta": 1e-4, "lr": 0.1, "method": "mrmtl"}


def with_subjects(federation, number_of):
    """The federation, its training records about people: `number_of` maps counts to subjects."""
    silos = tuple(
        replace(silo, train=replace(silo.train, subject=number_of(len(silo.train))))
        for silo in federation.silos
    )
    return replace(federation, silos=silos)


@pytest.mark.parametrize(
    ("task", "method"),
    [
        ("regression", "mrmtl"),
        pytest.param("binary", "ifca", marks=pytest.mark.slow),
        pytest.param("multiclass", "mrmtl", marks=pytest.mark.slow),
    ],
)
def test_one_record_each_is_the_same_as_records(task, method):
    options = COMMON | {"method": method, "keep_models": True}
    options |= {"select_fraction": 1.0} if method == "ifca" else {}
    plain = silodp.run(federation=small(task), **options)
    people = silodp.run(federation=with_subjects(small(task), np.arange), **options)
    assert [silo["unit"] for silo in people.privacy] == ["subject"] * 3
    assert [s["noise_multiplier"] for s in people.privacy] == [
        s["noise_multiplier"] for s in plain.privacy
    ]
    np.testing.assert_allclose(people.models, plain.models, rtol=2e-4, atol=2e-5)


def test_rates_and_steps_are_in_people():
    people = with_subjects(small(sizes=(60, 60, 60)), lambda n: np.arange(n) // 3)
    result = silodp.run(federation=people, **COMMON)
    for silo in result.privacy:
        assert silo["sampling_rate"] == pytest.approx(10 / 20)
        assert silo["steps"] == 3 * 2


@pytest.mark.slow
def test_engines_agree_on_people():
    people = with_subjects(small(sizes=(40, 40)), lambda n: np.sort(np.arange(n) % (n // 2)))
    options = COMMON | {"rounds": 1, "method": "local", "keep_models": True}
    one, other = (
        silodp.run(federation=people, engine=e, **options).models for e in ("simulation", "debug")
    )
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_person_moves_a_sum_by_no_more_than_the_clip_however_many_records_they_have():
    """No noise to speak of, one full-batch step: a person with 30 records comes or goes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)) * 10, rng.normal(size=50) * 100
    subject = np.concatenate([np.arange(20), np.full(30, 20)])
    policy = {"epsilon": 1e6, "delta": 1e-4, "weights": "uniform", "batch_size": 20, "clip": 0.5}

    def after(keep):
        train = silodp.Records(x[keep], y[keep], subject[keep])
        silo = silodp.Silo("s", train, silodp.Records(x, y))
        result = silodp.run(
            federation=silodp.Federation("f", (silo,), "regression"),
            method="local",
            rounds=1,
            lr=1.0,
            small_silos="full-batch",
            keep_models=True,
            **(policy | {"batch_size": int(subject[keep].max()) + 1}),
        )
        return np.asarray(result.models[0, 0], float) * (subject[keep].max() + 1)

    moved = np.linalg.norm(after(np.arange(50)) - after(np.arange(20)))
    assert 0.4 < moved < 0.55  # the clip, and a little noise


def test_people_from_a_table_end_to_end(cli, sentence, tmp_path):
    rng = np.random.default_rng(0)
    rows = ["site,patient,age,outcome"]
    for site in "ab":
        for patient in range(60):
            for _ in range(rng.integers(1, 5)):
                rows.append(f"{site},{patient},{rng.integers(20, 90)},{rng.integers(0, 2)}")
    table = tmp_path / "visits.csv"
    table.write_text("\n".join(rows))
    schema = tmp_path / "schema.toml"
    schema.write_text("ignore = ['patient']\n[bounds]\nage = [0, 110]\n[target]\nclasses = [0, 1]")
    given = ["--data", table, "--silo-column", "site", "--target", "outcome", "--schema", schema]
    given += ["--epsilon", "2", "--delta", "1e-4", "--rounds", "5", "--batch-size", "12"]
    given += ["--method", "local"]
    people = [*given, "--subject-column", "patient", "--seeds", "2"]
    done = cli("run", *people, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    for silo in result["privacy"]:
        assert (silo["unit"], silo["unproven"]) == ("subject", [])
        assert silo["sampling_rate"] == pytest.approx(12 / 48)
    policies = tmp_path / "p.toml"
    policies.write_text('[default]\nsubject = "patient"')
    assert "--subject-column patient" in sentence(cli("run", *given, "--policies", policies))
    policies.write_text('[default]\nsubject = "household"')
    refusal = sentence(cli("run", *people, "--policies", policies))
    assert "column 'household', but the data are loaded by 'patient'" in refusal


def test_a_count_that_is_not_public_is_not_used(tmp_path):
    """Neighbours of different size: the same rate, steps, noise and divisor."""
    policies = tmp_path / "p.toml"
    policies.write_text("[default]\npublic = []\nrecords = 50")
    options = COMMON | {"policies": policies, "weights": "uniform"}
    results = [silodp.run(federation=small(sizes=(n, 70, 55)), **options) for n in (39, 40)]
    for result in results:
        assert result.privacy[0]["sampling_rate"] == pytest.approx(10 / 50)
        assert result.privacy[0]["steps"] == 3 * 5
        assert result.per_silo[0]["records"] is result.per_silo[0]["test_records"] is None
        assert COUNTS_ARE_PUBLIC not in result.assumptions
    assert results[0].privacy == results[1].privacy
    with pytest.raises(silodp.SilodpError, match="leave out --metric-share"):
        silodp.run(federation=small(), **options, metric_share=0.1)
    with pytest.raises(silodp.SilodpError, match="--weights uniform"):
        silodp.run(federation=small(), **(COMMON | {"policies": policies}))


def test_the_stand_in_may_be_off(tmp_path):
    """More records than the stand-in says: each is still drawn with the charged rate."""
    policies = tmp_path / "p.toml"
    policies.write_text("[default]\npublic = []\nrecords = 120")
    n = 200
    records = silodp.Records(np.ones((n, 1)), np.full(n, 1e6))
    silo = silodp.Silo("s", records, records)
    result = silodp.run(
        federation=silodp.Federation("f", (silo,), "regression"),
        policies=policies,
        weights="uniform",
        method="local",
        rounds=1,
        batch_size=5,
        clip=1.0,
        lr=1.0,
        epsilon=1e5,
        delta=1e-4,
        seeds=20,
        keep_models=True,
    )
    moved = result.models[:, 0].sum(axis=-1) / math.sqrt(2)
    # 24 steps, each of about 200 * 5/120 records, divided by the public 5.
    assert np.mean(moved) == pytest.approx(24 * (200 * 5 / 120) / 5, rel=0.05)
    policies.write_text("[default]\npublic = []\nrecords = 99")
    with pytest.raises(silodp.SilodpError, match="'s': its policy gives records = 99"):
        silodp.run(
            federation=silodp.Federation("f", (silo,), "regression"),
            policies=policies,
            weights="uniform",
            epsilon=1,
            delta=1e-4,
        )
