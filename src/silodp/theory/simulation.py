"""The set-up of the analysis, drawn record by record: what the closed forms are held against.

Nothing is taken from the closed forms here. Records are drawn one by one and clipped, so that what
the analysis leaves out (the bias of clipping) is in the simulated errors.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from silodp.base.errors import SilodpError
from silodp.theory.closed_forms import Numbers, minimiser

# Records held at once, in so many numbers of 8 bytes; a block is one trial at least.
_BLOCK = 2**20
MOST_A_TRIAL = 10_000_000
MOST_IN_ALL = 2_000_000_000


@dataclass(frozen=True)
class Simulation:
    """Many trials of the set-up; what is released follows from the noise that is added.

    Noises of different size thus meet the same records and the same luck, and what differs between
    two errors is the noise alone.

    Attributes:
      centres: w_k, [trials, silos].
      sums: sum of each silo's clipped records, [trials, silos].
      noise: standard normal, [trials, silos].
      records: n_k, [silos].
    """

    centres: np.ndarray
    sums: np.ndarray
    noise: np.ndarray
    records: np.ndarray

    def means(self, sigma_dp: Numbers = 0.0) -> np.ndarray:
        """What silos release under noise of this size (for all, or of each silo)."""
        return (self.sums + np.asarray(sigma_dp) * self.noise) / self.records


def simulate(
    silos: int,
    records: int | np.ndarray,
    sigma: Numbers,
    tau: float,
    *,
    clip: float = np.inf,
    theta: float = 0.0,
    trials: int,
    random: np.random.Generator,
) -> Simulation:
    """Draws centres around theta, records around centres, and sums the clipped records.

    `records` and `sigma` are for all silos, or one a silo.
    """
    counts = np.broadcast_to(np.asarray(records, dtype=np.int64), silos)
    total = int(counts.sum())
    if total > MOST_A_TRIAL or total * trials > MOST_IN_ALL:
        raise SilodpError(
            f"The simulation would draw {total:,} records in each of {trials:,} trials: give "
            "fewer, or 0 trials for the closed forms alone."
        )
    centres = theta + tau * random.standard_normal((trials, silos))
    noise = random.standard_normal((trials, silos))
    spread = np.repeat(np.broadcast_to(np.asarray(sigma, float), silos), counts)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = np.empty((trials, silos))
    for block in _blocks(trials, total):
        # All silos' records in one row, each silo's beside each other.
        drawn = random.standard_normal((block.stop - block.start, total))
        drawn *= spread
        drawn += np.repeat(centres[block], counts, axis=1)
        np.clip(drawn, -clip, clip, out=drawn)
        sums[block] = np.add.reduceat(drawn, begins, axis=1)
    return Simulation(centres, sums, noise, counts)


def _blocks(trials: int, size: int) -> Iterator[slice]:
    step = max(1, _BLOCK // size)
    for begin in range(0, trials, step):
        yield slice(begin, min(begin + step, trials))


def errors_of_trials(lams: Numbers, means: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared errors of w_k(lambda), the mean over silos of each trial: [..., trials] for [...]."""
    own = 1 / (1 + np.asarray(lams, float))[..., None]
    by_own, both, by_mean = _products(means, centres)
    return own**2 * by_own + 2 * own * (1 - own) * both + (1 - own) ** 2 * by_mean


def best_lambda(means: np.ndarray, centres: np.ndarray) -> float:
    """The lambda of least error over all trials; NaN where all silos release the same mean."""
    by_own, both, by_mean = (product.mean() for product in _products(means, centres))
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.clip(np.divide(by_mean - both, by_own - 2 * both + by_mean), 0.0, 1.0)
        return float(np.divide(1.0, own) - 1)


def _products(means: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squares and product of the errors of a silo's own mean and of the mean of all, by trial.

    w_k(lambda) lies between the two, so that its squared error, for any lambda, is made of these.
    """
    own = means - centres
    common = means.mean(axis=-1, keepdims=True) - centres
    return tuple((a * b).mean(axis=-1) for a, b in ((own, own), (own, common), (common, common)))


def errors_of_silos(lams: Numbers, means: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared errors of every trial and silo, [trials, silos]; lambdas broadcast to that."""
    return (minimiser(means, lams) - centres) ** 2


def mean_and_standard_error(values: np.ndarray, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """The mean over trials, along an axis, and its standard error."""
    return values.mean(axis=axis), values.std(axis=axis, ddof=1) / np.sqrt(values.shape[axis])
