"""The methods against plain NumPy, written from their pseudo-code.

Full batches without noise: nothing is random but the first models of clusters. One step a pass,
unless two epochs are asked for.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small, two_kinds

import silodp
from silodp.methods import get_method
from silodp.methods.clusters import distinct_starts
from silodp.methods.parting import alike
from silodp.methods.relations import RIDGE, expectations
from silodp.privacy.mechanisms.randomness import init_key, run_key

LR, ROUNDS, LAM = 0.1, 7, 0.6
FEDERATION = small(sizes=(40, 70, 55, 45))
COUNTS = FEDERATION.train_counts
WEIGHTS = COUNTS / COUNTS.sum()


def trained(method, federation=FEDERATION, **options):
    lam = {"lam": LAM} if "lam" in get_method(method).option_names else {}
    result = silodp.run(
        federation=federation,
        method=method,
        epsilon=math.inf,
        keep_models=True,
        **({"rounds": ROUNDS, "lr": LR, "batch_size": 1000} | lam | options),
        small_silos="full-batch",
    )
    return result.models[0]


def records(federation=FEDERATION):
    return [(np.c_[s.train.x, np.ones(len(s.train))], s.train.y) for s in federation.silos]


def steps(w, data, towards=None, lam=0.0, epochs=1, proximal=False):
    x, y = data
    for _ in range(epochs):
        g = x.T @ (x @ w - y) / len(y)
        if proximal:
            w = (w - LR * g + LR * lam * towards) / (1 + LR * lam)
        else:
            w = w - LR * (g + (lam * (w - towards) if lam else 0))
    return w


def assert_same(models, plain):
    np.testing.assert_allclose(models, plain, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("passes", [(1, 1), (2, 3)])
def test_ditto(passes):
    shared_passes, personal_passes = passes
    own, shared = [np.zeros(5)] * 4, np.zeros(5)
    for _ in range(ROUNDS):
        solved = [steps(shared, data, epochs=shared_passes) for data in records()]
        own = [
            steps(w, data, shared, LAM, personal_passes, proximal=True)
            for w, data in zip(own, records(), strict=True)
        ]
        shared = WEIGHTS @ np.array(solved)
    assert_same(trained("ditto", shared_passes=shared_passes, personal_passes=personal_passes), own)


def test_mocha():
    """With the relationship matrix and its inverse written out."""
    w = np.zeros((4, 5))
    for _ in range(ROUNDS):
        gram = w @ w.T
        ridge = max(RIDGE * np.trace(gram) / 4, 1e-12)
        omega = np.linalg.inv(gram + ridge * np.eye(4))
        omega /= np.mean(np.diag(omega))
        pull = LAM * omega @ w
        w = np.array([steps(w[k], data) - LR * pull[k] for k, data in enumerate(records())])
    assert_same(trained("mocha"), w)


def test_meanpull_with_a_lambda_for_each_silo():
    lams = np.array([0.0, 0.5, 2.0, math.inf])
    keep = 1 / (1 + lams)
    used, mean = [np.zeros(5)] * 4, np.zeros(5)
    for _ in range(ROUNDS):
        own = [steps(w, data) for w, data in zip(used, records(), strict=True)]
        mean = WEIGHTS @ np.array(own)
        used = [k * w + (1 - k) * mean for k, w in zip(keep, own, strict=True)]
    given = dict(zip(FEDERATION.names, lams.tolist(), strict=True))
    models = trained("meanpull", silo_lam=given)
    assert_same(models, used)
    assert_same(models[3], mean)


@pytest.mark.parametrize(("then", "choosing"), [("mrmtl", 1), ("mrmtl", 5), ("fedavg", 5)])
def test_algorithm_a2(then, choosing):
    """IFCA for some of nine rounds, then MR-MTL or FedAvg in the clusters.

    In the first half of the choices all models learn from all silos; then the models are parted.
    """
    federation, rounds = two_kinds(), 9
    models = trained(
        f"ifca+{then}",
        federation,
        rounds=rounds,
        clusters=2,
        select_fraction=choosing / rounds,
        epochs=2,
    )

    first = init_key(jnp.asarray(run_key(0, b"")))
    cluster = np.array(distinct_starts(jnp.zeros(5), jax.random.key_data(first), 2))
    own, choice, heard = [np.zeros(5)] * 4, [0] * 4, np.zeros((4, 5))
    listening = choosing // 2
    for t in range(rounds):
        updates = []
        for k, (x, y) in enumerate(records(federation)):
            if t < choosing:
                loss = [np.minimum(0.5 * (x @ c - y) ** 2, 1.0).mean() for c in cluster]
                choice[k] = int(np.argmin(loss))
            shared = t < choosing or then == "fedavg"
            start = cluster[choice[k]] if shared else own[k]
            pull = LAM if then == "mrmtl" and t >= choosing else 0.0
            own[k] = steps(start, (x, y), cluster[choice[k]], pull, epochs=2)
            updates.append(own[k] - start)
        for g in range(2):
            members = [k for k in range(4) if choice[k] == g or t < listening]
            if members:
                cluster[g] = cluster[g] + np.mean([updates[k] for k in members], axis=0)
        if t < listening:
            heard += np.array(updates) / listening
        if t + 1 == listening:
            # Which kind gets which model hangs on whose updates are most like the others'.
            kinds = np.asarray(alike(jnp.asarray(heard), jnp.full(4, 0.25), 2))
            assert kinds[0].tolist() == kinds[2].tolist() != kinds[1].tolist()
            for g in range(2):
                cluster[g] += heard[kinds[:, g] > 0].mean(axis=0) - heard.mean(axis=0)
    assert sorted(choice) == [0, 0, 1, 1]
    assert_same(models, [cluster[g] for g in choice] if then == "fedavg" else own)


def test_warm_started_finetuning_counts_all_rounds():
    """Half of ten rounds are federated, the four in which silos choose among them."""
    half = {"rounds": 5, "clusters": 2, "select_fraction": 0.8}
    options = half | {"rounds": 10, "select_fraction": 0.4, "finetune_fraction": 0.5}
    federated = trained("ifca+fedavg", two_kinds(), **half)
    tuned = trained("ifca+finetune", two_kinds(), **options)
    own = list(federated)
    for _ in range(5):
        own = [steps(w, data) for w, data in zip(own, records(two_kinds()), strict=True)]
    assert_same(tuned, own)


@pytest.mark.parametrize("shape", [(30, 4), (4, 30), (5, 5), (1, 3)])
def test_expectations_are_those_of_a_gaussian(shape):
    """Written out: the conditional mean and precision of each row given the others."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=shape) + 3 * rng.normal(size=shape[1])
    covariance = rows @ rows.T + RIDGE * np.trace(rows @ rows.T) / shape[0] * np.eye(shape[0])
    expected, precision = expectations(jnp.asarray(rows, jnp.float32))
    for k in range(shape[0]):
        others = [j for j in range(shape[0]) if j != k]
        weights = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, k])
        np.testing.assert_allclose(expected[k], weights @ rows[others], rtol=1e-3, atol=1e-3)
    omega = np.linalg.inv(covariance)
    np.testing.assert_allclose(precision, np.diag(omega) / np.mean(np.diag(omega)), rtol=1e-3)


def test_mocha_relations_may_be_negative():
    """Opposites are expected to be each other's negatives, and help each other under noise."""
    rows = np.outer([1.0, -1.0, 1.0, -1.0], np.arange(1.0, 6.0)).astype(np.float32)
    expected, _ = expectations(jnp.asarray(rows))
    assert np.all(np.sign(expected) == np.sign(rows))

    def error(method):
        options = {"rounds": 30, "lr": 0.05, "batch_size": 10, "clip": 1.0, "seeds": 3}
        options |= {} if method == "local" else {"lam": 0.3}
        return silodp.run(
            federation=two_kinds(), method=method, epsilon=0.7, delta=1e-4, **options
        ).mean

    assert error("mocha") < 0.9 * min(error("mrmtl"), error("local"))
