"""Mechanisms on parts of the records, of which each record is in one only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import attr
import numpy as np
from dp_accounting.dp_event import DpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from silodp.config.choices import Relation
from silodp.privacy.accounting import losses, pld, rdp
from silodp.privacy.accounting.events.kind import EVENTS, Kind, StepsOf, Values, checked
from silodp.privacy.accounting.steps import Step, total_spread

_RULES = {"events": EVENTS}


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EitherDpEvent(DpEvent):
    """Mechanisms on parts of the records: whatever a record is, it takes part in one of them only.

    Which part a record falls into must not depend on any record. Costs as much as the dearest.

    Attributes:
      events: what is asked of each part.
    """

    events: list[DpEvent]

    def __attrs_post_init__(self):
        checked(self, EitherDpEvent, _RULES)


@dataclass(frozen=True)
class EitherSteps(Step):
    """All steps of one of `parts`: which one hangs on the record."""

    parts: tuple[tuple[Step, ...], ...]
    repeats: int

    @property
    def is_free(self) -> bool:
        """See `Step`."""
        return not any(self.parts)

    @property
    def words(self) -> str:
        """See `Step`."""
        return f"mechanisms on {len(self.parts)} parts of the records"

    def spread(self, relation: Relation) -> float:
        """See `Step`."""
        return max(total_spread(part, relation) for part in self.parts)

    @property
    def inside(self) -> tuple[tuple[Step, ...], ...]:
        """See `Step`."""
        return self.parts

    @property
    def alternatives(self) -> tuple[tuple[Step, ...], ...]:
        """See `Step`."""
        return self.parts

    def has_losses(self, relation: Relation) -> bool:
        """See `Step`."""
        return all(step.has_losses(relation) for part in self.parts for step in part)

    def losses(self, grid: float, relation: Relation, more: int) -> PrivacyLossDistribution:
        """The record is in whichever part diverges most, at each epsilon anew."""
        found = (pld.profile(part, relation) for part in self.parts)
        profiles, reaches = zip(*found, strict=True)

        def most(x: np.ndarray) -> np.ndarray:
            return np.max([profile(x) for profile in profiles], axis=0)

        return losses.symmetric(most, max(reaches), self.spread(relation), grid)

    def reach(self, relation: Relation) -> float:
        """See `Step`."""
        return losses.inner_reach(self, relation)

    def has_divergences(self, relation: Relation) -> bool:
        """See `Step`."""
        return all(step.has_divergences(relation) for part in self.parts for step in part)

    def divergences(self, orders: Sequence[float], relation: Relation, exact: bool) -> np.ndarray:
        """See `Step`."""
        parts = [rdp.curve(part, orders, relation, exact=exact) for part in self.parts]
        return np.max(parts, axis=0)

    def squared_mu(self, relation: Relation) -> float:
        """The squared mu of the dearest part."""
        dearest = max(math.fsum(step.squared_mu(relation) for step in part) for part in self.parts)
        return self.repeats * dearest


def _step(event: EitherDpEvent, values: Values, steps_of: StepsOf) -> EitherSteps:
    return EitherSteps(tuple(steps_of(part) for part in event.events), 1)


KIND = Kind(EitherDpEvent, _RULES, step=_step)
