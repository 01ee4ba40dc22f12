"""Drafts of the model cards: what a run knows of its models beyond the result."""

from typing import Any

from silodp.data.federation import Federation
from silodp.data.preparation import preparation_of
from silodp.results.model_export.described import described
from silodp.runs.prepare import Prepared


def draft_cards(
    prepared: Prepared, federation: Federation, noisy_metric: bool
) -> list[dict[str, Any]]:
    """The draft of each silo's card.

    Args:
      prepared: the run's specs and data.
      federation: the records of the first seed, as the models were trained on them.
      noisy_metric: whether the result's metric has noise that was paid for.
    """
    first, model = prepared.federations[0], prepared.specs[0].model
    about = {
        "name": model.name,
        "built_in": model.built_in,
        "input_shape": list(first.input_shape),
        "num_classes": first.num_classes,
        # From the federation as it was loaded: with noisy statistics, pixels become numbers.
        "pixels": None if first.pixels is None else list(first.pixels),
    }
    if model.threshold:
        about["threshold"] = model.threshold
    return [
        {
            "task": first.task,
            "seed": prepared.specs[0].request.first_seed,
            "model": about,
            "preparation": described(preparation_of(federation, silo)),
            "uncovered": list(first.uncovered),
            "noisy_metric": noisy_metric,
        }
        for silo in federation.silos
    ]
