"""In which units numbers of linear models are shown: those of the columns, as far as public."""

import math

import numpy as np

from silodp.base.text import shown
from silodp.data.federation import Federation
from silodp.data.preparation import Preparation, preparation_of
from silodp.data.tasks import get_task
from silodp.models.unit_vectors import unit_vectors_of
from silodp.results.few_messages import Change, Units
from silodp.results.learned import feature_names

_POINTS = 50.0  # percentage points of a probability that a label from -1 to 1 moves by 1


def units_of(federation: Federation) -> Units:
    """What makes numbers of a federation's linear models into those of its columns and target."""
    vectors, task = unit_vectors_of(federation), get_task(federation.task)
    preparation = preparation_of(federation, federation.silos[0])
    target = preparation.target
    names = target.classes if target.declared else ()
    changes = changes_of(federation)
    if task.of_classes:
        of = f" of {shown(names[-1])}" if names and vectors.two_classes else ""
        return Units(
            f"log-odds{of}", " percentage points", 1.0 / vectors.length, _POINTS, changes, names
        )
    unit = vectors.half * (1.0 if preparation.ready_made else target.unit)
    name = "the label" if preparation.ready_made else f'"{shown(target.name)}"'
    return Units(name, "", unit / vectors.length, unit, changes)


def changes_of(federation: Federation) -> tuple[Change, ...]:
    """The change of each feature whose effect is shown."""
    names = feature_names(federation.input_shape, federation.feature_names)
    first = preparation_of(federation, federation.silos[0])
    preparations = [one.preparation for one in federation.silos]
    is_number = first.encoder.is_number
    count = math.prod(federation.input_shape)
    if None in preparations or len(is_number) != count or first.ready_made:
        return tuple(Change(name, "1", 1.0, 1.0) for name in names)
    if any(one is not None and one.noisy is not None for one in preparations):
        return tuple(Change(name, "1 standard deviation", 1.0, None) for name in names)
    places = np.cumsum(is_number) - 1
    return tuple(
        _of_number(name, first, int(place), _alike(federation))
        if number
        else Change(name, "yes", 1.0, 1.0)
        for name, number, place in zip(names, is_number, places, strict=True)
    )


def _alike(federation: Federation) -> bool:
    """Whether what features are scaled by is public, and the same in all silos."""
    scalings = {one.preparation.scaling for one in federation.silos if one.preparation is not None}
    return len(scalings) == 1 and "feature bounds" in federation.declared


def _of_number(name: str, preparation: Preparation, place: int, public: bool) -> Change:
    kind = preparation.scaling.kind
    if kind == "bounds":
        low, high = preparation.scaling.first[place], preparation.scaling.second[place]
        if not public:  # not from where to where: that may be from the records
            return Change(name, "lowest to highest", 2.0, None)
        per_own = 1.0 / (high - low) if high > low else None
        return Change(name, f"{low:g} to {high:g}", 2.0, per_own)
    if kind == "standardised":
        return Change(name, "1 standard deviation", 1.0, None)
    if kind == "unit norm":
        return Change(name, "all of the record's length", 1.0, None)
    return Change(name, "1", 1.0, 1.0)
