"""What a method is: a few pure functions, run by any engine.

State is a pytree, so that checkpoints, `jax.vmap` and `jax.lax.scan` come free. A method reaches
records only through the `Queries` that it is handed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped, UInt32

from silodp.privacy.mechanisms.queries import Schedule
from silodp.privacy.mechanisms.shapes import Params, WholeNumber

# What a method keeps and sends: pytrees of arrays, of whichever shapes it likes.
Server = PyTree
Silo = PyTree
Message = PyTree
Broadcast = PyTree
# `Queries`, or `MessageQueries` of a method of messages.
Asked = Any

# Pytrees of arrays whose leading axis is of silos, or of clusters; the other axes are any. What
# comes from silos may be NumPy's.
OfSilos = PyTree[Shaped[Array | np.ndarray, "silos ..."]]
OfClusters = PyTree[Shaped[Array, "clusters ..."]]


class Start(NamedTuple):
    """What a state may be made from.

    Attributes:
      params: the model to start from.
      key: two words, for whatever is drawn at the start with `jax.random`.
      place: the silo's place in the federation; messages reach the server in that order.
      silos: how many there are.
      round: the round before which the method starts; not 0 if another method went before.

    Examples:
      >>> import jax
      >>> start = silodp.Start({"w": 0.0}, jax.random.key(0), place=1, silos=3)
      >>> start.place, start.round
      (1, 0)
    """

    params: Params
    key: UInt32[Array, "2"] | Key[Array, ""]
    place: WholeNumber
    silos: int
    round: WholeNumber = 0


def nothing_learned(server: Server) -> dict[str, Any]:
    """Nothing: for methods that find out nothing about the silos but models."""
    return {}


def nothing_learned_at_silo(own: Silo, broadcast: Broadcast) -> dict[str, Any]:
    """Nothing: for methods that tell a silo nothing but its model."""
    return {}


class Method(NamedTuple):
    """One way for silos to learn together.

    Attributes:
      schedule: rounds -> what the method asks of each silo's records; the cost follows from it.
      init: a Start -> the server's state, and the state of one silo.
      broadcast: server -> what every silo gets at the start of a round.
      local: silo, broadcast, queries -> silo, message. Runs in the silo.
      merge: server, messages (each with a leading axis of silos), weights -> server. Runs at the
        server, which sees only messages. A silo of weight 0 has no say.
      personal: silo, broadcast -> the model that the silo uses.
      learned: server -> what it found out about the silos, from released messages alone, by name:
        arrays or pytrees of arrays. Asked for once, at the end of a run.
      learned_at_silo: silo, broadcast -> the same as far as a silo can tell by itself, with an axis
        of one silo where there is one of silos.

    Examples:
      Local training: nothing is sent, and every silo keeps a model of its own.

      >>> method = silodp.Method(
      ...     schedule=lambda rounds: silodp.Schedule(rounds, train=1),
      ...     init=lambda start: ((), start.params),
      ...     broadcast=lambda server: (),
      ...     local=lambda own, broadcast, queries: (queries.train(own), ()),
      ...     merge=lambda server, messages, weights: (),
      ...     personal=lambda own, broadcast: own,
      ... )
      >>> method.schedule(10)
      Schedule(rounds=10, train=1, select_rounds=0)
    """

    schedule: Callable[[int], Schedule]
    init: Callable[[Start], tuple[Server, Silo]]
    broadcast: Callable[[Server], Broadcast]
    local: Callable[[Silo, Broadcast, Asked], tuple[Silo, Message]]
    merge: Callable[[Server, OfSilos, Float[Array, " silos"]], Server]
    personal: Callable[[Silo, Broadcast], Params]
    learned: Callable[[Server], dict[str, Any]] = nothing_learned
    learned_at_silo: Callable[[Silo, Broadcast], dict[str, Any]] = nothing_learned_at_silo


def one_pass_a_round(rounds: int) -> Schedule:
    """The schedule of every method whose silos train once in a round."""
    return Schedule(rounds, train=1)


def add(a: Params, b: Params) -> Params:
    """a + b, leaf by leaf."""
    return jax.tree.map(jnp.add, a, b)


def difference(a: Params, b: Params) -> Params:
    """a - b, leaf by leaf.

    Examples:
      >>> silodp.difference({"w": 5.0}, {"w": 3.0})["w"].item()
      2.0
    """
    return jax.tree.map(jnp.subtract, a, b)


def choose(condition: Bool[Array, ""], a: Params, b: Params) -> Params:
    """a where the (scalar) condition holds, else b."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def weighted_mean(messages: OfSilos, weights: Float[Array, " silos"]) -> Params:
    """The mean over silos (the leading axis); weights sum to 1.

    Examples:
      >>> import jax.numpy as jnp
      >>> silodp.weighted_mean(jnp.array([1.0, 5.0]), jnp.array([0.75, 0.25])).item()
      2.0
    """
    return jax.tree.map(lambda m: jnp.tensordot(weights, m, axes=1), messages)
