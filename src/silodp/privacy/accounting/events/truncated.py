"""A Gaussian mechanism on a Poisson sample that is cut to a largest size.

Nobody has computed its Rényi divergences, so that it has none here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import TruncatedSubsampledGaussianDpEvent
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.stats import binom

from silodp.config.choices import Relation
from silodp.privacy.accounting import losses
from silodp.privacy.accounting.events.kind import (
    CHANCE,
    COUNT,
    NOISE,
    Kind,
    Number,
    StepsOf,
    Values,
    charged_noise,
)
from silodp.privacy.accounting.events.sampled_gaussian import gaussian_spread
from silodp.privacy.accounting.steps import LEAST_NOISE, Step, moved_by


@dataclass(frozen=True)
class TruncatedSteps(Step):
    """Gaussian mechanisms on Poisson samples cut to at most `most` of the `records`."""

    records: int
    sampling: float
    most: int
    noise: float
    repeats: int

    @property
    def is_free(self) -> bool:
        """See `Step`."""
        return self.sampling == 0 or self.noise == math.inf or self.most == 0

    @property
    def words(self) -> str:
        """See `Step`."""
        return "Gaussian mechanism on a truncated Poisson sample"

    def spread(self, relation: Relation) -> float:
        """See `Step`."""
        return gaussian_spread(self.sampling, self.noise) * moved_by(relation)

    def is_computable(self, relation: Relation) -> bool:
        """See `Step`."""
        return self.relative_noise(relation) >= LEAST_NOISE

    def relative_noise(self, relation: Relation) -> float:
        """The noise in units of the most by which neighbours can differ.

        One record replaced by another moves a sum by twice a record's largest norm. In a cut sample
        a record may also take another one's place, which doubles it again.
        """
        return self.noise / (2 * moved_by(relation))

    @property
    def losses_are_exact(self) -> bool:
        """See `Step`."""
        return True

    @property
    def depends_on_size(self) -> bool:
        """How often samples are cut depends on the number of records."""
        return True

    def losses(self, grid: float, relation: Relation, more: int) -> PrivacyLossDistribution:
        """Chua et al. 2025 (arXiv 2508.15089), on data of which the record in question is one.

        Whether the other records fill the sample does not depend on that record. Where they do not,
        nothing is cut. Where they do, the record takes part by taking another one's place, which
        moves the sum by up to twice the clip. Which others are there is independent of whether it
        does.
        """
        records = self.records + more
        whole = losses.gaussian(self.noise, self.sampling, grid, relation)
        full = float(binom.sf(self.most - 1, records - 1, self.sampling))
        # What is rarer than this drowns in the allowance for rounding.
        if full < 1e-100:
            return whole
        fuller = float(binom.sf(self.most, records, self.sampling))
        takes_part = fuller * self.most / (records * full)
        cut = losses.gaussian(self.noise / 2, min(takes_part, 1.0), grid, relation)
        return cut.compute_mixture(whole, full)

    def reach(self, relation: Relation) -> float:
        """See `Step`."""
        return losses.gaussian_reach(self.relative_noise(relation))

    def has_divergences(self, relation: Relation) -> bool:
        """Nobody has computed them."""
        return False

    def divergences(self, orders: Sequence[float], relation: Relation, exact: bool) -> np.ndarray:
        """See `Step`."""
        return np.full(len(orders), math.inf)


def _step(
    event: TruncatedSubsampledGaussianDpEvent, values: Values, steps_of: StepsOf
) -> TruncatedSteps:
    return TruncatedSteps(
        values["dataset_size"],
        values["sampling_probability"],
        values["truncated_batch_size"],
        charged_noise(values),
        1,
    )


KIND = Kind(
    TruncatedSubsampledGaussianDpEvent,
    {
        "dataset_size": Number(1, math.inf, whole=True),
        "sampling_probability": CHANCE,
        "truncated_batch_size": COUNT,
        "noise_multiplier": NOISE,
    },
    step=_step,
)
