"""Statistics by which the adversary tells the two worlds apart.

What was seen of a silo is in units of the noise of one step: for each pass, a count of the canary's
draws divided by the noise multiplier, plus noise of variance `steps`.
"""

from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from silodp.privacy.plan import SiloPlan

# Stands for whatever is not finite: a model that blew up says a lot.
_HUGE = 1e300


def in_units_of_noise(readings: np.ndarray, plans: Sequence[SiloPlan], lr: float) -> np.ndarray:
    """What was seen [trials, silos, ...], by the noise of one step in each silo."""
    noise = [
        lr * plan.clip * plan.noise_multiplier / plan.expected_batch if plan.private else 1.0
        for plan in plans
    ]
    return readings / np.array(noise).reshape(-1, *[1] * (readings.ndim - 2))


def statistics(
    readings: np.ndarray, plan: SiloPlan, place: int, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """By name, each statistic [trials] of what was seen [trials, silos, passes].

    Args:
      readings: what was seen of all silos.
      plan: the audited silo's plan.
      place: the audited silo's place.
      names: names of all silos.
    """
    with np.errstate(all="ignore"):
        own = readings[:, place].astype(float)
        found = {
            "sum over passes": own.sum(axis=1),
            "likelihood ratio": likelihood_ratio(own, plan),
            "largest pass": own.max(axis=1),
            "sum of squares": np.square(own).sum(axis=1),
        }
        if own.shape[1] > 1:
            steps = np.abs(np.diff(own, axis=1))
            found["largest change from pass to pass"] = steps.max(axis=1)
            found["least change from pass to pass"] = steps.min(axis=1)
        for other, name in enumerate(names):
            if other != place:
                apart = own - readings[:, other]
                found[f"sum of differences to {name}"] = apart.sum(axis=1)
                found[f"least difference to {name}"] = np.abs(apart).min(axis=1)
    return {name: np.where(np.isfinite(s), s, _HUGE) for name, s in found.items()}


def likelihood_ratio(own: np.ndarray, plan: SiloPlan) -> np.ndarray:
    """The log-likelihood ratio of the two worlds, were all other records known: the strongest test.

    The canary is drawn in k of the steps of a pass, k being binomial.
    """
    rate = min(1.0, plan.expected_batch / plan.public_count)
    most = int(stats.binom.isf(1e-9, plan.steps, rate))  # more is too unlikely to matter
    counts = np.arange(most + 1)
    chance = stats.binom.logpmf(counts, plan.steps, rate)
    shifts = counts / plan.noise_multiplier

    def log_density(sign: int) -> np.ndarray:
        # Up to what both worlds have in common.
        exponent = (2 * sign * own[..., None] * shifts - shifts**2) / (2 * plan.steps)
        return np.asarray(special.logsumexp(exponent + chance, axis=-1))

    opposite = log_density(-1) if plan.relation == "replace-one" else 0.0
    return (log_density(1) - opposite).sum(axis=1)
