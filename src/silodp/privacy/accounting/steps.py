"""What an event is made of: a flat list of steps, each of which says what it costs.

Composition is commutative, so events that ask the same in another order have the same steps. The
accountants, the filters of a lifetime and the search for noise work on steps, and know no kind of
them: how a kind is priced stands in the module of its event (see `events`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from silodp.base.errors import SilodpError
from silodp.config.choices import Relation

# With less noise one step's loss nears the largest exponent of a float, and no bound is computed.
# Nobody sets such a budget. Steps on every record go further, because they have a closed form.
LEAST_NOISE = 0.05
MOST_EPSILON = 500.0


class Step(ABC):
    """A mechanism and how often it runs; a frozen dataclass, whose last field is `repeats`.

    Attributes:
      repeats: how often it runs.
    """

    repeats: int

    @property
    @abstractmethod
    def is_free(self) -> bool:
        """Whether what it releases depends on no record."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, in the words of an error message."""

    @abstractmethod
    def spread(self, relation: Relation) -> float:
        """About the standard deviation of one such step's privacy loss.

        It rises as the noise falls. By the central limit theorem many such steps resemble one
        Gaussian mechanism of noise 1/spread (Bu et al. 2020, "Deep learning with Gaussian
        differential privacy"). A guide for grids and first guesses, not a bound.
        """

    def is_computable(self, relation: Relation) -> bool:
        """Whether a bound on it can be computed, beyond the plain sum of pure epsilons."""
        return True

    @property
    def pure_epsilon(self) -> float:
        """What it costs at most, at any delta; infinite where it is not purely private."""
        return math.inf

    def repeated(self, times: int) -> "Step":
        """This mechanism, run `times` times."""
        fields: Any = self
        return replace(fields, repeats=times)

    # What it is made of

    @property
    def inside(self) -> "tuple[tuple[Step, ...], ...]":
        """The lists of steps that it is made of."""
        return ()

    @property
    def alternatives(self) -> "tuple[tuple[Step, ...], ...]":
        """The lists of steps of which a record takes part in one only, if it is made so."""
        return ()

    # By privacy loss distributions

    def has_losses(self, relation: Relation) -> bool:
        """Whether a pair that dominates it is known; it is for either relation or for none."""
        return True

    @property
    def losses_are_exact(self) -> bool:
        """Whether its loss distribution is exact, but for the grid."""
        return False

    @property
    def depends_on_size(self) -> bool:
        """Whether its losses depend on the number of records, beyond the sampling rate."""
        return False

    def unsampled_noise(self, relation: Relation) -> float | None:
        """Its noise relative to what neighbours move, if it is Gaussian on every record."""
        return None

    @abstractmethod
    def losses(self, grid: float, relation: Relation, more: int) -> PrivacyLossDistribution:
        """The losses of one such step, on data with `more` records than it says."""

    def reach(self, relation: Relation) -> float:
        """The largest loss of one such step, ten deviations out."""
        return self.spread(relation)

    @property
    def magnified(self) -> float:
        """What it makes of the rounding of what is inside it."""
        return 3

    # By Rényi divergences

    def has_divergences(self, relation: Relation) -> bool:
        """Whether its divergence is known, under either relation."""
        return True

    @abstractmethod
    def divergences(self, orders: Sequence[float], relation: Relation, exact: bool) -> np.ndarray:
        """The Rényi divergence of one such step at each order; `exact` as in `rdp.curve`."""

    # By the Gaussian filter of a lifetime

    def squared_mu(self, relation: Relation) -> float:
        """mu^2 of all of them; infinite where no Gaussian mechanism bounds the step."""
        return math.inf


def describe(step: Step) -> str:
    """The step, and how often it runs, in the words of an error message."""
    return f"{step.words}, {'once' if step.repeats == 1 else f'{step.repeats} times'}"


def sort_key(step: Step) -> tuple:
    """Like steps stand next to each other, and the order is total."""

    def numbers(values: Sequence) -> list[float]:
        return [n for v in values for n in (numbers(v) if isinstance(v, tuple) else [v])]

    fields: Any = step
    return type(step).__name__, numbers(astuple(fields)), repr(step)


def merge_unsampled(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Gaussian mechanisms on every record are, exactly, one Gaussian mechanism of less noise."""
    unsampled = [step for step in steps if step.unsampled_noise("add-remove") is not None]
    others = tuple(step for step in steps if step not in unsampled)
    spreads = [(step.repeats, step.spread("add-remove")) for step in unsampled]
    precision = math.fsum(repeats * spread * spread for repeats, spread in spreads)
    if precision == 0:
        return others
    merged: Any = unsampled[0]
    return (*others, replace(merged, noise=1 / math.sqrt(precision), repeats=1))


def total_spread(steps: Sequence[Step], relation: Relation) -> float:
    """The spread of all steps together."""
    spreads = [(step.repeats, step.spread(relation)) for step in steps]
    return math.sqrt(math.fsum(repeats * spread * spread for repeats, spread in spreads))


def moved_by(relation: Relation) -> float:
    """How far neighbours can move a sum, in units of what one record can add to it.

    One record more or less moves it once; one that is exchanged for another, twice.
    """
    return 1.0 if relation == "add-remove" else 2.0


def check_relation(relation: str) -> None:
    """Refuses a relation that is not known."""
    if relation not in ("add-remove", "replace-one"):
        raise SilodpError(
            f"Relation {relation!r} is unknown: choose 'add-remove' (one record more or less) or "
            "'replace-one' (one record changed)."
        )
