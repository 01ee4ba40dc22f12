"""What a run knows of its models that the result does not: the beginnings of the cards."""

from typing import Any

from silodp.data.federation import Federation
from silodp.data.preparation import preparation_of
from silodp.results.model_export.described import described
from silodp.runs.prepare import Prepared


def draft_cards(
    prepared: Prepared, federation: Federation, noisy_metric: bool
) -> list[dict[str, Any]]:
    """Of each silo.

    Args:
      prepared: what was asked for.
      federation: the records of the first seed, as the models were trained on them.
      noisy_metric: whether the result's metric has noise that was paid for.
    """
    first, model = prepared.federations[0], prepared.specs[0].model
    about = {
        "name": model.name,
        "built_in": model.built_in,
        "input_shape": list(first.input_shape),
        "num_classes": first.num_classes,
        # Those of the federation that was loaded: noisy statistics are of pixels as numbers.
        "pixels": None if first.pixels is None else list(first.pixels),
    }
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
