"""The same run, one silo after the other and without compiling: slow, and it says where it failed.

It runs the same functions as the simulation on the same random words, without padding or grouping,
so it is also a check on both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_data, group_silos
from silodp.errors import SilodpError
from silodp.federation import Federation
from silodp.models import bounded_score
from silodp.privacy.queries import guarded
from silodp.privacy.randomness import draw_pass, pass_keys, run_key, selection_keys


@contextmanager
def _stage(silo: str, number: int, stage: str) -> Iterator[None]:
    """Adds to any error which silo, round and stage it came from."""
    try:
        yield
    except Exception as error:
        raise SilodpError(
            f"Silo {silo!r}, round {number}, {stage}: {type(error).__name__}: {error}"
        ) from error


def _check_finite(silo: str, number: int, stage: str, tree: Any) -> None:
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(tree)):
        raise SilodpError(
            f"Silo {silo!r}, round {number}, {stage}: the model is not finite any more: lower --lr."
        )


def run_debug(
    job: Job,
    seed: int,
    federation: Federation,
    setting: Setting,
    evaluate_every: int,
    report: Callable[[int, np.ndarray], None],
) -> tuple[Any, dict[str, Any]]:
    """One run; calls report(round, metric of each silo) after every so many rounds.

    Returns the personal models, as a pytree with a leading axis of silos, and what was learned.
    """
    with jax.disable_jit():
        return _run(job, seed, federation, setting, evaluate_every, report)


def _run(job: Job, seed: int, federation: Federation, setting: Setting, evaluate_every, report):
    method = job.build(setting.options)
    places = range(len(federation.silos))
    at_silo = [job.build(setting.options_of(place)) for place in places]
    key = jnp.asarray(run_key(seed, job.secret))
    server, _ = job.begin(method, key, 0)
    states = [job.begin(method, key, place)[1] for place in places]
    for number in range(job.rounds):
        told = method.broadcast(server)
        messages = []
        for place, silo in enumerate(federation.silos):
            with _stage(silo.name, number, "local training"):
                queries = _queries(job, federation, setting, key, place, number)
                states[place], message = at_silo[place].local(states[place], told, queries)
            _check_finite(silo.name, number, "local training", states[place])
            messages.append(message)
        with _stage("(server)", number, "merging"):
            joined = jax.tree.map(lambda *parts: jnp.stack(parts), *messages)
            server = method.merge(server, joined, jnp.asarray(job.weights, jnp.float32))
        if (number + 1) % evaluate_every == 0 or number + 1 == job.rounds:
            told = method.broadcast(server)
            metrics = [
                _metric(job, number, silo, own.personal(state, told))
                for silo, own, state in zip(federation.silos, at_silo, states, strict=True)
            ]
            report(number + 1, np.array(metrics))
    told = method.broadcast(server)
    models = [own.personal(state, told) for own, state in zip(at_silo, states, strict=True)]
    with _stage("(server)", job.rounds, "what was learned"):
        learned = jax.tree.map(np.asarray, method.learned(server))
    return jax.tree.map(lambda *silos: np.stack(silos), *models), learned


def _queries(job: Job, federation: Federation, setting: Setting, key, place: int, number: int):
    """What the method may ask of one silo, laid out as a group of its own."""
    alone = setting._replace(plans=(setting.plans[place],))
    (group,) = group_silos(alone.plans)
    silo = replace(federation, silos=(federation.silos[place],))
    data = jax.tree.map(lambda a: jnp.asarray(a)[0, 0], group_data(job, group, [silo], [alone]))
    records = data.train._replace(features=job.unit_model.prepare(data.train.features))
    here, round_number = jnp.array([place]), jnp.int32(number)
    keys = pass_keys(key, here, round_number, job.schedule.train, setting.trial)[0]
    select_key = selection_keys(key, here, round_number, setting.trial)[0]

    lr = jnp.float32(setting.lr)

    def train(asked, params, towards, strength):
        randomness = draw_pass(keys[asked], group.shape.size(job.parameters))
        return job.train(
            group.shape, records, data.noise, lr, randomness, params, towards, strength
        )

    def select(candidates):
        return job.select(records, data.noise.select, select_key, candidates)

    noise = job.pass_noise(group.shape, records, data.noise, lr)
    return guarded(job.schedule, round_number, train, select, noise)


def _metric(job: Job, number: int, silo, params) -> float:
    with _stage(silo.name, number, "evaluation"):
        outputs = job.model.predict(params, jnp.asarray(silo.test.x))
        y = jnp.asarray(silo.test.y)
        return float(jnp.mean(bounded_score(job.model.task, outputs, y, job.metric_bound)))
