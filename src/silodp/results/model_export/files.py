"""The files of a model export: for each silo a folder with its model and a card.

RUN/models/<silo>/
  model.npz    the arrays of the personal model
  card.json    the model, its preparation of records, its metric, its guarantee
  card.md      the same for people
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from silodp.base.arrays import array_name, arrays_content
from silodp.base.text import folder_names
from silodp.base.values import plain
from silodp.results.model_export.markdown_card import markdown_card
from silodp.results.model_export.meaning import meaning_of_privacy, meaning_of_seed, meaning_of_test

if TYPE_CHECKING:
    from silodp.results.result import Result

FORMAT, VERSION = "silodp model", 1
MODELS_FOLDER, CARD_FILE, MODEL_FILE = Path("models"), "card.json", "model.npz"
READABLE_CARD_FILE = "card.md"


def folders_of(silos: Sequence[str]) -> list[Path]:
    """The folder of each silo's model, within the folder of a run of these silos."""
    return [MODELS_FOLDER / name for name in folder_names(silos)]


def handover_files(result: "Result") -> Iterator[tuple[Path, bytes]]:
    """The path (in the run's folder) and content of each file; a card comes after its model."""
    leaves = jax.tree_util.tree_leaves_with_path(result.models)
    folders = folders_of([silo["silo"] for silo in result.per_silo])
    for place, draft in enumerate(result.cards or []):
        # The model of the first seed: see `meaning_of_seed`.
        arrays = {array_name(path): np.asarray(array)[0, place] for path, array in leaves}
        content = arrays_content(arrays)
        card = card_of(result, place, draft, arrays, hashlib.sha256(content).hexdigest())
        folder = folders[place]
        yield folder / MODEL_FILE, content
        yield folder / READABLE_CARD_FILE, markdown_card(card).encode("utf-8", "backslashreplace")
        yield folder / CARD_FILE, (json.dumps(card, indent=2, allow_nan=False) + "\n").encode()


def remove_handovers(folder: Path) -> None:
    """Removes exported models from the folder of a run, and nothing else that is there."""
    for card in (folder / MODELS_FOLDER).glob(f"*/{CARD_FILE}"):
        for name in (MODEL_FILE, READABLE_CARD_FILE):
            (card.parent / name).unlink(missing_ok=True)
        card.unlink()  # last, so that an interrupted removal can be finished
        with contextlib.suppress(OSError):  # the folder holds something else
            card.parent.rmdir()
    with contextlib.suppress(OSError):
        (folder / MODELS_FOLDER).rmdir()


def _no_skill(result: "Result", place: int) -> float | None:
    """The metric of the best prediction without features, where the run worked it out."""
    return result.metrics[0]["per_silo"][place]["no_skill"] if result.metrics else None


def card_of(
    result: "Result", place: int, draft: dict[str, Any], arrays: dict[str, Any], digest: str
) -> dict[str, Any]:
    """The whole content of a card, from the run's draft and the result."""
    own, privacy = result.per_silo[place], dict(result.privacy[place])
    silo = privacy.pop("silo")
    seeds = len(result.test["per_seed"])
    card = {
        "format": FORMAT,
        "version": VERSION,
        "silo": silo,
        "data": result.data,
        "method": result.method,
        "purpose": result.options.get("purpose"),
        "task": draft["task"],
        "training": {
            "records": own["records"],
            "seed": draft["seed"],
            "seeds": seeds,
            "meaning": meaning_of_seed(seeds),
        },
        "model": {
            **draft["model"],
            "file": MODEL_FILE,
            "sha256": digest,
            "arrays": {
                name: {"shape": list(array.shape), "dtype": str(array.dtype)}
                for name, array in arrays.items()
            },
        },
        "preparation": draft["preparation"],
        "test": {
            "metric": result.metric,
            "value": own["per_seed"][0],
            "no_skill": _no_skill(result, place),
            "records": own["test_records"],
            "noisy": draft["noisy_metric"],
            "meaning": meaning_of_test(result.metric, draft["noisy_metric"]),
        },
        "privacy": {
            **privacy,
            "in_several_silos": result.person,
            "assumptions": result.assumptions,
            "meaning": meaning_of_privacy(
                privacy, draft["uncovered"], result.options.get("entropy") == "seed"
            ),
        },
        "versions": result.versions,
    }
    return plain(card)
