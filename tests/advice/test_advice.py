"""Advice: what is predicted, what an estimate of the spread gives and costs, what is refused."""

import json
import math
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from scipy.stats import spearmanr

import silodp
from silodp import Federation, Records, Silo, advise, theory
from silodp.advice.advise import bands
from silodp.advice.spread import method_of_moments
from silodp.config.silo_options import lambda_of_each
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.standing import remaining
from silodp.privacy.ledger.storage import ledger_paths, read_path
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.mechanisms.statistics import (
    LABEL_SENSITIVITY,
    gaussian_event,
    noisy_label_moments,
)

BUDGET = {"epsilon": 1.0, "delta": 1e-4}
GUESS = {"sigma": 0.2, "tau": 0.05}


def labelled(sigma=0.1, tau=0.05, sizes=(60,) * 40, seed=0, **more):
    """Silos whose labels in 0 to 1, a public range, have this spread."""
    rng = np.random.default_rng(seed)
    silos = []
    for number, n in enumerate(sizes):
        y = 0.45 + tau * rng.normal() + sigma * rng.normal(size=n)
        records = Records(np.ones((n, 1)), y)
        silos.append(Silo(f"silo {number}", records, records))
    return Federation("made up", tuple(silos), "regression", declared=("label range",), **more)


# What is predicted


def test_by_hand():
    sizes, d = np.array([50, 200, 1000.0]), 3
    advice = advise(
        records=[50, 200, 1000], parameters=d, clip=0.5, weights="uniform", **BUDGET, **GUESS
    )
    noise = 0.5 * get_sigma_gaussian(1.0, 1e-4)
    own = d * (0.2**2 / sizes + noise**2 / sizes**2)
    others = (own.sum() - own) / 2
    lams = own / (0.05**2 + (others - own) / 3)
    assert (lams > 0).all()
    weight = (3 + lams) / ((1 + lams) * 3)
    star = weight**2 * own + (1 - weight) ** 2 * (3 * 0.05**2 / 2 + others / 2)
    fedavg = own.sum() / 9 + 0.05**2 * 2 / 3
    for k, row in enumerate(advice.silos):
        assert row["silo"] == f"silo-0{k + 1}"
        assert row["local"] == pytest.approx(own[k])
        assert row["fedavg"] == pytest.approx(fedavg)
        assert row["mrmtl"] == pytest.approx(star[k])
        assert row["lam"] == pytest.approx(lams[k])
        assert row["gain_over_local"] == pytest.approx(1 - star[k] / own[k])
        assert row["gain_over_best"] == pytest.approx(1 - star[k] / min(own[k], fedavg))
    overall = advice.overall
    assert overall["by_records"]["local"] == pytest.approx(sizes @ own / sizes.sum())
    assert overall["by_silos"]["mrmtl"] == pytest.approx(star.mean())
    assert overall["ranking"][0] == "mrmtl"


def test_silos_that_weigh_differently_against_simulation():
    rng = np.random.default_rng(0)
    sizes, tau = np.array([20, 60, 300]), 0.05
    advice = advise(records=sizes.tolist(), **BUDGET, **GUESS)
    variances = np.array([row["local"] for row in advice.silos])
    centres = tau * rng.normal(size=(100_000, 3))
    means = centres + np.sqrt(variances) * rng.normal(size=centres.shape)
    common = means @ (sizes / sizes.sum())
    lams = np.array([row["lam"] for row in advice.silos])
    for method, own in (("fedavg", np.zeros(3)), ("mrmtl", 1 / (1 + lams))):
        found = ((own * means + (1 - own) * common[:, None] - centres) ** 2).mean(axis=0)
        predicted = [row[method] for row in advice.silos]
        np.testing.assert_allclose(found, predicted, rtol=0.03)
    np.testing.assert_allclose(lams, theory.lambda_stars(variances, tau, sizes))
    counting = sizes / sizes.sum()
    lam = theory.lambda_for_all(variances, tau, counting, sizes)
    assert advice.overall["lam"] == pytest.approx(lam)


@pytest.mark.parametrize("weights", [None, np.array([5.0, 1.0, 2.0, 0.5])])
def test_lambdas_have_the_least_errors(weights):
    variances, counting = np.array([0.001, 0.01, 0.003, 0.2]), np.array([0.4, 0.3, 0.2, 0.1])
    for tau in (0.0, 0.03, 1.0):
        grid = np.append(np.geomspace(1e-4, 1e5, 1000), [0.0, np.inf])
        tried = np.array([theory.errors(one, variances, tau, weights) for one in grid])
        stars = theory.lambda_stars(variances, tau, weights)
        best = theory.errors(stars, variances, tau, weights)
        assert (best <= tried.min(axis=0) * (1 + 1e-9)).all()
        lam = theory.lambda_for_all(variances, tau, counting, weights)
        shared = counting @ theory.errors(lam, variances, tau, weights)
        assert shared <= (tried @ counting).min() * (1 + 1e-9)


def test_one_silo_that_outweighs_all_others():
    giant, small = advise(records=[10**12, 50], epsilon=math.inf, **GUESS).silos
    assert giant["choice"] == "local"
    assert small["fedavg"] == pytest.approx(2 * 0.05**2)
    assert small["mrmtl"] <= min(small["local"], small["fedavg"])
    assert 0 < giant["mrmtl"] <= giant["local"] * (1 + 1e-9)


def test_equal_silos():
    advice = advise(records=[100] * 6, **BUDGET, **GUESS)
    assert len({tuple(row[m] for m in ("local", "mrmtl", "lam")) for row in advice.silos}) == 1
    variance = advice.silos[0]["local"]
    assert advice.silos[0]["lam"] == pytest.approx(theory.lambda_star(variance, 0.05))
    assert advice.silos[0]["mrmtl"] == pytest.approx(theory.error_star(variance, 0.05, 6))
    assert advice.overall["lam"] == pytest.approx(advice.silos[0]["lam"])
    assert advice.overall["own_lam_adds"] == pytest.approx(0, abs=1e-12)


def test_one_silo_has_nobody_to_learn_from():
    advice = advise(records=[100], **BUDGET, **GUESS)
    (row,) = advice.silos
    assert row["gain_over_local"] == row["gain_over_best"] == row["lam"] == 0
    assert row["verdict"] == "nobody to learn from"
    assert advice.joining == 0


def test_silos_that_do_not_differ_take_one_model():
    advice = advise(records=[100] * 11, sigma=0.2, tau=0, **BUDGET)
    assert {row["lam"] for row in advice.silos} == {math.inf}
    assert {row["choice"] for row in advice.silos} == {"fedavg"}
    assert advice.silos[0]["verdict"] == "joins: gains 91 % by FedAvg"
    assert advice.overall["lam"] == math.inf
    for silos in range(2, 40):  # rounding is no difference
        assert (theory.lambda_stars(np.full(silos, 0.0123), 0.0) == math.inf).all()
    assert advice.overall["ranking"] == ["fedavg", "mrmtl", "local"]


def test_silos_that_have_nothing_in_common_stay_alone():
    advice = advise(records=[100] * 8, sigma=0.2, tau=50, **BUDGET)
    assert {row["verdict"] for row in advice.silos} == {"trains best alone"}
    assert advice.overall["ranking"] == ["mrmtl", "local", "fedavg"]
    assert advice.overall["choice"] == "local"


def test_budgets_of_their_own(tmp_path):
    """One without privacy among private ones, and one under replace-one."""
    policies = tmp_path / "p.toml"
    policies.write_text(
        "[default]\nepsilon = 1\ndelta = 1e-4\n"
        '[silos.open]\nepsilon = "inf"\n[silos.swap]\nrelation = "replace-one"\n'
        '[silos.hidden]\npublic = ["label range"]\nrecords = 90\n'
    )
    records = dict.fromkeys(("open", "usual", "swap", "hidden"), 100)
    advice = advise(records=records, policies=policies, **GUESS)
    open_, usual, swap, hidden = advice.silos
    assert open_["local"] == pytest.approx(0.2**2 / 100)
    noise = usual["local"] - open_["local"]
    assert noise == pytest.approx((get_sigma_gaussian(1.0, 1e-4) / 100) ** 2)
    assert swap["local"] - open_["local"] == pytest.approx(4 * noise)
    assert hidden["records"] == 90
    assert open_["gain_over_local"] < usual["gain_over_local"] < swap["gain_over_local"]
    assert all(row["mrmtl"] <= min(row["local"], row["fedavg"]) for row in advice.silos)


def test_without_any_error_nothing_is_gained():
    advice = advise(records=[10, 20], epsilon=math.inf, sigma=0, tau=0)
    assert [row["gain_over_local"] for row in advice.silos] == [0, 0]
    assert advice.overall["choice"] == "local"


def test_another_tau_changes_the_advice():
    advice = advise(records=[100] * 8, sigma=0.2, tau=0.03, epsilon=math.inf)
    half, twice = advice.sensitivity
    assert (half["tau"], twice["tau"]) == (0.015, 0.06)
    assert half["lam"] == pytest.approx(16 * twice["lam"])
    again = advise(records=[100] * 8, sigma=0.2, tau=0.06, epsilon=math.inf)
    assert twice["choice"] == again.overall["choice"]
    assert twice["joining"] == again.joining


def test_no_other_tau_is_told_where_it_is_the_same():
    assert advise(records=[100] * 8, sigma=0.2, tau=0, epsilon=math.inf).sensitivity == []


def test_bands_hold_every_silo_once():
    advice = advise(records=list(range(20, 81)), **BUDGET, **GUESS)
    parted = bands(advice.silos)
    assert [len(band) for band in parted] == [15, 15, 16, 15]
    assert [row["silo"] for band in parted for row in band] == [s["silo"] for s in advice.silos]
    assert len(bands(advice.silos[:2])) == 2


# The estimate


def test_moments_are_right_on_average():
    """Over many draws of silos and noise, both variances are unbiased; so is their error's size."""
    rng = np.random.default_rng(0)
    counts = np.array([15, 30, 60, 120] * 10)
    noise = 6.0 / counts
    sigma, tau, found, ranges = 0.3, 0.2, [], []
    for _ in range(400):
        centres = tau * rng.normal(size=40) - 0.3
        labels = [
            centre + sigma * rng.normal(size=n) for centre, n in zip(centres, counts, strict=True)
        ]
        means = np.array([y.mean() for y in labels]) + noise * rng.normal(size=40)
        squares = np.array([(y**2).mean() for y in labels]) + noise * rng.normal(size=40)
        spread = method_of_moments(means[:, None], squares, counts, noise)
        found.append((spread.sigma**2, spread.tau**2))
        ranges.append(spread.tau_range)
    of_sigma, of_tau = np.array(found).T
    for values, truth in ((of_sigma, sigma**2), (of_tau, tau**2)):
        error = values.std() / math.sqrt(len(values))
        assert abs(values.mean() - truth) < 4 * error
        assert error < 0.05 * truth  # so that the line above says something
    covered = np.mean([low <= tau <= high for low, high in ranges])
    assert 0.9 < covered < 0.99


def test_the_estimate_finds_the_spread_of_made_up_silos():
    found = [
        advise(federation=labelled(seed=seed), estimate_epsilon=0.9, first_seed=seed, **BUDGET)
        for seed in range(3)
    ]
    assert np.mean([one.spread.sigma for one in found]) == pytest.approx(0.1, rel=0.15)
    assert np.mean([one.spread.tau for one in found]) == pytest.approx(0.05, rel=0.35)
    clean = advise(federation=labelled(sizes=(60,) * 300), estimate_epsilon=1, epsilon=math.inf)
    assert clean.spread.sigma == pytest.approx(0.1, rel=0.02)
    assert clean.spread.tau == pytest.approx(0.05, rel=0.12)


def test_classes_have_a_coordinate_each():
    rng = np.random.default_rng(0)
    for task, classes in (("binary", 0), ("multiclass", 4)):
        silos = []
        for number in range(80):
            y = rng.integers(0, max(classes, 2), size=50)
            records = Records(np.ones((50, 1)), y if classes else 2.0 * y - 1)
            silos.append(Silo(f"s{number}", records, records))
        data = Federation("x", tuple(silos), task, classes, declared=("class list",))
        spread = advise(federation=data, estimate_epsilon=1, epsilon=math.inf).spread
        assert spread.sigma == pytest.approx(math.sqrt(0.75 / 4) if classes else 1.0, rel=0.03)
        assert spread.tau < 0.06


def test_noise_is_really_there_and_of_the_promised_size():
    data = labelled(sizes=(60,) * 3)
    one, other = (
        advise(federation=data, estimate_epsilon=0.5, first_seed=seed, **BUDGET).spread
        for seed in (0, 1)
    )
    assert one.tau != other.tau  # sigma may be 0 in both
    assert one == advise(federation=data, estimate_epsilon=0.5, first_seed=0, **BUDGET).spread
    noise = one.releases[0].noise_multiplier
    assert epsilon_of(gaussian_event(noise, 1), 1e-4) <= 0.5
    assert noise == pytest.approx(get_sigma_gaussian(0.5, 1e-4), rel=1e-3)
    labels, rng = np.full((50, 2), 0.5), HostRandom(0, b"", "test")
    drawn = [noisy_label_moments(labels, 50, 3.0, rng) for _ in range(3000)]
    for values in (np.array([mean[0] for mean, _ in drawn]), np.array([s for _, s in drawn])):
        assert values.mean() == pytest.approx(0.5, abs=0.01)
        assert values.std() == pytest.approx(3.0 * LABEL_SENSITIVITY / 50, rel=0.05)


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0, 30.0])
def test_no_label_moves_the_sum_further_than_the_noise_is_scaled_to(length):
    """A record more, against the sum without it (squares are measured from one half)."""
    rng, base = np.random.default_rng(0), np.zeros((5, 3))
    label = length * np.array([[0.6, 0.0, 0.8]])
    sums = []
    for labels in (base, np.concatenate([base, label])):
        mean, square = noisy_label_moments(labels, 5, 0.0, rng)
        sums.append(5 * np.append(mean, square - 0.5))
    assert np.linalg.norm(sums[1] - sums[0]) <= LABEL_SENSITIVITY * (1 + 1e-12)


def test_a_subject_counts_once():
    labels = np.array([[1.0], [1.0], [1.0], [-1.0]])
    rng = np.random.default_rng(0)
    mean, _ = noisy_label_moments(labels, 2, 0.0, rng, np.array([0, 0, 0, 1]))
    assert mean == pytest.approx(0)


def test_the_ledger_is_charged_just_that(tmp_path):
    ledger = tmp_path / "ledger"
    data = labelled(sizes=(60, 80))
    given = {"federation": data, "ledger": ledger, "estimate_epsilon": 0.5, **BUDGET}
    spread = advise(**given).spread
    for path, release in zip(ledger_paths(ledger), spread.releases, strict=True):
        account = account_of(read_path(path))
        (run,) = account.runs.values()
        assert run.closed == "finished"
        assert run.about["records"] == release.records
        left = remaining(ledger, release.silo)
        event = gaussian_event(release.noise_multiplier, 1)
        assert left["spent_epsilon"] == pytest.approx(epsilon_of(event, 1e-4))
        assert left["spent_epsilon"] <= release.epsilon * (1 + 1e-9) <= 0.5
    assert advise(**given, lifetime_epsilon=2).spread != spread  # secret noise, never twice


def test_what_does_not_fit_is_refused_before_a_label_is_looked_at(monkeypatch, tmp_path):
    def touched(*_):
        raise AssertionError("a label was looked at")

    data = labelled(sizes=(60, 80))
    given = {"federation": data, "estimate_epsilon": 0.9, **BUDGET}
    advise(**given, ledger=tmp_path / "ledger")
    before = {path: path.read_bytes() for path in ledger_paths(tmp_path / "ledger")}
    monkeypatch.setattr("silodp.advice.spread.noisy_label_moments", touched)
    with pytest.raises(silodp.SilodpError, match=r"lifetime allowance"):
        advise(**given, ledger=tmp_path / "ledger")
    assert {path: path.read_bytes() for path in ledger_paths(tmp_path / "ledger")} == before
    # The charge precedes the look.
    with pytest.raises(AssertionError):
        advise(**given, ledger=tmp_path / "new")
    assert remaining(tmp_path / "new", "silo 0")["spent_epsilon"] > 0.89


def test_guesses_look_at_no_record(monkeypatch, tmp_path):
    monkeypatch.setattr("silodp.advice.spread.noisy_label_moments", lambda *_: 1 / 0)
    advice = advise(federation=labelled(), ledger=tmp_path / "ledger", **BUDGET, **GUESS)
    assert advice.spread.releases == ()
    assert not (tmp_path / "ledger").exists()


def test_silos_whose_count_is_private_are_not_asked(tmp_path):
    policies = tmp_path / "p.toml"
    policies.write_text('[silos."silo 1"]\npublic = ["label range"]\nrecords = 50\n')
    advice = advise(
        federation=labelled(sizes=(60,) * 4), policies=policies, estimate_epsilon=0.5, **BUDGET
    )
    assert [release.silo for release in advice.spread.releases] == ["silo 0", "silo 2", "silo 3"]
    assert advice.silos[1]["records"] == 50


# The command


def test_table_picture_and_json(cli, tmp_path):
    asked = ("--data", "synthetic", "--silos", 30, "--epsilon", 1, "--sigma", 0.2, "--tau", 0.3)
    done = cli("advise", *asked, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    for words in (
        "The silos that gain most, of 30",
        "silos gain by joining",
        "One lambda for all",
        "Should tau be 0.15",
        "parameters 21",
        "Nothing was spent",
        "not a forecast",
    ):
        assert words in text
    assert (tmp_path / "out" / "advice.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "out" / "advice.json").read_text())
    assert len(content["silos"]) == 30
    assert content["spread"]["estimated"] is False
    lams = tomllib.loads((tmp_path / "out" / "silo_lam.toml").read_text())
    assert lams == {silo["silo"]: silo["lam"] for silo in content["silos"]}
    assert json.loads(cli("advise", *asked, "--json", "--quiet").stdout) == content
    assert cli("advise", *asked, "--quiet").stdout == ""


def test_any_name_and_lambda_goes_into_the_file_for_silo_lam():
    names = ['a "b" \\ c', "ü 😀", "new\nline", "\x7f\x01", "noisy"]
    records = dict(zip(names, (40, 80, 400, 60, 2), strict=True))
    advice = advise(records=records, epsilon=1, delta=1e-3, sigma=0.2, tau=0.01)
    lams = tomllib.loads(advice.silo_lam())
    assert lams == {row["silo"]: row["lam"] for row in advice.silos}
    assert lambda_of_each(lams, names, 1.0) == tuple(row["lam"] for row in advice.silos)
    assert math.inf in lams.values()


@pytest.mark.parametrize("tau", ["0", "0.05"])
def test_ends_of_the_range_can_be_drawn(cli, tmp_path, tau):
    for epsilon, sigma in (("inf", "0"), ("1", "0.2")):  # with and without any error
        asked = ("--records", "a[red]=5,b=7000", "--epsilon", epsilon, "--sigma", sigma)
        done = cli("advise", *asked, "--tau", tau, "--out", tmp_path)
        assert done.exit_code == 0, done.stderr
        assert "a[red]" in done.stdout
    assert cli("advise", *asked, "--tau", tau, "--records", "9").exit_code == 0


def test_what_an_estimate_cost_is_said(cli, tmp_path):
    table = tmp_path / "t.csv"
    rows = [f"{'abc'[i % 3]},{i % 7},{i % 5}" for i in range(240)]
    table.write_text("\n".join(["site,x,y", *rows]))
    schema = tmp_path / "s.toml"
    schema.write_text("[bounds]\nx = [0, 7]\n[target]\nrange = [0, 5]")
    asked = ("--data", table, "--silo-column", "site", "--target", "y", "--schema", schema)
    asked += ("--task", "regression", "--epsilon", 2, "--delta", "1e-4", "--estimate-epsilon", 0.5)
    shown = " ".join(cli("advise", *asked).stdout.split())
    assert "cost each of 3 silos epsilon 0.5 at delta 0.0001, charged to no ledger" in shown
    assert "whoever knows the seed knows the noise" in shown
    shown = " ".join(cli("advise", *asked, "--ledger", tmp_path / "ledger").stdout.split())
    assert "charged to the ledgers in" in shown
    assert "whoever knows the seed" not in shown
    assert "labels of" in cli("ledger", "show", tmp_path / "ledger").stdout
    # The next run on these data knows the counts from the ledger, as after a run.
    more = ("--rounds", 2, "--batch-size", 16, "--ledger", tmp_path / "ledger")
    done = cli("run", *asked[:-2], *more)
    assert done.exit_code == 2
    assert "does not fit" in done.stderr


RECORDS = ("--records", "120,80")
SPREAD = ("--sigma", "0.2", "--tau", "0.05")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((*RECORDS,), ["--sigma is missing", "--tau", "--estimate-epsilon"]),
        ((*RECORDS, "--sigma", "1"), ["--tau is missing", "--estimate-epsilon"]),
        ((*RECORDS, "--sigma", "nan", "--tau", "1"), ["--sigma is nan"]),
        ((*RECORDS, "--sigma", "1", "--tau", "-1"), ["--tau is -1"]),
        ((*RECORDS, "--sigma", "inf", "--tau", "1"), ["--sigma is inf"]),
        ((*RECORDS, *SPREAD, "--estimate-epsilon", "1"), ["one or the other"]),
        ((*RECORDS, "--estimate-epsilon", "1"), ["--records gives only their number"]),
        ((*RECORDS, "--estimate-epsilon", "0"), ["--estimate-epsilon is 0"]),
        ((*RECORDS, "--estimate-epsilon", "nan"), ["--estimate-epsilon is nan"]),
        ((*RECORDS, *SPREAD, "--parameters", "0"), ["--parameters is 0"]),
        ((*RECORDS, *SPREAD, "--delta", "0.01"), ["delta is 0.01, at least 1/120"]),
        ((*RECORDS, *SPREAD, "--data", "synthetic"), ["give either --data"]),
        ((*SPREAD,), ["--data NAME", "--records"]),
        (("--records", "", *SPREAD), ["--records is empty"]),
        (("--records", "120,0", *SPREAD), ["'silo-02' is 0"]),
        (("--records", "120,-3", *SPREAD), ["'silo-02' is -3"]),
        (("--records", "120,many", *SPREAD), ["'many' is not a whole number"]),
        (("--records", "1" + "0" * 400, *SPREAD), ["give a whole number from 1"]),
        (("--records", "a=120,a=80", *SPREAD), ["'a' twice"]),
        (("--records", "a=120,80", *SPREAD), ["'80' has no name"]),
        (("--data", "synthetic", "--estimate-epsilon", "0.5"), ["public label range", "--sigma"]),
        (
            ("--data", "synthetic", "--task", "binary", "--estimate-epsilon", "3"),
            ["--estimate-epsilon is 3", "policy allows"],
        ),
        (
            ("--data", "synthetic", "--task", "binary", "--silos", 1, "--estimate-epsilon", 0.5),
            ["takes two"],
        ),
    ],
)
def test_bad_input_is_one_sentence(cli, sentence, tmp_path, given, words):
    error = sentence(cli("advise", "--epsilon", "1", *given, "--out", tmp_path / "out"))
    for word in words:
        assert word in error
    assert not (tmp_path / "out").exists()


def test_policies_are_heeded(cli, sentence, tmp_path):
    policies = tmp_path / "p.toml"
    policies.write_text("[silos.nobody]\nepsilon = 1")
    given = ("advise", "--policies", policies, "--epsilon", "1")
    assert "'nobody' is unknown" in sentence(cli(*given, *RECORDS, *SPREAD))
    asked = ("--data", "synthetic", "--task", "binary", "--estimate-epsilon", "0.5")
    policies.write_text('[silos.silo-01]\npublic = ["record count"]')
    assert "class list" in sentence(cli(*given, *asked))
    policies.write_text('[default]\nepsilon = 1\n[silos.silo-01]\nepsilon = "inf"')
    ledger = ("--ledger", tmp_path / "ledger")
    assert "only what is proven" in sentence(cli(*given[:-2], *asked, *ledger))
    policies.write_text('[default]\nsubject = "patient"')
    data = ("--data", "synthetic", *SPREAD)
    assert "--subject-column patient" in sentence(cli(*given, *data))
    assert not (tmp_path / "ledger").exists()
    assert "No privacy budget" in sentence(cli("advise", *RECORDS, *SPREAD))


def test_from_python_the_same_is_refused():
    for records in ([], {}, [1.5], [True], {"a": 0}):
        with pytest.raises(silodp.SilodpError):
            advise(records=records, **BUDGET, **GUESS)
    with pytest.raises(silodp.SilodpError, match="one setting"):
        advise(records=[10, 20], epsilon=[1, 2], delta=1e-4, **GUESS)
    with pytest.raises(silodp.SilodpError, match="'epsilom' is unknown"):
        advise(records=[10, 20], epsilom=1, **GUESS)


# School: the advice against what training shows

at_hand = pytest.mark.skipif(
    not (Path(os.environ.get("SILODP_DATA") or "nowhere") / "school" / "school.mat").exists(),
    reason="school.mat is not at hand: set SILODP_DATA to a folder that holds school/school.mat",
)


@at_hand
@pytest.mark.parametrize("spread", [{"sigma": 0.15, "tau": 0.04}, {"estimate_epsilon": 0.2}])
def test_school_is_ranked_as_training_ranks_it(spread):
    """Measured (docs/guide.md): local is last, far behind at epsilon 1; both ends are beaten."""
    strict, generous = (advise(data="school", epsilon=e, **spread) for e in (1, 6))
    for advice in (strict, generous):
        assert advice.overall["ranking"] == ["mrmtl", "fedavg", "local"]
        assert advice.parameters == 29
    means = [advice.overall["by_records"] for advice in (strict, generous)]
    ahead = [1 - mean["mrmtl"] / mean["fedavg"] for mean in means]
    assert ahead[0] < ahead[1]
    behind = [mean["local"] - mean["fedavg"] for mean in means]
    assert behind[0] > 3 * behind[1]
    assert strict.overall["lam"] > generous.overall["lam"]


@at_hand
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "lam"), [(1, 3), (6, 0.1)])
def test_training_on_school_agrees_with_the_advice(epsilon, lam):
    """In the order of the methods, and in which silos gain more: by more than chance would."""
    advice = advise(data="school", epsilon=epsilon, sigma=0.15, tau=0.04)
    given = {"data": "school", "epsilon": epsilon, "delta": 1e-3, "seeds": 5}
    local = min(
        silodp.sweep(method="local", lr=[0.003, 0.01], **given), key=lambda result: result.mean
    )
    fedavg = silodp.run(method="fedavg", lr=0.01, **given)
    pulled = silodp.run(method="meanpull", lam=lam, lr=0.01, **given)
    trained = {"local": local.mean, "fedavg": fedavg.mean, "mrmtl": pulled.mean}
    assert sorted(trained, key=trained.__getitem__) == advice.overall["ranking"]
    gains = [a["mean"] - b["mean"] for a, b in zip(local.per_silo, pulled.per_silo, strict=True)]
    predicted = [row["local"] - row["mrmtl"] for row in advice.silos]
    assert spearmanr(predicted, gains).statistic > 0.3  # 0.57 and 0.40; by chance below 0.2
