"""One silo that is asked for messages, through the real engine, and what an answer should be.

What records add to a message is worked out here once more, from its definition and with nothing of
the code that is audited.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from silodp.data.federation import Records, Silo
from silodp.engines.messages import SiloOfMessages
from silodp.methods.base import Method
from silodp.models.unit_vectors import UnitVectors
from silodp.privacy.mechanisms.message_queries import MessageQueries
from silodp.privacy.mechanisms.moments import Moments, Shares
from silodp.privacy.plan import SiloPlan
from silodp.privacy.session import RunSession


class Question(NamedTuple):
    """One of the questions.

    Attributes:
      shares: of moments, how they are divided; None: a gradient is asked for,
      model: at this model,
      scale: with residuals cut off here; None: it is that of log-odds.
    """

    shares: Shares | None
    model: np.ndarray | None = None
    scale: float | None = 1.0

    def ask(self, queries: MessageQueries) -> np.ndarray:
        """The numbers that are released."""
        if self.shares is not None:
            return numbers_of(queries.moments(self.shares))
        assert self.model is not None
        if self.scale is None:
            return queries.odds_gradient(self.model)[0].ravel()
        return queries.gradient(self.model, self.scale)[0].ravel()

    def slightly_changed(self) -> "Question":
        """Another question, which must have other noise."""
        if self.shares is not None:
            gram, cross, labels = self.shares
            return self._replace(shares=Shares(gram, 0.99 * cross, labels))
        assert self.model is not None
        return self._replace(model=1.01 * self.model)

    def _parts(self, size: int, outputs: int) -> list[tuple[int, float]]:
        """How many numbers each part has, and its share of what is paid."""
        if self.shares is None:
            return [(size * outputs, 1.0)]
        counts = (size * (size + 1) // 2, size * outputs, outputs)
        return list(zip(counts, self.shares, strict=True))

    def deviations(self, noise_multiplier: float, size: int, outputs: int) -> np.ndarray:
        """Standard deviations of the noise on these numbers, in a message of that multiplier."""
        parts = self._parts(size, outputs)
        found = np.concatenate([np.full(n, noise_multiplier / math.sqrt(s)) for n, s in parts])
        if self.shares is not None:  # above the diagonal
            found[size : parts[0][0]] /= math.sqrt(2)
        return found

    def grains(self, noise_multiplier: float, size: int, outputs: int) -> np.ndarray:
        """Of what each number is a multiple: 2^-30 of the noise of its part, rounded up."""
        parts = self._parts(size, outputs)
        exponents = [math.ceil(math.log2(noise_multiplier / math.sqrt(s))) - 30 for _, s in parts]
        return np.repeat(2.0 ** np.array(exponents), [count for count, _ in parts])

    def added(self, units: "Units", vectors: UnitVectors) -> np.ndarray:
        """What the units add to these numbers, all together."""
        if self.shares is None:
            assert self.model is not None
            residuals = _residuals(units, self.model, self.scale, vectors.classes > 0)
            return units.sum(units.x, residuals).ravel()
        ones, of_classes = np.ones((len(units.y), 1)), vectors.classes or vectors.two_classes
        labels = units.sum(units.y, ones if of_classes else units.y)
        return numbers_of(
            Moments(
                units.sum(units.x, units.x), units.sum(units.x, units.y), labels[:, 0], np.zeros(3)
            )
        )


def numbers_of(moments: Moments) -> np.ndarray:
    """What is released of moments, each number once: the diagonal, what is above it, and so on."""
    above = np.triu_indices(len(moments.gram), 1)
    parts = (np.diag(moments.gram), moments.gram[above], moments.cross, moments.labels)
    return np.concatenate([np.ravel(part) for part in parts])


class Units(NamedTuple):
    """Records as vectors, none longer than 1, and the unit that each is about.

    Attributes:
      x: vectors.
      y: outputs.
      weights: of each record: one over the number of records of its subject.
    """

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def sum(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The sum over units of their mean a b'."""
        return (left * self.weights[:, None]).T @ right


def units_of(records: Records, vectors: UnitVectors) -> Units:
    """Records as the definition of a message has them."""
    x, y = _within_one(vectors.vectors(records.x)), _within_one(vectors.outputs(records.y))
    counts = np.ones(len(records))
    if records.subject is not None:
        counts = np.bincount(records.subject)[records.subject].astype(float)
    return Units(x, y, 1.0 / counts)


def _within_one(rows: np.ndarray) -> np.ndarray:
    rows = np.where(np.isfinite(rows), rows, 0.0)
    return rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))


def _residuals(units: Units, model: np.ndarray, scale: float | None, classes: bool) -> np.ndarray:
    outputs = units.x @ model
    if scale is None:
        sign = np.sign(units.y)
        return sign * np.exp(-np.maximum(sign * outputs, 0.0))
    if not classes:
        return np.clip((units.y - outputs) / scale, -1.0, 1.0)
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    residuals = units.y - powers / powers.sum(axis=1, keepdims=True)
    return residuals / np.maximum(scale, np.linalg.norm(residuals, axis=1, keepdims=True))


def _asking() -> Method:
    """A method whose broadcast is what it does with the queries."""

    def local(own: Any, ask: Callable[[MessageQueries], Any], queries: MessageQueries):
        return own, ask(queries)

    def nothing(*_: Any) -> Any:
        return ()

    return Method(nothing, nothing, nothing, local, nothing, nothing)  # type: ignore[arg-type]


class AskedSilo:
    """A silo in runs of messages, each with a seed of its own, that anything may be asked.

    Attributes:
      plan: its plan.
      vectors: how records become vectors.
    """

    def __init__(self, silo: Silo, vectors: UnitVectors, plan: SiloPlan, secret: bytes):
        """The silo in releases of that secret; of none, in experiments."""
        self.plan, self.vectors = plan, vectors
        self._part = SiloOfMessages(_asking(), silo, vectors, plan)
        self._session = RunSession(None, [plan.silo], plan.schedule.rounds)
        self._session.reserve(secret=secret)
        self._paid = [self._session.pay(n, n + 1) for n in range(plan.schedule.rounds)]

    def with_queries(self, seed: int, number: int, use: Callable[[MessageQueries], Any]) -> Any:
        """What `use` makes of the queries of round `number` in the run of that seed."""
        paid = self._paid[number]
        return self._part.local(
            (), use, paid, lambda purpose: self._session.random(paid, seed, f"0 {purpose}")
        )[1]

    def answer(self, seed: int, number: int, question: Question) -> np.ndarray:
        """The numbers that are released in round `number` of the run of that seed."""
        return self.with_queries(seed, number, question.ask)


def asked_silo(
    name: str, records: Records, vectors: UnitVectors, plan: SiloPlan, secret: bytes
) -> AskedSilo:
    """A silo of these records; all that is public of it stays as it is planned."""
    own = replace(plan, true_count=records.units, max_count=max(plan.max_count, records.units))
    return AskedSilo(Silo(name, records, records.take(np.arange(0))), vectors, own, secret)
