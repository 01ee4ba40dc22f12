"""Personal linear models in one to five messages of each silo, with nothing to tune.

A silo first releases moments of its records: second moments of the features, their products with
the labels. What is learned from the moments of all silos says in which directions silos differ, and
how much: each model is shrunk towards their mean by as much as noise and records say (empirical
Bayes, in closed form). Each message more is the gradient at a silo's own model of the moment, whose
noise is smaller, since residuals are smaller than labels. There are no rounds of descent, no
learning rate, no batches and no clip to choose. docs/fewround.md has the equations.

Use it where the model is linear. It needs no server that stays up: a message is one answer.
"""

from typing import Any

import numpy as np

from silodp.base.errors import SilodpError
from silodp.methods.base import Method, Start
from silodp.methods.fewround import classes, linear
from silodp.methods.fewround.constants import MESSAGE_SHARES
from silodp.privacy.mechanisms.message_queries import MessageSchedule


def fewround(rounds: int) -> Method:
    """The method in so many messages, one a round."""

    def kind(shared: Any) -> Any:
        return linear if isinstance(shared, linear.Shared) else classes

    def init(start: Start) -> tuple[Any, None]:
        shape = np.shape(start.params)
        return (linear if len(shape) == 1 else classes).first_server(shape), None

    def local(own: Any, shared: Any, queries: Any) -> tuple[Any, Any]:
        return kind(shared).answer(own, shared, queries)

    def merge(server: Any, messages: list[Any], weights: Any) -> Any:
        return kind(server.shared).merged(server, messages)

    def personal(own: Any, shared: Any) -> Any:
        return kind(shared).personal(own, shared)

    def learned(server: Any) -> dict[str, Any]:
        return kind(server.shared).learned(server)

    return Method(
        schedule=message_schedule,
        init=init,
        broadcast=lambda server: server.shared,
        local=local,
        merge=merge,
        personal=personal,
        learned=learned,
    )


def message_schedule(messages: int) -> MessageSchedule:
    """What so many messages take of the budget each."""
    if messages not in MESSAGE_SHARES:
        raise SilodpError(f"--messages is {messages}: give 1, 2, 3 or 5.")
    return MessageSchedule(rounds=messages, shares=MESSAGE_SHARES[messages])
