"""The same run, one silo after the other and without compiling: slow, and it says where it failed.

It runs the same functions as the simulation on the same random words, without padding or grouping,
so it is also a check on both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_silos, silo_noise
from silodp.errors import SilodpError
from silodp.federation import Federation
from silodp.models import score
from silodp.privacy.queries import Queries, SiloNoise, SiloRecords
from silodp.privacy.randomness import draw_pass, init_key, pass_keys, run_key
from silodp.privacy.sampling import threshold_of


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
) -> Any:
    """One run; calls report(round, metric of each silo) after every so many rounds.

    Returns the personal models, as a pytree with a leading axis of silos.
    """
    with jax.disable_jit():
        return _run(job, seed, federation, setting, evaluate_every, report)


def _run(job: Job, seed: int, federation: Federation, setting: Setting, evaluate_every, report):
    method = job.method.build(rounds=job.rounds, **setting.options)
    key = jnp.asarray(run_key(seed))
    server, fresh = method.init(job.model.init(init_key(key)))
    states = [fresh] * len(federation.silos)
    for number in range(job.rounds):
        told = method.broadcast(server)
        messages = []
        for place, silo in enumerate(federation.silos):
            with _stage(silo.name, number, "local training"):
                queries = _queries(job, federation, setting, key, place, number)
                states[place], message = method.local(states[place], told, queries)
            _check_finite(silo.name, number, "local training", states[place])
            messages.append(message)
        with _stage("(server)", number, "merging"):
            joined = jax.tree.map(lambda *parts: jnp.stack(parts), *messages)
            server = method.merge(server, joined, jnp.asarray(job.weights, jnp.float32))
        if (number + 1) % evaluate_every == 0 or number + 1 == job.rounds:
            told = method.broadcast(server)
            metrics = [
                _metric(job, number, silo, method.personal(state, told))
                for silo, state in zip(federation.silos, states, strict=True)
            ]
            report(number + 1, np.array(metrics))
    told = method.broadcast(server)
    models = [method.personal(state, told) for state in states]
    return jax.tree.map(lambda *silos: np.stack(silos), *models)


def _queries(job: Job, federation: Federation, setting: Setting, key, place: int, number: int):
    plan, silo = setting.plans[place], federation.silos[place]
    shape = group_silos([plan])[0].shape
    records = SiloRecords(
        features=job.model.prepare(jnp.asarray(silo.train.x)),
        y=jnp.asarray(silo.train.y),
        records=jnp.int32(plan.records),
        batch=jnp.int32(plan.batch),
        steps=jnp.int32(plan.steps),
        threshold=jnp.asarray(threshold_of(plan.batch / plan.records)),
    )
    noise = SiloNoise(*(jnp.asarray(a[0, 0]) for a in silo_noise(job.clip, [[plan]])))
    keys = pass_keys(key, jnp.array([place]), jnp.int32(number), job.passes_a_round)[0]

    def train(asked, params, towards, strength):
        randomness = draw_pass(keys[asked], shape.size(job.parameters))
        lr = jnp.float32(setting.lr)
        return job.train(shape, records, noise, lr, randomness, params, towards, strength)

    return Queries(train, job.passes_a_round)


def _metric(job: Job, number: int, silo, params) -> float:
    with _stage(silo.name, number, "evaluation"):
        outputs = job.model.predict(params, jnp.asarray(silo.test.x))
        return float(jnp.mean(score(job.model.task, outputs, jnp.asarray(silo.test.y))))
