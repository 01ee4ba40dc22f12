"""ebmtl: its exact limits, the noise that it counts with, who keeps how much, odd numbers."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import silodp
from silodp.engines import checkpoint
from silodp.engines.job import Setting
from silodp.engines.simulation import Simulation, State
from silodp.methods.base import Start
from silodp.methods.ebmtl import ebmtl
from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.free_tests import Layers
from silodp.methods.ebmtl.mixture import log_shares_after
from silodp.methods.ebmtl.sampling import grad_variance
from silodp.methods.ebmtl.server import received
from silodp.methods.ebmtl.shapes import Update
from silodp.methods.fedavg import fedavg
from silodp.privacy.mechanisms.queries import PassNoise, Queries
from silodp.privacy.session import free_rounds
from silodp.runs.run import job_of

FULL = {"batch_size": 5000, "small_silos": "full-batch"}
OPTIONS = {"rounds": 6, "batch_size": 16, "lr": 0.1, "delta": 1e-4, "epsilon": 4}
MODEL = {"a": jnp.ones((2, 3)), "b": jnp.zeros(4)}
SIZE, SILOS, ROUNDS = 10, 4, 20


# Rounds with made-up updates


def played(updates, variances, weights=(0.25,) * SILOS, sample=(0.0, 0.0, 0.0), pull=0.0):
    """The server after all rounds, what it tells, and what FedAvg's would.

    Args:
      updates: [ROUNDS, SILOS, SIZE].
      variances: that silos claim [SILOS].
      weights: [SILOS].
      sample: sampling, batches and clip, as all silos claim (see PassNoise).
      pull: how much of where a silo begins is taken off its update: with a loss that is curved.
    """
    given = (updates, variances, weights, sample, pull)
    return _played(*(np.asarray(a, np.float32) for a in given))


@jax.jit
def _played(updates, variances, weights, sample, pull):
    method, plain = ebmtl(ROUNDS), fedavg()
    start = Start(MODEL, jnp.zeros(2, jnp.uint32), 0, SILOS)

    def step(states, given):
        given = given - pull * rows(method.broadcast(states[0]).start)
        parted = {"a": given[:, :6].reshape(-1, 2, 3), "b": given[:, 6:]}
        noise = PassNoise(variances, *(jnp.full(SILOS, one) for one in sample))
        state = method.merge(states[0], Update(parted, noise), weights)
        return (state, plain.merge(states[1], parted, weights)), method.broadcast(state)

    first = method.init(start)[0], plain.init(start)[0]
    (state, shared), told = jax.lax.scan(step, first, updates)
    return state[0], told, shared.model


def last(told):
    """What is told after the last round."""
    return jax.tree.map(lambda leaf: leaf[-1], told)


def rows(model):
    """[..., SIZE]"""
    return jnp.concatenate([model["a"].reshape(*model["a"].shape[:-2], 6), model["b"]], axis=-1)


def noisy_updates(variances, differ=0.0, seed=0):
    """Noise of these variances around truths that differ from silo to silo."""
    rng = np.random.default_rng(seed)
    truth = 1 + differ * rng.normal(size=(SILOS, SIZE))
    return truth + rng.normal(size=(ROUNDS, SILOS, SIZE)) * np.sqrt(variances)[:, None]


def finite_if_disclosed(server):
    """The server, without the variance that is infinite where noise is not disclosed."""
    return server._replace(deviations=server.deviations._replace(V=jnp.zeros(SILOS)))


def check_finite(*trees):
    for leaf in jax.tree.leaves(trees):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("weights", [(0.25,) * 4, (0.1, 0.5, 0.2, 0.2), (0.7, 0.1, 0.1, 0.1)])
def test_silos_that_all_keep_their_noise_to_themselves_go_fedavgs_path(weights):
    updates = noisy_updates(np.ones(4), differ=3.0)
    server, told, shared = played(updates, [math.inf] * 4, weights)
    check_finite(told, finite_if_disclosed(server))
    np.testing.assert_array_equal(rows(last(told).start), [rows(shared)] * 4)


@pytest.mark.parametrize("weights", [(0.25,) * 4, (0.55, 0.15, 0.15, 0.15)])
def test_a_silo_that_keeps_its_noise_to_itself_harms_nobody(weights):
    """It has the mean; the others keep what is their own."""
    updates = noisy_updates([1.0, 0.05, 0.05, 0.05], differ=1.0)
    server, told, _ = played(updates, [math.inf, 0.05, 0.05, 0.05], weights)
    check_finite(told, finite_if_disclosed(server))
    starts = rows(last(told).start)
    np.testing.assert_array_equal(starts[0], server.wbar)
    assert np.isfinite(server.deviations.V).tolist() == [False, True, True, True]
    assert (np.linalg.norm(starts[1:] - server.wbar, axis=1) > 1).all()
    np.testing.assert_array_equal(server.kept[:, 0], 0)


def test_what_cannot_be_tested_is_not():
    """A silo that goes one way, of which nobody knows how noisy it is, moves no knob."""
    updates = noisy_updates(np.ones(4)) - 1  # nothing but noise
    updates[:, 0] += 100
    server, _, _ = played(updates, [math.inf, 1, 1, 1])
    assert server.averaging.power < 50  # at least: it would be 1000


def test_a_silo_of_weight_zero_has_no_say():
    """Whatever it sends, and however sure it says that it is of it."""
    updates = noisy_updates(np.full(4, 0.1), differ=1.0)
    starts = []
    for factor, claimed in [(1, 0.1), (1000, 1e-6), (-5, 0.0)]:
        sent = updates * np.array([1, 1, 1, factor])[:, None]
        _, told, _ = played(sent, [0.1, 0.1, 0.1, claimed], [0.4, 0.4, 0.2, 0.0])
        check_finite(told)
        starts.append(rows(last(told).start)[:3])
    np.testing.assert_array_equal(starts[1:], starts[:1] * 2)


def test_stricter_budgets_keep_less_of_their_own():
    variances = [0.03, 0.03, 30.0, 30.0]
    kept = [
        played(noisy_updates(variances, 1.0, seed), variances, pull=0.3)[0].kept[5:].mean(axis=0)
        for seed in range(8)
    ]
    generous, strict = np.split(np.mean(kept, axis=0), 2)
    assert generous.min() > 0.85
    assert 0.1 < strict.max() < 0.8


def share_of_own(server):
    """In what silos begin with, over layers."""
    return float(jnp.mean(jax.nn.softmax(server.log_shares, axis=0)[2]))


def test_losses_tell_whether_differences_are_kept_as_they_are():
    """Losses that are curved: they rise along noise, and fall along real differences."""
    variances = np.ones(4)
    shares = [
        np.mean(
            [
                share_of_own(played(noisy_updates(variances, differ, seed), variances, pull=0.3)[0])
                for seed in range(5)
            ]
        )
        for differ in (0.0, 3.0)
    ]
    assert shares[0] < 0.1
    assert shares[1] > 0.9


def test_where_nothing_is_found_differences_are_doubted():
    server, told, _ = played(np.zeros((ROUNDS, SILOS, SIZE)), np.ones(4))
    fallen = (ROUNDS - 1) * CONSTANTS.mixture_rate * math.tanh(CONSTANTS.trust * CONSTANTS.doubt)
    fallen = max(CONSTANTS.least_log_share, -fallen)
    np.testing.assert_allclose(server.log_shares, [[0, 0]] * 2 + [[fallen] * 2], atol=1e-5)
    np.testing.assert_array_equal(rows(last(told).start), [rows(MODEL)] * 4)


def test_what_records_of_one_sample_have_in_common_speaks_for_nothing():
    variances = np.full(4, 0.3)
    updates = noisy_updates(variances, 1.0)
    server, _, _ = played(updates, variances, pull=0.3)
    drift = jnp.full(4, ROUNDS * 0.5)
    server = server._replace(deviations=server.deviations._replace(sampling_drift=drift))
    U = jnp.asarray(updates[0], jnp.float32)
    got = received(U, PassNoise(jnp.full(4, 0.3), *jnp.zeros((3, 4))), jnp.full(4, 0.25))
    given = server, got, U - U.mean(axis=0)
    moved = jax.jit(log_shares_after, static_argnums=(4, 5))
    logs = [
        moved(*given, jnp.full(4, sampling), Layers((6, SIZE)), True) for sampling in (0.0, 0.5)
    ]
    own = [jax.nn.softmax(log, axis=0)[2] for log in logs]
    assert (own[1] < own[0]).all()


@pytest.mark.parametrize(("clip", "expected"), [(3.0, 4.0), (1.0, 1.0)])
def test_how_much_records_vary_is_seen_in_how_updates_vary(clip, expected):
    """Noise of 0.3 and, from batches, 0.1 of the records' variance of 4 (over all entries)."""
    whole = np.full(4, 0.3 + 0.1 * 4.0 / SIZE)
    found = []
    for seed in range(40):
        updates = noisy_updates(whole, 1.0, seed)
        server, _, _ = played(updates, np.full(4, 0.3), sample=(0.5, 0.1, clip))
        found.append(float(grad_variance(server.sampling)))
    # Of 40 runs of 30 or so rounds, four silos and ten entries: about 3 each, never below 0.
    assert np.mean(found) == pytest.approx(expected, abs=1.0)
    assert max(found) <= clip**2 * 1.001


def test_the_mean_is_by_weight_where_noise_is_equal_and_else_by_precision():
    weights, alike = [0.4, 0.3, 0.2, 0.1], np.full(4, 2.0)
    server, _, shared = played(noisy_updates(alike), alike, weights)
    np.testing.assert_allclose(server.wbar, rows(shared), rtol=1e-5, atol=1e-5)
    # Two silos with hardly any noise, and no real differences: the mean is as good as theirs.
    unequal = [10.0, 10.0, 0.01, 0.01]
    server, _, shared = played(noisy_updates(unequal), unequal)
    truth = rows(MODEL) + ROUNDS
    assert np.linalg.norm(server.wbar - truth) < 0.4 * np.linalg.norm(rows(shared) - truth)
    # Where silos really differ, leaning to some of them would be wrong.
    server, _, shared = played(noisy_updates(unequal, differ=20.0), unequal)
    assert np.abs(server.wbar - rows(shared)).max() < 0.02 * ROUNDS * 20


def test_the_mean_over_rounds_counts_late_ones_more():
    variances = np.full(4, 5.0)
    _, told, _ = played(noisy_updates(variances), variances)
    starts, average = rows(told.start), np.asarray(rows(told.average))
    np.testing.assert_array_equal(average[0], starts[0])
    # Nothing was known in the first round, so that the power is what it begins with.
    moved = (average[1] - average[0]) / (starts[1] - starts[0])
    powers = 11 / 12, 10 * math.exp(0.2) + 1
    assert np.median(moved) == pytest.approx(powers[0], abs=0.02), powers
    # Updates that all go one way: recent rounds count as much as they may.
    server, told, _ = played(np.ones((ROUNDS, 4, SIZE)), [1e-3] * 4)
    assert server.averaging.power > 100
    assert 18 < np.mean(rows(last(told).average)) - 0.6 < ROUNDS


def test_what_is_used_is_that_mean_or_the_last_model():
    variances = np.full(4, 5.0)
    told = last(played(noisy_updates(variances), variances)[1])
    silo = ebmtl(ROUNDS).init(Start(MODEL, None, 2, 4))[1]
    for average, expected in [(1.0, told.average), (0.0, told.start)]:
        own = ebmtl(ROUNDS, average=average).personal(silo, told)
        np.testing.assert_array_equal(rows(own), rows(expected)[2])
    assert not np.array_equal(rows(told.average), rows(told.start))


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float32, (3, SILOS, SIZE), elements=st.floats(-(2.0**20), 2.0**20, width=32)),
    st.lists(st.sampled_from([0.0, 1e-20, 1e-6, 1.0, 1e6, math.inf]), min_size=4, max_size=4),
    st.sampled_from([(0.25,) * 4, (1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0)]),
    st.sampled_from([0.0, 1e-10, 1.0, 1e6]),
)
def test_nothing_overflows(updates, variances, weights, sampling):
    repeated = np.resize(updates, (ROUNDS, SILOS, SIZE))
    server, told, _ = played(repeated, variances, weights, [sampling] * 3)
    check_finite(told, finite_if_disclosed(server))
    assert (server.deviations.V >= 0).all()
    assert (server.structure.found >= 0).all()
    assert (server.structure.found <= 1).all()


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_units_do_not_matter(scale):
    """Updates and noise ten thousand times as large: so are the differences, and nothing else."""
    variances = np.array([0.3, 0.3, 3.0, 3.0])
    updates = noisy_updates(variances, 1.0)
    usual, _, _ = played(updates, variances)
    scaled, _, _ = played(updates * scale, variances * scale**2)
    np.testing.assert_allclose(
        scaled.deviations.D / scale, usual.deviations.D, rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(scaled.kept, usual.kept, rtol=1e-2, atol=1e-2)


def test_a_silo_tells_its_update_and_what_its_plan_says():
    """And of its models nothing is used but what was told, unless it has no noise or is alone."""
    for silos, variance, own in [(3, 2.0, False), (3, 0.0, True), (1, 2.0, True)]:
        method = ebmtl(5)
        state, silo = method.init(Start(MODEL, None, silos - 1, silos))
        # Every silo is told something else: seven times its number, from 1.
        told = jax.tree.map(
            lambda leaf, n=silos: (leaf.T + 7.0 * jnp.arange(1, n + 1)).T, method.broadcast(state)
        )
        asked = []

        def train(params, asked=asked):
            asked.append(params)
            return jax.tree.map(lambda leaf: 3 * leaf, params)

        noise = PassNoise(jnp.float32(variance), 0.5, 0.25, 1.0)
        after, sent = method.local(silo, told, Queries(train, lambda *_: None, noise))
        (started,) = asked
        begins = MODEL["a"] + (0 if own else 7 * silos)
        np.testing.assert_array_equal(started["a"], begins)
        np.testing.assert_array_equal(sent.update["a"], 2 * begins)
        assert sent.noise == (variance, 0.5, 0.25, 1.0)
        used = method.personal(after, told)["a"]
        np.testing.assert_array_equal(used, 3 * begins if own else begins)


# Runs


def write(folder, **epsilons):
    """Policies with these budgets."""
    path = folder / "policies.toml"
    lines = [f'[silos."silo {name[1:]}"]\nepsilon = {eps}\n' for name, eps in epsilons.items()]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Results of each method without privacy, and where the second silo alone has none."""
    folder = tmp_path_factory.mktemp("budgets")
    mixed = write(folder, s0="4", s1='"inf"', s2="4")
    how = {"federation": small(), "keep_models": True, "seeds": 2} | OPTIONS
    del how["epsilon"]
    return {
        method: [
            silodp.sweep(method=method, epsilon=math.inf, **how)[0],
            silodp.sweep(method=method, policies=mixed, **how)[0],
        ]
        for method in ("ebmtl", "local")
    }


def test_without_privacy_it_is_local_training(swept):
    ours, alone = (swept[method][0] for method in ("ebmtl", "local"))
    np.testing.assert_array_equal(ours.models, alone.models)


def test_a_silo_without_privacy_is_as_if_alone(swept):
    ours, alone = (swept[method][1] for method in ("ebmtl", "local"))
    np.testing.assert_array_equal(ours.models[:, 1], alone.models[:, 1])
    for place in (0, 2):
        assert not np.allclose(ours.models[:, place], alone.models[:, place])


def test_one_silo_is_local_training():
    how = {"federation": small(sizes=(60,)), "keep_models": True} | OPTIONS
    ours, alone = (silodp.run(method=method, **how).models for method in ("ebmtl", "local"))
    np.testing.assert_array_equal(ours, alone)


def test_it_costs_what_local_training_costs(tmp_path):
    policies = write(tmp_path, s1=1.5, s2=0.7)
    how = {"federation": small(), "policies": policies} | OPTIONS
    ours, alone = (silodp.plan(method=method, **how).plans[0] for method in ("ebmtl", "local"))
    assert ours == alone
    assert [plan.event for plan in ours] == [plan.event for plan in alone]
    assert len({plan.noise_multiplier for plan in ours}) == 3


DIMS, SEEDS = 9, 10


def without_signal(sizes, dims):
    """Features and answers of 0: gradients vanish wherever the weights are."""
    silos = tuple(
        silodp.Silo(
            f"silo {i}", *[silodp.Records(np.zeros((m, dims)), np.zeros(m)) for m in (n, 5)]
        )
        for i, n in enumerate(sizes)
    )
    return silodp.Federation("nothing", silos, "regression")


def simulated(federation, seeds, **options):
    """A simulation, ready to run."""
    options = {"federation": federation, "method": "ebmtl", "seeds": seeds} | OPTIONS | options
    prepared = silodp.plan(**options)
    setting = Setting(options["lr"], prepared.plans[0], {})
    return Simulation(job_of(prepared), list(range(seeds)), [federation] * seeds, [setting])


@pytest.mark.parametrize(
    ("sampling", "optimiser", "clip"),
    [
        ("shuffle", "momentum", 0.2),
        pytest.param("poisson", "adam", 3.0, marks=pytest.mark.slow),
    ],
)
def test_differences_have_the_noise_that_is_counted_with(sampling, optimiser, clip, tmp_path):
    dims, seeds, rounds = 99, 10, 5
    how = {"sampling": sampling, "optimiser": optimiser, "clip": clip, "batch_size": 8}
    how |= {"small_silos": "full-batch", "epochs": 2, "rounds": rounds, "lr": 0.3}
    # Weights by precision depend on the updates themselves where budgets are unequal, a little.
    how |= {"policies": write(tmp_path, s0=9, s1=1.5)}
    simulation = simulated(without_signal((5, 16, 24, 24), dims), seeds, **how)
    state, _ = simulation.advance(simulation.initial_state(), free_rounds(0, rounds))
    own = np.asarray(state.server[0].deviations.D)[:, 0, :, :dims].astype(float)
    claimed = np.asarray(state.server[0].deviations.V)[:, 0]
    ratios = np.mean(own**2, axis=(0, 2)) / claimed.mean(axis=0)
    np.testing.assert_allclose(ratios, 1, atol=6 * math.sqrt(2 / (seeds * dims)))


@pytest.fixture(scope="module")
def silent():
    """Of twenty silos without signal (more than parameters): simulation, state after 60 rounds."""
    simulation = simulated(without_signal((20,) * 20, DIMS), SEEDS, rounds=60, **FULL)
    state, _ = simulation.advance(simulation.initial_state(), free_rounds(0, 60))
    return simulation, state


def test_where_silos_do_not_differ_they_keep_nothing(silent):
    simulation, state = silent
    kept = simulation.learned(state)["kept"][:, 0]
    assert kept.shape == (SEEDS, CONSTANTS.most_parts, 20)  # 60 rounds
    assert kept[:, 38:].mean() < 0.05
    server = state.server[0]
    own = np.asarray(server.deviations.D)[:, 0, :, :DIMS].astype(float)
    ratio = np.mean(own**2) / np.mean(server.deviations.V)
    assert ratio == pytest.approx(1, abs=6 * math.sqrt(2 / (SEEDS * 20 * DIMS)))
    models = simulation.personal_models(state)[:, 0, :, :DIMS]
    assert np.mean(np.var(models, axis=1)) < 0.02 * np.mean(server.deviations.V)


def test_a_run_that_was_interrupted_goes_on_as_if_it_was_not(silent, tmp_path):
    simulation, whole = silent
    half, _ = simulation.advance(simulation.initial_state(), free_rounds(0, 25))
    leaves, structure = jax.tree.flatten(half)
    place = checkpoint.CheckpointFolder(tmp_path)
    place.save(0, 25, [], leaves)
    read = jax.tree.unflatten(structure, checkpoint.load(tmp_path).state)
    assert isinstance(read, State)
    resumed, _ = simulation.advance(simulation.placed(read), free_rounds(25, 60))
    for one, other in zip(jax.tree.leaves(resumed), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(one, other)


@cache
def network():
    def init(key):
        first, second = jax.random.split(key)
        return {"a": jax.random.normal(first, (4, 3)), "b": jax.random.normal(second, (3,))}

    return silodp.custom_model(init, lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"], "regression")


def test_two_silos_with_a_model_of_their_own_making():
    """What is learned has the shapes of the model, and nobody is left where it began."""
    how = {"federation": small(sizes=(40, 70)), "custom_model": network(), "keep_models": True}
    result = silodp.run(method="ebmtl", **how, **OPTIONS | FULL)
    assert result.models["a"].shape == (1, 2, 4, 3)
    check_finite(result.models)
    learned = result.learned
    assert np.shape(learned["kept"]) == (6, 2)
    assert np.shape(learned["differs"]["a"]) == (4, 3)
    assert np.shape(learned["shares"]) == (3, 2)
    np.testing.assert_allclose(np.sum(learned["shares"], axis=0), 1, rtol=1e-4)
    np.testing.assert_allclose(learned["relations"], [[1, -1], [-1, 1]], atol=1e-4)


# Options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method_options": "average=2"}, "average of method 'ebmtl' is 2: give one of 0, 1"),
        ({"method_options": "average=0.5"}, "average of method 'ebmtl' is 0.5"),
        ({"method_options": "average=inf"}, "average of method 'ebmtl' is inf"),
        ({"method_options": "average=yes"}, "'average' is 'yes'"),
        ({"method_options": "avg=1"}, "no option 'avg': did you mean 'average'"),
        ({"method": "ifca+ebmtl"}, r"'ifca\+ebmtl'.*cannot go on within clusters"),
    ],
)
def test_options_that_are_refused(options, words):
    with pytest.raises(silodp.SilodpError, match=words):
        silodp.plan(**{"method": "ebmtl", "federation": small()} | OPTIONS | FULL | options)


def test_average_zero_is_taken():
    how = {"method": "ebmtl", "federation": small()} | OPTIONS | FULL
    silodp.plan(method_options="average=0", **how)
