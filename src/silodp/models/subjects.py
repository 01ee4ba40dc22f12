"""The subject as the unit of privacy: all that a silo holds about a person counts as one.

A silo's records become blocks, one a subject, and a model of records becomes a model of blocks.
Sampling then draws subjects, and clipping bounds what a subject adds to the sum, with no change to
either:

    loss of a subject = mean over its records of the records' losses

A mean and not a sum, so that a subject with many records is not clipped harder than others. A
person with records in two silos is two subjects: each silo's epsilon covers what that silo holds.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.base.errors import SilodpError
from silodp.data.federation import Records
from silodp.models.gradients import ClippedSum, generic_clipped_sum
from silodp.models.model import (
    Features,
    LossOfOne,
    Model,
    Params,
    gradient_of_one,
    loss_of_one,
)
from silodp.models.steady import apart
from silodp.models.whole_sums import (
    WholeSum,
    in_a_loop,
    one_by_one_whole_sum,
)


def largest_subject(records: Records) -> int:
    """The most records that one subject has; 1 if there is none."""
    return int(np.bincount(_subject_of(records)).max(initial=1))


def blocks_of(
    records: Records, width: int | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Records as blocks, one a subject, in the order of the subjects' numbers.

    Args:
      records: the records of one silo, with subjects.
      width: m, the records that a block has room for; by default those of the largest subject.

    Returns:
      Features {"x": [subjects, m, *input_shape], "present": [subjects, m]} and y [subjects, m]. A
      subject's records come first, in their own order; `present` is 1 there, and 0 on the padding.
    """
    subject = _subject_of(records)
    largest = largest_subject(records)
    width = largest if width is None else width
    if width < largest:
        raise SilodpError(
            f"A block has room for {width} records, but a subject has {largest}: give it more room."
        )
    counts = np.bincount(subject)
    order = np.argsort(subject, kind="stable")
    place = np.arange(len(subject)) - np.repeat(np.cumsum(counts) - counts, counts)

    def laid_out(rows: np.ndarray) -> np.ndarray:
        blocks = np.zeros((len(counts), width, *rows.shape[1:]), rows.dtype)
        blocks[subject[order], place] = rows[order]
        return blocks

    present = laid_out(np.ones(len(subject), np.float32))
    return {"x": laid_out(records.x), "present": present}, laid_out(records.y)


def _subject_of(records: Records) -> np.ndarray:
    if records.subject is None:
        raise SilodpError("The records have no subjects: give each record its subject's number.")
    return records.subject


def by_subject(model: Model) -> Model:
    """The model whose records are blocks as from `blocks_of`, for training on subjects.

    It has the parameters of `model`, which remains the one to use on single records.
    """

    def prepare(blocks: Features) -> Features:
        x, present = blocks["x"], blocks["present"]
        return {
            "records": jax.vmap(model.prepare)(_filled(x, present)),
            "weight": present / jnp.maximum(present.sum(axis=1, keepdims=True), 1.0),
        }

    def apply(params: Params, features: Features) -> Features:
        """The records' outputs [subjects, m, ...], and the weights that the loss needs."""
        weight = features["weight"]
        outputs = model.apply(params, jax.tree.map(_flat, features["records"]))
        return {"outputs": outputs.reshape(*weight.shape, *outputs.shape[1:]), "weight": weight}

    def loss(outputs: Features, y: Array) -> Array:
        """The loss of each subject [subjects]."""
        weight = outputs["weight"]
        losses = model.loss(_flat(outputs["outputs"]), _flat(_filled(y, weight)))
        return jnp.sum(weight * losses.reshape(weight.shape), axis=1)

    return model._replace(
        apply=apply,
        loss=loss,
        clipped_sum=_of_present(_clipped_sum(model, apply, loss)),
        whole_sum=_of_present(_whole_sum(model)),
        prepare=prepare,
        linear=False,
        of_blocks=None,
        own_loss=_own_loss(model),
    )


def _clipped_sum(model: Model, apply, loss) -> ClippedSum:
    if model.of_blocks is not None:
        return model.of_blocks.clipped_sum

    def clipped_sum(params, features, y, mask, clip, offset=None):
        # As many records in memory at once as without subjects.
        subjects = max(1, model.microbatch // y.shape[1])
        generic = generic_clipped_sum(apply, loss, subjects)
        return generic(params, features, y, mask, clip, offset)

    return clipped_sum


def _whole_sum(model: Model) -> WholeSum:
    """Record by record within a subject too: how many the largest has changes no other sum."""
    if model.of_blocks is not None:
        return model.of_blocks.whole_sum
    of_record = gradient_of_one(model.apply, model.loss)

    def of_subject(params: Params, block: Features, y: Array) -> Params:
        def add(total, row):
            record, label, weight = row
            gradient = of_record(params, record, label)

            def added(t: Array, g: Array) -> Array:
                return t + jnp.where(weight > 0, apart(weight * g), 0.0)

            return jax.tree.map(added, total, gradient), None

        zero = jax.tree.map(jnp.zeros_like, params)
        rows = in_a_loop((block["records"], y, block["weight"]))
        return jax.lax.scan(add, zero, rows)[0]

    return one_by_one_whole_sum(of_subject)


def _own_loss(model: Model) -> LossOfOne:
    """Loss of one subject, record by record: the size of the largest one changes no other's."""
    of_record = loss_of_one(model.apply, model.loss)

    def of_subject(params: Params, block: Features, y: Array) -> Array:
        def add(total: Array, row: Any) -> tuple[Array, None]:
            record, label, weight = row
            loss = of_record(params, record, label)
            return total + jnp.where(weight > 0, apart(weight * loss), 0.0), None

        rows = in_a_loop((block["records"], y, block["weight"]))
        return jax.lax.scan(add, jnp.float32(0), rows)[0]

    return of_subject


def _of_present(sum_of: Callable[..., Params]) -> Callable[..., Params]:
    """Blocks without any record add nothing, not even the pull inside the clip."""

    def of_present(params, features, y, mask, *others, **named):
        there = jnp.any(features["weight"] > 0, axis=1)
        return sum_of(params, features, y, jnp.where(there, mask, 0.0), *others, **named)

    return of_present


def _filled(rows: Array, present: Array) -> Array:
    """Padding replaced by the subject's first record.

    It has no weight, but times its gradient, and a model's gradient at zeros may be NaN.
    """
    there = present.reshape(present.shape + (1,) * (rows.ndim - present.ndim))
    return jnp.where(there > 0, rows, rows[:, :1])


def _flat(rows: Array) -> Array:
    """[subjects, m, ...] as [subjects * m, ...]."""
    return rows.reshape(-1, *rows.shape[2:])
