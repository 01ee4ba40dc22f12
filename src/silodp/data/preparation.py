"""From a silo's rows to what its model sees, kept with the silo so that new rows go the same way.

Training and prediction call the same functions here: they cannot drift apart.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from silodp.data.federation import Federation, Records, Silo
from silodp.data.scaling import (
    bounds_to_symmetric,
    records_to_unit_norm,
    standardisation,
    standardise,
)
from silodp.data.tables.beside import Beside
from silodp.data.tables.columns import Column, Encoder
from silodp.data.tables.target import Target
from silodp.data.tasks import get_task

ScalingKind = Literal["none", "standardised", "bounds", "unit norm"]


@dataclass(frozen=True)
class Scaling:
    """What is done with numbers.

    none: nothing. standardised: less their mean, over their standard deviation. bounds: clipped
    into [low, high], then scaled to [-1, 1]. unit norm: each record over its Euclidean norm.
    `first` and `second` are the two numbers of each feature, if it takes any.
    """

    kind: ScalingKind = "none"
    first: tuple[float, ...] = ()
    second: tuple[float, ...] = ()

    def apply(self, x: np.ndarray) -> np.ndarray:
        """The features [n, ...], scaled."""
        if self.kind == "none":
            return x
        if self.kind == "unit norm":
            return records_to_unit_norm(x)
        first, second = (np.array(own).reshape(x.shape[1:]) for own in (self.first, self.second))
        scale = standardise if self.kind == "standardised" else bounds_to_symmetric
        return scale(x, first, second)


def by_moments(mean: np.ndarray, deviation: np.ndarray) -> Scaling:
    """How to standardise by this mean and deviation."""
    return Scaling("standardised", tuple(mean.ravel().tolist()), tuple(deviation.ravel().tolist()))


def fitted_to(train: np.ndarray) -> Scaling:
    """Standardising by the statistics of these training features."""
    return by_moments(*standardisation(train))


def by_bounds(limits: list[tuple[float, float]]) -> Scaling:
    """Scaling by the lowest and the highest value of each feature."""
    return Scaling("bounds", tuple(low for low, _ in limits), tuple(high for _, high in limits))


@dataclass(frozen=True)
class Preparation:
    """How the rows of one silo become features and labels.

    Attributes:
      encoder: the columns, in order; without columns, records are no rows of a table (images).
      scaling: how features of number columns are scaled.
      target: what is predicted, and how it is scaled.
      drop_missing: whether rows with missing values are left out; else they are refused.
      noisy: standardising by noisy statistics, after all of this, if a run paid for them.
      ready_made: the features were given as numbers, and how they were made is not known here.
    """

    encoder: Encoder
    scaling: Scaling
    target: Target
    drop_missing: bool = False
    noisy: Scaling | None = None
    ready_made: bool = False

    def filled_with(self, means: np.ndarray) -> "Preparation":
        """This preparation, once the means of the features that wait for them are known, scaled."""
        places = np.cumsum(self.encoder.is_number) - 1  # of each feature among the numbers
        found = iter(zip(places[self.encoder.waits], means, strict=True))

        def filled(column: Column) -> Column:
            if not column.noisy_mean:
                return column
            place, mean = next(found)
            low, high = self.scaling.first[place], self.scaling.second[place]
            return replace(column, missing=float(low + (mean + 1) / 2 * (high - low)))

        return replace(self, encoder=Encoder(tuple(map(filled, self.encoder.columns))))

    def filled(self, records: Records) -> Records:
        """The records, whose missing values now count as the means that this was `filled_with`."""
        if records.absent is None:
            return records
        waits, x = self.encoder.waits, records.x.copy()
        means = np.zeros((1, len(waits)))
        means[0, waits] = [c.missing for c in self.encoder.columns if c.noisy_mean]
        x[records.absent] = np.broadcast_to(self.scaled(means), x.shape)[records.absent]
        return replace(records, x=x, absent=None)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Encoded features with their numbers scaled; the 0 and 1 of categories stay."""
        if self.scaling.kind == "none":
            return x
        which = self.encoder.is_number
        x = x.copy()
        x[:, which] = self.scaling.apply(x[:, which])
        return x

    def finished(self, x: np.ndarray) -> np.ndarray:
        """Features as a federation holds them, such as the model was trained on."""
        if self.noisy is None:
            return x
        return self.noisy.apply(x).astype(np.float32)

    def features(self, silo: str, frame: pd.DataFrame) -> np.ndarray:
        """All of it: rows as the model takes them.

        A missing value that no rule is for says nothing: once scaled, 0 is the middle of numbers,
        and no level of a category.
        """
        lacking = self.encoder.lacks(frame)
        x = self.scaled(self.encoder.encode_present(silo, frame, lacking))
        x[lacking[:, self.encoder.column_of_feature]] = 0.0
        # Single precision in between, as in `Federation`.
        return self.finished(x.astype(np.float32))


def prepared_silo(name: str, train: Records, test: Records, preparation: Preparation) -> Silo:
    """A silo of encoded records, whose features are now scaled."""
    train, test = (replace(part, x=preparation.scaled(part.x)) for part in (train, test))
    return Silo(name, train, test, preparation)


def preparation_of(federation: Federation, silo: Silo) -> Preparation:
    """The silo's preparation; where it has none, its features are taken as they are."""
    if silo.preparation is not None:
        return silo.preparation
    names, shape = federation.feature_names, federation.input_shape
    if len(shape) > 1:
        names = ()
    elif len(set(names)) < sum(shape):
        names = default_names(sum(shape))
    target = "y"
    while target in names:
        target += "'"
    classes = federation.class_names
    if not classes or len(set(classes)) < len(classes):
        classes = get_task(federation.task).class_names(federation.num_classes)
    # A federation's classes are public, unless it says that something was taken from records.
    declared = "class list" in federation.declared or not federation.uncovered
    return Preparation(
        Encoder(tuple(Column(name) for name in names)),
        Scaling(),
        Target(
            target,
            federation.task,
            classes,
            declared=declared and bool(classes),
            beside=Beside(cut_points=_intervals(federation)),
        ),
        ready_made=True,
    )


def _intervals(federation: Federation) -> tuple[float, ...]:
    """Numbers for the intervals of time that a federation has, where nothing says when they end."""
    classes = get_task(federation.task).count_classes(federation.num_classes)
    return () if classes else tuple(map(float, range(1, federation.num_classes + 1)))


def default_names(count: int) -> tuple[str, ...]:
    """Names for the columns of features that have none."""
    return tuple(f"feature {place}" for place in range(count))
