"""Private selection: which of several released models suits a silo's records best.

The exponential mechanism (F. McSherry, K. Talwar, 2007) as report-noisy-min with Gumbel noise, or
permute-and-flip (R. McKenna, D. Sheldon, 2020) as the same with exponential noise (Z. Ding et al.,
The permute-and-flip mechanism is identical to report-noisy-max with exponential noise, 2021).

A record's score lies between 0 and a bound: 1 if it is classified wrongly and 0 if not, or its loss
clipped at the bound. The score of a model is their mean, which one record moves by bound/n when it
is replaced, and by no more than bound/(n-1) when it is added or removed. (A loss that is not
clipped has no sensitivity at all, whatever that of the error rate is.)
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import dp_event
from jaxtyping import Array, Float, Int32, Integer, UInt32

from silodp.config.choices import Relation, SelectMechanism
from silodp.models.model import SCORE_STEPS, Model, loss_of_one
from silodp.models.whole_sums import in_a_loop
from silodp.privacy.accounting.events import BoundedRangeDpEvent, PureDpEvent
from silodp.privacy.mechanisms.queries import SiloRecords
from silodp.privacy.mechanisms.shapes import Candidates, Number, Params

# Single precision moves the (logarithm of the) odds of two candidates by less than this: rounding
# of noise that is below 64, and of scores no farther than 64 apart. Charged for.
SELECT_SLACK = 2.0**-15
# Without privacy the best candidate wins, whatever the noise.
_CERTAIN = 1e30


def selection_event(epsilon: float, mechanism: SelectMechanism) -> dp_event.DpEvent:
    """What one selection costs. Only the exponential mechanism is known to be of bounded range."""
    if math.isinf(epsilon):
        return dp_event.NonPrivateDpEvent()
    event = BoundedRangeDpEvent if mechanism == "exponential" else PureDpEvent
    return event(epsilon + SELECT_SLACK)


def sharpness(epsilon: float, relation: Relation, count: int) -> float:
    """epsilon / (2 sensitivity), for the score summed up in whole steps: it falls with privacy.

    A model's score is (bound / SCORE_STEPS) * sum / n, its sensitivity bound/n or bound/(n-1): the
    bound cancels.
    """
    if math.isinf(epsilon):
        return _CERTAIN
    kept = 1.0 if relation == "replace-one" else (count - 1) / count
    return epsilon * kept / (2 * SCORE_STEPS)


def select_privately(
    model: Model,
    mechanism: SelectMechanism,
    bound: float,
    silo: SiloRecords,
    sharpness: Number,
    words: UInt32[Array | np.ndarray, "candidates 2"],
    candidates: Candidates,
    release: bool,
) -> Integer[Array, ""]:
    """The number of the chosen candidate.

    In a release records go one at a time through one loop body, so that none can change how the
    loss of another is rounded: sums then differ by the one record's share alone.

    Args:
      model: the model whose loss is the score.
      mechanism: "exponential" or "permute-and-flip".
      bound: where the loss of a record is clipped.
      silo: the records.
      sharpness: what `sharpness` gives.
      words: random.
      candidates: models along a leading axis.
      release: whether the choice is released; static.
    """
    present = jnp.arange(silo.y.shape[0]) < silo.true_count

    def losses(params: Params) -> Float[Array, " rows"]:
        if not release:
            return model.loss(model.apply(params, silo.features), silo.y)

        of_one = model.own_loss or loss_of_one(model.apply, model.loss)
        rows = in_a_loop((silo.features, silo.y))
        return jax.lax.map(lambda row: of_one(params, *row), rows)[: silo.y.shape[0]]

    def total(params: Params) -> Int32[Array, ""]:
        loss = losses(params)
        # A model that has diverged (NaN) is as bad as can be.
        clipped = jnp.where(loss <= bound, jnp.maximum(loss, 0.0), bound)
        steps = jnp.floor(clipped / bound * SCORE_STEPS).astype(jnp.int32)
        return jnp.sum(jnp.where(present, steps, 0))

    totals = jax.lax.map(total, candidates)
    # Only differences matter; those between integers are exact.
    behind = (totals - jnp.min(totals)).astype(jnp.float32) * sharpness
    exponential = _exponential(words)
    noise = -jnp.log(exponential) if mechanism == "exponential" else exponential
    return jnp.argmax(noise - behind)


def _exponential(words: UInt32[Array | np.ndarray, "*draws 2"]) -> Float[Array, "*draws"]:
    """Exponential random numbers whose tails reach far on both sides.

    A uniform number t in (0, 1/2) has all its 63 bits where they count, next to 0. Which end of the
    distribution it is taken from is a bit of its own.
    """
    first, second = words[..., 0], words[..., 1]
    fine = (first >> 1).astype(jnp.float32) + (second.astype(jnp.float32) + 0.5) * 2.0**-32
    t = jnp.minimum(fine * 2.0**-32, 0.5)
    return jnp.where(first & 1 == 1, -jnp.log(t), -jnp.log1p(-t))
