"""What the adversary sees: every answer that a silo gives to a training query.

A method reaches records only through queries, so whoever knows all answers knows all that a silo
releases, whatever the method then makes of them. `watched` wraps a method: it does what it did, and
its silos' state also holds, for every training pass, how far the answer lies along the canary's
gradient from what is expected without a canary.

The adversary knows everything but whether the canary is there: the other records, the model that a
pass starts from, and lambda. With a linear model it may also choose where passes start, as epsilon
allows (a dishonest coordinator could): see STRATEGIES.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from silodp.engines.job import Job
from silodp.methods import MethodEntry
from silodp.methods.base import Start, add, difference
from silodp.privacy.mechanisms.queries import Queries
from silodp.privacy.plan import SiloPlan

Params = Any

STRATEGIES = ("steady", "turning", "as asked")
"""From where passes are started.

- steady: all from the model that shows the canary best.
- turning: in every other pass the canary's gradient has the other sign. Noise that is used twice
  then cancels out, and the canary does not.
- as asked: from where the method says.
"""
STRATEGY = "strategy"  # an option of watched methods, so that one program tries all


@dataclass(frozen=True)
class Adversary:
    """What is known of the audited silo.

    Attributes:
      job: what is trained.
      plan: the silo's plan.
      lr: learning rate of local training.
      canary: features and label of the canary, as a batch of one, prepared for the model.
      others: features and labels of all other units.
      starts: models to start from, if the model is linear (see `canary.Canary`).
    """

    job: Job
    plan: SiloPlan
    lr: float
    canary: tuple[Any, Array]
    others: tuple[Any, Array]
    starts: np.ndarray | None

    @property
    def strategies(self) -> tuple[int, ...]:
        """The numbers of the strategies that suit the model."""
        return tuple(range(len(STRATEGIES))) if self.starts is not None else (2,)

    def start(self, params: Params, strategy: Array, number: Array) -> Params:
        """Where the pass of that number starts, if the method asks for `params`."""
        if self.starts is None:
            return params
        turned = (strategy == 1) & (number % 2 == 1)
        chosen = jnp.where(turned, self.starts[1], self.starts[0])
        return jnp.where(strategy == 2, params, chosen)

    def kept(self, strength: Array | float) -> Array | float:
        """The part of a model's distance to its goal that a pass without records leaves."""
        pull = self.lr * strength
        step = 1.0 / (1.0 + pull) if self.job.regulariser == "proximal" else 1.0 - pull
        return step**self.plan.steps

    def gradient(self, params: Params) -> Params:
        """The canary's clipped gradient."""
        return self._clipped_sum(params, self.canary)

    def pull_of_others(self, params: Params) -> Params:
        """What the other units are expected to move a model by in a pass."""
        steps = self.plan.steps * self.lr / self.plan.public_count  # each is drawn at b_k / n_k
        total = self._clipped_sum(params, self.others)
        return jax.tree.map(lambda g: -steps * g, total)

    def _clipped_sum(self, params: Params, units: tuple[Any, Array]) -> Params:
        features, y = units
        return self.job.unit_model.clipped_sum(
            params, features, y, jnp.ones(y.shape[0]), self.plan.clip
        )


class Watched(NamedTuple):
    """The state of a silo whose answers are watched."""

    own: Any
    round: Array
    seen: Array  # [rounds, passes]


def watched(entry: MethodEntry, adversary: Adversary) -> MethodEntry:
    """The method as it is, with a silo state that also holds what the adversary sees."""

    def build(rounds: int, strategy: Array, **options):
        method = entry.build(rounds=rounds, **options)
        passes = method.schedule(rounds).train

        def init(start: Start):
            server, own = method.init(start)
            return server, Watched(own, jnp.int32(0), jnp.zeros((rounds, passes)))

        def local(silo: Watched, broadcast, queries: Queries):
            listening = _Listening(queries, adversary, strategy, silo.round * passes)
            heard = queries._replace(train=listening.train)
            own, message = method.local(silo.own, broadcast, heard)
            row = jnp.zeros(passes).at[: len(listening.readings)].set(jnp.stack(listening.readings))
            return Watched(own, silo.round + 1, silo.seen.at[silo.round].set(row)), message

        def personal(silo: Watched, broadcast):
            return method.personal(silo.own, broadcast)

        return method._replace(init=init, local=local, personal=personal)

    return replace(entry, build=build, options=(*entry.options, STRATEGY))


class _Listening:
    """Queries whose answers are measured along the canary's gradient."""

    def __init__(self, queries: Queries, adversary: Adversary, strategy: Array, first: Array):
        self._queries, self._adversary = queries, adversary
        self._strategy, self._first = strategy, first
        self.readings: list[Array] = []

    def train(self, params: Params, towards: Params | None = None, strength=0.0) -> Params:
        adversary = self._adversary
        start = adversary.start(params, self._strategy, self._first + len(self.readings))
        trained = self._queries.train(start, towards, strength)

        # Without records and noise, the regulariser alone would lead here.
        kept = 1.0 if towards is None else adversary.kept(strength)
        goal = start if towards is None else towards
        expected = jax.tree.map(lambda g, s: g + kept * (s - g), goal, start)
        if not adversary.job.model.heavy:
            expected = add(expected, adversary.pull_of_others(start))
        gradient = adversary.gradient(start)
        along = _inner(difference(expected, trained), gradient)
        self.readings.append(along / jnp.sqrt(_inner(gradient, gradient)))
        # The method goes on as if the pass had started from the model that it gave.
        return jax.tree.map(lambda t, s, p: t - kept * (s - p), trained, start, params)


def _inner(a: Params, b: Params) -> Array:
    return jnp.asarray(optax.tree.vdot(a, b))
