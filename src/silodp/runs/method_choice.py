"""What a run's options make of a method: silos' own numbers, what is refused, what it asks for."""

import math
from collections.abc import Sequence
from functools import partial

from silodp.base.errors import SilodpError
from silodp.config.options import RunOptions
from silodp.config.silo_options import lambda_of_each
from silodp.methods import MethodEntry, is_ours
from silodp.methods.check import check_method, checked_schedule
from silodp.models.model import Model
from silodp.privacy.mechanisms.queries import Schedule

OfSilos = dict[str, tuple[float, ...]]
"""The method's options that differ from silo to silo, by name."""


def options_of_silos(asked: RunOptions, method: MethodEntry, silos: Sequence[str]) -> OfSilos:
    """The silos' own values of the method's options."""
    if asked.silo_lam is None:
        return {}
    if "lam" not in method.of_silo:
        raise SilodpError(
            f"--silo-lam: method {asked.method!r} has no lambda of a silo's own: leave it out, or "
            "use mrmtl, meanpull, ditto or mocha."
        )
    return {"lam": lambda_of_each(asked.silo_lam, silos, asked.lam)}


def check_choice(
    asked: Sequence[RunOptions],
    method: MethodEntry,
    model: Model,
    of_silos: Sequence[OfSilos],
    silos: Sequence[str],
) -> None:
    """Refuses what the method cannot do with this model, these silos or these numbers."""
    first = asked[0]
    if "clusters" in method.fixed and first.clusters > len(silos):
        raise SilodpError(
            f"--clusters is {first.clusters}, but there are {len(silos)} silos: give at most as "
            "many."
        )
    if method.convex and not model.convex:
        raise SilodpError(
            f"Method {first.method!r} is for convex models only: the relations that it learns "
            "compare parameters one by one, which says nothing about models such as "
            f"{model.name!r} that reach the same function with other parameters: choose a linear "
            "model, or method mrmtl."
        )
    for one, own in zip(asked, of_silos, strict=True):
        _check_finite(one, method, own, silos)
    if not is_ours(first.method):
        rounds = first.rounds or 0
        build = partial(method.build, rounds=rounds, **method.fixed_values(first))
        check_method(first.method, build, method.traced_values(first), model, rounds)


def _check_finite(
    asked: RunOptions, method: MethodEntry, own: OfSilos, silos: Sequence[str]
) -> None:
    for option, value in method.traced_values(asked).items():
        given = {f"--{option}": value}
        if option in own:
            named = zip(silos, own[option], strict=True)
            given |= {f"--silo-{option} of silo {silo!r}": number for silo, number in named}
        infinite = [flag for flag, number in given.items() if math.isinf(number)]
        if infinite and option not in method.infinite:
            raise must_be_finite(infinite[0], asked.method)


def must_be_finite(flag: str, method: str) -> SilodpError:
    """The refusal of an infinite number."""
    return SilodpError(
        f"{flag} is infinite, with which method {method!r} would not learn: give a finite number, "
        "or use meanpull or fedavg."
    )


def schedule_of(asked: RunOptions, method: MethodEntry) -> Schedule:
    """What the method asks of each silo with these options."""
    rounds = asked.rounds or 0
    values = method.traced_values(asked) | method.fixed_values(asked)
    return checked_schedule(asked.method, partial(method.build, rounds=rounds, **values), rounds)
