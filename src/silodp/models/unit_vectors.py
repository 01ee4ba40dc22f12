"""Records as vectors of length 1 at most, by public numbers alone, and models of them.

The moments of such records have a known sensitivity (see `privacy.mechanisms.moments`). A record
is x = (features, 1) / length, where no record is longer than `length` if the public bound on
features holds; one that is longer is made shorter. Labels of a regression are put from their
declared range into -1..1; of two classes they are -1 and 1; of more, a 1 in the class's place.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Num

from silodp.data.federation import Federation
from silodp.data.tasks import get_task

# Labels of no declared range are cut off here, on both sides: data are scaled to about 1.
_LARGEST_LABEL = 3.0


class UnitVectors(NamedTuple):
    """How records become vectors of length 1.

    Attributes:
      length: of the longest record.
      middle: of the range of labels.
      half: half of that range.
      classes: how many there are, if more than two; else 0.
      two_classes: whether labels are -1 and 1.
    """

    length: float
    middle: float
    half: float
    classes: int = 0
    two_classes: bool = False

    def vectors(self, x: Num[np.ndarray, "records ..."]) -> Float[np.ndarray, "records size"]:
        """Features and a constant, scaled."""
        flat = x.reshape(len(x), math.prod(x.shape[1:])).astype(np.float64)
        return np.concatenate([flat, np.ones((len(x), 1))], axis=1) / self.length

    def outputs(self, y: Num[np.ndarray, " records"]) -> Float[np.ndarray, "records outputs"]:
        """Labels, scaled; or one column for each class."""
        if self.classes:
            return np.eye(self.classes)[y.astype(int)]
        scaled = (y.astype(np.float64) - self.middle) / self.half
        return np.clip(scaled, -1.0, 1.0)[:, None]

    def params(self, weights: Float[np.ndarray, "size outputs"]) -> np.ndarray:
        """The parameters of a linear model of records as they are, from weights on vectors."""
        own = self.half * weights / self.length
        own[-1] += self.middle
        return (own if self.classes else own[:, 0]).astype(np.float32)


def _longest(federation: Federation, features: int) -> float:
    """How long a record can be, by what is public of its columns."""
    bound = federation.feature_bound or 1.0
    preparations = [silo.preparation for silo in federation.silos if silo.preparation is not None]
    if len(preparations) < len(federation.silos):
        return math.sqrt(features * bound**2 + 1.0)
    if all(one.scaling.kind == "unit norm" for one in preparations):
        return math.sqrt(2.0)
    encoder = preparations[0].encoder
    numbers = int(np.count_nonzero(encoder.is_number))
    if len(encoder.is_number) != features:  # images, or features that were given as they are
        return math.sqrt(features * bound**2 + 1.0)
    # Of the levels of a column one is 1, the others are 0; an encoder's features have unit norm.
    of_levels = set(np.asarray(encoder.column_of_feature)[~np.asarray(encoder.is_number)].tolist())
    return math.sqrt(numbers * bound**2 + len(of_levels) + 1.0)


def unit_vectors_of(federation: Federation) -> UnitVectors:
    """How the records of a federation become vectors of length 1."""
    task, features = get_task(federation.task), math.prod(federation.input_shape)
    assert task.as_vectors is not None, "refused where methods are chosen"
    length = _longest(federation, features)
    if task.as_vectors == "places":
        return UnitVectors(length, 0.0, 1.0, task.count_classes(federation.num_classes))
    if task.as_vectors == "signs":
        return UnitVectors(length, 0.0, 1.0, two_classes=True)
    scaled = task.public in federation.declared or bool(federation.uncovered)
    return UnitVectors(length, *((0.5, 0.5) if scaled else (0.0, _LARGEST_LABEL)))
