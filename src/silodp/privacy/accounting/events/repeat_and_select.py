"""The best of a random number of runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from silodp.config.choices import Relation
from silodp.privacy.accounting import losses, pld, rdp
from silodp.privacy.accounting.events.kind import AN_EVENT, Kind, Number, StepsOf, Values
from silodp.privacy.accounting.steps import Step, total_spread
from silodp.privacy.accounting.tuned_pld import best_of, shift_of
from silodp.privacy.trials import Trials


@dataclass(frozen=True)
class TunedSteps(Step):
    """The best of a random number of runs, each of them all of `steps`."""

    steps: tuple[Step, ...]
    mean: float
    shape: float
    repeats: int

    @property
    def is_free(self) -> bool:
        """See `Step`."""
        return not self.steps

    @property
    def words(self) -> str:
        """See `Step`."""
        return f"repeat-and-select of mean {self.mean:g}"

    def spread(self, relation: Relation) -> float:
        """Choosing the best of a few runs costs two to three times as much as one run."""
        return 2.5 * total_spread(self.steps, relation)

    @property
    def inside(self) -> tuple[tuple[Step, ...], ...]:
        """See `Step`."""
        return (self.steps,)

    def has_losses(self, relation: Relation) -> bool:
        """See `Step`; `tuned_pld` is about truncated negative binomial numbers of runs."""
        return self.shape < math.inf and all(step.has_losses(relation) for step in self.steps)

    def losses(self, grid: float, relation: Relation, more: int) -> PrivacyLossDistribution:
        """The best of the trials, by the profile of one of them: see `tuned_pld`."""
        profile, reach = pld.profile(self.steps, relation)
        shift = shift_of(profile, self.mean, self.shape, min(reach, losses.MOST_REACH))
        best = best_of(profile, self.mean, shift)
        return losses.symmetric(best, shift + reach, self.spread(relation), grid)

    def reach(self, relation: Relation) -> float:
        """See `Step`."""
        return (3 + self.shape) * losses.inner_reach(self, relation)

    @property
    def magnified(self) -> float:
        """Tuning multiplies divergences."""
        return 3 * self.mean

    def has_divergences(self, relation: Relation) -> bool:
        """See `Step`."""
        return all(step.has_divergences(relation) for step in self.steps)

    def divergences(self, orders: Sequence[float], relation: Relation, exact: bool) -> np.ndarray:
        """See `Step`."""
        return _divergences(self, orders, relation, exact)


def _divergences(
    step: TunedSteps, orders: Sequence[float], relation: Relation, exact: bool
) -> np.ndarray:
    """Papernot and Steinke 2021, "Hyperparameter tuning with Rényi differential privacy".

    The number of runs is Poisson if the shape is infinite, else truncated negative binomial. A
    second order (lambda-hat) may be any, and the best is looked for as in `least_epsilon`.
    """
    alphas = np.array(sorted({*orders, *(order for order in rdp.ORDERS if order == int(order))}))
    inner = rdp.curve(step.steps, alphas.tolist(), relation, exact=exact)
    bound = inner + math.log(step.mean) / (alphas - 1)

    def least(value_at: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """The least over second orders (the last axis) of a function of order and divergence."""
        coarse = value_at(alphas, inner)
        near = _around(alphas, np.unique(coarse.argmin(axis=-1)))
        if not near:
            return coarse.min(axis=-1)
        fine = value_at(np.array(near), rdp.curve(step.steps, near, relation, exact=exact))
        return np.minimum(coarse.min(axis=-1), fine.min(axis=-1))

    if step.shape == math.inf:  # theorem 6
        epsilons = np.log1p(1 / (alphas - 1))[:, None]
        log_deltas = least(lambda a, d: _log_deltas(a, d, epsilons))
        bound = bound + step.mean * np.exp(np.minimum(log_deltas, 0.0))
    else:  # theorem 2
        # Rounded up, and so to the safe side.
        halting = Trials(step.mean, step.shape).log_halting * (1 + 1e-9) + 1e-11
        bound = bound + (1 + step.shape) * least(lambda a, d: (1 - 1 / a) * d + halting / a)
    # Divergence rises with the order, so that any higher order bounds a lower one.
    bound = np.minimum.accumulate(bound[::-1])[::-1]
    return bound[np.searchsorted(alphas, orders)]


def _around(alphas: np.ndarray, places: np.ndarray) -> list[float]:
    """The orders between the neighbours of the given ones that are not given themselves."""
    ends = np.concatenate([[1.0], alphas, [math.inf]])
    return [
        order
        for order in rdp.ORDERS
        if order not in alphas and np.any((ends[places] < order) & (order < ends[places + 2]))
    ]


def _log_deltas(alphas: np.ndarray, divergences: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """Bounds on log delta at `epsilon`, by each order (Canonne et al. 2020, proposition 12)."""
    by_order = (alphas - 1) * (divergences - epsilon + np.log1p(-1 / alphas)) - np.log(alphas)
    by_variation = 0.5 * np.log(-np.expm1(-divergences))  # Bretagnolle and Huber
    return np.minimum(by_order, by_variation)


def _step(event: RepeatAndSelectDpEvent, values: Values, steps_of: StepsOf) -> TunedSteps:
    return TunedSteps(steps_of(event.event), values["mean"], values["shape"], 1)


KIND = Kind(
    RepeatAndSelectDpEvent,
    {
        "event": AN_EVENT,
        "mean": Number(1),
        "shape": Number(-0.999, math.inf),  # of a truncated negative binomial: above -1
    },
    step=_step,
)
