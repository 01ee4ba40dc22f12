"""Few messages: estimates from moments, what noise does to them, and how sure they are."""

import json
import math

import numpy as np
import pytest
from federations import small
from message_runs import UNIT, Gaussian, drawn, error, learned, model

import silodp
from silodp.engines.messages import stacked
from silodp.methods.fewround import fewround, linear
from silodp.methods.fewround.grams import pooled_gram
from silodp.methods.fewround.hierarchy import Sums, covariance_of, estimate, models_of
from silodp.methods.fewround.odds import calibrated, log_odds, odds_of
from silodp.methods.fewround.released import no_message, nothing_released
from silodp.privacy.mechanisms.message_queries import message_queries
from silodp.privacy.session import RunSession


def test_without_noise_and_with_many_records_models_are_those_of_least_squares():
    silos = drawn(0, silos=6, count=4000, residual=0.05)
    server, states = learned(silos, 0.0, messages=1)
    for (records, _), own in zip(silos, states, strict=True):
        x, y = (part * 2.0**-records.bits for part in (records.x, records.y))
        alone = np.linalg.lstsq(x, y[:, 0], rcond=None)[0]
        np.testing.assert_allclose(model(own, server), alone, atol=0.03)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_personal_models_are_better_than_those_of_one_silo_or_of_all(noise):
    silos = drawn(1, silos=40, count=40, spread=0.3)
    server, states = learned(silos, noise)
    together = error(silos, server, states)
    alike = server.shared.prior._replace(spread=np.zeros(()))
    of_all = error(silos, server._replace(shared=server.shared._replace(prior=alike)), states)
    apart = [learned([silo], noise, seed=place) for place, silo in enumerate(silos)]
    alone = np.mean([error([s], *one) for s, one in zip(silos, apart, strict=True)])
    assert together <= 1.02 * min(of_all, alone)


def test_later_messages_pay():
    silos = drawn(2, silos=40, count=60, residual=0.05)
    errors = [
        np.mean([error(silos, *learned(silos, 1.0, m, seed)) for seed in range(5)]) for m in (1, 3)
    ]
    assert errors[1] < 0.8 * errors[0]


def test_hopeless_noise_leaves_a_constant():
    """Never worse than predicting 0 by more than a little, however large the noise."""
    silos = drawn(3, silos=10, count=30)
    nothing = np.mean([np.mean((r.x * 2.0**-r.bits @ w) ** 2) for r, w in silos])
    for noise in (30.0, 300.0, 1e5):
        errors = [error(silos, *learned(silos, noise, seed=seed)) for seed in range(5)]
        assert np.mean(errors) < 1.5 * nothing


def test_a_silo_with_much_noise_leans_on_the_others_and_harms_nobody():
    found = []
    for seed in range(6):
        silos = drawn(20 + seed, silos=20, count=60)
        server, states = learned(silos, None, noises=[50.0] * 10 + [0.5] * 10, seed=seed)
        found.append(
            [
                error(silos[:10], server, states[:10]),
                error(silos[10:], server, states[10:]),
                error(silos[:10], *learned(silos[:10], 50.0, seed=seed)),
                error(silos[10:], *learned(silos[10:], 0.5, seed=seed)),
            ]
        )
    strict, mild, strict_alone, mild_alone = np.mean(found, axis=0)
    assert mild < 1.1 * mild_alone
    assert strict < 0.7 * strict_alone


@pytest.mark.parametrize(("noise", "spread"), [(0.3, 0.3), (2.0, 0.15), (3.0, 0.3), (8.0, 0.3)])
def test_intervals_cover_the_truth(noise, spread):
    """95 % intervals of weights and of predictions, over federations from the model.

    Of noise 3, that on a silo's second moments is twice what these are, and of 8 five times.
    """
    weights, predictions = [], []
    for seed in range(6):
        silos = drawn(100 + seed, silos=40, count=60, spread=spread)
        server, states = learned(silos, noise, seed=seed)
        for (records, truth), own in zip(silos, states, strict=True):
            off = model(own, server) - truth
            covariance = linear.own_covariance(own, server.shared)
            weights.append(np.abs(off) <= 1.96 * np.sqrt(np.diag(covariance)))
            x = records.x * 2.0**-records.bits
            predictions += list(np.abs(x @ off) <= 1.96 * linear.prediction_errors(covariance, x))
    lowest = 0.93 if noise < 8 else 0.88
    assert lowest <= np.mean(weights) <= 0.985
    assert lowest <= np.mean(predictions) <= 0.985


def test_intervals_are_learned():
    silos = drawn(0, silos=6)
    server, states = learned(silos, 1.0)
    found = fewround(3).learned(server)
    covariances = [linear.own_covariance(own, server.shared) for own in states]
    assert found["standard_errors"].shape == (6, 5)
    assert found["prediction_errors"].shape == (6,)
    # That of a typical record.
    gram = server.shared.gram.mean
    np.testing.assert_allclose(
        found["prediction_errors"] ** 2, [np.trace(one @ gram) for one in covariances]
    )
    np.testing.assert_allclose(
        linear.prediction_errors(covariances[0], np.eye(5)), found["standard_errors"][0]
    )


def test_a_silo_without_moments_is_as_unsure_as_any():
    silos = drawn(5, silos=12)
    server, states = rounds_of(silos, missing={(0, 0)})
    own, others = (
        np.trace(linear.own_covariance(state, server.shared)) for state in (states[0], states[1])
    )
    assert own > others


def test_the_mean_and_the_spread_are_found():
    random = np.random.default_rng(0)
    size, silos, spread = 3, 400, 0.5
    values = random.uniform(1, 30, (silos, size))
    axes = np.stack([np.linalg.qr(random.normal(size=(size, size)))[0] for _ in range(silos)])
    mean = np.array([1.0, -2.0, 0.5])
    own = mean + spread * random.normal(size=(silos, size))
    gram = np.einsum("kij,kj,klj->kil", axes, values, axes)
    noise = 0.3 * values + 0.2
    cross = np.einsum("kij,kj->ki", gram, own) + np.einsum(
        "kij,kj->ki", axes, np.sqrt(noise) * random.normal(size=(silos, size))
    )
    sums = Sums(values, axes, cross, np.full(silos, 0.2))
    prior = estimate(sums, residual=0.3, constant=10.0, usual=1.0)
    np.testing.assert_allclose(prior.mean, mean, atol=0.1)
    assert prior.spread == pytest.approx(spread**2, rel=0.15)
    # One silo's model by the formula of Bayes, without axes.
    precision = np.linalg.inv(0.3 * gram[0] + 0.2 * np.eye(size))
    posterior = np.linalg.inv(gram[0] @ precision @ gram[0] + np.eye(size) / prior.spread)
    by_hand = posterior @ (gram[0] @ precision @ cross[0] + prior.mean / prior.spread)
    first = Sums(*(part[:1] for part in sums))
    np.testing.assert_allclose(models_of(first, prior)[0], by_hand, rtol=1e-6)
    zeros = np.zeros((size, size))
    known = prior._replace(covariance=zeros, uncertainty=zeros)
    np.testing.assert_allclose(covariance_of(first, known), posterior, rtol=1e-6)


def test_grams_are_pooled_by_precision():
    random = np.random.default_rng(0)
    truth = np.diag([1.0, 0.5, 0.1])
    noise = np.array([1.0] * 5 + [1000.0] * 5)
    counts = np.full(10, 50.0)
    found = []
    for _ in range(10):
        grams = 50 * truth + noise[:, None, None] * random.normal(size=(10, 3, 3))
        found.append(pooled_gram((grams + grams.transpose(0, 2, 1)) / 2, noise, counts).mean)
    np.testing.assert_allclose(np.mean(found, axis=0), truth, atol=0.03)


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
@pytest.mark.parametrize("epsilon", [0.01, 3.0, math.inf])
def test_every_task_and_budget(task, epsilon):
    federation = small(task, sizes=(40, 70, 5), d=4)
    result = silodp.run(
        federation=federation, method="fewround", epsilon=epsilon, delta=1e-5, keep_models=True
    )
    assert np.isfinite(result.mean)
    assert np.isfinite(result.models).all()
    if epsilon == math.inf:
        assert result.mean > 0.7 if task != "regression" else result.mean < 0.2


def test_log_odds_are_probabilities():
    """Of two classes that overlap, predicted shares are true ones."""
    random = np.random.default_rng(0)

    def records(count):
        y = np.where(random.random(count) < 0.3, 1.0, -1.0)
        x = np.clip(random.normal(size=(count, 3)) * 0.3 + 0.15 * y[:, None], -1, 1)
        return silodp.Records(x, y)

    silos = tuple(silodp.Silo(f"s{k}", records(800), records(800)) for k in range(4))
    federation = silodp.Federation("two", silos, "binary", feature_bound=1.0)
    result = silodp.run(
        federation=federation, method="fewround", epsilon=5, delta=1e-5, metrics="log_loss,auc"
    )
    by_name = {one["metric"]: one for one in result.metrics}
    gain = by_name["log_loss"]["no_skill"]["gain"]
    assert gain["low"] > 0
    assert by_name["log_loss"]["test"]["mean"] < 0.55


@pytest.mark.parametrize("messages", [1, 2, 3])
def test_log_odds_of_a_rare_class_with_outliers_are_no_worse_than_its_share(messages):
    """Linear discriminants take features for Gaussian, and would be far too sure of outliers."""
    random = np.random.default_rng(1)

    def records(count):
        x = np.clip(np.exp(1.2 * random.normal(size=(count, 4))) / 8, 0, 2) - 1
        chance = 1 / (1 + np.exp(3.5 - 1.5 * (x[:, 0] + 1)))
        return silodp.Records(x, np.where(random.random(count) < chance, 1.0, -1.0))

    silos = tuple(silodp.Silo(f"s{k}", records(900), records(900)) for k in range(4))
    federation = silodp.Federation("rare", silos, "binary", feature_bound=1.0)
    result = silodp.run(
        **{"federation": federation, "method": "fewround", "messages": messages},
        **{"epsilon": 3, "delta": 1e-5, "metric": "log_loss"},
    )
    loss = next(one for one in result.metrics if one["metric"] == "log_loss")
    assert loss["no_skill"]["gain"]["high"] > 0
    assert loss["test"]["mean"] < loss["no_skill"]["mean"] + 0.003


def test_the_part_of_log_odds_that_is_kept_is_found():
    """Where discriminants are right, all of it; where they are twice too sure, half."""
    random = np.random.default_rng(0)
    count, size = 20000, 3
    x = random.normal(size=(count, size)) * 0.15
    x = np.column_stack([x, np.full(count, 0.5)])
    true = np.array([3.0, -2.0, 1.0, -1.0])
    chance = 1 / (1 + np.exp(-x @ true))
    y = np.where(random.random(count) < chance, 1.0, -1.0)
    gram, cross = x.T @ x, x.T @ y
    model = np.linalg.solve(gram, cross)
    residual = float(np.mean((y - x @ model) ** 2))
    for times, expected in ((1.0, 1.0), (2.0, 0.5)):
        odds = odds_of(float(y.mean()), residual)
        odds = odds._replace(factor=times * odds.factor, offset=times * odds.offset)
        own = nothing_released(size + 1, 1, 2)
        at = log_odds(model, odds, 2.0)
        asked = 1 / (1 + np.exp(-x @ at))
        gradient = x.T @ (((y + 1) / 2 - asked) / np.maximum(asked, 1 - asked))
        own = own._replace(
            length=np.array(2.0),
            gradients=gradient[None, :, None],
            at=at[None, :, None],
            precisions=np.array([1e6]),
        )
        found = calibrated([own], [gram], np.ones(1), odds)
        # Where discriminants are not right, the curve between is a guess.
        assert float(found.kept) == pytest.approx(expected, rel=0.12)


def test_subjects_count_once():
    federation = small(sizes=(40, 70))
    silos = tuple(
        silodp.Silo(
            s.name,
            silodp.Records(s.train.x, s.train.y, np.arange(len(s.train)) // 2),
            s.test,
        )
        for s in federation.silos
    )
    by_person = silodp.Federation("people", silos, "regression")
    prepared = silodp.plan(federation=by_person, method="fewround", epsilon=2, delta=1e-5)
    assert [plan.public_count for plan in prepared.plans[0]] == [20, 35]
    result = silodp.run(federation=by_person, method="fewround", epsilon=20, delta=1e-5)
    assert np.isfinite(result.mean)


def test_no_two_answers_share_their_noise(monkeypatch):
    """Not those of two silos, rounds, seeds or settings of a release."""
    drawn = []
    random = RunSession.random

    def recorded(self, paid, seed, purpose):
        drawn.append((seed, purpose))
        return random(self, paid, seed, purpose)

    monkeypatch.setattr(RunSession, "random", recorded)
    asked = {"data": "synthetic", "silos": 3, "method": "fewround", "delta": 1e-5}
    silodp.sweep(**asked, epsilon=[1, 2], seeds=2, entropy="os")
    assert len(drawn) == 3 * 3 * 2 * 2
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"messages": 4}, "--messages is 4: give 1, 2, 3 or 5"),
        ({"lr": 0.1}, "--lr: method 'fewround' has no training passes"),
        ({"rounds": 10}, "--rounds: method 'fewround' has no training passes"),
        ({"batch_size": 10}, "--batch-size: method 'fewround' has no training passes"),
        ({"clip": 1.0}, "--clip: method 'fewround' has no training passes"),
        ({"lam": 1.0}, "--lam: method 'fewround' does not use it"),
    ],
)
def test_what_it_cannot_take_is_refused(options, said):
    with pytest.raises(silodp.SilodpError, match=said):
        silodp.plan(federation=small(), method="fewround", epsilon=1, delta=1e-5, **options)


def test_a_secret_count_needs_no_weights(tmp_path):
    policies = tmp_path / "policies.toml"
    policies.write_text("[default]\nepsilon = 2\ndelta = 1e-5\npublic = []\nrecords = 300\n")
    asked = {"data": "synthetic", "silos": 2, "policies": policies}
    result = silodp.run(method="fewround", **asked)
    assert [one["records"] for one in result.per_silo] == [None, None]
    with pytest.raises(silodp.SilodpError, match="give --weights uniform"):
        silodp.run(method="mrmtl", **asked)


def test_messages_are_for_it_alone():
    with pytest.raises(silodp.SilodpError, match="--messages: method 'mrmtl' does not use it"):
        silodp.plan(federation=small(), method="mrmtl", messages=3, epsilon=1, delta=1e-5)


def test_a_release_is_proven_charged_and_repeated_by_nobody(tmp_path):
    asked = {"data": "synthetic", "silos": 3, "method": "fewround", "epsilon": 1, "delta": 1e-5}
    first = silodp.run(**asked, ledger=tmp_path / "ledgers", lifetime_epsilon=5, keep_models=True)
    second = silodp.run(**asked, ledger=tmp_path / "ledgers", lifetime_epsilon=5, keep_models=True)
    assert all(one["proven"] for one in first.privacy)
    assert np.abs(first.models - second.models).min() > 0
    again = [silodp.run(**asked, keep_models=True) for _ in range(2)]
    np.testing.assert_array_equal(*(one.models for one in again))
    assert not any(one["proven"] for one in again[0].privacy)


def test_through_the_command_line(cli, tmp_path):
    done = cli(
        *("run", "--data", "synthetic", "--silos", "3", "--method", "fewround", "--messages", "2"),
        *("--epsilon", "2", "--out", str(tmp_path / "run")),
    )
    assert done.exit_code == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["options"]["messages"] == 2
    assert result["options"]["rounds"] == 2
    planned = cli("plan", "--data", "synthetic", "--silos", "3", "--method", "fewround")
    assert planned.exit_code == 2
    assert "--epsilon" in planned.stderr


def rounds_of(silos, missing=(), change=lambda number, place, message: message, seed=0):
    """Three rounds in which some messages, (round, place), do not arrive or are changed."""
    random = Gaussian(np.random.default_rng(seed))
    method = fewround(3)
    params = np.zeros(silos[0][0].x.shape[1])
    server, own = method.init(silodp.Start(params, None, 0, len(silos)))
    states = [own] * len(silos)
    for number in range(3):
        messages, weights = [], np.ones(len(silos))
        for place, (records, _) in enumerate(silos):
            if (number, place) in missing:
                weights[place] = 0.0
                messages.append(no_message(own))
                continue
            queries = message_queries(records, UNIT, 0.5, len(records.x), lambda _: random)
            states[place], message = method.local(states[place], method.broadcast(server), queries)
            messages.append(change(number, place, message))
        server = method.merge(server, stacked(messages), weights)
    return server, states


def test_messages_that_do_not_arrive_leave_the_others_theirs():
    silos = drawn(5, silos=12)
    complete = error(silos, *rounds_of(silos))
    server, states = rounds_of(silos, missing={(1, 3), (2, 4), (1, 5), (2, 5)})
    assert error(silos, server, states) < 1.3 * complete
    server, states = rounds_of(silos, missing={(0, 0)})  # it has no moments: the mean model is its
    np.testing.assert_array_equal(model(states[0], server), server.shared.prior.mean)
    assert error(silos[1:], server, states[1:]) < 1.3 * complete
    assert not states[0].records


@pytest.mark.parametrize(
    "hostile",
    [
        {"gram": 1e9},
        {"cross": -1e9},
        {"labels": 1e12},
        {"gradient": 1e12},
        {"noise": -1.0},
        {"precision": -1.0},
        {"records": 0.0},
    ],
)
def test_messages_that_no_records_make_are_not_merged(hostile):
    """As if they had not arrived; what is finite is all that the transport has looked at."""
    ((name, value),) = hostile.items()
    of_later = name in ("gradient", "precision")

    def change(number, place, message):
        if place != 2 or (number > 0) != of_later:
            return message
        return message._replace(**{name: np.full_like(getattr(message, name), value)})

    silos = drawn(6, silos=12)
    complete = error(silos, *rounds_of(silos))
    server, states = rounds_of(silos, change=change)
    others = [place for place in range(12) if place != 2]
    assert error([silos[p] for p in others], server, [states[p] for p in others]) < 1.3 * complete


def test_records_may_be_more_than_is_public():
    """By coins, or where the public number is a stand-in: honest sums are merged all the same."""
    silos = drawn(7, silos=6, count=60)

    def change(number, place, message):
        if number:
            return message
        alike = 60 * np.eye(5)[:, :1] @ np.eye(5)[:1]  # sixty times the same record, and no noise
        return message._replace(records=np.array(25.0), gram=alike, noise=np.zeros(3))

    server, states = rounds_of(silos, change=change)
    assert (server.released.records == 25).all()
    assert np.isfinite([model(own, server) for own in states]).all()


def test_without_any_moments_there_is_nothing_to_merge():
    silos = drawn(8, silos=2)
    with pytest.raises(silodp.SilodpError, match="No silo has sent moments"):
        rounds_of(silos, missing={(0, 0), (0, 1)})
