"""Noisy statistics: what they give, how much noise they have, and what is charged for them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from federations import small
from hypothesis import given
from hypothesis import strategies as st

import silodp
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.mechanisms import statistics
from silodp.privacy.mechanisms.queries import Schedule
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.mechanisms.statistics import noisy_metric, noisy_moments, noisy_present_means
from silodp.privacy.plan import SideQueries, TrainingSettings, make_plans
from silodp.privacy.policy import Policy

SETTINGS = TrainingSettings(batch_size=32, clip=1.0)


def moments(x, noise=0.0, bound=1.0, seed=0, count=None, subject=None):
    random = HostRandom(seed, b"", "test")
    return noisy_moments(x, bound, count or len(x), noise, random, subject)


def test_without_noise_they_are_mean_and_deviation():
    x = np.random.default_rng(1).uniform(-2, 2, size=(500, 3)) * [1, 0.5, 0.2]
    mean, deviation = moments(x, bound=2.0)
    np.testing.assert_allclose(mean, x.mean(0), atol=1e-9)
    np.testing.assert_allclose(deviation[:2], x.std(0)[:2], atol=1e-9)
    assert deviation[2] >= 0.1 * 2.0  # kept away from 0: noise could put it there


def test_a_subject_counts_once_however_many_records_it_has():
    x = np.array([[1.0], [1.0], [1.0], [-1.0]])
    subject = np.array([0, 0, 0, 1])
    mean, _ = moments(x, subject=subject, count=2)
    np.testing.assert_allclose(mean, [0.0], atol=1e-12)


@pytest.mark.parametrize("d", [1, 7])
def test_one_record_moves_the_sum_by_no_more_than_the_noise_is_scaled_to(d):
    """The worst record (all features at the bound), against the noise of one unit."""
    base = np.zeros((50, d))
    worst = np.concatenate([base, np.ones((1, d))])
    added = [
        np.concatenate([m, s**2 + m**2]) for m, s in (moments(a, count=50) for a in (worst, base))
    ]
    # Squares are measured from one half: an absent record adds nothing, one of zeros -1/2 each.
    moved = 50 * (added[0] - added[1])
    norm = math.sqrt(np.sum(moved[:d] ** 2) + d * 0.25)
    assert norm <= math.sqrt(1.25 * d) * (1 + 1e-9)
    draws = np.array([moments(base, noise=3.0, seed=seed)[0] for seed in range(4000)])
    promised = 3.0 * math.sqrt(1.25 * d) / 50
    assert draws.std() == pytest.approx(promised, rel=0.05)


def present_means(x, absent, noise=0.0, bound=1.0, seed=0, subject=None):
    random = HostRandom(seed, b"", "test")
    return noisy_present_means(np.asarray(x), np.asarray(absent), bound, noise, random, subject)


def test_without_noise_they_are_means_of_what_is_there():
    rng = np.random.default_rng(2)
    x, absent = rng.uniform(-3, 3, (200, 4)), rng.random((200, 4)) < [0, 0.2, 0.9, 1]
    found = present_means(x, absent, bound=2.0)
    exact = np.ma.masked_array(np.clip(x, -2, 2), absent).mean(0).filled(0.0)  # of none: the middle
    np.testing.assert_allclose(found, exact, atol=1e-12)
    assert found[3] == 0.0
    x[absent] = 1e9  # has no part in it
    np.testing.assert_array_equal(present_means(x, absent, bound=2.0), found)


@st.composite
def neighbours(draw):
    """Records with and without values, one record more, and one in the place of another."""
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    value = st.one_of(st.just(-9.0), st.just(9.0), st.floats(-2, 2))
    rows = st.lists(st.tuples(value, st.booleans()), min_size=d, max_size=d)
    records = draw(st.lists(rows, min_size=n + 1, max_size=n + 1))
    table = np.array([[value for value, _ in row] for row in records])
    absent = np.array([[gone for _, gone in row] for row in records])
    subject = draw(st.lists(st.integers(0, 2), min_size=n + 1, max_size=n + 1))
    return table, absent, np.array(subject)


@given(neighbours())
def test_a_neighbour_moves_values_and_counts_by_no_more_than_is_paid_for(drawn):
    """Whatever lacks what: what is summed, against what the noise is scaled to."""
    x, absent, subject = drawn
    sums, units = [], []

    def watched(added, sensitivity, noise_multiplier, random):
        sums.append(added.sum(0))
        units.append(sensitivity)
        return added.sum(0)

    def sum_of(rows, by_subject=False):
        own = np.unique(subject[rows], return_inverse=True)[1] if by_subject else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statistics, "_noisy_sum", watched)
            present_means(x[rows], absent[rows], noise=1.0, subject=own)
        return sums[-1]

    n, unit = len(x), math.sqrt(2 * x.shape[1])
    less, other = np.arange(n - 1), np.concatenate([np.arange(1, n - 1), [n - 1]])
    slack = 1 + 1e-12
    assert np.linalg.norm(sum_of(np.arange(n)) - sum_of(less)) <= unit * slack
    assert np.linalg.norm(sum_of(less) - sum_of(other)) <= moved_by("replace-one") * unit * slack
    without = np.flatnonzero(subject != subject[-1])
    if len(without):
        moved = sum_of(np.arange(n), by_subject=True) - sum_of(without, by_subject=True)
        assert np.linalg.norm(moved) <= unit * slack
    assert set(units) == {unit}


def test_noise_of_present_means_is_that_of_a_sum_over_a_count():
    """Against the closed form: noise of the sum, and the mean times that of the count."""
    n, noise, mean = 2000, 5.0, 0.6
    x, absent = np.full((n, 2), mean), np.zeros((n, 2), bool)
    absent[: n // 2] = True
    draws = np.array([present_means(x, absent, noise=noise, seed=seed) for seed in range(3000)])
    promised = noise * math.sqrt(2 * 2) * math.sqrt(1 + mean**2) / (n / 2)
    assert draws.std(0) == pytest.approx(promised, rel=0.06)
    assert draws.mean(0) == pytest.approx(mean, abs=5 * promised / math.sqrt(3000))


def test_means_of_next_to_nothing_go_to_the_middle():
    """Divided by a count that is noise itself they could be anything."""
    x, absent = np.full((3, 1), 1.0), np.zeros((3, 1), bool)
    draws = np.array([present_means(x, absent, noise=50.0, seed=seed)[0] for seed in range(500)])
    assert abs(draws).max() <= 1
    assert draws.std() < 0.6


def test_metric_noise_is_what_the_plan_says():
    random = HostRandom(0, b"", "test")
    noisy = noisy_metric(np.full(20_000, 35.0), 1.0, 50, 60, 4.0, random)
    assert noisy.mean() == pytest.approx(0.7, abs=5 * 0.08 / math.sqrt(20_000))
    assert noisy.std() == pytest.approx(4.0 / 50, rel=0.03)
    assert noisy_metric(np.array([35.0]), 1.0, 50, 60, 0.0, random)[0] == 0.7


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_each_query_takes_its_share_and_the_total_holds(relation):
    side = SideQueries(statistics_share=0.1, metric_share=0.2, evaluated=(5, 10))
    policy = Policy(4, 1e-4, relation=relation)
    (made,) = make_plans(["a"], [88], [policy], Schedule(10), SETTINGS, side=side)
    (plain,) = make_plans(["a"], [88], [policy], Schedule(10), SETTINGS)
    assert made.noise_multiplier > plain.noise_multiplier
    assert epsilon_of(made.event, 1e-4, "best", relation) <= 4
    parts = made.queries()
    assert set(parts) == {"training", "statistics", "metric"}
    for name, share in (("statistics", 0.1), ("metric", 0.2)):
        assert epsilon_of(parts[name], 1e-4, "best", relation) == pytest.approx(4 * share, rel=1e-3)
    # A metric is released with the round after those that it evaluates.
    early = made.queries(-1, 6)
    assert epsilon_of(early["metric"], 1e-4, "best", relation) < 0.8
    assert [set(made.queries(*block)) for block in ((-1, 0), (0, 5), (5, 10), (10, 11))] == [
        {"statistics"},
        {"training"},
        {"training", "metric"},
        {"metric"},
    ]


def bounded():
    federation = small()
    silos = tuple(
        silodp.Silo(
            silo.name,
            replace(silo.train, x=np.clip(silo.train.x / 4 + 0.5, -1, 1)),
            replace(silo.test, x=np.clip(silo.test.x / 4 + 0.5, -1, 1)),
        )
        for silo in federation.silos
    )
    return replace(federation, silos=silos, feature_bound=1.0)


COMMON = {"rounds": 5, "batch_size": 16, "delta": 1e-4, "method": "local"}


def test_standardising_at_a_price_end_to_end():
    result = silodp.run(federation=bounded(), epsilon=8, statistics_share=0.2, **COMMON)
    assert result.unproven == []
    without = silodp.run(federation=bounded(), epsilon=8, **COMMON)
    assert result.privacy[0]["noise_multiplier"] > without.privacy[0]["noise_multiplier"]
    assert result.mean != without.mean
    with pytest.raises(silodp.SilodpError, match="public bound"):
        silodp.run(federation=small(), epsilon=8, statistics_share=0.2, **COMMON)


def test_noisy_metrics_hide_the_exact_ones():
    heard = []

    class Listener(silodp.run.__globals__["Reporter"]):
        def trained(self, done, total, metric):
            heard.append(metric)

    exact = silodp.run(federation=small("binary"), epsilon=4, evaluate_every=1, **COMMON)
    noisy = silodp.run(
        federation=small("binary"), epsilon=4, metric_share=0.2, reporter=Listener(), **COMMON
    )
    assert len(noisy.history) == 1  # each release costs: one, unless more are asked for
    assert all(math.isnan(metric) for metric in heard)
    assert not any("without noise" in assumed for assumed in noisy.assumptions)
    assert any("without noise" in assumed for assumed in exact.assumptions)
    counts = [silo["test_records"] for silo in noisy.per_silo]
    for silo, count in zip(noisy.per_silo, counts, strict=True):
        assert abs(silo["mean"] * count - round(silo["mean"] * count)) > 1e-6  # no exact count


def test_noisy_metrics_by_subject_are_refused():
    federation = small()
    silos = tuple(
        replace(silo, train=replace(silo.train, subject=np.arange(len(silo.train)) // 2))
        for silo in federation.silos
    )
    with pytest.raises(silodp.SilodpError, match="priced by record"):
        silodp.run(
            federation=replace(federation, silos=silos), epsilon=4, metric_share=0.2, **COMMON
        )
