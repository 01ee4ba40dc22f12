"""Is the noise multiplier enough for the claim? An accountant of the audit's own.

The plan's epsilon is worked out by the accountants of `privacy`, from above. Here the same steps
are worked out from below, from their definition and with nothing of that code: the loss of one step
on a grid, rounded down, so that what comes out is at most the true delta. A claim below it is
false: a sensitivity that was forgotten, a step too many, noise that was calibrated for less.

The pair of distributions of one step (rate q, noise multiplier s, sensitivity in clips):

- add-remove: (1-q) N(0, s^2) + q N(1, s^2) against N(0, s^2), in both directions;
- replace-one: (1-q) N(0, s^2) + q N(1, s^2) against (1-q) N(0, s^2) + q N(-1, s^2). A record and
  one of the opposite gradient are neighbours, so that no mechanism of these steps can do better.
"""

import numpy as np
from scipy import signal

from silodp.auditing.checks import Check, exactly
from silodp.privacy.plan import SiloPlan

_POINTS = 400_001  # at which one step's densities are taken
_REACH = 12.0  # standard deviations
_CELLS = 2**20  # of the grid on which losses are added up
# What the rounding of the transforms may add: of delta, and beyond.
_SHARE, _ROUNDING = 1e-3, 1e-11


def check_claim(plan: SiloPlan) -> Check:
    """Whether the training steps of the plan by themselves cost no more than it claims."""
    least = least_delta(
        plan.noise_multiplier,
        min(1.0, plan.expected_batch / plan.public_count),
        plan.total_steps,
        plan.epsilon,
        plan.relation == "replace-one",
    )
    return exactly(
        "the plan's noise is enough for its epsilon",
        least <= plan.delta * (1 + _SHARE) + _ROUNDING,
        f"delta is at least {least:.4g} at epsilon {plan.epsilon:.4g}",
        f"at most {plan.delta:g}",
    )


def least_delta(
    noise: float, rate: float, steps: int, epsilon: float, replace_one: bool = False
) -> float:
    """Less than or equal to the delta at that epsilon of so many steps."""
    reach = _REACH * noise + 1.0
    x = np.linspace(-reach, reach, _POINTS)

    def log_normal(shift: float) -> np.ndarray:
        return -0.5 * ((x - shift) / noise) ** 2 - np.log(noise * np.sqrt(2 * np.pi))

    def log_mixture(shift: float) -> np.ndarray:
        if rate >= 1.0:
            return log_normal(shift)
        return np.logaddexp(np.log1p(-rate) + log_normal(0.0), np.log(rate) + log_normal(shift))

    first = log_mixture(1.0)
    second = log_mixture(-1.0) if replace_one else log_normal(0.0)
    pairs = [(first, second)] if replace_one else [(first, second), (second, first)]
    return max(_composed(one, other, x, steps, epsilon) for one, other in pairs)


def _composed(
    upper: np.ndarray, lower: np.ndarray, x: np.ndarray, steps: int, epsilon: float
) -> float:
    """`least_delta` in one direction: losses log(upper / lower), drawn from `upper`."""
    # Each cell of x counts with the lesser of its ends' densities and losses: from below.
    densities = np.exp(upper)
    chance = np.minimum(densities[1:], densities[:-1]) * (x[1] - x[0])
    loss = np.minimum((upper - lower)[1:], (upper - lower)[:-1])
    spread = np.sqrt(max(1e-300, np.sum(chance * loss**2) - np.sum(chance * loss) ** 2))
    mean = np.sum(chance * loss)
    span = max(steps * abs(mean), 1e-9) + 14 * spread * np.sqrt(steps) + np.ptp(loss) + epsilon
    width = 2 * span / _CELLS
    cell = np.floor(loss / width).astype(int)
    lowest = cell.min()
    one = np.bincount(cell - lowest, chance)
    total, offset = _power(one, steps)
    losses = (np.arange(len(total)) + offset + steps * lowest) * width
    above = losses > epsilon
    return float(max(0.0, np.sum(total[above] * -np.expm1(epsilon - losses[above]))))


def _power(one: np.ndarray, steps: int) -> tuple[np.ndarray, int]:
    """The distribution of the sum of so many draws: by repeated squaring, tails cut off."""
    result, shift = np.ones(1), 0
    base, base_shift = one, 0
    while steps:
        if steps & 1:
            result, shift = _cut(signal.fftconvolve(result, base), shift + base_shift)
        steps >>= 1
        if steps:
            base, base_shift = _cut(signal.fftconvolve(base, base), 2 * base_shift)
    return result, shift


def _cut(chance: np.ndarray, shift: int) -> tuple[np.ndarray, int]:
    """Without what is too unlikely to matter: leaving it out lowers what comes out."""
    chance = np.where(chance > 1e-17, chance, 0.0)
    kept = np.flatnonzero(chance)
    return chance[kept[0] : kept[-1] + 1], shift + int(kept[0])
