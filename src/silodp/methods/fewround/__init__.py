"""Personal linear models in one to five messages of each silo, with nothing to tune.

A silo first releases moments of its records: second moments of the features, their products with
the labels. What is learned from the moments of all silos says in which directions silos differ, and
how much: each model is shrunk towards their mean by as much as noise and records say (empirical
Bayes, in closed form). Each message more is the gradient at a silo's own model of the moment, whose
noise is smaller, since residuals are smaller than labels. There are no rounds of descent, no
learning rate, no batches and no clip to choose. docs/fewround.md has the equations.

Use it where the model is linear. It needs no server that stays up: a message is one answer.
"""

from typing import Any, NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.methods.base import Method, Start
from silodp.methods.fewround import classes, linear
from silodp.methods.fewround.constants import CLASS_SHARES, MESSAGE_SHARES
from silodp.methods.fewround.released import (
    Message,
    Released,
    merged_into,
    no_message,
    nothing_released,
    with_moments,
)
from silodp.privacy.mechanisms.message_queries import MessageSchedule


def fewround(rounds: int, model: str | None = None) -> Method:
    """The method in so many messages, one a round, for the model of that name."""

    def kind(shared: Any) -> Any:
        return linear if isinstance(shared, linear.Shared) else classes

    def init(start: Start) -> tuple[Server, Released]:
        size, outputs = (*np.shape(start.params), 1)[:2]
        own = nothing_released(size, outputs, rounds)
        several = len(np.shape(start.params)) > 1
        shared = (classes if several else linear).nothing_shared(size, outputs)
        all_silos = Released(*(np.stack([part] * start.silos) for part in own))
        return Server(all_silos, shared), own

    def local(own: Released, shared: Any, queries: Any) -> tuple[Released, Message]:
        number = int(shared.round)
        if number == 0:
            return with_moments(own, kind(shared).parts(own, queries), queries)
        if own.records == 0:
            return own, no_message(own)
        return kind(shared).message(own, shared, queries)

    def merge(server: Server, messages: Message, weights: Any) -> Server:
        number = int(server.shared.round)
        released = merged_into(server.released, messages, np.asarray(weights), number)
        if not released.records.any():
            raise SilodpError(
                "No silo has sent moments in the first round that its records could have made: "
                "start again, as another run."
            )
        return Server(released, kind(server.shared).estimated(released, server.shared))

    def learned_at_silo(own: Released, shared: Any) -> dict[str, np.ndarray]:
        alone = Released(*(np.asarray(part)[None] for part in own))
        return kind(shared).learned(alone, shared)

    return Method(
        schedule=lambda messages: message_schedule(messages, model == classes.MODEL),
        init=init,
        broadcast=lambda server: server.shared,
        local=local,
        merge=merge,
        personal=lambda own, shared: kind(shared).personal(own, shared),
        learned=lambda server: kind(server.shared).learned(*server),
        learned_at_silo=learned_at_silo,
    )


class Server(NamedTuple):
    """What the server holds: all that silos have released, and what it makes of it."""

    released: Released
    shared: linear.Shared | classes.Shared


def message_schedule(messages: int, several_classes: bool = False) -> MessageSchedule:
    """What so many messages take of the budget each."""
    if messages not in MESSAGE_SHARES:
        raise SilodpError(f"--messages is {messages}: give 1, 2, 3 or 5.")
    shares = CLASS_SHARES if several_classes else MESSAGE_SHARES
    return MessageSchedule(rounds=messages, shares=shares[messages])
