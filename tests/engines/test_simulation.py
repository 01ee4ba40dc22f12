"""The simulation engine: against plain loops, against itself, and against the claims of a plan."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.engines import execution, layout
from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_silos
from silodp.engines.simulation import Simulation
from silodp.methods import METHODS
from silodp.models.model import get_model
from silodp.privacy.mechanisms.queries import Schedule
from silodp.privacy.mechanisms.randomness import draw_pass, pass_keys, run_key
from silodp.privacy.mechanisms.sampling import draw_batches, threshold_of
from silodp.privacy.plan import SideQueries, SiloPlan
from silodp.privacy.session import free_rounds

COMMON = {"rounds": 4, "batch_size": 16, "lr": 0.1, "delta": 1e-4, "keep_models": True}


def final(sizes=(40, 70, 55), **options):
    return silodp.run(federation=small(sizes=sizes), **(COMMON | options))


def test_zero_noise_and_no_clip_is_plain_sgd():
    """FedAvg without privacy, against a few lines of numpy on the same batches."""
    federation = small()
    result = final(method="fedavg", epsilon=math.inf, seeds=1)
    w = np.zeros(5)
    counts = federation.train_counts
    for number in range(4):
        updates = []
        for place, silo in enumerate(federation.silos):
            x, y, n, v = np.c_[silo.train.x, np.ones(counts[place])], silo.train.y, counts[place], w
            for batch in batches_of(place, number, n, 16):
                v = v - 0.1 * x[batch].T @ (x[batch] @ v - y[batch]) / 16
            updates.append(v - w)
        w = w + np.average(updates, axis=0, weights=counts)
    np.testing.assert_allclose(result.models[0, 0], w, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(result.models[0, 0], result.models[0, 2])


def batches_of(place, number, n, batch):
    """The records of each step of a pass, as the engine draws them."""
    shape = group_silos([plan_of(n, batch)])[0].shape

    @jax.jit
    def mask(key):
        key = pass_keys(key, jnp.array([place]), jnp.int32(number), 1)[0, 0]
        drawn = draw_batches(
            "every",
            draw_pass(key, shape.size(5)).sample,
            shape.steps,
            shape.batch_capacity,
            jnp.int32(n),
            jnp.int32(n),
            jnp.int32(batch),
            threshold_of(batch / n),
        )
        return drawn.mask

    return [np.flatnonzero(row) for row in np.asarray(mask(run_key(0, b"")))]


def plan_of(n, batch, noise=0.0, draw="every", name="s"):
    return SiloPlan(
        silo=name,
        unit="record",
        relation="add-remove",
        public_count=int(n),
        true_count=int(n),
        max_count=int(n),
        expected_batch=batch,
        clip=1.0,
        epochs=1,
        steps=n // batch,
        schedule=Schedule(1),
        side=SideQueries(),
        draw=draw,
        batch_capacity=int(n),
        sampling_rate=batch / n,
        noise_multiplier=noise,
        select_epsilon=0.0,
        statistics_noise=0.0,
        metric_noise=0.0,
        epsilon=1.0 if noise else math.inf,
        delta=1e-4,
        overflow=0.0,
        accountant="pld",
    )


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize(
    ("method", "sampling"),
    [
        pytest.param("ebmtl", "shuffle", marks=pytest.mark.slow),
        ("mrmtl", "poisson"),
        *(
            pytest.param(method, "poisson", marks=pytest.mark.slow)
            for method in ("ditto", "mocha", "ifca+mrmtl")
        ),
    ],
)
def test_debug_engine_agrees(method, sampling):
    """Silo by silo, without padding or grouping: the same numbers."""
    options = {"method": method, "sampling": sampling, "epsilon": 5, "rounds": 2, "batch_size": 32}
    options["sizes"] = (40, 70)  # each size is compiled by itself
    fast = final(**options)
    slow = final(**options, engine="debug")
    assert fast.test["mean"] == pytest.approx(slow.test["mean"], rel=1e-4)
    for a, b in zip(fast.per_silo, slow.per_silo, strict=True):
        assert a["mean"] == pytest.approx(b["mean"], rel=1e-3)
    np.testing.assert_allclose(fast.models, slow.models, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize("task", ["binary", pytest.param("multiclass", marks=pytest.mark.slow)])
def test_debug_engine_agrees_on_classes(task):
    options = {"method": "mrmtl", "epsilon": 5, "seeds": 1, "rounds": 2, "batch_size": 32}
    federation = small(task, sizes=(40, 70))
    fast = silodp.run(federation=federation, **options)
    slow = silodp.run(federation=federation, engine="debug", **options)
    assert fast.test["per_seed"] == slow.test["per_seed"]


def test_debug_engine_compiles_nothing():
    """So that a debugger stops wherever one wants, in a model of one's own too."""
    disabled = []

    def apply(params, x):
        disabled.append(jax.config.values["jax_disable_jit"])
        return x @ params

    model = silodp.custom_model(lambda key: jnp.zeros(4), apply, "regression")
    options = {"method": "local", "rounds": 1, "epsilon": math.inf, "batch_size": 40, "seeds": 1}
    federation = small(sizes=(40,))
    silodp.run(federation=federation, custom_model=model, engine="debug", **options)
    assert True in disabled  # not all: before the engine begins, shapes are looked at


def test_debug_engine_names_silo_and_stage():
    message = r"Silo 'silo \d', round \d+, local training.*--lr"
    with pytest.raises(silodp.SilodpError, match=message):
        final(method="local", epsilon=math.inf, lr=1e30, rounds=20, engine="debug", seeds=1)


def test_divergence_names_the_silo_and_the_remedy():
    with pytest.raises(silodp.SilodpError, match=r"Silo 'silo 0'.*--lr"):
        final(method="local", epsilon=math.inf, lr=1e30, rounds=20, seeds=1)


def test_a_run_is_the_same_alone_and_in_a_sweep():
    lams, epsilons, lrs = [0.0, 0.3, 2.0], [1.0, math.inf], [0.05, 0.1]
    grid = silodp.sweep(
        federation=small(),
        method="mrmtl",
        lam=lams,
        epsilon=epsilons,
        lr=lrs,
        seeds=2,
        **{k: v for k, v in COMMON.items() if k != "lr"},
    )
    assert len(grid) == 12
    chosen = grid[7]  # lam 0.3, then lr, then epsilon: the last named moves fastest
    options = {k: chosen.options[k] for k in ("lam", "epsilon", "lr")}
    assert options == {"lam": 0.3, "lr": 0.1, "epsilon": math.inf}
    alone = final(method="mrmtl", seeds=2, **options)
    np.testing.assert_allclose(alone.models, chosen.models, rtol=1e-5, atol=1e-6)


def test_parts_that_fit_memory_change_nothing(monkeypatch):
    options = {"method": "mrmtl", "epsilon": 3, "seeds": 3}
    whole = final(**options)
    monkeypatch.setattr(execution, "MEMORY_FOR_RECORDS", 1.0)
    parted = final(**options)
    np.testing.assert_allclose(whole.models, parted.models, rtol=1e-5, atol=1e-6)
    assert [h["round"] for h in whole.history] == [h["round"] for h in parted.history]


def test_grouping_changes_nothing(monkeypatch):
    federation = small(sizes=(20, 35, 50, 64, 90, 200))
    options = {"federation": federation, "method": "mrmtl", "epsilon": 3, **COMMON}
    many = silodp.run(**options)
    monkeypatch.setattr(layout, "GROUP_OVERHEAD", 1e9)
    one = silodp.run(**options)
    np.testing.assert_allclose(many.models, one.models, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("draw", ["every", "gaps"])
def test_noise_is_what_the_plan_says(draw):
    """No signal at all: what a run leaves is noise, of the variance that the plan promises.

    It would show a step too many or too few, noise used twice, a wrong scale or divisor.
    """
    rounds, lr, clip, noise, batch, dims = 6, 0.5, 2.0, 1.7, 10, 199
    sizes = [40, 40, 40, 90]
    silos = tuple(
        silodp.Silo(f"s{i}", *[silodp.Records(np.zeros((m, dims)), np.zeros(m)) for m in (n, 5)])
        for i, n in enumerate(sizes)
    )
    federation = silodp.Federation("nothing", silos, "regression")
    model = get_model("linear", "regression", (dims,))
    plans = tuple(plan_of(n, batch, noise, draw, f"s{i}") for i, n in enumerate(sizes))
    plans = tuple(
        dataclasses.replace(
            plan, clip=clip, batch_capacity=60 if draw == "gaps" else plan.public_count
        )
        for plan in plans
    )
    job = Job(model, METHODS["local"], rounds, np.ones(4) / 4)
    simulation = Simulation(job, range(10), [federation] * 10, [Setting(lr, plans, {})])
    state, _ = simulation.advance(simulation.initial_state(), free_rounds(0, rounds))
    w = simulation.personal_models(state)[:, 0]  # [seeds, silos, dims + 1]
    for place, n in enumerate(sizes):
        steps = rounds * (n // batch)
        # The bias moves with the data (its gradient is its own value), so it is left out.
        variance = np.mean(w[:, place, :-1] ** 2)
        promised = steps * (lr * clip * noise / batch) ** 2
        assert variance == pytest.approx(promised, rel=6 * math.sqrt(2 / (10 * dims)))
    flat = w[:, :, :-1].reshape(40, -1)
    correlation = np.corrcoef(flat) - np.eye(40)
    assert np.abs(correlation).max() < 6 / math.sqrt(dims)  # silos and seeds: independent noise


def test_groups_cover_every_silo_once():
    rng = np.random.default_rng(0)
    plans = [plan_of(int(n), 16, name=str(i)) for i, n in enumerate(rng.integers(16, 128, 300))]
    groups = group_silos(plans)
    assert sorted(np.concatenate([g.members for g in groups])) == list(range(300))
    assert 1 < len(groups) <= layout.MOST_GROUPS
    for group in groups:
        own = [plans[i] for i in group.members]
        assert group.shape.steps == max(p.steps for p in own)
        assert group.shape.batch_capacity >= max(p.batch_capacity for p in own)
        assert group.shape.even == (len({p.steps for p in own}) == 1)


def test_local_epochs_and_optimisers():
    base = final(method="local", epsilon=math.inf, seeds=1)
    longer = final(method="local", epsilon=math.inf, seeds=1, epochs=3)
    assert longer.mean < base.mean
    for optimiser in ("momentum", "adam"):
        assert final(method="local", epsilon=math.inf, seeds=1, optimiser=optimiser).mean < 3


def test_uniform_weights():
    federation = small(sizes=(16, 300))
    options = {"federation": federation, "method": "fedavg", "epsilon": math.inf, **COMMON}
    by_records = silodp.run(**options)
    uniform = silodp.run(weights="uniform", **options)
    assert not np.allclose(by_records.models, uniform.models)


def test_seeds_that_change_the_counts_are_refused():
    with pytest.raises(silodp.SilodpError, match="counts"):
        silodp.run(
            federation=lambda seed: small(sizes=(40, 50 + seed)),
            method="local",
            epsilon=1,
            seeds=2,
            **{k: v for k, v in COMMON.items() if k != "keep_models"},
        )
