"""Methods of few messages: on the host, in double precision, one silo after the other.

What is released is exact (see `privacy.mechanisms.moments`), in an experiment too, where noise
comes from the seed alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silodp.data.federation import Federation, Silo
from silodp.engines.job import Job, Setting
from silodp.engines.layout import pad_rows
from silodp.engines.one_silo import metric_of, metric_on
from silodp.methods.base import Method, Start
from silodp.models.unit_vectors import UnitVectors, unit_vectors_of
from silodp.privacy.mechanisms.message_queries import (
    MessageQueries,
    MessageSchedule,
    message_queries,
)
from silodp.privacy.mechanisms.moments import Moments, whole_records
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.plan import SiloPlan
from silodp.privacy.session import PaidRounds, RunSession


class SiloOfMessages:
    """One silo's part in a run of messages."""

    def __init__(self, method: Method, silo: Silo, vectors: UnitVectors, plan: SiloPlan):
        self._method, self._vectors, self._plan = method, vectors, plan
        train = silo.train
        self._records = whole_records(
            vectors.vectors(train.x), vectors.outputs(train.y), plan.max_count, train.subject
        )

    def local(
        self,
        own: Any,
        broadcast: Any,
        paid: PaidRounds,
        random: Callable[[str], HostRandom],
    ) -> tuple[Any, Any]:
        """A round that is paid for: the next state, and the message.

        `random` gives what noise comes from, by a purpose that holds all that was asked: the same
        question gets the same answer, and another one other noise.
        """
        return self._method.local(own, broadcast, self._queries(paid.first, random))

    def _queries(self, number: int, random: Callable[[str], HostRandom]) -> MessageQueries:
        plan = self._plan
        assert isinstance(plan.schedule, MessageSchedule)
        return message_queries(
            self._records,
            self._vectors,
            plan.message_noise(number),
            plan.public_count,
            lambda question: random(f"message {number} {plan.silo} {question.hex()}"),
        )

    def personal(self, own: Any, broadcast: Any) -> np.ndarray:
        """The parameters of the model that the silo uses."""
        return self._vectors.params(self._method.personal(own, broadcast))


class MessagesOfOneSilo:
    """A silo's part in a run of messages, by itself: what `OneSilo` is to training passes.

    Attributes:
      method: the method.
    """

    def __init__(self, job: Job, alone: Federation, setting: Setting, seed: int):
        """The part of the only silo of that federation, with the randomness of that seed."""
        self._job, self._seed, self._trial = job, seed, setting.trial
        self.method = job.build(setting.options)
        alone = alone.decoded()
        self._silo = alone.silos[0]
        vectors = unit_vectors_of(alone)
        self._part = SiloOfMessages(self.method, self._silo, vectors, setting.plans[0])

    def local(self, state: Any, broadcast: Any, paid: PaidRounds) -> tuple[Any, Any]:
        """A round that is paid for: the next state, and the message."""

        def random(purpose: str) -> HostRandom:
            if paid.session is None:
                raise RuntimeError("Messages are charged: see RunSession.pay.")
            return paid.session.random(paid, self._seed, f"{self._trial} {purpose}")

        return self._part.local(state, broadcast, paid, random)

    def personal(self, state: Any, broadcast: Any) -> np.ndarray:
        """The parameters of the model that the silo uses."""
        return self._part.personal(state, broadcast)

    def learned(self, state: Any, broadcast: Any) -> dict[str, Any]:
        """What the silo can tell of its model, from what it released and what it was sent."""
        return self.method.learned_at_silo(state, broadcast)

    def metric(self, params: Any) -> float:
        """The metric of a model on the silo's test records; infinite if they have none."""
        if not len(self._silo.test):
            return float("inf")
        return float(metric_of(self._job, self._silo, params))


def run_messages(
    job: Job,
    seed: int,
    federation: Federation,
    setting: Setting,
    rounds: Sequence[int],
    session: RunSession,
    report: Callable[[int, np.ndarray], None],
) -> tuple[Any, dict[str, Any]]:
    """One run; calls report(round, metric of each silo) after each of these rounds.

    Returns the personal models, with a leading axis of silos, and what was learned.
    """
    federation = federation.decoded()
    vectors, method = unit_vectors_of(federation), job.build(setting.options)
    silos = [
        SiloOfMessages(method, silo, vectors, plan)
        for silo, plan in zip(federation.silos, setting.plans, strict=True)
    ]
    params = jax.eval_shape(job.model.init, jax.random.key(0))
    server, own = method.init(Start(params, jnp.zeros(2, jnp.uint32), 0, len(silos)))
    states, models = [own] * len(silos), np.zeros(0)
    measure, weights = _measure(job, federation), jnp.asarray(job.weights)
    for number in range(job.rounds):
        broadcast, paid = method.broadcast(server), session.pay(number, number + 1)

        def random(purpose: str, paid: PaidRounds = paid) -> HostRandom:
            return session.random(paid, seed, f"{setting.trial} {purpose}")

        answers = [
            silo.local(state, broadcast, paid, random)
            for silo, state in zip(silos, states, strict=True)
        ]
        states = [state for state, _ in answers]
        server = method.merge(server, stacked([message for _, message in answers]), weights)
        if number + 1 in rounds:
            models = _models(silos, states, method.broadcast(server))
            report(number + 1, measure(models))
    return models, method.learned(server)


def host_message_like(job: Job, method: Method, state: Any, broadcast: Any) -> Any:
    """A message of the shapes and types that a silo's have, with nothing in it."""
    params = jax.eval_shape(job.model.init, jax.random.key(0))
    size, outputs = (*params.shape, 1)[:2]
    square, weights = np.zeros((size, size)), np.zeros((size, outputs))
    moments = Moments(square, weights, np.zeros(outputs), np.zeros(3))
    vectors = UnitVectors(1.0, 0.0, 1.0, outputs if outputs > 1 else 0)
    gradient = (weights, 1.0)
    queries = MessageQueries(
        vectors, 1, 1.0, lambda _: moments, lambda *_: gradient, lambda _: gradient
    )
    return method.local(state, broadcast, queries)[1]


def stacked(messages: Sequence[Any]) -> Any:
    """Messages with a leading axis of silos, in their own precision."""
    return jax.tree.map(lambda *parts: np.stack(parts), *messages)


def _models(silos: Sequence[SiloOfMessages], states: Sequence[Any], broadcast: Any) -> np.ndarray:
    pairs = zip(silos, states, strict=True)
    return np.stack([silo.personal(state, broadcast) for silo, state in pairs])


def _measure(job: Job, federation: Federation) -> Callable[[np.ndarray], np.ndarray]:
    """Models [silos, ...] -> the metric of each on its silo's test records."""
    rows = max(1, *(len(silo.test) for silo in federation.silos))
    padded = [
        (pad_rows(silo.test.x, rows), pad_rows(silo.test.y, rows), np.int32(len(silo.test)))
        for silo in federation.silos
    ]
    compiled = jax.jit(lambda x, y, count, params: metric_on(job, x, y, count, params))
    return lambda models: np.array(
        [float(compiled(*test, jnp.asarray(own))) for test, own in zip(padded, models, strict=True)]
    )
