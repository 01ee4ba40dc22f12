"""Checks of what a report is made from; errors name the file and the field."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError
from silodp.models.metrics import METRICS
from silodp.results.learned import is_summed_up
from silodp.results.result import Result

LARGEST = 1e100  # largest number drawn: sums and squares of such numbers are still finite
NUMBER, WHOLE, TEXT = "a finite number", "a whole number of at least 0", "text"
AMOUNT, _YES_NO = "a finite number of at least 0", "true or false"
_SHARE, _EPSILON = "a number from 0 to 1", "a number of at least 0, be it infinite"
# A shape is one of these words, a list with the shape of its items, or a table by key (`...` for
# all other keys). What stands in a tuple may be missing: a single test record, say, has no R².
_SUMMARY = {"mean": (NUMBER,), "std": (AMOUNT,), "per_seed": [(NUMBER,)]}
_ENDS = ([NUMBER],)
_METRIC = {
    "metric": TEXT,
    "release": TEXT,
    "share": (_SHARE,),
    "test": {**_SUMMARY, "interval": _ENDS},
    "no_skill": ({**_SUMMARY, "gain": {"mean": (NUMBER,), "low": (NUMBER,), "high": (NUMBER,)}},),
    "private": (
        {
            "share": _SHARE,
            "noise": (AMOUNT,),
            "test_records": (WHOLE,),
            "useful": _YES_NO,
            "reason": (TEXT,),
        },
    ),
    "per_silo": [
        {
            "silo": TEXT,
            "mean": (NUMBER,),
            "std": (AMOUNT,),
            "interval": _ENDS,
            "no_skill": (NUMBER,),
            "private": ({"noise": AMOUNT, "test_records": WHOLE, "useful": _YES_NO},),
        }
    ],
}
_RELEASES = ("exact", "noisy", "none")
_FIELDS: dict[str, Any] = {
    "data": TEXT,
    "method": TEXT,
    "metric": TEXT,
    "test": _SUMMARY,
    "per_silo": [{"silo": TEXT, "records": (WHOLE,), "test_records": (WHOLE,), **_SUMMARY}],
    "privacy": [
        {
            "silo": TEXT,
            "epsilon": _EPSILON,
            "delta": _SHARE,
            "unit": TEXT,
            "relation": TEXT,
            "experiment": (_YES_NO,),
            "proven": _YES_NO,
            "unproven": [TEXT],
            "rounds": (WHOLE,),
            "of_rounds": (WHOLE,),
            "charged_rounds": (WHOLE,),
        }
    ],
    "history": [{"round": WHOLE, **_SUMMARY}],
    "assumptions": [TEXT],
    "warnings": [TEXT],
    "chosen": (TEXT,),
    "versions": {},
    "seconds": {...: AMOUNT},
    "options": {},
    "person": ({"silos": WHOLE, "epsilon": _EPSILON, "delta": AMOUNT},),
    "tuning": ({},),
    "learned": ({},),
    "encoders": [{"name": TEXT, "takes": TEXT, "sha256": TEXT, "width": WHOLE}],
    "metrics": [_METRIC],
    "problem": (
        {"task": TEXT, "target": TEXT, "unit": (NUMBER,), "classes": [TEXT], "columns": [TEXT]},
    ),
}
_KEPT = [{"silo": TEXT, "epsilon": _EPSILON, "kept": NUMBER}]
CLUSTERS = [{"silo": TEXT, "cluster": WHOLE, "agreement": NUMBER}]


def checked(result: Result, path: Path) -> Result:
    """Returns the result if a report can be made from it; else refuses it."""
    for name, shape in _FIELDS.items():
        _check(getattr(result, name), shape, name, path)
    if result.metric not in METRICS:
        raise SilodpError(
            f"{path}: metric is {result.metric!r}, which is none of {', '.join(METRICS)}: write "
            "the result again with this version of silodp."
        )
    names = [silo["silo"] for silo in result.per_silo]
    if not names or names != [silo["silo"] for silo in result.privacy]:
        raise SilodpError(f"{path}: per_silo and privacy do not name the same silos: run it again.")
    seeds = {len(one["per_seed"]) for one in (result.test, *result.per_silo)}
    if len(seeds) > 1 or 0 in seeds:
        raise SilodpError(f"{path}: per_seed differs in length between silos: run it again.")
    for number, entry in enumerate(result.metrics):
        _check_metric(entry, number, result, names, path)
    if result.learned is not None and is_summed_up(result):
        _check(result.learned["silos"], _KEPT, "learned.silos", path)
        if [silo["silo"] for silo in result.learned["silos"]] != names:
            raise SilodpError(f"{path}: learned.silos are not those of per_silo: run it again.")
    return result


def _check_metric(
    entry: Mapping[str, Any], number: int, result: Result, names: list[str], path: Path
) -> None:
    """Refuses an entry of `metrics` whose parts do not belong together."""
    place = f"{path}: metrics[{number}]"
    known = [result.metric] if number == 0 else list(METRICS)
    if entry["metric"] not in known:
        raise SilodpError(
            f"{place}.metric is {entry['metric']!r:.60}, not one of {', '.join(known)}: run it "
            "again."
        )
    if entry["release"] not in _RELEASES:
        raise SilodpError(
            f"{place}.release is {entry['release']!r:.60}, not one of {', '.join(_RELEASES)}: run "
            "it again."
        )
    own = [silo["silo"] for silo in entry["per_silo"]]
    if own != ([] if entry["release"] == "none" else names):
        raise SilodpError(f"{place}.per_silo does not name the silos of per_silo: run it again.")
    if entry["release"] == "noisy" and entry["share"] is None:
        raise SilodpError(f"{place}.share is missing, but the metric is noisy: run it again.")
    for one in (entry["test"], *entry["per_silo"]):
        if one["interval"] is not None and len(one["interval"]) != 2:
            raise SilodpError(f"{place} has an interval without two ends: run it again.")
    of_seeds = [one["per_seed"] for one in (entry["test"], entry["no_skill"]) if one is not None]
    if {len(values) for values in of_seeds} != {len(result.test["per_seed"])}:
        raise SilodpError(f"{place}: per_seed differs in length from test: run it again.")


def fits(value: Any, shape: Any) -> bool:
    """Whether a value from a file has this shape."""
    return _misfit(value, shape, "") is None


def is_number(value: Any) -> bool:
    """Whether a value from a file is a number that can be drawn."""
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def _check(value: Any, shape: Any, name: str, path: Path) -> None:
    if (misfit := _misfit(value, shape, name)) is not None:
        place, inner, expected = misfit
        raise SilodpError(f"{path}: {place} is {inner!r:.60}, not {expected}: run it again.")


def _misfit(value: Any, shape: Any, name: str) -> tuple[str, Any, str] | None:
    """The first place of another shape, the value there, and what was expected."""
    if isinstance(shape, tuple):
        return None if value is None else _misfit(value, shape[0], name)
    if isinstance(shape, dict):
        if not isinstance(value, Mapping):
            return name, value, "a table"
        keys = [*value] if ... in shape else [*shape]
        parts = [(f"{name}.{key}", value.get(key), shape.get(key, shape.get(...))) for key in keys]
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return name, value, "a list"
        parts = [(f"{name}[{number}]", one, shape[0]) for number, one in enumerate(value)]
    else:
        return None if _is(value, shape) else (name, value, shape)
    misfits = (_misfit(inner, shape, place) for place, inner, shape in parts)
    return next((misfit for misfit in misfits if misfit is not None), None)


def _is(value: Any, kind: str) -> bool:
    if kind is TEXT:
        return isinstance(value, str)
    if kind is _YES_NO:
        return isinstance(value, bool)
    if kind is _EPSILON and type(value) is float and value == math.inf:
        return True
    if not is_number(value) or (kind is WHOLE and type(value) is not int):
        return False
    return kind is NUMBER or (0 <= value <= 1 if kind is _SHARE else value >= 0)
