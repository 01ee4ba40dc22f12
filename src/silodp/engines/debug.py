"""Runs a job one silo after the other, without compiling: slow, and it says where it failed.

It runs the same functions as the simulation on the same random words, without padding or grouping,
so it is also a check on both.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silodp.base.errors import SilodpError
from silodp.data.federation import Federation
from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_silos
from silodp.engines.one_silo import (
    Drawn,
    drawn_by_host,
    drawn_from_key,
    laid_out,
    metric_of,
    queries_of,
    release_draws_of,
)
from silodp.privacy.mechanisms.randomness import run_key
from silodp.privacy.mechanisms.release_draws import SiloGroup
from silodp.privacy.mechanisms.training import PassShape
from silodp.privacy.session import PaidRounds, RunSession


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
    rounds: Sequence[int],
    session: RunSession,
    report: Callable[[int, np.ndarray], None],
) -> tuple[Any, dict[str, Any]]:
    """One run; calls report(round, metric of each silo) after each of these rounds.

    Returns the personal models, as a pytree with a leading axis of silos, and what was learned.
    """
    with jax.disable_jit():
        return _run(job, seed, federation, setting, rounds, session, report)


def _run(
    job: Job,
    seed: int,
    federation: Federation,
    setting: Setting,
    rounds: Sequence[int],
    session: RunSession,
    report: Callable[[int, np.ndarray], None],
):
    method = job.build(setting.options)
    places = range(len(federation.silos))
    at_silo = [job.build(setting.options_of(place)) for place in places]
    key = jnp.asarray(run_key(seed, job.secret))
    random = _Random(job, seed, federation, setting)
    server, _ = job.first_states(method, key, 0)
    states = [job.first_states(method, key, place)[1] for place in places]
    for number in range(job.rounds):
        broadcast = method.broadcast(server)
        paid = session.pay(number, number + 1)
        messages = []
        for place, silo in enumerate(federation.silos):
            with _stage(silo.name, number, "local training"):
                queries = _queries(job, federation, setting, random, place, paid)
                states[place], message = at_silo[place].local(states[place], broadcast, queries)
            _check_finite(silo.name, number, "local training", states[place])
            messages.append(message)
        with _stage("(server)", number, "merging"):
            joined = jax.tree.map(lambda *parts: jnp.stack(parts), *messages)
            server = method.merge(server, joined, jnp.asarray(job.weights, jnp.float32))
        if number + 1 in rounds:
            broadcast = method.broadcast(server)
            metrics = [
                _metric(job, number, silo, own.personal(state, broadcast))
                for silo, own, state in zip(federation.silos, at_silo, states, strict=True)
            ]
            report(number + 1, np.array(metrics))
    broadcast = method.broadcast(server)
    models = [own.personal(state, broadcast) for own, state in zip(at_silo, states, strict=True)]
    with _stage("(server)", job.rounds, "what was learned"):
        learned = jax.tree.map(np.asarray, method.learned(server))
    return jax.tree.map(lambda *silos: np.stack(silos), *models), learned


class _Random:
    """What is random for each silo, in each round, as in the simulation."""

    def __init__(self, job: Job, seed: int, federation: Federation, setting: Setting):
        self._job, self._trial = job, setting.trial
        if job.release:
            groups = [
                SiloGroup(np.array([place]), group_silos((plan,), release=True)[0].shape)
                for place, plan in enumerate(setting.plans)
            ]
            draws = release_draws_of(job, [seed], [federation], setting, groups)
            # Silo after silo asks for the same round.
            self._of_round = lru_cache(maxsize=1)(draws.of_round)
        else:
            self._key = jnp.asarray(run_key(seed, b""))

    def drawn(self, shape: PassShape, place: int, number: int) -> Drawn:
        """The randomness of the silo at that place."""
        if self._job.release:
            return drawn_by_host(jax.tree.map(lambda a: a[0, 0], self._of_round(number)[place]))
        return drawn_from_key(self._job, shape, self._key, place, jnp.int32(number), self._trial)


def _queries(
    job: Job,
    federation: Federation,
    setting: Setting,
    random: _Random,
    place: int,
    paid: PaidRounds,
):
    """What the method may ask of one silo, laid out as a group of its own."""
    number = paid.first
    alone = replace(federation, silos=(federation.silos[place],))
    shape, data = laid_out(job, alone, setting.plans[place])
    drawn = random.drawn(shape, place, number)
    return queries_of(job, shape, data, jnp.float32(setting.lr), drawn, jnp.int32(number))


def _metric(job: Job, number: int, silo, params) -> float:
    with _stage(silo.name, number, "evaluation"):
        return float(metric_of(job, silo, params))
