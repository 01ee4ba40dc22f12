"""A silo's lifetime budget, when every run is chosen after seeing the results of those before it.

Composition (a loss distribution of all runs together) is for runs that were fixed beforehand. Where
the next run hangs on the results of the last, "whatever was admitted composes to (epsilon, delta)"
promises less than it says: an analyst goes on where results were telling, and stops where not. What
holds is a FILTER: an amount that is fixed when the ledger is opened, and of which each run takes a
part before it starts. Two filters are known here; a ledger keeps to the one it was opened with.

A run is a series of mechanisms M_1, M_2, ...; the history h is all that was released so far, of all
runs; P and Q are the distributions of histories for two neighbours; l_t is the log ratio of their
chances of the t-th answer given the history before it, and L the sum of all l_t so far.

Conditions, of either filter. (1) Given any history, the mechanism that is answered next is bounded
by its cost, for all neighbours in both directions. (2) What is asked, what it costs, and whether it
is admitted, follow from the history and from coins of their own, never from records. (3) A charge
comes before the answer: at every moment the costs of all that was answered, in any run, sum to at
most the budget. So runs may go on side by side (their answers come in some order, which is the
order of t), stop when they like, and give back what they charged for answers that were never given.

RENYI. At one order a > 1, costs rho_t are Rényi divergences, and the budget is a number B.

  Theorem (Feldman and Zrnic 2021; Lécuyer 2021). If the sum of rho_t is at most B, always, then
  D_a(P || Q) <= B.

  Proof. Given the history, rho_t is a number, and the mean of exp((a-1) l_t) under P is exp((a-1)
  D_a of M_t) <= exp((a-1) rho_t). So Z_t = exp((a-1) sum of (l_s - rho_s), s <= t) has a mean that
  never rises: E Z <= 1, whenever it ends. As the rho_s sum to at most B, exp((a-1) L) is at most Z
  exp((a-1) B), and so its mean, which is exp((a-1) D_a(P || Q)), is at most exp((a-1) B).

  Divergence B at order a is (epsilon, delta)-DP with
  delta = exp((a-1) (B-epsilon)) (1-1/a)^(a-1) / a (Canonne, Kamath and Steinke 2020, prop. 12).
  The order must be fixed beforehand: the best of several orders in hindsight is no filter.

GAUSSIAN. For mechanisms whose trade-off is nowhere below that of N(0, 1) against N(mu_t, 1). The
costs are mu_t^2, and the budget is mu^2.

  Theorem (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023). If the sum of mu_t^2 is at
  most mu^2, always, then P and Q diverge, at every epsilon, no more than N(mu, 1) and N(0, 1) do.

  Proof. H_g(P || Q) is the integral of (p - g q)+, and G(m, g) that of N(sqrt m, 1) against N(0,
  1). With s for what was spent, let V = G(mu^2 - s, e^(epsilon-L)): what a Gaussian mechanism of
  all that is left could still do. One more answer does not raise its mean under P: that mean is
  H_g(M_t x N | M_t' x N') with g = e^(epsilon-L) and N, N' the Gaussians of mu^2 - s - mu_t^2; for
  each outcome of N the divergence of M_t is at most that of the Gaussians of mu_t; and those
  together with N, N' are the Gaussians of mu^2 - s. So the mean of V ends at no more than G(mu^2,
  e^epsilon), where it began, and V is never below G(0, e^(epsilon-L)) = (1 - e^(epsilon-L))+, whose
  mean under P is H_(e^epsilon)(P || Q).

  It loses nothing: Gaussian mechanisms may fill (epsilon, delta) to the brim. But of the mechanisms
  here only these, selections and pure mechanisms are so bounded. A Gaussian mechanism on a Poisson
  sample is not, but by mu = 1/noise, as if there were no sampling: a large loss is rarer by the
  factor q, but it is as large, and in the far tails a factor is nothing.

OVERFLOW. A draw that does not fit its slots (see `sampling`) answers otherwise than was priced. A
fixed share ASIDE of delta pays for that: the filters work with delta' = (1 - ASIDE) delta, and the
chances of overflow may sum to p with (1 + e^epsilon) p <= ASIDE delta. Proof: given any history,
the next answer overflows with chance p_t at most, on either neighbour, and these sum to at most p,
always; so the chance that any overflows is at most the mean of their sum, p. Up to the first that
does, everything is as if none could. Hence for any set S of histories, real (r) and priced ones:
P_r(S) <= P(S) + p <= e^epsilon Q(S) + delta' + p <= e^epsilon (Q_r(S) + p) + delta' + p.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, get_args

import mpmath
import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, get_epsilon_gaussian, get_sigma_gaussian

from silodp.base.errors import SilodpError, one_of
from silodp.config.choices import Relation
from silodp.privacy.accounting import rdp
from silodp.privacy.accounting.events import steps_of
from silodp.privacy.accounting.steps import Step, check_relation, describe, moved_by

Kind = Literal["renyi", "gaussian"]
"""Which filter a lifetime is kept by; `renyi` knows a price for nearly everything."""

ASIDE = 0.05
"""The share of the lifetime delta that pays for draws which overflow their slots."""

# What a budget stays below the largest that could be proven, so that another machine, whose
# logarithms round otherwise, does not find it too large; and what its check takes for rounding.
_BELOW = 1e-9
_ROUNDING = 1e-12

# The least price of anything that has one.
_LEAST_COST = 1e-300

# More noise than this is charged as this (see `steps`), and less than so much has no price.
_MOST_NOISE = 1e12
_LEAST_NOISE = 1e-3

# Of its own, so that no other thread changes how many digits there are.
_DIGITS: Any = mpmath.mp.clone()
_DIGITS.dps = 60


@dataclass(frozen=True)
class Lifetime:
    """All that may be spent, as it was fixed when the ledger was opened.

    There is no lifetime that promises more than it can hold: to make one is refused.

    Attributes:
      epsilon: epsilon of all that is ever released; finite.
      delta: delta of all that is ever released, overflow included.
      relation: which data sets are neighbours.
      kind: the filter.
      order: order of the Rényi divergences; 0 for the Gaussian filter.
      budget: the most that costs may sum to: a Rényi divergence, or mu^2.
      overflow_budget: the most that chances of overflow may sum to.
    """

    epsilon: float
    delta: float
    relation: Relation
    kind: Kind
    order: float
    budget: float
    overflow_budget: float

    def __post_init__(self):
        _check_promise(self.epsilon, self.delta, self.relation, self.kind)
        for name in ("order", "budget", "overflow_budget"):
            value = getattr(self, name)
            if type(value) is not float or not 0 <= value < math.inf:
                raise _false(f"its {name.replace('_', ' ')} is {value!r}, which is no amount")
        if not (self.order > 1 if self.kind == "renyi" else self.order == 0):
            raise _false(f"its order is {self.order}, which the filter {self.kind!r} does not take")
        if not self.budget > 0:
            raise _false("its budget is 0")
        slightly_more = self.budget * (1 + _ROUNDING)
        if self.kind == "renyi":
            holds = slightly_more <= _renyi_budget(self.order, self.epsilon, self.delta)
        else:
            holds = _gaussian_delta(slightly_more, self.epsilon) <= _filter_delta(self.delta)
        if not holds:
            raise _false(
                f"its budget {self.budget} (order {self.order}) allows more than epsilon "
                f"{self.epsilon} at delta {self.delta}"
            )
        if self.overflow_budget > _overflow_budget(self.epsilon, self.delta) * (1 + _ROUNDING):
            raise _false(
                f"its overflow {self.overflow_budget} takes more than {ASIDE:.0%} of delta "
                f"{self.delta} at epsilon {self.epsilon}"
            )


def open_lifetime(
    epsilon: float,
    delta: float,
    relation: Relation,
    kind: Kind = "renyi",
    *,
    order: float | None = None,
) -> Lifetime:
    """The largest lifetime that holds (epsilon, delta); of the filter `renyi`, at its best order.

    The best order is that at which Gaussian mechanisms fill (epsilon, delta) with the least noise.
    It is for new ledgers. A ledger in use keeps its order: give it here to learn what its budget is
    at another epsilon or delta. What was spent before counts against that budget as well.
    """
    _check_promise(epsilon, delta, relation, kind)
    epsilon, delta = float(epsilon), float(delta)
    if kind == "renyi":
        order = _best_order(epsilon, delta) if order is None else _as_float(order)
        budget = _renyi_budget(order, epsilon, delta) if order > 1 else math.nan
    else:
        order = 0.0 if order is None else _as_float(order)
        budget = _gaussian_budget(epsilon, delta)
    budget *= 1 - _BELOW
    if not budget > 0:
        raise SilodpError(
            f"A lifetime of epsilon {epsilon} at delta {delta} leaves nothing to spend (filter "
            f"{kind!r}, order {order}): give a larger epsilon or delta, or another order."
        )
    aside = _overflow_budget(epsilon, delta) * (1 - _BELOW)
    return Lifetime(epsilon, delta, relation, kind, order, budget, aside)


def to_json(lifetime: Lifetime) -> dict[str, Any]:
    """What a ledger records of the lifetime, beside epsilon, delta and relation."""
    return {
        "kind": lifetime.kind,
        "order": lifetime.order,
        "budget": lifetime.budget,
        "overflow": lifetime.overflow_budget,
    }


def from_json(epsilon: float, delta: float, relation: Relation, data: object) -> Lifetime:
    """The lifetime that was recorded, if it holds (epsilon, delta); anything else is refused."""
    names = ("kind", "order", "budget", "overflow")
    if not isinstance(data, Mapping) or set(data) != set(names):
        raise _false(f"it is {data!r} and not the fields {', '.join(names)}")
    for name in names[1:]:
        if not _is_number(data[name]):
            raise _false(f"its {name} is {data[name]!r}, which is no number")
    order, budget, overflow = (_as_float(data[name]) for name in names[1:])
    return Lifetime(epsilon, delta, relation, data["kind"], order, budget, overflow)


# Prices


def cost(event: DpEvent, lifetime: Lifetime) -> float:
    """What the event takes of the budget, rounded up; infinite where no bound is known.

    Costs of several events add up. An event that no accountant understands is refused.
    """
    try:
        return math.fsum(_cost_of(step, lifetime) for step in steps_of(event))
    except OverflowError:
        return math.inf


def why_not(event: DpEvent, lifetime: Lifetime) -> str | None:
    """Why the event has no price under this lifetime, in words; nothing where it has one."""
    step = _without_price(steps_of(event), lifetime)
    if step is None:
        return None
    relation = lifetime.relation
    if step.has_divergences(relation) and not step.is_computable(relation):
        return f"{describe(step)}, hides too little to have a price: give it more noise"
    if lifetime.kind == "gaussian":
        return (
            f"{describe(step)}, has no price in a lifetime of the filter 'gaussian': open the "
            "ledger with the filter 'renyi'"
        )
    return f"{describe(step)}, has no known Rényi divergence: ask it otherwise"


def fits(spent: Iterable[float], overflow: Iterable[float], lifetime: Lifetime) -> bool:
    """Whether costs, and chances of overflow, of all runs together are within the lifetime."""
    return _at_most(spent, lifetime.budget) and _at_most(overflow, lifetime.overflow_budget)


def share(cost: float, lifetime: Lifetime) -> float:
    """The part of the budget that this cost takes."""
    return cost / lifetime.budget


def _at_most(amounts: Iterable[float], most: float) -> bool:
    amounts = tuple(amounts)
    try:
        # Nothing may give back what another took, and what is not a number fits nowhere.
        return all(amount >= 0 for amount in amounts) and math.fsum(amounts) <= most
    except OverflowError:
        return False


def _cost_of(step: Step, lifetime: Lifetime) -> float:
    return _step_cost(step, lifetime.kind, lifetime.order, lifetime.relation)


@functools.lru_cache(maxsize=2**16)
def _step_cost(step: Step, kind: Kind, order: float, relation: Relation) -> float:
    """Silos often share their steps, and runs repeat them."""
    try:
        if kind == "gaussian":
            total = step.squared_mu(relation)
        else:
            # Ratios that overflow and logarithms of 0 give infinities, which are safe.
            with np.errstate(all="ignore"):
                total = float(rdp.curve([step], [order], relation, exact=True)[0])
    except OverflowError:  # counts beyond floating point
        return math.inf
    if not total >= 0:
        return math.inf
    return max(total * (1 + _ROUNDING), _LEAST_COST)


def _without_price(steps: Sequence[Step], lifetime: Lifetime) -> Step | None:
    """The first of the steps, or of those inside them, that has no price; or nothing."""
    for step in steps:
        if _cost_of(step, lifetime) < math.inf:
            continue
        # What is inside costs mu^2 only where a record takes part in one of several.
        inside = step.inside if lifetime.kind == "renyi" else step.alternatives
        found = (_without_price(part, lifetime) for part in inside)
        return next((inner for inner in found if inner is not None), step)
    return None


# What is left


def noise_that_fits(left: float, lifetime: Lifetime) -> float:
    """The least noise multiplier of ONE more Gaussian release, on every record, that costs `left`.

    Infinite where none fits.
    """
    if not left > 0:
        return math.inf
    squared = lifetime.order / 2 if lifetime.kind == "renyi" else 1.0
    noise = math.sqrt(squared) / math.sqrt(left) * (1 + 2 * _ROUNDING)
    noise = max(noise, _LEAST_NOISE) * moved_by(lifetime.relation)
    return noise if noise <= _MOST_NOISE else math.inf


def epsilon_of_left(left: float, lifetime: Lifetime) -> float:
    """The epsilon of that release by itself, at the lifetime delta; never above the lifetime's."""
    noise = noise_that_fits(left, lifetime) / moved_by(lifetime.relation)
    with np.errstate(all="ignore"):
        return min(float(get_epsilon_gaussian(noise, lifetime.delta)), lifetime.epsilon)


# What was lost so far

# Levels of the odometer: epsilon * 2^(f/2) for f from -11 to 4, which is from 1/45 to 4 times it.
_LEVELS = np.arange(-11, 5)


def odometer(
    events: Sequence[DpEvent],
    overflow: float,
    lifetime: Lifetime,
    fixed: Lifetime | None = None,
) -> float:
    """An epsilon that is true at every moment, whatever was chosen after seeing what.

    With chance 1 - delta over all that is ever released, AT NO TIME has the privacy loss L been
    more than the odometer said of what had been charged by then. (A filter says something of the
    end only. Nor is this a filter: both hold, each with a delta of its own.) Infinite where no
    bound is known, or where overflow is beyond what was set aside.

    Proof. Take orders a_1, ..., a_F, fixed beforehand. For each of them Z of the Rényi filter (see
    above) is not negative and its mean never rises, so that with chance 1 - delta'/F it never gets
    to F/delta' (Ville's inequality). By the union bound none of them does, with chance 1 - delta';
    and then at all times and for all f

        L <= R_f + log(F/delta') / (a_f - 1),    R_f the sum of divergences at order a_f so far.

    So the least of the F right sides is true, also if it is another one each time. The orders are
    those at which Gaussian mechanisms come furthest until L may be epsilon_f, a ladder of levels:
    a - 1 = (c + sqrt(c^2 + c epsilon_f)) / epsilon_f with c = log(F/delta'). Where the lifetime was
    changed, they are those of the lifetime that was `fixed` before anything was charged.
    """
    if not 0 <= overflow <= lifetime.overflow_budget:
        return math.inf
    steps = steps_of(ComposedDpEvent(list(events)))
    if not steps:
        return 0.0
    above_one = _odometer_orders(fixed or lifetime) - 1
    c = _log_level_chance(lifetime)
    with np.errstate(all="ignore"):
        try:
            total = rdp.curve(steps, (1 + above_one).tolist(), lifetime.relation, exact=True)
        except OverflowError:  # counts beyond floating point
            return math.inf
        return float(np.min(total + c / above_one)) * (1 + _ROUNDING)


def _odometer_orders(lifetime: Lifetime) -> np.ndarray:
    c, levels = _log_level_chance(lifetime), lifetime.epsilon * 2.0 ** (_LEVELS / 2)
    return 1 + (c + np.sqrt(c * c + c * levels)) / levels


def _log_level_chance(lifetime: Lifetime) -> float:
    """log(F/delta'): each of F orders may fail with a chance of delta'/F."""
    return math.log(len(_LEVELS) / _filter_delta(lifetime.delta))


# What a budget may be


def _filter_delta(delta: float) -> float:
    return delta * (1 - ASIDE)


def _overflow_budget(epsilon: float, delta: float) -> float:
    return ASIDE * delta * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def _renyi_budget(order: float, epsilon: float, delta: float) -> float:
    """The largest divergence that is (epsilon, delta')-DP (Canonne et al. 2020, proposition 12)."""
    log_delta = math.log(_filter_delta(delta))
    return epsilon + (log_delta + math.log(order)) / (order - 1) - math.log1p(-1 / order)


@functools.lru_cache(maxsize=2**10)
def _best_order(epsilon: float, delta: float) -> float:
    """The order at which the budget, in Gaussian mechanisms of divergence order/2, is largest."""
    orders = 1 + np.geomspace(1e-2, 1e9, 20_001)
    log_delta = math.log(_filter_delta(delta))
    budgets = epsilon + (log_delta + np.log(orders)) / (orders - 1) - np.log1p(-1 / orders)
    return round(float(orders[np.argmax(budgets / orders)]), 2)


@functools.lru_cache(maxsize=2**10)
def _gaussian_budget(epsilon: float, delta: float) -> float:
    """About the largest mu^2 that is (epsilon, delta')-DP, and no more than that."""
    try:
        with np.errstate(all="ignore"):
            budget = float(get_sigma_gaussian(epsilon, _filter_delta(delta))) ** -2
    except (ValueError, ArithmeticError):  # beyond what the search can do
        return 0.0
    # The search ends on either side, and far off where numbers are extreme.
    below = 1e-8
    while budget > 0 and _gaussian_delta(budget, epsilon) > _filter_delta(delta):
        budget *= max(0.0, 1 - below)
        below *= 2
    return budget


@functools.lru_cache(maxsize=2**10)
def _gaussian_delta(squared: float, epsilon: float) -> Any:
    """The delta of a Gaussian mechanism of this mu^2, to many digits (Balle and Wang 2018)."""
    mu, epsilon = _DIGITS.sqrt(squared), _DIGITS.mpf(epsilon)
    far, near = _DIGITS.ncdf(mu / 2 - epsilon / mu), _DIGITS.ncdf(-mu / 2 - epsilon / mu)
    return far - _DIGITS.exp(epsilon) * near


def _check_promise(epsilon: object, delta: object, relation: str, kind: object) -> None:
    if not _is_number(epsilon) or not 0 < epsilon < math.inf:
        raise SilodpError(
            f"The lifetime epsilon is {epsilon!r}, but must be above 0 and finite: give one such "
            "as 10."
        )
    if not _is_number(delta) or not 0 < delta < 1:
        raise SilodpError(
            f"The lifetime delta is {delta!r}, but must lie between 0 and 1: give one such as 1e-5."
        )
    check_relation(relation)
    if kind not in get_args(Kind):
        raise SilodpError(
            f"The lifetime filter {kind!r} is unknown: give {one_of(str(kind), get_args(Kind))}."
        )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond floats
        return math.inf


def _false(reason: str) -> SilodpError:
    return SilodpError(
        f"The lifetime that is recorded cannot be relied on: {reason}; put back the ledger as it "
        "was written, or open a new one for other records."
    )
