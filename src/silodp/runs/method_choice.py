"""A method with a run's options: silos' own values, refusals, and its schedule."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from silodp.base.errors import SilodpError
from silodp.config.options import RunRequest
from silodp.config.silo_options import lambda_of_each
from silodp.data.tasks import get_task
from silodp.methods import MethodEntry, is_ours
from silodp.methods.check import check_method, checked_schedule
from silodp.models.model import Model
from silodp.privacy.mechanisms.queries import Schedule

Values = Mapping[str, Any]
"""The options of a run by name, with nothing left open that a method needs."""

OwnValues = dict[str, tuple[float, ...]]
"""The method's options that differ from silo to silo, by name."""


def own_values_of(
    request: RunRequest, method: MethodEntry, silos: Sequence[str], left_out: Sequence[str] = ()
) -> OwnValues:
    """The method's options that have a value for each silo; those left out may have one as well."""
    if request.silo_lam is None:
        return {}
    if "lam" not in method.of_silo:
        raise SilodpError(
            f"--silo-lam: method {request.method!r} has no lambda of a silo's own: leave it out, "
            "or use mrmtl, meanpull, ditto or mocha."
        )
    values = lambda_of_each(request.silo_lam, [*silos, *left_out], request.lam)
    return {"lam": values[: len(silos)]}


def check_choice(
    settings: Sequence[Values],
    method: MethodEntry,
    model: Model,
    own_values: Sequence[OwnValues],
    silos: Sequence[str],
) -> None:
    """Refuses what the method cannot do with this model, these silos or these numbers."""
    first = settings[0]
    name, clusters = first["method"], first["clusters"]
    if "clusters" in method.fixed and clusters > len(silos):
        raise SilodpError(
            f"--clusters is {clusters}, but there are {len(silos)} silos: give at most as many."
        )
    if method.convex and not model.convex:
        raise SilodpError(
            f"Method {name!r} is for convex models only: the relations that it learns "
            "compare parameters one by one, which says nothing about models such as "
            f"{model.name!r} that reach the same function with other parameters: choose a linear "
            "model, or method mrmtl."
        )
    task = get_task(model.task)
    if method.in_messages and task.as_vectors is None:
        raise SilodpError(
            f"Method {name!r} is for numbers and classes to predict, but the data are {task.name}: "
            "use method ebmtl."
        )
    if method.in_messages and (model.name != task.model or model.prevalence is not None):
        raise SilodpError(
            f"Method {name!r} is for linear models without weights: leave out --model and "
            "--prevalence, or use method ebmtl."
        )
    for values, own in zip(settings, own_values, strict=True):
        _check_finite(values, method, own, silos)
    if not is_ours(name):
        rounds = first["rounds"]
        build = partial(method.build, rounds=rounds, **method.fixed_values(first))
        check_method(name, build, method.traced_values(first), model, rounds)


def _check_finite(
    values: Values, method: MethodEntry, own: OwnValues, silos: Sequence[str]
) -> None:
    for option, value in method.traced_values(values).items():
        given = {f"--{option}": value}
        if option in own:
            named = zip(silos, own[option], strict=True)
            given |= {f"--silo-{option} of silo {silo!r}": number for silo, number in named}
        infinite = [flag for flag, number in given.items() if math.isinf(number)]
        if infinite and option not in method.infinite:
            raise must_be_finite(infinite[0], values["method"])


def must_be_finite(flag: str, method: str) -> SilodpError:
    """The refusal of an infinite number."""
    return SilodpError(
        f"{flag} is infinite, with which method {method!r} would not learn: give a finite number, "
        "or use meanpull or fedavg."
    )


def schedule_of(values: Values, method: MethodEntry) -> Schedule:
    """The method's schedule with these options: its queries to each silo."""
    rounds = values["rounds"]
    given = method.traced_values(values) | method.fixed_values(values)
    return checked_schedule(values["method"], partial(method.build, rounds=rounds, **given), rounds)
