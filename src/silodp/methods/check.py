"""A method that we did not write is tried on made-up answers before it meets a record.

Engines count what a method asks for while they compile it. A question inside a loop or `jax.vmap`
would be compiled once and asked many times, with one noise: so questions must come from plain code.
At first nothing is compiled here, so that such a question is seen; then all is traced, as engines
do, so that no noise depends on a number that is not known yet.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from silodp.base.errors import SilodpError
from silodp.methods.base import Method, Start
from silodp.models.model import Model
from silodp.privacy.mechanisms.queries import PassNoise, Queries, Schedule, guarded

_SILOS = 2
_NO_ARRAY = "no array, but a "
_PLAIN, _TRACED = "on made-up answers", "when compiled"
_REMEDIES = {
    _TRACED: "states, and numbers that a sweep may vary, are not known then; use jnp.where"
}


def check_method(
    name: str,
    build: Callable[..., Method],
    options: Mapping[str, float],
    model: Model,
    rounds: int,
) -> None:
    """Refuses a method that asks for more than it pays for, or that no engine could run.

    Args:
      name: name of the method.
      build: the options, by name -> the method.
      options: those that may differ between the runs of a sweep.
      model: what is trained.
      rounds: number of communication rounds.
    """
    _try_a_round(name, build, model, rounds, _PLAIN, options)
    numbers = {option: jnp.float32(value) for option, value in options.items()}
    jax.eval_shape(partial(_try_a_round, name, build, model, rounds, _TRACED), numbers)


def checked_schedule(name: str, build: Callable[[], Method], rounds: int) -> Schedule:
    """What the method asks for in so many rounds."""
    with _stage(name, "build"):
        method = build()
    return _schedule_of(name, method, rounds)


def _schedule_of(name: str, method: Method, rounds: int, when: str = "") -> Schedule:
    with _stage(name, "schedule", when):
        schedule = method.schedule(rounds)
    if not isinstance(schedule, Schedule) or schedule.rounds != rounds:
        raise SilodpError(
            f"Method {name!r}: `schedule` gives {schedule} for {rounds} rounds: give a "
            "silodp.Schedule of as many rounds, because all of them are paid for by it."
        )
    return schedule


def _try_a_round(
    name: str,
    build: Callable[..., Method],
    model: Model,
    rounds: int,
    when: str,
    options: Mapping[str, Any],
) -> None:
    key = jax.random.key(0)
    params = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(model.init, key)
    )
    with _stage(name, "build", when):
        method = build(**options)
    schedule = _schedule_of(name, method, rounds, when)

    def train(number_of_pass: int, given: Any, towards: Any, strength: Any) -> Any:
        _check_same(name, "local", "the model that it trains", params, given)
        if towards is not None:
            _check_same(name, "local", "the model that it pulls towards", params, towards)
        if np.shape(strength) != ():
            raise SilodpError(f"Method {name!r}: `local` gives a strength that is not one number.")
        return given

    def select(candidates: Any) -> Any:
        first = jax.tree.map(lambda leaf: leaf[0], candidates)
        _check_same(name, "local", "the models that it selects from", params, first)
        return jnp.int32(0)

    def first_states(place: int) -> tuple[Any, Any]:
        start = Start(params, jax.random.key_data(key), jnp.int32(place), _SILOS)
        return method.init(start)

    with _stage(name, "init", when):
        server, _ = first_states(0)
        silos = [first_states(place)[1] for place in range(_SILOS)]
    with _stage(name, "broadcast", when):
        broadcast = method.broadcast(server)
    messages = []
    for place, silo in enumerate(silos):
        with _stage(name, "local", when):
            noise = PassNoise(*[jnp.float32(1)] * len(PassNoise._fields))
            answers = guarded(schedule, jnp.int32(0), train, select, noise)
            if when == _PLAIN:
                answers = Queries(
                    _plainly(name, answers.train), _plainly(name, answers.select), answers.noise
                )
            silos[place], message = method.local(silo, broadcast, answers)
        _check_same(name, "local", "the silo's state", silo, silos[place])
        _check_same(name, "local", "the message", message, message)
        messages.append(message)
    joined = jax.tree.map(lambda *parts: jnp.stack(parts), *messages)
    with _stage(name, "merge", when):
        merged = method.merge(server, joined, jnp.full(_SILOS, 1 / _SILOS))
    _check_same(name, "merge", "the server's state", server, merged)
    with _stage(name, "personal", when):
        own = method.personal(silos[0], method.broadcast(merged))
    _check_same(name, "personal", "the model", params, own)
    with _stage(name, "learned", when):
        learned = method.learned(merged)
    _check_learned(name, learned)


def _plainly(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    """The query, refused to a function that JAX transforms."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        # A question that no loop changes is let through: with one noise it has one answer.
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            raise SilodpError(
                f"Method {name!r} asks a silo from within jax.vmap, jax.grad, jax.jit or a JAX "
                "loop or condition: it could be asked more often than is paid for; ask in plain "
                "code, once for each pass."
            )
        return ask(*args, **kwargs)

    return plain


def _check_same(name: str, function: str, what: str, before: Any, after: Any) -> None:
    """Refuses another structure, shape or dtype, and what is no array."""
    pairs = zip_longest(_kinds(before), _kinds(after), fillvalue="nothing")
    changed = [(old, new) for old, new in pairs if old != new or _NO_ARRAY in new]
    if not changed and jax.tree.structure(before) != jax.tree.structure(after):
        changed = [(jax.tree.structure(before), jax.tree.structure(after))]
    if changed:
        raise SilodpError(
            f"Method {name!r}: `{function}` changes {what}: {changed[0][0]} becomes "
            f"{changed[0][1]}; keep its structure, shapes and dtypes."
        )


def _check_learned(name: str, learned: Any) -> None:
    """Refuses what cannot be kept in a result."""
    named = isinstance(learned, dict) and all(isinstance(key, str) for key in learned)
    wrong = [kind for kind in _kinds(learned) if _NO_ARRAY in kind]
    if not named or wrong:
        raise SilodpError(
            f"Method {name!r}: `learned` gives {wrong[0] if wrong else type(learned).__name__}: "
            "give a dictionary of arrays by name, or of pytrees of arrays."
        )


def _kinds(tree: Any) -> list[str]:
    """What each leaf is, such as ['w'] float32[4]."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [f"{jax.tree_util.keystr(path)} {_kind(leaf)}".strip() for path, leaf in leaves]


def _kind(leaf: Any) -> str:
    """Dtype and shape, such as float32[4]."""
    try:
        return f"{jnp.result_type(leaf).name}{list(np.shape(leaf))}"
    except TypeError:
        return _NO_ARRAY + type(leaf).__name__


@contextmanager
def _stage(name: str, function: str, when: str = "") -> Iterator[None]:
    """Adds to any error which of the method's functions it came from."""
    try:
        yield
    except SilodpError:
        raise
    except Exception as error:
        why = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise SilodpError(
            f"Method {name!r}: `{function}` fails{' ' * bool(when)}{when} "
            f"({type(error).__name__}: {why}): {_REMEDIES.get(when, 'correct it')}."
        ) from error
