"""Private selection: what it chooses, with which odds, and what is charged for it."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import SelfComposedDpEvent
from federations import small
from scipy import stats

import silodp
from silodp.methods.ifca import ifca
from silodp.models.model import get_model, with_error_as_loss
from silodp.models.subjects import blocks_of, by_subject
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.accounting.events import BoundedRangeDpEvent, PureDpEvent
from silodp.privacy.mechanisms.queries import Schedule, SiloRecords
from silodp.privacy.mechanisms.randomness import run_key, selection_keys, selection_words
from silodp.privacy.mechanisms.selection import (
    SELECT_SLACK,
    _exponential,
    select_privately,
    selection_event,
    sharpness,
)
from silodp.privacy.plan import SideQueries, TrainingSettings, make_plans
from silodp.privacy.policy import Policy

TRIALS = 40_000


def silo_of(x, y, model):
    n = jnp.int32(len(y))
    features = model.prepare(jnp.asarray(x, jnp.float32))
    return SiloRecords(features, jnp.asarray(y, jnp.float32), n, n, n, n, n)


def chosen(errors, epsilon, mechanism="exponential", relation="replace-one", n=10, release=True):
    """How often each candidate is chosen, when so many of the n records speak against it."""
    model = with_error_as_loss(get_model("logistic", "binary", (n,)))
    x, y = np.eye(n), np.ones(n)
    candidates = np.ones((len(errors), n + 1), np.float32)
    candidates[:, -1] = 0
    for g, wrong in enumerate(errors):
        candidates[g, :wrong] = -1
    keys = jax.random.bits(jax.random.key(3), (TRIALS, len(errors), 2), "uint32")
    sharp = jnp.float32(sharpness(epsilon, relation, n))

    def once(words):
        return select_privately(
            model,
            mechanism,
            1.0,
            silo_of(x, y, model),
            sharp,
            words,
            jnp.asarray(candidates),
            release,
        )

    return np.bincount(np.asarray(jax.jit(jax.vmap(once))(keys)), minlength=len(errors)) / TRIALS


def close(found, expected):
    spread = 5 * np.sqrt(np.asarray(expected) * (1 - np.asarray(expected)) / TRIALS)
    return np.all(np.abs(found - expected) <= spread + 1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_the_odds_are_those_of_the_exponential_mechanism(epsilon, relation):
    errors, n = np.array([1, 3, 4]), 10
    # score = errors / n; sensitivity 1/n, or 1/(n - 1) where n may change.
    sensitivity = 1 / n if relation == "replace-one" else 1 / (n - 1)
    odds = np.exp(-epsilon * (errors / n) / (2 * sensitivity))
    assert close(chosen(errors, epsilon, relation=relation), odds / odds.sum())


@pytest.mark.as_shipped
def test_experiments_choose_with_the_same_odds():
    errors = [1, 3, 4]
    np.testing.assert_array_equal(chosen(errors, 2.0, release=False), chosen(errors, 2.0))


def test_the_odds_are_those_of_permute_and_flip():
    errors, epsilon, n = np.array([1, 3, 4]), 1.5, 10
    flip = np.exp(-epsilon * (errors - errors.min()) / 2)
    expected = np.zeros(3)
    for order in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
        left = 1.0
        for g in order:
            expected[g] += left * flip[g] / 6
            left *= 1 - flip[g]
    assert close(chosen(errors, epsilon, "permute-and-flip", n=n), expected)


def test_without_privacy_the_best_wins():
    assert chosen([3, 1, 4], math.inf)[1] == 1.0


def test_a_clipped_loss_moves_by_no_more_than_its_bound():
    """Whatever one record does, no candidate's share of the score moves by more than bound/n."""
    model = get_model("linear", "regression", (1,))
    candidates = jnp.array([[1.0, 0.0], [0.0, 0.0]])
    x, y = np.ones((5, 1)), np.array([1.0, 1.0, 1.0, 1.0, 1.0])
    wild = np.array([1.0, 1.0, 1.0, 1.0, -1e20])
    keys = jax.random.bits(jax.random.key(0), (TRIALS, 2, 2), "uint32")
    sharp = jnp.float32(sharpness(1.0, "replace-one", 5))

    @jax.jit
    def choices(silo, keys):
        def once(words):
            return select_privately(
                model, "exponential", 0.5, silo, sharp, words, candidates, release=True
            )

        return jax.vmap(once)(keys)

    shares = []
    # The last one's loss is beyond the bound under both, and unlike: clipped, it is the same.
    ends = (wild, [1.0, 1.0, 1.0, 1.0, np.nan], [1.0, 1.0, 1.0, 1.0, 2.0])
    for target in (y, *ends):
        silo = silo_of(x, target, model)

        shares.append(np.mean(np.asarray(choices(silo, keys)) == 1))
    # Losses of the second candidate are 0.5 = the bound for all five, of the first 0: odds e^-2.5.
    # With one record against both: e^-2.
    for found, exponent in zip(shares, (2.5, 2.0, 2.0, 2.0), strict=True):
        assert close(found, 1 / (1 + math.exp(exponent)))


@pytest.mark.as_shipped
def test_exponential_noise_has_both_its_tails():
    words = jax.random.bits(jax.random.key(1), (200_000, 2), "uint32")
    drawn = np.asarray(jax.jit(_exponential)(words), np.float64)
    assert stats.kstest(drawn, "expon").pvalue > 1e-3
    corners = jnp.array([[0, 0], [1, 0], [2**32 - 1, 2**32 - 1], [2**32 - 2, 2**32 - 1]], "uint32")
    ends = np.asarray(jax.jit(_exponential)(corners))
    assert np.isfinite(ends).all()
    assert (ends > 0).all()
    assert ends[0] < 1e-19  # next to 0
    assert ends[1] > 40  # and far out


def test_every_silo_and_round_has_words_of_its_own():
    key = jnp.asarray(run_key(0, b""))
    seen = set()
    keys_of, words_of = jax.jit(selection_keys), jax.jit(selection_words, static_argnums=1)
    for number in range(5):
        for own in np.asarray(keys_of(key, np.arange(4), np.int32(number))):
            words = np.asarray(words_of(own, 3)).astype(np.uint64)
            seen |= {int(a) << 32 | int(b) for a, b in words}
    assert len(seen) == 5 * 4 * 3


def test_what_is_charged():
    assert selection_event(0.3, "exponential") == BoundedRangeDpEvent(0.3 + SELECT_SLACK)
    assert selection_event(0.3, "permute-and-flip") == PureDpEvent(0.3 + SELECT_SLACK)


def plan(select_rounds, **side):
    settings = TrainingSettings(batch_size=32, clip=1.0)
    schedule = Schedule(40, train=1, select_rounds=select_rounds)
    (made,) = make_plans(
        ["a"], [88], [Policy(6, 1e-3)], schedule, settings, side=SideQueries(**side)
    )
    return made


def test_training_noise_is_recomputed_so_that_the_total_holds():
    without, few, many = plan(0), plan(4), plan(40)
    assert without.noise_multiplier < few.noise_multiplier < many.noise_multiplier
    assert few.select_epsilon == pytest.approx(0.03 * 6)
    for made in (without, few, many):
        assert epsilon_of(made.event, 1e-3) <= 6
        assert made.epsilon == pytest.approx(6, rel=1e-3)
    # Were the selections not charged, the total would be above the budget.
    uncharged = SelfComposedDpEvent(BoundedRangeDpEvent(0.18), 40)
    assert epsilon_of(uncharged, 1e-3) > 1
    assert set(many.queries()) == {"training", "selection"}
    # Bounded range is worth something: permute-and-flip is charged more.
    flip = plan(40, select_mechanism="permute-and-flip")
    assert flip.noise_multiplier > many.noise_multiplier


def test_selections_that_leave_nothing_for_training_are_refused():
    with pytest.raises(silodp.SilodpError, match="'a'"):
        plan(40, select_share=0.9)


def test_ifca_asks_in_the_first_rounds_only():
    assert ifca(200, 3, 0.1).schedule(200) == Schedule(200, 1, 20)
    assert ifca(200, 3, 0.0).schedule(200).select_rounds == 0


def test_silos_find_their_clusters():
    """Two kinds of silos, opposite truths: without privacy each finds the right model."""
    rng = np.random.default_rng(0)
    truth = np.array([2.0, -1.0, 1.0])

    def silo(number):
        sign = 1 if number % 2 else -1
        parts = []
        for n in (120, 40):
            x = rng.normal(size=(n, 3))
            parts.append(silodp.Records(x, sign * (x @ truth)))
        return silodp.Silo(f"s{number}", *parts)

    federation = silodp.Federation("kinds", tuple(silo(k) for k in range(6)), "regression")
    common = {"federation": federation, "rounds": 30, "lr": 0.1, "batch_size": 20, "seeds": 3}
    common |= {"epsilon": math.inf, "delta": 1e-4}
    ifca = {"method": "ifca", "select_fraction": 0.3, "select_bound": 20.0}
    clustered = silodp.run(**ifca, **common)
    together = silodp.run(method="fedavg", **common)
    assert clustered.mean < 0.05 * together.mean
    private = silodp.run(**ifca, **(common | {"epsilon": 80}))
    assert private.mean < 0.3 * together.mean


@pytest.mark.parametrize(
    ("score", "mechanism"),
    [
        ("error", "exponential"),
        ("loss", "permute-and-flip"),
        pytest.param("error", "permute-and-flip", marks=pytest.mark.slow),
        pytest.param("loss", "exponential", marks=pytest.mark.slow),
    ],
)
def test_classifiers_select_by_error_or_by_loss(score, mechanism):
    result = silodp.run(
        federation=small("multiclass"),
        method="ifca",
        rounds=4,
        batch_size=16,
        epsilon=4,
        delta=1e-4,
        select_score=score,
        select_mechanism=mechanism,
        entropy="os",
    )
    assert result.proven
    assert all(epsilon <= 4 for epsilon in result.epsilons)


def test_a_regression_has_no_error_rate():
    with pytest.raises(silodp.SilodpError, match="choose loss"):
        silodp.run(federation=small(), method="ifca", epsilon=1, delta=1e-4, select_score="error")


@pytest.mark.as_shipped
def test_the_largest_subject_changes_no_other_subjects_loss():
    """In a release a subject's loss is worked out record by record, whatever room others need."""
    width, subjects = 13, 50
    rng = np.random.default_rng(0)
    model = by_subject(get_model("linear", "regression", (width,)))
    params = jnp.asarray(rng.normal(size=width + 1), jnp.float32)
    x = rng.normal(size=(2 * subjects, width)).astype(np.float32)
    records = silodp.Records(x, x[:, 0] + 1, np.repeat(np.arange(subjects), 2))
    assert model.own_loss is not None

    @jax.jit
    def losses(blocks, y):
        rows = (model.prepare(blocks), y)
        return jax.lax.map(lambda row: model.own_loss(params, *row), rows)

    found = [np.asarray(losses(*blocks_of(records, room))) for room in (2, 3, 5, 8)]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    usual = jax.jit(lambda x, y: model.loss(model.apply(params, model.prepare(x)), y))(
        *blocks_of(records)
    )
    np.testing.assert_allclose(found[0], usual, rtol=1e-5)


def test_releases_select_by_the_loss_of_each_subject_by_itself():
    model = by_subject(get_model("linear", "regression", (1,)))
    model = model._replace(own_loss=lambda params, block, y: params[0])
    records = silodp.Records(np.zeros((4, 1)), np.zeros(4), np.arange(4))
    blocks, y = jax.tree.map(jnp.asarray, blocks_of(records))
    silo = SiloRecords(model.prepare(blocks), y, *(jnp.int32(4),) * 5)
    candidates = jnp.array([[0.9, 0.0], [0.1, 5.0]])
    words = jnp.ones((2, 2), jnp.uint32)
    select = jax.jit(partial(select_privately, model, "exponential", 1.0), static_argnums=4)
    for release, best in ((True, 1), (False, 0)):
        assert select(silo, jnp.float32(1e30), words, candidates, release) == best
