"""What a run is measured against: local training and FedAvg of the same silos, budgets and seeds.

They are runs of their own, each with the epsilon of the run that they stand beside. They are kept
in its folder, where `silodp report` finds them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from silodp.errors import SilodpError
from silodp.json_values import plain
from silodp.methods import METHOD_OPTIONS, get_method
from silodp.result import RESULT_FILE, Result, read_result

BASELINES = ("local", "fedavg")
BASELINES_FOLDER = "baselines"
SEEN_TOGETHER = (
    "local training and FedAvg were trained beside it on the same records: whoever is shown all of "
    "them has seen three runs of that epsilon each, which together cost more than one"
)
_OF_METHODS = (*METHOD_OPTIONS, "silo_lam", "method_options")


def train_baselines(
    train: Callable[..., Result], folder: Path, resume: bool, overwrite: bool, **asked: Any
) -> None:
    """Trains those that are not finished yet, each into its own folder below the run's.

    Args:
      train: `runs.run`.
      folder: of the run that they stand beside.
      resume: go on where an interrupted call stood.
      overwrite: train anew.
      **asked: what the run was asked for.
    """
    if asked.get("ledger") is not None:
        raise SilodpError(
            "--baselines trains two runs more, which the ledgers would have to be charged for: "
            "train local and fedavg by themselves, and give all folders to silodp report."
        )
    for method in BASELINES:
        if method == asked.get("method"):
            continue
        own = _options_for(method, asked)
        place = folder / BASELINES_FOLDER / method
        if resume and (place / RESULT_FILE).exists():
            _check_same(read_result(place), own, place)
            continue
        train(out=place, resume=resume, overwrite=overwrite, **own)


def baselines_of(folder: Path) -> dict[str, Result]:
    """Those that were trained beside the run in that folder, by method."""
    places = {method: folder / BASELINES_FOLDER / method for method in BASELINES}
    return {m: read_result(place) for m, place in places.items() if (place / RESULT_FILE).exists()}


def _options_for(method: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """As asked, without what the method does not know."""
    known = get_method(method).option_names
    kept = {n: v for n, v in asked.items() if n not in _OF_METHODS or n in known}
    return kept | {"method": method}


def _check_same(finished: Result, asked: Mapping[str, Any], place: Path) -> None:
    for name, value in asked.items():
        if name in finished.options and plain(finished.options[name]) != plain(value):
            raise SilodpError(
                f"{place} holds a run with another {name} ({finished.options[name]}, not {value}): "
                "resume with the same options, or start anew with --overwrite."
            )
