"""What the host draws for a release: batches, noise and words, each with its own address."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from federations import small
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import silodp
from silodp.engines.layout import group_silos, silo_lattice
from silodp.privacy.mechanisms.keystream import Keystream, key_of, pass_stream
from silodp.privacy.mechanisms.poisson_batches import (
    DrawnCounts,
    _below,
    coins,
    shuffled,
    subsets,
    threshold_of,
)
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.mechanisms.release_draws import ReleaseDraws, SiloGroup
from silodp.runs.run import job_of

pytestmark = pytest.mark.as_shipped

SECRET = bytes(range(32))


def stream(seed=0):
    return Keystream(seed.to_bytes(32, "big"), bytes(12))


def test_the_stream_is_chacha20():
    """RFC 8439, 2.3.2 and 2.4: the key stream of its example, from block 1 on."""
    key, nonce = bytes(range(32)), bytes.fromhex("000000090000004a00000000")
    block = Keystream(key, nonce).read(128)[64:]
    assert block[:16].hex() == "10f1e7e4d13b5915500fdd1fa32071c4"


def test_no_two_addresses_share_bytes():
    seen = set()
    for seed in range(2):
        for trial in range(2):
            key = key_of(SECRET, "release", seed, trial)
            for number in (0, 1, 2**33):
                for asked in range(2):
                    for purpose in ("sample", "sample refined", "noise", "noise refined"):
                        seen.add(pass_stream(key, number, asked, purpose).read(16))
    assert len(seen) == 2 * 2 * 3 * 2 * 4


def test_host_randomness_follows_from_secret_seed_and_purpose():
    def draw(seed, secret, purpose):
        return HostRandom(seed, secret, purpose).rounded_gaussian(1e6, (4,)).tolist()

    same = draw(0, SECRET, "metric a")
    assert draw(0, SECRET, "metric a") == same
    others = [draw(1, SECRET, "metric a"), draw(0, SECRET, "metric b"), draw(0, b"", "metric a")]
    assert same not in others


def test_uniform_and_whole_numbers_are_what_they_say():
    random = HostRandom(0, SECRET, "test")
    assert stats.kstest([random.uniform() for _ in range(2000)], "uniform").pvalue > 1e-3
    whole = random.integers(7, 7000)
    assert stats.chisquare(np.bincount(whole, minlength=7)).pvalue > 1e-3


@settings(max_examples=50, deadline=None)
@given(batch=st.integers(1, 1000), more=st.integers(1, 10**9))
def test_the_threshold_is_never_above_the_rate(batch, more):
    records = batch + more
    threshold = int(threshold_of(batch, records))
    assert threshold * records <= batch * 2**64 < (threshold + 1) * records


@pytest.mark.parametrize(("batch", "records"), [(1, 3), (32, 88), (1, 5000), (999, 1000)])
def test_coins_fall_at_the_rate_and_by_themselves(batch, records):
    count = 400_000
    thresholds = np.full(count, threshold_of(batch, records))
    (drawn,) = coins([thresholds], [stream(1)], [stream(2)])
    q = batch / records
    assert abs(drawn.mean() - q) < 5 * np.sqrt(q * (1 - q) / count)
    pairs = drawn[:-1] & drawn[1:]
    assert abs(pairs.mean() - q**2) < 6 * np.sqrt(q**2 / count)


def test_a_coin_is_decided_by_all_its_bits():
    """Words just below and at the threshold, byte by byte."""
    threshold = np.uint64(0x0102030405060708)

    class Fixed:
        def __init__(self, first, rest):
            self.first, self.rest = first, rest

        def bytes_of(self, count):
            return np.full(count, self.first, np.uint8)

        def words(self, count):
            return np.full(count, self.rest << 8, np.uint64)

    def falls(word):
        source = Fixed(word >> 56, word & (2**56 - 1))
        return bool(coins([np.array([threshold])], [source], [source])[0][0])

    assert falls(int(threshold) - 1)
    assert not falls(int(threshold))
    assert falls(0)
    assert not falls(2**64 - 1)


@pytest.mark.parametrize(("held", "batch", "records"), [(300, 20, 300), (37, 4, 40), (9, 1, 8)])
def test_counts_are_binomial(held, batch, records):
    """The ends of the binomial's cells, in 128 bits, against fractions; and what is drawn."""
    found = DrawnCounts(held, batch, records, held)
    rate, below = Fraction(batch, records), Fraction(0)
    ends = [(int(h) << 64) + int(w) for h, w in zip(found._high, found._low, strict=True)]
    for count, end in enumerate(ends):
        below += math.comb(held, count) * rate**count * (1 - rate) ** (held - count)
        assert abs(Fraction(end, 2**128) - below) < Fraction(1, 2**120)
    drawn = found.draw(stream(3).words(40_000), stream(4))
    assert drawn.mean() == pytest.approx(held * batch / records, rel=0.02)
    assert drawn.var() == pytest.approx(held * float(rate * (1 - rate)), rel=0.04)


def test_a_count_on_the_edge_is_decided_by_further_bits():
    found = DrawnCounts(5, 1, 3, 5)

    class Next:
        def __init__(self, word):
            self.word = word

        def words(self, count):
            return np.array([self.word], np.uint64)

    edge, low = found._high[2:3], int(found._low[2])
    assert found.draw(edge, Next(low - 1)).tolist() == [2]
    assert found.draw(edge, Next(low)).tolist() == [3]
    assert found.draw(edge - np.uint64(1), None).tolist() == [2]


def test_more_than_fit_are_cut_off():
    counts = DrawnCounts(50, 25, 50, 10).draw(stream(5).words(100), stream(6))
    assert counts.max() == 10


@pytest.mark.parametrize(("held", "count"), [(6, 3), (40, 39), (5000, 2)])
def test_every_set_of_so_many_records_is_as_likely(held, count):
    steps = 2000 if held == 40 else 6000
    rows = subsets(np.full(steps, count), held, 50, stream(held))
    assert ((rows >= 0).sum(1) == count).all()
    assert (rows[:, count:] == -1).all()
    assert all(len(set(row[:count])) == count for row in rows.tolist())
    seen = np.bincount(rows[rows >= 0], minlength=held)
    if held < 100:
        assert stats.chisquare(seen).pvalue > 1e-4
    if held == 6:  # each of the twenty sets
        sets = {}
        for row in np.sort(rows[:, :3], axis=1).tolist():
            sets[tuple(row)] = sets.get(tuple(row), 0) + 1
        assert stats.chisquare(list(sets.values())).pvalue > 1e-4
        assert len(sets) == 20


def test_without_records_nothing_is_drawn():
    assert (subsets(np.zeros(3, int), 0, 4, stream()) == -1).all()
    assert DrawnCounts(0, 2, 9, 4).draw(stream().words(5), stream(1)).tolist() == [0] * 5


def test_numbers_below_a_limit_are_even_to_the_last():
    """All that a word of 64 bits could do for a limit that does not divide 2^64: scaled down."""
    words = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    assert _below(3, words).tolist() == [-1, 0, 1, 2]  # 0 would make the first likelier
    many = _below(7, stream(9).words(70_000))
    assert stats.chisquare(np.bincount(many, minlength=7)).pvalue > 1e-4


def test_shuffled_batches_part_the_records():
    rows = shuffled(10, 10, 3, 2, stream())
    assert rows.shape == (6, 3)
    for epoch in (rows[:3], rows[3:]):
        assert len(set(epoch.ravel().tolist())) == 9
    fewer = shuffled(7, 10, 3, 1, stream())
    assert sorted(fewer.ravel().tolist()) == [-1, -1, *range(7)]


def made(sizes=(40, 90, 700), **options):
    federation = small(sizes=sizes)
    asked = {"epsilon": 4, "delta": 1e-4, "rounds": 3, "batch_size": 16, "entropy": "os"}
    prepared = silodp.plan(federation=federation, **(asked | options))
    return replace(job_of(prepared), secret=SECRET), federation, prepared.plans[0]


def draws_of(job, federation, plans, groups, seeds=(0,), trial=0):
    lattices = [silo_lattice(plan) for plan in plans]
    held = [federation.unit_counts.tolist()] * len(seeds)
    return ReleaseDraws(SECRET, seeds, trial, plans, held, lattices, job.parameters, groups)


def test_padding_and_grouping_change_nothing():
    job, federation, plans = made(method="ditto")
    together = draws_of(job, federation, plans, group_silos(plans, True))
    alone = [
        SiloGroup(np.array([place]), group_silos((plan,), True)[0].shape)
        for place, plan in enumerate(plans)
    ]
    apart = draws_of(job, federation, plans, alone).of_round(2)
    for group, drawn in zip(group_silos(plans, True), together.of_round(2), strict=True):
        for at, place in enumerate(group.members):
            steps, slots = plans[place].steps, plans[place].batch_capacity
            np.testing.assert_array_equal(
                drawn.passes.noise[0, at][:, :steps], apart[place].passes.noise[0, 0]
            )
            assert not drawn.passes.noise[0, at][:, steps:].any()
            np.testing.assert_array_equal(
                drawn.passes.sample[0, at][:, :steps, :slots], apart[place].passes.sample[0, 0]
            )


def test_runs_that_are_drawn_together_are_those_drawn_alone():
    """Seeds side by side, with as many records or not: each has the bytes of its own address."""
    job, _, plans = made()
    groups = group_silos(plans, True)
    lattices = [silo_lattice(plan) for plan in plans]
    held = [[40, 90, 700], [38, 90, 650], [40, 90, 700]]

    def draws(which):
        own = [held[seed] for seed in which]
        return ReleaseDraws(SECRET, which, 0, plans, own, lattices, job.parameters, groups)

    together = draws([0, 1, 2]).of_round(1)
    for seed in range(3):
        for both, alone in zip(together, draws([seed]).of_round(1), strict=True):
            np.testing.assert_array_equal(both.passes.noise[seed], alone.passes.noise[0])
            np.testing.assert_array_equal(both.passes.sample[seed], alone.passes.sample[0])


def test_nothing_is_drawn_twice():
    """Silos, rounds, passes, seeds and trials: no two have a row of noise in common."""
    job, federation, plans = made(method="ditto")
    groups = group_silos(plans, True)
    seen, rows = set(), 0
    for seed, trial in ((0, 0), (1, 0), (0, 1)):
        draws = draws_of(job, federation, plans, groups, (seed,), trial)
        for number in range(3):
            for group, drawn in zip(groups, draws.of_round(number), strict=True):
                for at, place in enumerate(group.members):
                    own = drawn.passes.noise[0, at][:, : plans[place].steps]
                    seen.update(row.tobytes() for row in own.reshape(-1, job.parameters))
                    rows += own.shape[0] * own.shape[1]
    assert len(seen) == rows


def test_batches_are_poisson_in_every_layout():
    """Flags for small silos, slots for large ones: counts are binomial at the plan's rate."""
    job, federation, plans = made(rounds=2)
    assert {plan.draw for plan in plans} == {"every", "gaps"}
    draws = draws_of(job, federation, plans, group_silos(plans, True))
    counts = {place: [] for place in range(len(plans))}
    for number in range(300):
        for group, drawn in zip(group_silos(plans, True), draws.of_round(number), strict=True):
            sample = drawn.passes.sample
            picked = sample if sample.dtype == bool else sample >= 0
            for at, place in enumerate(group.members):
                counts[place] += picked[0, at, :, : plans[place].steps].sum(-1).ravel().tolist()
    for place, plan in enumerate(plans):
        q = plan.expected_batch / plan.public_count
        sizes = np.array(counts[place])
        assert sizes.mean() == pytest.approx(
            plan.expected_batch, abs=5 * np.sqrt(plan.expected_batch / len(sizes))
        )
        assert sizes.var() == pytest.approx(plan.public_count * q * (1 - q), rel=0.2)


def test_noise_has_the_planned_deviation():
    job, federation, plans = made()
    draws = draws_of(job, federation, plans, group_silos(plans, True))
    drawn = [draws.of_round(number) for number in range(60)]
    for number, group in enumerate(group_silos(plans, True)):
        for at, place in enumerate(group.members):
            own = [one[number].passes.noise[0, at][:, : plans[place].steps] for one in drawn]
            noise = np.concatenate([part.ravel() for part in own])
            deviation = silo_lattice(plans[place]).deviation
            assert stats.kstest(noise / deviation, "norm").pvalue > 1e-4
