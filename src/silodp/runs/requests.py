"""From options by name to requests; refuses an option that would do nothing."""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from silodp.base.errors import SilodpError, meant
from silodp.config.choices import AUTO_METHOD
from silodp.config.declared import flag
from silodp.config.options import DATA_OPTIONS, OPTIONS, RunRequest, tagged
from silodp.methods import METHOD_OPTIONS, METHODS, MethodEntry, get_method
from silodp.methods.server import SERVER_LR
from silodp.runs.method_choice import schedule_of

# Whether a method makes selections does not depend on the number of rounds: any number will do.
_ROUNDS = 100


# What stands for "auto": the first one where data do not decide.
_USUAL = ("ebmtl", "fewround")


def requests_of(
    options: Mapping[str, Any],
    *,
    uses: Collection[str] = (),
    by_data: bool = False,
    own_data: bool = False,
    own_model: bool = False,
) -> list[RunRequest]:
    """The request of each setting: lists among the options that may be swept span a grid.

    Args:
      options: values by name.
      uses: options that the caller makes use of, whatever a run would do with them.
      by_data: whether a method that is not named is chosen by the data, later; else it is ebmtl, or
        the one that takes the other options.
      own_data: whether records were given from Python.
      own_model: whether a model was.
    """
    options = dict(options)
    given = [name for name, value in options.items() if value is not None]
    axes = {
        name: list(options.pop(name))
        for name in tagged("swept")
        if isinstance(options.get(name), list | tuple | np.ndarray)
    }
    points = [
        dict(zip(axes, (_as_number(v) for v in values), strict=True))
        for values in itertools.product(*axes.values())
    ]
    if not points:
        raise SilodpError("A list to sweep over is empty: give at least one value.")
    for name in options:
        if name not in OPTIONS:
            raise SilodpError(f"Option {name!r} is unknown: {meant(name, OPTIONS)}")
    requests = [RunRequest(**options, **point) for point in points]
    checked = [name for name in given if name not in uses]
    for name in checked:
        if own_data and name in ("data", *DATA_OPTIONS) and name != "subject_column":
            raise SilodpError(
                f"{flag(name)} says how data are loaded, but records were given from Python: leave "
                "it out."
            )
        if own_model and name == "model":
            raise SilodpError(
                "--model names a model, but another was given from Python: leave it out."
            )
    requests = [with_method(request, checked, by_data) for request in requests]
    for request in requests:
        for reason in without_effect(vars(request), checked).values():
            raise SilodpError(reason)
    return requests


def with_method(request: RunRequest, given: Collection[str], by_data: bool = False) -> RunRequest:
    """The request with a method's name; it stays open if the data may decide."""
    if request.method != AUTO_METHOD:
        return request
    fitting = _fitting(vars(request), given)
    if by_data and len(fitting) == len(_USUAL):
        return request
    return replace(request, method=[*fitting, *_USUAL][0])


def _fitting(values: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Which of the usual methods takes all of the named options."""
    return [one for one in _USUAL if not without_effect({**values, "method": one}, names)]


def without_effect(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """The named options that do nothing together with the others, each with the reason.

    Args:
      values: options by name; those that are left out have their defaults.
      names: the options to check.
    """
    values = {name: option.default for name, option in OPTIONS.items()} | dict(values)
    names = list(names)
    if values["method"] == AUTO_METHOD:
        values["method"] = [*_fitting(values, names), *_USUAL][0]
    method = get_method(values["method"])
    reasons = {name: _reason(name, values, method) for name in names}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _reason(name: str, values: Mapping[str, Any], method: MethodEntry) -> str | None:
    option = OPTIONS[name]
    if name in METHOD_OPTIONS and name not in method.option_names:
        others = [other for other, entry in METHODS.items() if name in entry.option_names]
        return _of_others(name, values, others)
    if name == "regulariser" and not method.pulls:
        others = [other for other, entry in METHODS.items() if entry.pulls]
        return _of_others(name, values, others)
    if "of_training" in option.tags and method.in_messages:
        return (
            f"{option.flag}: method {values['method']!r} has no training passes, and takes no "
            "choice of this kind: leave it out, or use ebmtl."
        )
    if "of_selections" in option.tags and not _selects(values, method):
        return (
            f"{option.flag}: method {values['method']!r} makes no private selections here: leave "
            "it out, or use ifca."
        )
    if option.needs is not None and values[option.needs] == OPTIONS[option.needs].default:
        needed = flag(option.needs)
        return f"{option.flag} does nothing without {needed}: give {needed} too, or leave it out."
    return None


def _of_others(name: str, values: Mapping[str, Any], others: Iterable[str]) -> str:
    return (
        f"{flag(name)}: method {values['method']!r} does not use it: leave it out, or use one of "
        f"{', '.join(others)}."
    )


def _selects(values: Mapping[str, Any], method: MethodEntry) -> bool:
    filled = dict(values)
    filled["rounds"] = values["rounds"] or _ROUNDS
    filled["server_lr"] = values["server_lr"] or SERVER_LR[values["server_optimiser"]]
    return schedule_of(filled, method).select_rounds > 0


def _as_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
