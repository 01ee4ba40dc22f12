"""The canary: a record made to stand out, and the two worlds that differ by it alone.

Its gradient is far above the clip, so that clipping it matters, and lies where the other records
have least to say, so that they hide it least. For a linear model there are also models from which a
training pass shows it best: where the other records are fitted and hardly pull, and the canary is
not.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from silodp.data.federation import Federation, Records
from silodp.data.tasks import get_task
from silodp.models.model import Model
from silodp.privacy.plan import SiloPlan

# By default the features of a canary have this norm (in a classifier: times the clip). For
# regression that hides the constant feature, which all records share. A classifier's record weighs
# nothing once it is fitted, which comes the sooner the longer it is.
REGRESSION_NORM = 10.0
CLASSIFIER_NORM = 5.0
# The least by which the gradient of a regression canary exceeds the clip; and of a classifier's
# canary, how far it is on the wrong side.
ABOVE_CLIP = 10.0
WRONG_BY = 5.0
# A model that fits the other records, made so sure of itself that they hardly pull any more.
SURE = 20.0
# Standard deviations of noise by which a pass may move the canary's output, yet leave it wrong.
REACH = 4.0
# How many clips the other records of a batch pull back with: a sum that is clipped in place of its
# terms then shows.
PULL = 3.0


class Worlds(NamedTuple):
    """Neighbouring federations, and how the audited silo is planned in each."""

    present: Federation
    absent: Federation
    present_plan: SiloPlan
    absent_plan: SiloPlan
    canary: Records  # the unit that makes the difference: a record, or a subject's records
    others: Records  # what both worlds have in common
    starts: np.ndarray | None  # for a linear model, two to start from: see `Canary`


class Canary(NamedTuple):
    """One made-up record, and its opposite.

    Attributes:
      x: features.
      y: label.
      opposite: the label with which its gradient points the other way.
      starts: two linear models [2, *parameters]: one from which the canary and the other records
        pull in opposite directions, and one at which the canary's gradient has the other sign.
    """

    x: np.ndarray
    y: Any
    opposite: Any
    starts: np.ndarray | None = None


def make_worlds(
    federation: Federation,
    place: int,
    plan: SiloPlan,
    model: Model,
    clip: float,
    lr: float,
    norm: float | None,
) -> Worlds:
    """The canary takes the place of the silo's last unit.

    Under add-remove it is then left out; under replace-one it is exchanged for its opposite. All
    that is public stays as it is planned.
    """
    silo = federation.silos[place]
    last = plan.true_count - 1
    unit_of = np.arange(len(silo.train)) if silo.train.subject is None else silo.train.subject
    others = silo.train.take(np.flatnonzero(unit_of != last))
    canary = _make_canary(federation, others, plan, model, clip, lr, norm)
    # As many records as anybody has: the canary counts once nevertheless.
    times = 1 if silo.train.subject is None else int(np.bincount(silo.train.subject).max())

    def unit(y: Any) -> Records:
        subject = None if others.subject is None else np.zeros(times, np.int32)
        label = np.asarray(y, others.y.dtype)
        y_of_each = np.broadcast_to(label, (times, *label.shape)).copy()
        return Records(np.repeat(canary.x[None], times, 0), y_of_each, subject)

    def world(train: Records) -> Federation:
        changed = replace(silo, train=train)
        silos = (*federation.silos[:place], changed, *federation.silos[place + 1 :])
        return replace(federation, silos=silos)

    present = world(joined(others, unit(canary.y)))
    if plan.relation == "replace-one":
        absent, absent_plan = world(joined(others, unit(canary.opposite))), plan
    else:
        # Nothing that is public changes; where every record has a slot, there is one fewer.
        capacity = last if plan.draw == "every" else plan.batch_capacity
        absent, absent_plan = world(others), replace(plan, true_count=last, batch_capacity=capacity)
    return Worlds(present, absent, plan, absent_plan, unit(canary.y), others, canary.starts)


def joined(others: Records, unit: Records) -> Records:
    """The records of both; the subjects of the second come after those of the first."""
    subject = None
    if others.subject is not None and unit.subject is not None:
        subject = np.concatenate([others.subject, unit.subject + others.units])
    return Records(np.concatenate([others.x, unit.x]), np.concatenate([others.y, unit.y]), subject)


def _make_canary(
    federation: Federation,
    others: Records,
    plan: SiloPlan,
    model: Model,
    clip: float,
    lr: float,
    norm: float | None,
) -> Canary:
    of_classes = get_task(federation.task).of_classes
    target_norm = norm or (CLASSIFIER_NORM * max(clip, 1.0) if of_classes else REGRESSION_NORM)
    x = target_norm * (
        _least_used(others.x) if model.linear else _checkered(federation.input_shape)
    )
    if federation.feature_bound is not None:
        # As long as declared bounds allow.
        x *= min(1.0, federation.feature_bound / np.abs(x).max())
    x = x.astype(np.float32)
    task = get_task(federation.task)
    if task.label_shape:
        # No fit by least squares of such labels: the canary is what no other record is like.
        extremes = task.extreme_labels(federation.num_classes)
        return Canary(x, extremes[0], extremes[-1])
    labels, counts = np.unique(others.y, return_counts=True)
    rarest, usual = labels[np.argmin(counts)], labels[::-1][np.argmax(counts[::-1])]
    if not model.linear:
        far = ABOVE_CLIP * max(1.0, clip)
        return Canary(x, rarest, usual) if of_classes else Canary(x, far, -far)

    # What follows is about outputs: a weight vector along the canary moves its output most.
    row = np.append(x.ravel(), 1.0).astype(float)
    fit = _fit(others, federation)
    fitted = row @ fit
    length = np.linalg.norm(row)
    moves = plan.noise_multiplier * np.sqrt(plan.steps) * REACH + plan.steps
    reach = moves * lr * clip / plan.expected_batch * length  # of the canary's output in a pass
    if not of_classes:
        whole = PULL * clip * plan.public_count / plan.expected_batch
        pull = whole / max(_weight_along(others.x, x), whole) * length
        wrong = max(ABOVE_CLIP * clip / length, reach)
        y, outputs = fitted + pull + wrong, (fitted + pull, fitted + pull + 2 * wrong)
        opposite = fitted + pull - wrong
    else:
        y, opposite = rarest, usual
        away = np.where(np.arange(federation.num_classes) == y, -1.0, 0.0) if fitted.ndim else -y
        # Its opposite must be wrong from the same model: then both are undecided.
        wrong = 0.0 if plan.relation == "replace-one" else WRONG_BY + reach
        outputs = (wrong * away, wrong * away)
    starts = [fit + np.multiply.outer(row, output - fitted) / length**2 for output in outputs]
    return Canary(x, float(y), float(opposite), np.stack(starts).astype(np.float32))


def _least_used(x: np.ndarray) -> np.ndarray:
    """The direction in which records have least to say: of the least singular value."""
    flat = x.reshape(len(x), -1).astype(float)
    _, vectors = np.linalg.eigh(flat.T @ flat)
    return vectors[:, 0].reshape(x.shape[1:])


def _weight_along(x: np.ndarray, direction: np.ndarray) -> float:
    """How strongly the records pull back a model that is moved by 1 in this direction."""
    unit = direction.ravel() / np.linalg.norm(direction)
    return float(np.sum((x.reshape(len(x), -1) @ unit) ** 2))


def _checkered(shape: tuple[int, ...]) -> np.ndarray:
    """Light and dark fields in turn: no natural picture looks so."""
    pattern = 1.0 - 2.0 * (np.indices(shape).sum(axis=0) % 2)
    return pattern / np.linalg.norm(pattern)


def _fit(others: Records, federation: Federation) -> np.ndarray:
    """The linear model (its last row the bias) that fits the records, by least squares."""
    flat = others.x.reshape(len(others), -1).astype(float)
    rows = np.concatenate([flat, np.ones((len(flat), 1))], axis=1)
    task = get_task(federation.task)
    fit = np.linalg.lstsq(rows, task.targets(others.y, federation.num_classes))[0]
    return SURE * fit if task.of_classes else fit
