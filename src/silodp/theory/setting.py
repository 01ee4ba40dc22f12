"""One set-up of the analysis in numbers: how many silos, what they hold, what they ask for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from silodp.base.errors import SilodpError
from silodp.theory.closed_forms import local_variance, sigma_dp

# Beyond these, nothing is said that is not said within, and rounding would say the rest.
_RANGES = {
    "records": (1, 1e9),
    "sigma": (1e-6, 1e6),
    "tau": (1e-6, 1e6),
    "epsilon": (1e-6, math.inf),
    "clip": (1e-6, 1e6),
    "delta": (1e-15, 0.999),
}
_EXAMPLES = {
    "records": "200",
    "sigma": "0.4",
    "tau": "0.08",
    "epsilon": "1",
    "clip": "1",
    "delta": "1e-5",
}
MOST_SILOS = 100_000


@dataclass(frozen=True)
class Setting:
    """The set-up; per silo where silos may differ.

    Attributes:
      records: n_k, [silos].
      sigma: deviation of a silo's records around its centre, [silos].
      epsilon: epsilon of each silo, [silos]; infinite: not private.
      tau: deviation of the centres around theta.
      delta: delta of all silos.
      clip: bound of a record, c.
    """

    records: np.ndarray
    sigma: np.ndarray
    epsilon: np.ndarray
    tau: float
    delta: float
    clip: float

    @property
    def silos(self) -> int:
        """K, the number of silos."""
        return len(self.records)

    @property
    def equal(self) -> bool:
        """Whether all silos are alike."""
        own = np.stack([self.records, self.sigma, self.epsilon])
        return bool((own == own[:, :1]).all())

    @property
    def sigma_dp(self) -> np.ndarray:
        """The noise of each silo's sum, [silos]."""
        distinct, which = np.unique(self.epsilon, return_inverse=True)
        noises = [sigma_dp(self.clip, epsilon, self.delta) for epsilon in distinct.tolist()]
        return np.array(noises)[which]

    @property
    def local_variances(self) -> np.ndarray:
        """sigma_loc^2 of each silo, [silos]."""
        return np.asarray(local_variance(self.records, self.sigma, self.sigma_dp))

    @property
    def without_privacy(self) -> "Setting":
        """These silos without noise."""
        return Setting(
            self.records,
            self.sigma,
            np.full(self.silos, math.inf),
            self.tau,
            self.delta,
            self.clip,
        )


def make_setting(
    silos: float | None = None,
    records: Sequence[float] = (200,),
    sigma: Sequence[float] = (0.4,),
    tau: float = 0.08,
    epsilon: Sequence[float] = (0.25,),
    delta: float = 1e-5,
    clip: float = 1.0,
) -> Setting:
    """A setting out of numbers that anybody may have written; the defaults are the paper's.

    Records, sigma and epsilon are one number for all silos, or one a silo.
    """
    per_silo = {"records": records, "sigma": sigma, "epsilon": epsilon}
    count = _count(silos, per_silo)
    for name, values in per_silo.items():
        for value in values:
            _check(name, value)
    for value in records:
        if value != int(value):
            raise SilodpError(f"records is {value:g}, not a whole number: give one such as 200.")
    for name, value in {"tau": tau, "delta": delta, "clip": clip}.items():
        _check(name, value)
    own = {
        name: np.broadcast_to(np.array(values, float), count) for name, values in per_silo.items()
    }
    return Setting(own["records"], own["sigma"], own["epsilon"], tau, delta, clip)


def _count(silos: float | None, per_silo: dict[str, Sequence[float]]) -> int:
    """The number of silos: given, or that of the longest list; all lists must agree with it."""
    lengths = {name: len(values) for name, values in per_silo.items() if len(values) > 1}
    if silos is None:
        silos = next(iter(lengths.values()), 20)
    if not 2 <= silos <= MOST_SILOS or silos != int(silos):
        raise SilodpError(
            f"silos is {silos:g}, but must be a whole number from 2 to {MOST_SILOS}: give one such "
            "as 20."
        )
    for name, length in lengths.items():
        if length != silos:
            raise SilodpError(
                f"{name} lists {length} values for {silos:g} silos: give one value, or one a silo."
            )
    return int(silos)


def _check(name: str, value: float) -> None:
    least, most = _RANGES[name]
    if not least <= value <= most:
        raise SilodpError(
            f"{name} is {value:g}, but must lie between {least:g} and {most:g}: give one such as "
            f"{_EXAMPLES[name]}."
        )
