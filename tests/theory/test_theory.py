"""The closed forms of the paper's analysis, and `silodp theory`."""

import json
import math

import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp import theory
from silodp.base.errors import SilodpError
from silodp.theory.setting import make_setting

PAPER = [
    *("--silos", "20", "--records", "200", "--sigma", "0.4"),
    *("--tau", "0.08", "--epsilon", "0.25", "--delta", "1e-5"),
]
GRID = np.array([0.0, *np.logspace(-4, 4, 801), math.inf])

positive = st.floats(0.01, 10)
variances = st.lists(positive, min_size=2, max_size=6).map(np.array)
few = settings(max_examples=30, deadline=None, derandomize=True)


def test_by_hand():
    # K = 2, sigma_loc^2 = 3, tau = 1: w_k(lambda*) weighs the own mean by (2 + 3) / (4 * 2) = 5/8.
    assert theory.local_variance(4, 2.0, 8.0) == 4 / 4 + 64 / 16
    assert theory.own_weight(3, 2) == 5 / 8
    assert theory.own_weight(0, 2) == 1
    assert theory.own_weight(math.inf, 2) == 1 / 2
    assert theory.lambda_star(3.0, 1.0) == 3
    # 25/64 * 3 + 9/64 * (2 + 3) = 120/64
    assert theory.error(3, 3.0, 1.0, 2) == theory.error_star(3.0, 1.0, 2) == 15 / 8
    assert theory.error_local(3.0) == 3
    assert theory.error_fedavg(3.0, 1.0, 2) == 2
    assert theory.gap_local(3.0, 1.0, 2) == 9 / 8
    assert theory.gap_fedavg(3.0, 1.0, 2) == 1 / 8
    assert theory.posterior(3.0, 1.0, 2) == (15 / 8, 5 / 8)
    # Noise 4 on the sum of 2 records: 4 on the mean, at lambda 1 (1/2 * 1/4 + 1/2) of it.
    assert theory.privacy_gap(1.0, 2, 4.0, 2) == 4 * 5 / 8


def test_minimiser_by_hand():
    means = np.array([[0.0, 4.0], [1.0, 1.0]])
    np.testing.assert_allclose(theory.minimiser(means, 3), [[1.5, 2.5], [1, 1]])
    np.testing.assert_allclose(theory.minimiser(means, math.inf), [[2, 2], [1, 1]])
    np.testing.assert_array_equal(theory.minimiser(means, 0), means)


@few
@given(means=st.lists(st.floats(-9, 9), min_size=2, max_size=5).map(np.array), lam=st.floats(0, 50))
def test_the_minimiser_minimises(means, lam):
    def objective(w):
        return (w - means) ** 2 / 2 + lam / 2 * (w - means.mean()) ** 2

    best = theory.minimiser(means, lam)
    weight = theory.own_weight(lam, len(means))
    others = (means.sum() - means) / (len(means) - 1)
    np.testing.assert_allclose(best, weight * means + (1 - weight) * others, atol=1e-12)
    for step in (-1e-3, 1e-3):
        assert (objective(best + step) > objective(best)).all()


@few
@given(variance=positive, tau=positive, silos=st.integers(2, 50), lam=positive)
def test_identities(variance, tau, silos, lam):
    star = theory.lambda_star(variance, tau)
    best = theory.error_star(variance, tau, silos)
    local, fedavg = theory.error_local(variance), theory.error_fedavg(variance, tau, silos)
    at = theory.error(np.array([star, 0.0, math.inf]), variance, tau, silos)
    np.testing.assert_allclose(at, [best, local, fedavg])
    assert theory.gap_local(variance, tau, silos) == pytest.approx(local - best)
    assert theory.gap_fedavg(variance, tau, silos) == pytest.approx(fedavg - best)
    of_posterior, weight = theory.posterior(variance, tau, silos)
    assert of_posterior == pytest.approx(best)
    assert weight == pytest.approx(theory.own_weight(star, silos))
    assert best <= theory.error(GRID, variance, tau, silos).min() * (1 + 1e-12)
    near = theory.error(star * np.array([0.99, 1.01]), variance, tau, silos)
    assert (near > best).all()
    # The lemma's own form: alpha^2 sigma_loc^2 + (1 - alpha)^2 (K tau^2 + sigma_loc^2) / (K - 1).
    alpha = (silos + lam) / ((1 + lam) * silos)
    others = (silos * tau**2 + variance) / (silos - 1)
    by_hand = alpha**2 * variance + (1 - alpha) ** 2 * others
    assert theory.error(lam, variance, tau, silos) == pytest.approx(by_hand)


@few
@given(lam=positive, noise=positive, sigma=positive, tau=positive, records=st.integers(1, 99))
def test_what_privacy_costs(lam, noise, sigma, tau, records):
    lams = np.array([0.0, lam, math.inf])
    private = theory.error(lams, theory.local_variance(records, sigma, noise), tau, 7)
    without = theory.error(lams, theory.local_variance(records, sigma), tau, 7)
    cost = theory.privacy_gap(lams, records, noise, 7)
    np.testing.assert_allclose(cost, private - without, rtol=1e-6, atol=1e-9)
    assert cost[0] == pytest.approx(7 * cost[2])  # up to a factor of K


@few
@given(variance=positive, tau=positive, silos=st.integers(2, 9))
def test_equal_silos_are_no_special_case(variance, tau, silos):
    own = np.full(silos, variance)
    np.testing.assert_allclose(theory.lambda_stars(own, tau), theory.lambda_star(variance, tau))
    for lam in (0.0, 0.7, math.inf):
        expected = theory.error(lam, variance, tau, silos)
        np.testing.assert_allclose(theory.errors(lam, own, tau), expected)
    for found, expected in zip(
        theory.posteriors(own, tau), theory.posterior(variance, tau, silos), strict=True
    ):
        np.testing.assert_allclose(found, expected)


@few
@given(own=variances, tau=st.floats(0.01, 3))
def test_lambdas_of_silos_are_best(own, tau):
    lams = theory.lambda_stars(own, tau)
    best = theory.errors(lams, own, tau)
    on_grid = np.stack([theory.errors(lam, own, tau) for lam in GRID])
    assert (best <= on_grid.min(axis=0) * (1 + 1e-12)).all()
    finite = np.isfinite(lams)
    variance, weight = theory.posteriors(own, tau)
    np.testing.assert_allclose(best[finite], variance[finite])
    np.testing.assert_allclose(theory.own_weight(lams, len(own))[finite], weight[finite])
    # A negative lambda: FedAvg gives the own mean too much weight already.
    assert (weight[~finite] <= 1 / len(own) + 1e-12).all()


def test_a_silo_too_noisy_for_its_own_mean():
    # Of K = 2, with tau 1: lambda_1 = 9 / (1 + (1 - 9) / 2) < 0, lambda_2 = 1 / (1 + 8 / 2).
    lams = theory.lambda_stars(np.array([9.0, 1.0]), 1.0)
    np.testing.assert_allclose(lams, [math.inf, 1 / 5])
    # FedAvg's error: 1/4 * 9 + 1/4 * (2 + 1), lower the larger lambda is.
    errors = np.array([theory.errors(lam, np.array([9.0, 1.0]), 1.0)[0] for lam in GRID])
    assert errors[-1] == 3
    assert (np.diff(errors) < 0).all()


def test_one_silo_learns_from_nobody():
    assert theory.lambda_stars(np.array([2.0]), 1.0) == 0
    np.testing.assert_array_equal(theory.errors(5.0, np.array([2.0]), 1.0), [2.0])


def test_alike_silos_federate():
    assert theory.lambda_star(1.0, 0.0) == math.inf
    assert (theory.lambda_stars(np.ones(3), 0.0) == math.inf).all()


@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1, 5, 20, 100])
def test_noise(epsilon):
    noise = theory.sigma_dp(2.0, epsilon, 1e-5)
    formula = 2 * math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    exact = 2 * get_sigma_gaussian(epsilon, 1e-5)
    assert noise == max(formula, exact)
    if epsilon <= 1:
        assert noise == formula
    if epsilon >= 20:
        assert noise == exact > formula  # the formula is not proven there, and wrong
    assert theory.sigma_dp(2.0, math.inf, 1e-5) == 0


@pytest.mark.parametrize(
    ("clip", "epsilon", "delta"), [(0, 1, 0.1), (math.inf, 1, 0.1), (1, -1, 0.1), (1, 1, 0)]
)
def test_noise_of_nonsense(clip, epsilon, delta):
    with pytest.raises(SilodpError):
        theory.sigma_dp(clip, epsilon, delta)


def shown(cli, *args):
    done = cli("theory", *args, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_papers_numbers(cli):
    content = shown(cli, *PAPER, "--trials", 0)
    assert "simulated" not in content
    noise = math.sqrt(2 * math.log(1.25e5)) / 0.25
    variance = 0.16 / 200 + noise**2 / 200**2
    star = variance / 0.0064
    best = variance * (variance + 20 * 0.0064) / (20 * (variance + 0.0064))
    assert content["sigma_dp"] == pytest.approx(noise)
    assert content["lambda_star"] == pytest.approx(star) == pytest.approx(1.592, abs=1e-3)
    assert content["error_star"] == pytest.approx(best)
    assert content["error_local"] == pytest.approx(variance)
    assert content["error_fedavg"] == pytest.approx((variance + 19 * 0.0064) / 20)
    assert content["gap_local"] == pytest.approx(variance - best)
    assert content["gap_fedavg"] == pytest.approx(content["error_fedavg"] - best)
    assert content["privacy_gap_local"] == pytest.approx(noise**2 / 200**2)
    assert content["privacy_gap_fedavg"] == pytest.approx(noise**2 / 200**2 / 20)
    of_star = 0.95 * noise**2 / 200**2 / (1 + star) ** 2 + noise**2 / 200**2 / 20
    assert content["privacy_gap_star"] == pytest.approx(of_star)
    without = content["without_privacy"]
    assert without["lambda_star"] == pytest.approx(0.125)
    assert without["error_local"] == pytest.approx(0.0008)
    assert shown(cli, "--trials", 0) == content  # the defaults are this setting


def test_simulated_beside_closed_form(cli):
    content = shown(cli, *PAPER, "--clip", "2", "--trials", 400)
    for closed, measured in (
        (content, content["simulated"]),
        (content["without_privacy"], content["simulated"]["without_privacy"]),
    ):
        for name, value in measured.items():
            if isinstance(value, dict) and "mean" in value:
                assert abs(value["mean"] - closed[name]) < 4.5 * value["standard_error"], name
        assert measured["lambda_star"] == pytest.approx(closed["lambda_star"], rel=0.15)
    assert "privacy_gap_star" in content["simulated"]
    assert shown(cli, *PAPER, "--clip", "2", "--trials", 400) == content
    assert shown(cli, *PAPER, "--clip", "2", "--trials", 400, "--seed", 1) != content


def test_silos_that_differ(cli):
    lists = ("--records", "50,200,800", "--epsilon", "0.25,1,4", "--clip", "3")
    content = shown(cli, *lists, "--trials", 300)
    silos = content["per_silo"]
    noises = [3 * math.sqrt(2 * math.log(1.25e5)) / epsilon for epsilon in (0.25, 1, 4)]
    noises[2] = theory.sigma_dp(3, 4, 1e-5)
    own = np.array([0.16 / n + (s / n) ** 2 for n, s in zip((50, 200, 800), noises, strict=True)])
    np.testing.assert_allclose([silo["local_variance"] for silo in silos], own)
    assert silos[0]["lambda_star"] == "inf"
    assert silos[0]["error_star"] == silos[0]["error_fedavg"]
    assert silos[0]["gap_fedavg"] == 0
    lams = [float(silo["lambda_star"]) for silo in silos]
    np.testing.assert_allclose(lams, theory.lambda_stars(own, 0.08))
    for silo in silos:
        assert silo["gap_local"] == pytest.approx(silo["error_local"] - silo["error_star"])
        for name in ("star", "local", "fedavg"):
            measured = silo[f"simulated_{name}"]
            apart = abs(measured["mean"] - silo[f"error_{name}"])
            assert apart < 4.5 * measured["standard_error"]
    # Numbers for all are means over silos, under one lambda.
    for name in ("local", "fedavg"):
        mean = np.mean([silo[f"error_{name}"] for silo in silos])
        assert content[f"error_{name}"] == pytest.approx(mean)
    common = [theory.errors(lam, own, 0.08).mean() for lam in GRID]
    assert content["error_star"] <= min(common)
    assert content["error_star"] == pytest.approx(min(common), rel=1e-3)
    assert content["error_silo_lambdas"] < content["error_star"]
    done = cli("theory", *lists, "--trials", 20)
    (first,) = (line.split() for line in done.stdout.splitlines() if line.startswith(" 1 "))
    assert first[:4] == ["1", "50", "0.25", "FedAvg"]
    assert "lambda of its own" in done.stdout


def test_without_privacy(cli):
    content = shown(cli, "--epsilon", "inf", "--trials", 0)
    assert content["setting"]["epsilon"] == "inf"
    assert content["sigma_dp"] == content["privacy_gap_local"] == 0
    assert content["error_star"] == content["without_privacy"]["error_star"]


def test_table_files_and_picture(cli, tmp_path):
    done = cli("theory", "--trials", 50, "--out", tmp_path / "t")
    assert done.exit_code == 0
    for word in ("lambda*", "1.592", "simulated", "35.6 % below that of FedAvg"):
        assert word in done.stdout
    assert "…" not in done.stdout  # fits 80 columns
    assert (tmp_path / "t" / "theory.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "t" / "theory.json").read_text())
    assert content["lambda_star"] == pytest.approx(1.592, abs=1e-3)
    quiet = cli("theory", "--sigma", "1,2", "--trials", 0, "--quiet", "--out", tmp_path / "q")
    assert quiet.stdout == quiet.stderr == ""
    assert (tmp_path / "q" / "theory.png").exists()


def test_clipping_that_shows_is_told(cli):
    told = "which take no account of clipping"
    assert told in " ".join(cli("theory", "--clip", "0.1", "--trials", 100).stdout.split())
    assert told not in " ".join(cli("theory", "--trials", 100).stdout.split())


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--tau", "0"], "tau is 0"),
        (["--tau", "-1"], "tau is -1"),
        (["--sigma", "nan"], "sigma is nan"),
        (["--sigma", "much"], "'much'"),
        (["--sigma", ""], "not a number"),
        (["--silos", "1"], "silos is 1"),
        (["--silos", "2.5"], "whole number"),
        (["--silos", "nan"], "silos is nan"),
        (["--records", "2.5"], "whole number"),
        (["--records", "0"], "records is 0"),
        (["--records", "9,,9"], "not a number"),
        (["--records", "1,2", "--epsilon", "1,2,3"], "epsilon lists 3 values for 2 silos"),
        (["--silos", "4", "--records", "1,2"], "records lists 2 values for 4 silos"),
        (["--epsilon", "-0.5"], "epsilon is -0.5"),
        (["--epsilon", "nan"], "epsilon is nan"),
        (["--delta", "1"], "delta is 1"),
        (["--clip", "inf"], "clip is inf"),
        (["--trials", "1"], "--trials is 1"),
        (["--seed", "-1"], "--seed is -1"),
        (["--records", "10000000"], "would draw 200,000,000 records"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(cli, sentence, tmp_path, args, word):
    assert word in sentence(cli("theory", *args, "--quiet", "--out", tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_written(cli, sentence, tmp_path):
    (tmp_path / "file").write_text("")
    assert "choose another" in sentence(cli("theory", "--out", tmp_path / "file"))


def test_ends_of_the_range(cli):
    for extreme in ("1e-6", "1e6"):
        for name in ("sigma", "tau", "epsilon", "clip"):
            content = shown(cli, f"--{name}", extreme, "--trials", 2, "--silos", 3)
            assert 0 <= content["error_star"] < 1e30
    assert make_setting(records=(1, 2)).silos == 2
