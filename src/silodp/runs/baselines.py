"""Baselines of a run: local training and FedAvg with the same silos, budgets and seeds.

Each is a run of its own, with the epsilon of the run that it is compared with. They are kept in
that run's folder, where `silodp report` finds them.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.values import plain
from silodp.config.options import OPTIONS, tagged
from silodp.methods import get_method
from silodp.results.result import RESULT_FILE, Result, read_result
from silodp.runs.requests import without_effect

BASELINES = ("local", "fedavg")
BASELINES_FOLDER = "baselines"
NAMES = {"local": "local training", "fedavg": "FedAvg"}
# The options of a finished baseline, by which it is recognised.
_REQUEST_FILE = "asked.json"
# Arguments from Python that no file can hold.
_GIVEN = ("federation", "custom_model", "reporter")


def train_baselines(
    train: Callable[..., Result], folder: Path, resume: bool, overwrite: bool, **options: Any
) -> None:
    """Trains the baselines that are not finished yet, each into a folder below the run's.

    Args:
      train: `runs.run`.
      folder: the folder of the run.
      resume: go on where an interrupted call stood.
      overwrite: train finished ones again.
      **options: the run's.
    """
    if options.get("ledger") is not None:
        raise SilodpError(
            "--baselines trains two runs more, which the ledgers would have to be charged for: "
            "train local and fedavg by themselves, and give all folders to silodp report."
        )
    for method in BASELINES:
        if method == options.get("method"):
            continue
        own = _options_for(method, options)
        place = folder / BASELINES_FOLDER / method
        finished = resume and (place / RESULT_FILE).exists()
        if finished and _requested_in(place) == _as_file(own):
            continue
        train(out=place, resume=resume and not finished, overwrite=overwrite or finished, **own)
        write_file(place / _REQUEST_FILE, json.dumps(_as_file(own)))


def baselines_of(folder: Path) -> dict[str, Result]:
    """The finished baselines of the run in that folder, by method."""
    places = {method: folder / BASELINES_FOLDER / method for method in BASELINES}
    return {m: read_result(place) for m, place in places.items() if (place / RESULT_FILE).exists()}


def forget_baselines(folder: Path) -> None:
    """Removes the baselines of another run from the folder, and nothing else that is there."""
    for method in BASELINES:
        place = folder / BASELINES_FOLDER / method
        for name in (RESULT_FILE, _REQUEST_FILE):
            (place / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folder holds something else
            place.rmdir()
    with contextlib.suppress(OSError):
        (folder / BASELINES_FOLDER).rmdir()


def seen_together(methods: Sequence[str], noise_from_seeds: bool) -> str:
    """A sentence on the privacy cost of showing a run and its baselines to the same person."""
    names = " and ".join(NAMES[method] for method in methods)
    what = f"{names} {'was' if len(methods) == 1 else 'were'} trained beside it on the same records"
    if noise_from_seeds:
        return (
            f"{what}, and from the same seeds: these runs share their noise, so that together they "
            "promise nothing; never release them together"
        )
    return (
        f"{what}: whoever is shown all of them has seen {len(methods) + 1} runs of that epsilon "
        "each, which together cost more than one"
    )


def _options_for(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The run's options, without those that do nothing with that method."""
    known, of_method = get_method(method).option_names, tagged("of_method")
    kept = {n: v for n, v in options.items() if n not in of_method or n in known}
    kept |= {"method": method}
    of_runs = {name: value for name, value in kept.items() if name in OPTIONS}
    useless = without_effect(of_runs, of_runs)
    return {name: value for name, value in kept.items() if name not in useless}


def _as_file(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options in JSON's types; None where records or a model were given from Python."""
    if options.get("federation") is not None or options.get("custom_model") is not None:
        return None
    return json.loads(json.dumps(plain({n: v for n, v in options.items() if n not in _GIVEN})))


def _requested_in(place: Path) -> Any:
    """The options of the baseline in that folder; {} if they cannot be read."""
    try:
        return read_json(place / _REQUEST_FILE, remedy="train it again") or {}
    except SilodpError:
        return {}
