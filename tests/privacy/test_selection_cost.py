"""What selections, pure and zCDP mechanisms, tuning and cut samples cost, and who says so."""

import itertools
import math

import numpy as np
import pytest
from charges import epsilons_of
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    ZCDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from independent_accountant import epsilon as independent
from independent_accountant import gaussian_losses, selection_losses
from scipy.optimize import brentq
from scipy.stats import binom

from silodp.base.errors import SilodpError
from silodp.privacy.accounting import rdp
from silodp.privacy.accounting.accountant import (
    contenders,
    epsilon_of,
    rdp_curve,
    steps_of,
    supporting,
)
from silodp.privacy.accounting.events import BoundedRangeDpEvent, PureDpEvent, bounded_range
from silodp.privacy.accounting.events.pure import profile as randomised_response
from silodp.privacy.accounting.losses import bounded

RELATIONS = ("add-remove", "replace-one")
few = settings(max_examples=12, deadline=None)


def sampled(rate, noise, count=1):
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)


def selections(epsilon, count):
    return SelfComposedDpEvent(BoundedRangeDpEvent(epsilon), count)


def pure(epsilon, count):
    return SelfComposedDpEvent(PureDpEvent(epsilon), count)


SCHOOL = sampled(32 / 88, 4.82951, 400)
VEHICLE = sampled(64 / 1400, 40.24809, 8400)
CUT = TruncatedSubsampledGaussianDpEvent(88, 32 / 88, 48, 4.82951)


def divergence(p, q, x):
    return np.maximum(0, p - math.exp(x) * q).sum()


# Profiles


def exponential_mechanism(scores, epsilon):
    weights = np.exp(epsilon * (scores - scores.max()) / 2)
    return weights / weights.sum()


def permute_and_flip(scores, epsilon):
    """Its exact distribution, over all orders in which candidates may be tried."""
    accept = np.exp(epsilon * (scores - scores.max()) / 2)
    chances = np.zeros(len(scores))
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        left = 1 / len(orders)
        for candidate in order:
            chances[candidate] += left * accept[candidate]
            left *= 1 - accept[candidate]
    return chances


def neighbours(rng, epsilon):
    """Scores of candidates on neighbouring data: each moves by 1 at most."""
    size = rng.integers(2, 5)
    scores = rng.uniform(-3, 3, size) * rng.choice([0.1, 1, 10 / epsilon])
    moves = rng.choice([-1, 1], size) if rng.random() < 0.7 else rng.uniform(-1, 1, size)
    return scores, scores + moves


def test_no_exponential_mechanism_diverges_more_than_bounded_range():
    rng = np.random.default_rng(0)
    closest = math.inf
    for _ in range(8000):
        epsilon = rng.choice([0.03, 0.3, 1.0, 3.0])
        p, q = (exponential_mechanism(s, epsilon) for s in neighbours(rng, epsilon))
        x = rng.uniform(-epsilon, epsilon)
        gap = bounded_range.profile(np.array([x]), epsilon)[0] - divergence(p, q, x)
        assert gap >= -1e-14
        closest = min(closest, gap / epsilon)
    assert closest < 1e-3  # and the worst comes near it


def test_permute_and_flip_is_pure_and_not_of_bounded_range():
    rng = np.random.default_rng(1)
    beyond = 0.0
    for _ in range(2000):
        epsilon = rng.choice([0.3, 1.0, 3.0])
        p, q = (permute_and_flip(s, epsilon) for s in neighbours(rng, epsilon))
        x = rng.uniform(-epsilon, epsilon)
        found = divergence(p, q, x)
        assert found <= randomised_response(np.array([x]), epsilon)[0] + 1e-14
        beyond = max(beyond, found - bounded_range.profile(np.array([x]), epsilon)[0])
    assert beyond > 1e-3


@few
@given(st.floats(1e-3, 5), st.floats(1e-3, 1), st.floats(-1, 1))
def test_on_any_grid_the_profile_is_only_ever_raised(epsilon, grid, at):
    for profile in (bounded_range.profile, randomised_response):
        losses = bounded(epsilon, profile, grid)
        x = at * epsilon
        assert losses.get_delta_for_epsilon(x) >= profile(np.array([x]), epsilon)[0] - 1e-12


def randomised_response_epsilon(epsilon, count, delta):
    """Exact: losses are (2 j - count) epsilon, with j binomial (Kairouz et al. 2015)."""
    j = np.arange(count + 1)
    losses = (2 * j - count) * epsilon
    likely = binom.pmf(j, count, 1 / (1 + math.exp(-epsilon)))

    def excess(e):
        far = losses > e
        return np.sum(likely[far] * -np.expm1(e - losses[far])) - delta

    return brentq(excess, 0, count * epsilon, xtol=1e-13) if excess(0) > 0 else 0.0


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("count", [1, 3, 400, 10_000])
@pytest.mark.parametrize("epsilon", [0.0015, 0.03, 0.3, 2.0])
def test_pure_mechanisms_against_the_exact_binomial(epsilon, count, delta):
    truth = randomised_response_epsilon(epsilon, count, delta)
    charged = epsilons_of(pure(epsilon, count), delta)
    assert charged["pld"] is not None
    assert truth * (1 - 1e-9) <= charged["pld"] <= max(truth * 1.01, 1e-9)
    assert charged["rdp"] is not None
    assert charged["rdp"] >= truth * (1 - 1e-9)


# Selections with and without training


def test_many_selections_are_not_one():
    # dp_accounting's own event would say 0.038, the price of one.
    charged = epsilons_of(selections(0.03, 400), 1e-7)
    assert charged["rdp"] == pytest.approx(1.528, abs=1e-3)  # by zCDP alone 1.531
    assert charged["pld"] == pytest.approx(1.6706, abs=1e-3)
    assert epsilon_of(selections(0.03, 400), 1e-7) == charged["rdp"]
    # Selections whose losses are +-0.015 are real ones, and cost this much.
    lower = randomised_response_epsilon(0.015, 400, 1e-7)
    assert lower < charged["rdp"]


@pytest.mark.parametrize("order", [1.2, 2.0, 7.5, 40.0, 300.0])
@pytest.mark.parametrize("epsilon", [0.001, 0.03, 0.5, 4.0])
def test_the_divergence_of_bounded_range_is_that_of_its_worst_mechanism(epsilon, order):
    """No exponential mechanism between random scores exceeds it; two-point ones come close."""
    (bound,) = rdp_curve(selections(epsilon, 1), [order])
    rng = np.random.default_rng(0)
    many = [rng.normal(size=rng.integers(2, 6)) * rng.choice([0.1, 1, 5]) for _ in range(400)]
    two = [np.array([0.0, apart]) for apart in np.linspace(0, 20, 400)]
    worst = 0.0
    for scores in [*many, *two]:
        # Each score moves by at most half of epsilon's worth, up or down.
        signs = rng.choice([-1, 1], size=len(scores)) if len(scores) > 2 else np.array([1, -1])
        moved = scores + epsilon / 2 * signs
        for s in (moved, scores - epsilon / 2 * signs):
            log_p, log_q = (v - np.logaddexp.reduce(v) for v in (scores, s))
            exponents = order * log_p + (1 - order) * log_q
            worst = max(worst, np.logaddexp.reduce(exponents) / (order - 1))
    assert worst <= bound * (1 + 1e-9)
    assert worst >= 0.9 * bound
    assert bound <= min(order * epsilon**2 / 8, epsilon) * (1 + 1e-12)


def test_few_selections_beside_training():
    charged = epsilons_of(ComposedDpEvent([SCHOOL, selections(0.18, 20)]), 1e-3)
    assert charged["pld"] == pytest.approx(5.648, abs=2e-3)
    assert charged["rdp"] == pytest.approx(6.243, abs=2e-3)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "epsilon", "count", "delta"),
    [
        (32 / 88, 4.82951, 400, 0.18, 20, 1e-3),
        (64 / 1400, 40.24809, 8400, 0.0015, 400, 1e-7),
        (64 / 1400, 40.24809, 8400, 0.03, 400, 1e-7),
        (0.2, 3.0, 10, 1e-5, 2000, 1e-5),
    ],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_selections_of_any_size_beside_training(
    rate, noise, steps, epsilon, count, delta, relation
):
    event = ComposedDpEvent([sampled(rate, noise, steps), selections(epsilon, count)])
    parts = [(gaussian_losses(rate, noise, relation), steps), (selection_losses(epsilon), count)]
    truth = independent(parts, delta)
    charged = epsilon_of(event, delta, "pld", relation)
    assert truth * (1 - 1e-5) <= charged <= truth * 1.0008


@pytest.mark.parametrize("kind", [selections, pure])
def test_selections_never_cost_more_than_their_sum(kind):
    for epsilon, count, delta in [(0.5, 1, 1e-9), (3.0, 2, 1e-2), (1e-9, 5, 1e-5), (1e5, 3, 1e-5)]:
        for charged in epsilons_of(kind(epsilon, count), delta).values():
            assert charged is not None
            assert 0 <= charged <= epsilon * count * (1 + 1e-12)


def test_a_selection_so_small_that_it_vanishes_is_no_error():
    for epsilon in (5e-324, 1e-200, 1e-30):
        for event in (selections(epsilon, 3), ComposedDpEvent([SCHOOL, pure(epsilon, 5)])):
            plain = 0 if event.__class__ is SelfComposedDpEvent else epsilon_of(SCHOOL, 1e-3)
            assert epsilon_of(event, 1e-3) == pytest.approx(plain, rel=1e-3)


@few
@given(
    epsilon=st.floats(1e-3, 1),
    count=st.integers(1, 300),
    noise=st.floats(1, 10),
    delta=st.sampled_from([1e-7, 1e-3]),
    relation=st.sampled_from(RELATIONS),
    kind=st.sampled_from([selections, pure]),
)
def test_cost_moves_with_every_parameter(epsilon, count, noise, delta, relation, kind):
    def cost(epsilon=epsilon, count=count, noise=noise, delta=delta, relation=relation):
        event = ComposedDpEvent([kind(epsilon, count), sampled(0.2, noise, 50)])
        return epsilon_of(event, delta, "best", relation)

    middle, slack = cost(), 1.001  # bounds from grids, each as much above the truth as its grid
    assert cost(epsilon=epsilon * 1.1) * slack >= middle
    assert cost(count=count + 1) * slack >= middle
    assert cost(noise=noise * 1.1) <= middle * slack
    assert cost(delta=delta * 2) <= middle
    assert cost(relation="replace-one") * slack >= cost(relation="add-remove")


@few
@given(st.permutations([sampled(0.1, 2.0, 30), selections(0.1, 9), pure(0.1, 9), ZCDpEvent(0.1)]))
def test_order_and_grouping_do_not_matter(parts):
    whole = ComposedDpEvent(parts)
    tuned = RepeatAndSelectDpEvent(whole, 3, 1)
    some = [PureDpEvent(0.1), selections(0.1, 9), NoOpDpEvent(), ZCDpEvent(0.1)]
    nested = ComposedDpEvent(
        [sampled(0.1, 2.0, 15), ComposedDpEvent(some), pure(0.1, 8), sampled(0.1, 2.0, 15)]
    )
    assert steps_of(whole) == steps_of(nested)
    assert repr(steps_of(whole)) == repr(steps_of(nested))
    assert hash(steps_of(whole)) == hash(steps_of(nested))
    assert steps_of(tuned) == steps_of(RepeatAndSelectDpEvent(nested, 3, 1))
    assert epsilon_of(whole, 1e-5) == epsilon_of(nested, 1e-5)


# zCDP and tuning


def test_zcdp_is_charged_by_renyi_divergence():
    event = SelfComposedDpEvent(ZCDpEvent(0.01, 0.001), 7)
    truth = RdpAccountant().compose(ZCDpEvent(0.07, 0.007)).get_epsilon(1e-5)
    assert epsilons_of(event, 1e-5) == {"pld": None, "rdp": pytest.approx(truth)}
    assert epsilon_of(ZCDpEvent(0.0, 0.4), 1e-9) == 0.4


@pytest.mark.parametrize("shape", [0, 0.5, 1, 4.0, math.inf])
@pytest.mark.parametrize("mean", [1, 1.5, 10, 1e4])
def test_tuning_agrees_with_dp_accounting(mean, shape):
    event = SelfComposedDpEvent(RepeatAndSelectDpEvent(sampled(0.1, 3.0, 50), mean, shape), 2)
    expected = RdpAccountant().compose(event).get_epsilon(1e-6)
    assert epsilon_of(event, 1e-6, "rdp") == pytest.approx(expected, rel=1e-7)


def test_tuning_of_known_cost():
    for shape, by_rdp, by_pld in [(0, 0.821, 0.659), (1, 0.983, 0.702), (math.inf, 1.062, None)]:
        charged = epsilons_of(RepeatAndSelectDpEvent(VEHICLE, 10, shape), 1e-7)
        assert charged["rdp"] == pytest.approx(by_rdp, abs=1e-3)
        assert charged["pld"] == (by_pld and pytest.approx(by_pld, abs=1e-3))


def test_tuning_counts_the_selections_inside():
    zcdp = ComposedDpEvent([sampled(0.1, 3.0, 50), ZCDpEvent(20 * 0.05**2 / 8)])
    inside = ComposedDpEvent([sampled(0.1, 3.0, 50), selections(0.05, 20)])
    expected = epsilon_of(RepeatAndSelectDpEvent(zcdp, 5, 1), 1e-6)
    # By their own divergence, which is a little below that of zCDP.
    charged = epsilons_of(RepeatAndSelectDpEvent(inside, 5, 1), 1e-6)
    assert charged["rdp"] == pytest.approx(expected, rel=1e-3)
    assert charged["rdp"] <= expected
    assert charged["pld"] > epsilon_of(RepeatAndSelectDpEvent(sampled(0.1, 3.0, 50), 5, 1), 1e-6)
    assert epsilon_of(RepeatAndSelectDpEvent(NonPrivateDpEvent(), 5, 1), 1e-6) == math.inf
    assert epsilon_of(RepeatAndSelectDpEvent(NoOpDpEvent(), 5, 1), 1e-6) == 0


# Cut samples


@pytest.mark.parametrize(
    ("event", "rate", "delta"),
    [
        (TruncatedSubsampledGaussianDpEvent(88, 32 / 88, 48, 4.83), 32 / 88, 1e-3),
        (TruncatedSubsampledGaussianDpEvent(1400, 64 / 1400, 96, 40.2), 64 / 1400, 1e-7),
    ],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_cutting_rare_large_samples_costs_next_to_nothing(event, rate, delta, relation):
    plain = epsilon_of(sampled(rate, event.noise_multiplier, 400), delta, "pld", relation)
    cut = epsilon_of(SelfComposedDpEvent(event, 400), delta, "best", relation)
    assert plain <= cut < plain * 1.002


def cut_density(x, gradients, rate, most, noise):
    """The density of one step on these records, by going through all samples and all cuts."""
    total = np.zeros_like(x)
    for drawn in itertools.product([0, 1], repeat=len(gradients)):
        chance = math.prod(rate if there else 1 - rate for there in drawn)
        taken = [g for g, there in zip(gradients, drawn, strict=True) if there]
        cuts = list(itertools.combinations(taken, most)) if len(taken) > most else [tuple(taken)]
        for cut in cuts:
            total += chance / len(cuts) * np.exp(-((x - sum(cut)) ** 2) / (2 * noise**2))
    return total / math.sqrt(2 * math.pi) / noise


@pytest.mark.parametrize(("rate", "most", "noise"), [(0.5, 2, 1.0), (0.9, 1, 2.0), (1.0, 3, 1.5)])
def test_no_cut_sample_of_few_records_diverges_more(rate, most, noise):
    x = np.linspace(-25, 25, 20_001)
    width = x[1] - x[0]
    delta = 1e-3
    for others in itertools.product([-1, 1], repeat=3):
        with_one = cut_density(x, [1, *others], rate, most, noise)
        pairs = {
            "add-remove": cut_density(x, others, rate, most, noise),
            "replace-one": cut_density(x, [-1, *others], rate, most, noise),
        }
        for relation, without in pairs.items():
            # Data of 4 records; add/remove also has to hold where the 3 others are all the data.
            for records in (4, 3) if relation == "add-remove" else (4,):
                event = TruncatedSubsampledGaussianDpEvent(records, rate, most, noise)
                e = math.exp(epsilon_of(event, delta, "best", relation))
                for p, q in ((with_one, without), (without, with_one)):
                    assert np.maximum(0, p - e * q).sum() * width <= delta


# Which accountant


def test_who_supports_what():
    both, only_pld, only_rdp = ("pld", "rdp"), ("pld",), ("rdp",)
    for event, plain, replaced in [
        (NoOpDpEvent(), both, both),
        (GaussianDpEvent(2.0), both, both),
        (SCHOOL, both, both),
        (CUT, only_pld, only_pld),
        (selections(0.1, 3), both, both),
        (pure(0.1, 3), both, both),
        (ZCDpEvent(0.1), only_rdp, only_rdp),
        (RepeatAndSelectDpEvent(selections(0.1, 3), 3, 1), both, both),
        (RepeatAndSelectDpEvent(SCHOOL, 3, 1), both, both),
        (RepeatAndSelectDpEvent(SCHOOL, 3, math.inf), only_rdp, only_rdp),
        (RepeatAndSelectDpEvent(CUT, 3, 1), only_pld, only_pld),
        (RepeatAndSelectDpEvent(CUT, 3, math.inf), (), ()),
        (RepeatAndSelectDpEvent(ZCDpEvent(0.1), 3, 1), only_rdp, only_rdp),
        (ComposedDpEvent([CUT, ZCDpEvent(0.1)]), (), ()),
    ]:
        assert supporting(event) == plain
        assert supporting(event, "replace-one") == replaced
        for relation, names in zip(RELATIONS, (plain, replaced), strict=True):
            charged = epsilons_of(event, 1e-5, relation)
            assert tuple(name for name, cost in charged.items() if cost is not None) == names
            if names:
                costs = [cost for cost in charged.values() if cost is not None]
                assert epsilon_of(event, 1e-5, "best", relation) == pytest.approx(min(costs))


def test_gaussian_mechanisms_alone_do_not_pay_for_renyi_divergences(monkeypatch):
    def broken(*_):
        raise AssertionError("Rényi divergences were computed")

    monkeypatch.setattr(rdp, "epsilon", broken)
    assert epsilon_of(SCHOOL, 1e-3) == epsilon_of(SCHOOL, 1e-3, "pld")
    assert contenders(ComposedDpEvent([SCHOOL, GaussianDpEvent(3.0)])) == ("pld",)
    assert contenders(ComposedDpEvent([SCHOOL, selections(0.1, 3)])) == ("pld", "rdp")


def test_an_accountant_that_does_not_know_a_step_says_who_does():
    for event, accountant, relation, words in [
        (CUT, "rdp", "add-remove", "truncated Poisson sample.*take accountant 'pld'"),
        (ZCDpEvent(0.1), "pld", "add-remove", "zCDP.*take accountant 'rdp'"),
        (CUT, "rdp", "replace-one", "under replace-one.*Poisson sample.*'pld'"),
        (RepeatAndSelectDpEvent(SCHOOL, 3, math.inf), "pld", "add-remove", "repeat-and-.*'rdp'"),
        (ComposedDpEvent([CUT, ZCDpEvent(0.1)]), "pld", "add-remove", "separate events"),
    ]:
        with pytest.raises(SilodpError, match=words):
            epsilon_of(ComposedDpEvent([event, GaussianDpEvent(1.0)]), 1e-5, accountant, relation)


def test_what_no_accountant_knows_whole_is_refused():
    with pytest.raises(SilodpError, match=r"No accountant.*zCDP.*truncated"):
        epsilon_of(ComposedDpEvent([CUT, ZCDpEvent(0.1)]), 1e-5)
    with pytest.raises(SilodpError, match=r"No accountant.*replace-one.*repeat-and-select"):
        epsilon_of(RepeatAndSelectDpEvent(CUT, 3, math.inf), 1e-5, "best", "replace-one")


def test_a_delta_below_rounding_has_a_bound_only_where_renyi_divergence_has_one():
    event = sampled(0.1, 20.0, 20_000)
    assert epsilon_of(event, 1e-13) == epsilon_of(event, 1e-13, "rdp") < math.inf
    replaced = epsilon_of(event, 1e-13, "best", "replace-one")
    assert replaced == epsilon_of(event, 1e-13, "rdp", "replace-one") < math.inf


def test_more_steps_than_can_be_counted_are_not_bounded():
    assert epsilon_of(selections(0.1, 10**400), 1e-5) == math.inf
    assert epsilon_of(sampled(0.1, 30.0, 10**20), 1e-5) == math.inf
