"""Runs of few messages on silos drawn from the model, without data sets, plans or ledgers."""

import math

import numpy as np

import silodp
from silodp.engines.messages import stacked
from silodp.methods.fewround import fewround, linear
from silodp.methods.fewround.constants import MESSAGE_SHARES
from silodp.models.unit_vectors import UnitVectors
from silodp.privacy.mechanisms.message_queries import message_queries
from silodp.privacy.mechanisms.moments import whole_records

UNIT = UnitVectors(length=2.5, middle=0.0, half=1.0)


class Gaussian:
    """Noise of a seeded generator, which is fast."""

    def __init__(self, random):
        self._random = random

    def rounded_gaussian(self, deviation, shape):
        return np.rint(self._random.normal(size=shape) * deviation)


def drawn(seed, silos=30, size=5, count=60, spread=0.3, residual=0.2):
    """Silos from the model that the method assumes: features, labels and true weights."""
    random = np.random.default_rng(seed)
    mean = random.normal(size=size) * 0.3
    found = []
    for _ in range(silos):
        x = np.clip(random.normal(size=(count, size - 1)) * 0.6, -1, 1)
        vectors = UNIT.vectors(x)
        own = mean + spread * random.normal(size=size)
        y = vectors @ own + residual * random.normal(size=count)
        found.append((whole_records(vectors, y[:, None], 2 * count), own))
    return found


def learned(silos, noise, messages=3, seed=0, noises=None):
    """The server and all silos' states after so many messages."""
    random = Gaussian(np.random.default_rng(seed))
    method = fewround(messages)
    params = np.zeros(silos[0][0].x.shape[1])
    server, own = method.init(silodp.Start(params, None, 0, len(silos)))
    states = [own] * len(silos)
    for number in range(messages):
        answers = []
        for place, (records, _) in enumerate(silos):
            own = (noise if noises is None else noises[place]) / math.sqrt(
                MESSAGE_SHARES[messages][number]
            )
            queries = message_queries(records, UNIT, own, len(records.x), lambda _: random)
            answers.append(method.local(states[place], method.broadcast(server), queries))
        states = [state for state, _ in answers]
        messages_of_all = stacked([message for _, message in answers])
        server = method.merge(server, messages_of_all, np.ones(len(silos)) / len(silos))
    return server, states


def model(own, server):
    """A silo's weights on vectors."""
    return linear.model_of(own, server.shared)[:, 0]


def error(silos, server, states):
    """Mean squared distance of predictions from the truth."""
    gaps = [
        records.x * 2.0**-records.bits @ (model(own, server) - truth)
        for (records, truth), own in zip(silos, states, strict=True)
    ]
    return float(np.mean([np.mean(gap**2) for gap in gaps]))
