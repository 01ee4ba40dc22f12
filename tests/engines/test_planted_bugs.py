"""Bugs that no attack on outputs would show, planted one by one: the checks must catch each.

A check is a function that passes on the product as it is and fails on the product with the bug.
"""

import dataclasses
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from federations import small
from ledgers import AMPLE

import silodp
from silodp.engines import debug, layout, one_silo
from silodp.engines.job import Job
from silodp.models.model import get_model
from silodp.privacy import plan as plans
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.storage import ledger_paths, read_path
from silodp.privacy.mechanisms.sampling import draw_batches, threshold_of

OPTIONS = {"rounds": 6, "batch_size": 10, "epsilon": 4, "delta": 1e-4, "method": "ifca"}
OPTIONS |= {"select_fraction": 0.5, "lr": 0.1}
LOCAL = {n: v for n, v in OPTIONS.items() if n != "select_fraction"} | {"method": "local"}


def silos():
    """Of one size, so that the engine without compiling meets each shape once."""
    return small(sizes=(40, 40))


def made_plans(**options):
    return silodp.plan(federation=silos(), **(OPTIONS | options)).plans[0]


def counted_run(monkeypatch):
    """What a run really does to each silo: steps and selections, counted as they happen."""
    done = Counter()
    train, select, queries = Job.train, Job.select, debug._queries
    here = {}

    def noted(job, federation, setting, key, place, number):
        here["silo"] = federation.names[place]
        return queries(job, federation, setting, key, place, number)

    def counted_train(job, shape, records, *rest):
        done[here["silo"], "steps"] += int(records.steps)
        return train(job, shape, records, *rest)

    def counted_select(job, *args):
        done[here["silo"], "selections"] += 1
        return select(job, *args)

    with monkeypatch.context() as patch:
        patch.setattr(debug, "_queries", noted)
        patch.setattr(Job, "train", counted_train)
        patch.setattr(Job, "select", counted_select)
        silodp.run(federation=silos(), engine="debug", **(OPTIONS | {"rounds": 2}))
    return done


def check_all_that_is_done_is_charged(monkeypatch):
    """Steps and selections of the event, worked out from its text, against those that happened."""
    done = counted_run(monkeypatch)
    for plan in made_plans(rounds=2):
        events = plan.queries()
        assert events["training"].count == done[plan.silo, "steps"]
        assert events["selection"].count == done[plan.silo, "selections"] == 1
        assert epsilon_of(plan.event, plan.delta) <= 4


def check_batches_are_drawn_record_by_record():
    """Batch sizes of Poisson sampling vary like a binomial; a permutation's do not vary at all."""
    for plan in made_plans():
        if plan.unproven:
            continue  # it says itself that it is not proven
        words = np.random.default_rng(0).integers(
            0, 2**32, (4000, plan.true_count), dtype=np.uint32
        )
        n = jnp.int32(plan.public_count)
        threshold = jnp.asarray(threshold_of(plan.expected_batch / plan.public_count))
        args = n, n, jnp.int32(plan.expected_batch), threshold
        draw = jax.jit(draw_batches, static_argnums=(0, 2, 3))
        mask = draw(plan.draw, words, 4000, plan.batch_capacity, *args).mask
        sizes = np.asarray(mask).sum(1)
        q = plan.expected_batch / plan.public_count
        assert sizes.mean() == pytest.approx(plan.expected_batch, rel=0.05)
        assert sizes.var() == pytest.approx(plan.public_count * q * (1 - q), rel=0.15)


def check_the_divisor_is_public():
    """All gradients alike and no noise to speak of: a step tells how many were drawn, not 1."""
    n, batch = 40, 10
    records = silodp.Records(np.ones((n, 1)), np.full(n, 1e6))
    federation = silodp.Federation("alike", (silodp.Silo("s", records, records),), "regression")
    result = silodp.run(
        federation=federation,
        method="local",
        rounds=1,
        batch_size=batch,
        clip=1.0,
        lr=1.0,
        epsilon=1e5,
        delta=1e-3,
        keep_models=True,
        seeds=30,
    )
    moved = result.models[:, 0].sum(axis=-1) / math.sqrt(2)  # 4 steps of drawn/batch each
    assert np.std(moved) > 0.2  # it would be 4 each time, divided by the drawn count
    assert np.mean(moved) == pytest.approx(n / batch, rel=0.15)


def check_noise_is_that_of_the_planned_steps():
    """No signal: the variance of the outcome counts the steps."""
    nothing = tuple(
        silodp.Silo(f"s{i}", *[silodp.Records(np.zeros((m, 150)), np.zeros(m)) for m in (40, 5)])
        for i in range(3)
    )
    options = LOCAL | {"seeds": 8, "clip": 2.0}
    result = silodp.run(
        federation=silodp.Federation("nothing", nothing, "regression"), keep_models=True, **options
    )
    weights = np.asarray(result.models)[:, :, :-1]
    for place, spent in enumerate(result.privacy):
        promised = spent["steps"] * (0.1 * 2.0 * spent["noise_multiplier"] / 10) ** 2
        found = np.mean(weights[:, place] ** 2)
        assert found == pytest.approx(promised, rel=5 * math.sqrt(2 / (8 * 150)))


def check_the_ledger_holds_what_the_plan_says(folder):
    silodp.run(federation=silos(), ledger=folder, **OPTIONS)
    by_silo = {plan.silo: plan for plan in made_plans()}
    for path in ledger_paths(folder):
        ledger = read_path(path)
        (run,) = account_of(ledger).runs.values()
        text = run.whole.event
        assert "BoundedRange" in text
        assert f'"count":{by_silo[ledger.silo].total_steps}' in text.replace(" ", "")
        # What was charged, block by block, is that and nothing less.
        lifetime = AMPLE.opened()
        charged = math.fsum(cost.taken(lifetime) for cost in run.spent)
        assert charged == pytest.approx(run.whole.taken(lifetime), rel=1e-9)


def test_the_product_passes(monkeypatch, tmp_path):
    check_all_that_is_done_is_charged(monkeypatch)
    check_batches_are_drawn_record_by_record()
    check_the_divisor_is_public()
    check_noise_is_that_of_the_planned_steps()
    check_the_ledger_holds_what_the_plan_says(tmp_path / "ledger")


def caught(check, *args):
    with pytest.raises((AssertionError, KeyError)):
        check(*args)


def test_a_selection_that_is_not_charged(monkeypatch, tmp_path):
    honest = plans.SiloPlan.queries

    def without(self, *rounds):
        return {k: v for k, v in honest(self, *rounds).items() if k != "selection"}

    monkeypatch.setattr(plans.SiloPlan, "queries", without)
    caught(check_all_that_is_done_is_charged, monkeypatch)
    caught(check_the_ledger_holds_what_the_plan_says, tmp_path / "ledger")


def test_a_selection_in_every_round_that_is_charged_in_some(monkeypatch):
    from silodp.privacy.mechanisms import queries

    def always(schedule, number, train, select, noise):
        every = dataclasses.replace(schedule, select_rounds=schedule.rounds)
        return honest(every, 0, train, select, noise)

    honest = queries.guarded
    monkeypatch.setattr(one_silo, "guarded", always)
    caught(check_all_that_is_done_is_charged, monkeypatch)


def test_shuffling_called_poisson(monkeypatch):
    monkeypatch.setattr(plans, "draw_of", lambda *args: "shuffle")
    caught(check_batches_are_drawn_record_by_record)


def test_division_by_the_drawn_count(monkeypatch):
    linear = get_model("linear", "regression", (1,))

    def divided(params, features, y, mask, clip, offset=None):
        total = linear.clipped_sum(params, features, y, mask, clip, offset)
        return total * 10 / jnp.maximum(mask.sum(), 1.0)

    monkeypatch.setattr(
        "silodp.runs.prepare.get_model", lambda *args: linear._replace(clipped_sum=divided)
    )
    caught(check_the_divisor_is_public)


def test_a_step_too_many(monkeypatch):
    honest = layout.group_data

    def longer(*args):
        data = honest(*args)
        return data._replace(train=data.train._replace(steps=data.train.steps + 1))

    def shaped(groups):
        return tuple(
            g._replace(shape=g.shape._replace(steps=g.shape.steps + 1, even=False)) for g in groups
        )

    group_silos = layout.group_silos
    for module in ("silodp.engines.simulation", "silodp.engines.one_silo"):
        monkeypatch.setattr(f"{module}.group_data", longer)
        monkeypatch.setattr(f"{module}.group_silos", lambda *args: shaped(group_silos(*args)))
    caught(check_all_that_is_done_is_charged, monkeypatch)
    caught(check_noise_is_that_of_the_planned_steps)
    jax.clear_caches()
