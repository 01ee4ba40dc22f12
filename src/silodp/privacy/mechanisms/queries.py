"""The questions that a method may ask about a silo's records, and nothing else.

A method never sees a record: it holds a `Queries` and asks. What each question costs is fixed
beforehand by the method's `Schedule`; asking for more than was scheduled is refused.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Integer

from silodp.base.errors import SilodpError
from silodp.privacy.mechanisms.shapes import Candidates, Params, WholeNumber

PREPARATION = -1
"""What is asked before the first round (number 0): statistics. After the last one, round `rounds`
stands for the final evaluation."""


@dataclass(frozen=True)
class Schedule:
    """What a method will ask of every silo over a whole run.

    Attributes:
      rounds: number of communication rounds.
      train: private training passes (local epochs of DP-SGD) in each round.
      select_rounds: the first so many rounds each ask for one private selection among candidates.

    Examples:
      >>> silodp.Schedule(rounds=10, train=2)
      Schedule(rounds=10, train=2, select_rounds=0)
    """

    rounds: int
    train: int = 1
    select_rounds: int = 0

    def __post_init__(self):
        # Whole numbers: no question is refused by comparing it with NaN.
        whole = all(isinstance(n, Integral) for n in (self.rounds, self.train, self.select_rounds))
        if (
            not whole
            or self.rounds < 1
            or self.train < 1
            or not 0 <= self.select_rounds <= self.rounds
        ):
            raise SilodpError(
                f"{self} is no schedule: all are whole numbers; rounds and passes are at "
                "least 1, and selections are asked for in 0 to all of the rounds."
            )


class SiloRecords(NamedTuple):
    """The records of one silo, padded, with the public numbers that sampling needs.

    A row is what epsilon protects: a record, or all records of a subject. Engines add leading axes,
    and hold NumPy arrays or JAX's: the fields are arrays of either kind.
    """

    features: Any  # a pytree of [rows, ...]
    y: Any  # [rows, ...]
    true_count: Any  # how many of the rows are there; the rest is padding
    public_count: Any  # n_k as far as it is public: rates are made from it
    expected_batch: Any  # b_k
    steps: Any  # steps of a pass
    threshold: Any  # see `sampling.threshold_of`


class SiloNoise(NamedTuple):
    """The privacy of one silo in one run: all of it comes out of its plan."""

    clip: Any  # infinite without privacy
    scale: Any  # standard deviation of the noise on the clipped sum; 0 without privacy
    grain: Any  # spacing of the lattice on which a release lies; 0 without privacy
    select: Any  # see `selection.sharpness`


class PassNoise(NamedTuple):
    """How uncertain a training pass is. It follows from the plan and says nothing about a record.

    Attributes:
      variance: what noise alone gives each entry of what the pass returns; 0 without privacy.
      sampling: the deviation that the silo's records give it, being one sample of many, if the
        gradients of records have a deviation of 1; likewise.
      batches: the variance that drawing batches gives it, if they have a variance of 1; 0 also
        where each step takes all records, or an epoch parts them.
      clip: the largest norm of a record's gradient; 0 without privacy.
    """

    variance: Any
    sampling: Any
    batches: Any
    clip: Any


class Queries(NamedTuple):
    """What a method may ask of one silo in one round: two guarded functions, and public numbers.

    Attributes:
      train: params, towards=None, strength=0 -> params. One private training pass from `params`. If
        given, `towards` is a model that the penalty strength/2 * |params - towards|^2 pulls to; it
        must itself come from released models only.
      select: candidates, otherwise -> number. Which candidate (models along a leading axis, from
        released models only) suits the silo's records, chosen privately. In rounds in which the
        schedule pays for no selection the answer is `otherwise`, and no record is looked at.
      noise: how uncertain the answer of one training pass is.

    Examples:
      To try a method by hand, with answers of one's own:

      >>> queries = silodp.Queries(
      ...     train=lambda params, towards=None, strength=0.0: params - 1.0,
      ...     select=lambda candidates, otherwise: otherwise,
      ...     noise=None,
      ... )
      >>> queries.train(3.0)
      2.0
    """

    train: Callable[..., Params]
    select: Callable[..., Integer[Array, ""]]
    noise: PassNoise


def guarded(
    schedule: Schedule,
    number: WholeNumber,
    train: Callable[[int, Params, Params | None, Any], Params],
    select: Callable[[Candidates], Integer[Array, ""]],
    noise: PassNoise,
) -> Queries:
    """The queries of round `number`, each refused when it is asked more often than is paid for.

    Args:
      schedule: what is paid for.
      number: number of the round, from 0; may be traced.
      train: number of the pass within the round, params, towards, strength -> params.
      select: candidates -> number.
      noise: how uncertain a training pass is; see `update_noise.pass_noise`.
    """
    trained = itertools.count(1)
    selected = itertools.count(1)

    def train_once(params: Params, towards: Params | None = None, strength: Any = 0.0) -> Params:
        if (number_of_pass := next(trained)) > schedule.train:
            raise SilodpError(
                f"The method asks for training pass {number_of_pass} of a round, but its schedule "
                f"pays for {schedule.train}: correct the schedule, so that the noise covers it."
            )
        return train(number_of_pass - 1, params, towards, strength)

    def select_once(candidates: Candidates, otherwise: WholeNumber) -> Integer[Array, ""]:
        if (selections := next(selected)) > min(1, schedule.select_rounds):
            raise SilodpError(
                f"The method asks for selection {selections} of a round, but its schedule pays for "
                f"{selections - 1} (in {schedule.select_rounds} of its rounds): correct the "
                "schedule, so that the noise covers it."
            )
        paid = number < schedule.select_rounds
        return jax.lax.cond(paid, select, lambda _: otherwise, candidates)

    return Queries(train_once, select_once, noise)
