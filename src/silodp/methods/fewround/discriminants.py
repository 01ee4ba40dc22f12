"""Linear discriminants from noisy sums, and a scale for them at which they are not too sure.

What all silos' first messages say, pooled: T (second moments about the mean), class means, counts,
each with noise of known size.

1. Class means m_c, about their mean, are N(0, t I) along axes that are alike; t is the likeliest in
   each group of axes. M is what is then expected of them. Where noise hides all, M is 0.
2. W = T - M F M' less M's own uncertainty (F: class frequencies), which is within classes.
3. A = W+^-1 M, where W+ has no eigenvalue below a part of what noise alone gives: a direction that
   seems narrow is so by noise. Scores of a record are s (x'A - diag(M'A) / 2) and log-frequencies.

The scale s is not 1, as it would be if W+ were W: scores vary within classes by r M'A, with r below
1 by as much as W+ is too large. A'WA says so (its mean over the noise that turned W's axes is
known), with an error. So r has some distribution; s is where the loss expected under it is least,
for scores with heavier tails than a Gaussian's. Each later message's gradient, taken along the
model that it was asked at, is the derivative of the true loss by s: it says far more about r than
the first message, at hardly any noise, as it is one number of all records of all silos.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import chi2

from silodp.methods.fewround.constants import CONSTANTS
from silodp.methods.fewround.frequencies import Mixtures, frequencies_of, mixtures_of
from silodp.methods.fewround.hierarchy import likeliest_variance
from silodp.methods.fewround.released import Released, Weights
from silodp.methods.fewround.spectra import Spectrum, groups_of, spectrum_of

Vector = Float[np.ndarray, " size"]
Square = Float[np.ndarray, "size size"]
PerClass = Float[np.ndarray, " classes"]
Scores = Float[np.ndarray, "classes classes"]

# The expected loss is worked out on so many silos, draws of a record (no more than that many
# numbers in all), ratios and scales.
_SILOS, _DRAWS, _NUMBERS, _RATIOS, _SCALES = 8, 256, 300_000, 16, 20


class Discriminants(NamedTuple):
    """What the first messages say, and what later ones say of its scale.

    Attributes:
      weights: of the scores, before class frequencies, at scale 1.
      scale: what they are best multiplied by.
      frequencies: of the classes, of all records.
      mixtures: how silos' frequencies are distributed.
      gram: the pooled second moments, about 0.
    """

    weights: Weights
    scale: float
    frequencies: PerClass
    mixtures: Mixtures
    gram: Spectrum


class _Pooled(NamedTuple):
    """Sums over silos, those of much noise less, per record; `noise` are deviations."""

    records: float
    gram: Square
    gram_noise: float
    means: Weights
    frequencies: PerClass
    counts: PerClass
    mean_variances: PerClass


class _Directions(NamedTuple):
    """Slopes that part the classes, in the space of features.

    Attributes:
      slopes: of the scores.
      constants: likewise.
      scores: of each class's mean, by each class's slopes (M'A).
      ratio: what of it they vary by within classes, as far as known, and
      error: the deviation of that, and
      least: what it is at least.
    """

    slopes: Float[np.ndarray, "features classes"]
    constants: PerClass
    scores: Scores
    ratio: float
    error: float
    least: float


def discriminants_of(silos: Sequence[Released]) -> Discriminants:
    """The discriminants from first messages, at the scale that all messages give them."""
    pooled = _pooled(silos)
    # The constant's own entry is known; noise may hide the others.
    length = float(silos[0].length)
    smallest = max(float(np.trace(pooled.gram)), 1.0 / length**2) / pooled.records
    gram = spectrum_of(pooled.gram, pooled.gram_noise, smallest)
    directions = _directions(pooled, smallest)
    mixtures = mixtures_of(list(silos))
    weights = np.concatenate([directions.slopes, directions.constants[None] * length])
    scale = _scaled(silos, directions, weights, mixtures)
    return Discriminants(weights, scale, pooled.frequencies, mixtures, gram)


def _pooled(silos: Sequence[Released]) -> _Pooled:
    counts = np.array([float(one.records) for one in silos])
    noise = np.array([one.noise for one in silos])
    size = len(silos[0].gram)
    # By precision along an axis that has its part of a record's length, which is 1.
    weights = 1.0 / (1.0 + size * noise[:, 1] ** 2 / counts)
    weights /= weights.max()
    total = float(weights @ counts)
    variances = weights**2 @ noise**2
    class_counts = weights @ np.stack([one.labels for one in silos])
    class_counts = np.maximum(class_counts, max(math.sqrt(variances[2]), 1.0))
    sums = np.tensordot(weights, np.stack([one.cross for one in silos]), axes=1)
    return _Pooled(
        records=float(counts.sum()),
        gram=np.tensordot(weights, np.stack([one.gram for one in silos]), axes=1) / total,
        gram_noise=math.sqrt(variances[0] / 2) / total,
        means=sums / class_counts,
        frequencies=class_counts / class_counts.sum(),
        counts=class_counts,
        mean_variances=variances[1] / class_counts**2,
    )


def _directions(pooled: _Pooled, smallest: float) -> _Directions:
    frequencies, means = pooled.frequencies, pooled.means[:-1]
    classes = len(frequencies)
    middle = means @ frequencies
    total = spectrum_of(
        pooled.gram[:-1, :-1] - np.outer(middle, middle), pooled.gram_noise, smallest
    )
    found = total.axes.T @ (means - middle[:, None])
    # Beside noise, records differ; the mean of all was taken off.
    error = pooled.mean_variances + total.values[:, None] / pooled.counts
    error = error * (1.0 - frequencies)
    groups = groups_of(total, max(2, round(CONSTANTS.alike / (classes - 1))))
    wide = np.maximum(total.values, CONSTANTS.within_floor * total.edge)
    share = _share(found, error, groups, wide)
    left = (share * error) @ frequencies
    expected = total.axes @ (share * found)
    within = (total.axes * (total.noisy - left)) @ total.axes.T
    within = spectrum_of(
        within - (expected * frequencies) @ expected.T, pooled.gram_noise, smallest
    )
    floor = max(smallest, CONSTANTS.within_floor * within.edge)
    inverse = 1.0 / np.maximum(within.noisy, floor)
    expected = within.axes.T @ expected
    turned = inverse[:, None] * expected
    scores = turned.T @ expected
    parted = float(np.diag(scores) @ frequencies)
    slopes = within.axes @ turned
    constants = -0.5 * np.diag(scores) - slopes.T @ middle
    if parted <= 0:
        return _Directions(slopes, constants, scores, 1.0, 0.0, 1.0)
    # M was drawn to the axes that are distinct, as noise has turned them, but to no others.
    distinct = np.arange(len(within.noisy)) >= len(within.noisy) - within.distinct
    seen = np.where(distinct, within.values, within.noisy)
    varied = float(seen @ turned**2 @ frequencies)
    varied -= _by_chance(within, inverse, floor, np.where(distinct, 0.0, expected**2 @ frequencies))
    inner = turned.T @ turned
    error = math.sqrt(2.0) * within.noise * math.sqrt(frequencies @ inner**2 @ frequencies)
    least = float(within.values @ turned**2 @ frequencies)
    if varied < 0:
        # Less than nothing within classes: they are parted by less than M says, or it is chance.
        shorter = error / max(error, -varied)
        slopes, scores = shorter * slopes, shorter**2 * scores
        constants = -0.5 * np.diag(scores) - slopes.T @ middle
    return _Directions(
        slopes, constants, scores, varied / parted, error / parted, min(1.0, least / parted)
    )


def _share(found: Weights, error: Weights, groups: list[np.ndarray], values: Vector) -> Weights:
    """What of class means is no noise, if along an axis they differ in proportion to its width.

    How much they do is likeliest in each group of axes, and drawn to that of all.
    """
    wide = np.repeat(np.sqrt(values)[:, None], found.shape[1], axis=1)
    of_all = _surely(found**2, error, wide)
    variances = np.zeros_like(found)
    more = round(CONSTANTS.alike / 2)
    for group in groups:
        errors, width = float(error[group].mean()), float(wide[group].mean())
        squares = np.append(found[group] ** 2, np.full(more, of_all * width**2 + errors))
        variances[group] = wide[group] ** 2 * _surely(
            squares,
            np.append(error[group], np.full(more, errors)),
            np.append(wide[group], np.full(more, width)),
        )
    return variances / (variances + np.maximum(error, CONSTANTS.smallest**2))


def _surely(squares: np.ndarray, errors: np.ndarray, factors: np.ndarray) -> float:
    """The likeliest variance less half its standard error: it may be chance."""
    found = likeliest_variance(squares, errors, factors, usual=CONSTANTS.parted)
    known = 0.5 * float((factors**4 / (found * factors**2 + errors) ** 2).sum())
    return max(0.0, found - 0.5 / math.sqrt(max(known, CONSTANTS.smallest)))


def _by_chance(within: Spectrum, inverse: Vector, floor: float, squares: Vector) -> float:
    """What noise is expected to add to A'WA, by having turned the axes of W (Stein's identity).

    Of w = h(W) b, with h in the axes of W, the mean of w'(noise)w is noise^2 times the sum of
    2 b_i^2 h_i (sum_j D_ij + D_ii), where D has the slopes between eigenvalues of h.
    """
    if within.noise == 0:
        return 0.0
    gaps = within.noisy[:, None] - within.noisy
    alike = np.abs(gaps) < CONSTANTS.smallest * np.abs(within.noisy).max()
    slopes = np.where(within.noisy > floor, -(inverse**2), 0.0)
    between = (inverse[:, None] - inverse) / np.where(alike, 1.0, gaps)
    between = np.where(alike, slopes[:, None], between)
    turns = between.sum(axis=1) + np.diag(between)
    return 2.0 * within.noise**2 * float((squares * inverse) @ turns)


class _Model:
    """Expected losses under the discriminant model, by how much scores vary within classes."""

    def __init__(self, silos: Sequence[Released], scores: Scores, mixtures: Mixtures):
        classes = len(scores)
        some = np.unique(np.linspace(0, len(silos) - 1, _SILOS).round().astype(int))
        self._shares = np.array([float(silos[place].records) for place in some])
        self._shares /= self._shares.sum()
        self._own = np.stack([frequencies_of(silos[place], mixtures) for place in some])
        count = int(np.clip(_NUMBERS / (len(some) * classes**2), 4, _DRAWS))
        random = np.random.default_rng(0)
        draws = random.normal(size=(count, classes))
        # Student's t, of variance 1, with its tails drawn evenly.
        freedom = CONSTANTS.freedom
        tails = chi2.ppf((random.permutation(count) + 0.5) / count, freedom)
        draws *= np.sqrt((freedom - 2) / tails)[:, None]
        values, axes = np.linalg.eigh((scores + scores.T) / 2)
        self._noise = (draws * np.sqrt(np.maximum(values, 0.0))) @ axes.T
        self._base = scores.T - 0.5 * np.diag(scores)

    def _at(self, ratio: float, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores [class, draw, classes], chances and their logarithms [silo, ...]."""
        scores = self._base[:, None] + math.sqrt(ratio) * self._noise
        odds = scale * scores + np.log(self._own)[:, None, None]
        odds = odds - odds.max(axis=-1, keepdims=True)
        powers = np.exp(odds)
        total = powers.sum(axis=-1, keepdims=True)
        return scores, powers / total, odds - np.log(total)

    def loss(self, ratio: float, scale: float) -> float:
        """The expected loss."""
        _, _, logs = self._at(ratio, scale)
        each = -np.einsum("kcdc,kc->k", logs, self._own) / self._noise.shape[0]
        return float(self._shares @ each)

    def slope(self, ratio: float, scale: float) -> float:
        """Its derivative by the scale."""
        scores, chances, _ = self._at(ratio, scale)
        expected = np.einsum("kcde,cde->kcd", chances, scores)
        expected = expected - np.einsum("cdc->cd", scores)
        each = np.einsum("kcd,kc->k", expected, self._own) / self._noise.shape[0]
        return float(self._shares @ each)


def _scaled(
    silos: Sequence[Released], directions: _Directions, weights: Weights, mixtures: Mixtures
) -> float:
    """The scale at which the expected loss is least."""
    if not directions.scores.any():
        return 0.0
    model = _Model(silos, directions.scores, mixtures)
    least, most = max(directions.least, 0.005), CONSTANTS.most_ratio
    ratios = np.geomspace(0.5 * least, max(2 * most, 20 * least), _RATIOS)
    error = max(directions.error, -directions.ratio, CONSTANTS.ratio_error)
    chances = -0.5 * ((directions.ratio - ratios) / error) ** 2 + np.log(ratios)
    chances = np.exp(chances - chances.max())
    # Seldom more or less than it should be; where messages say so, it is.
    chances = np.where((ratios >= least) & (ratios <= most), chances, 0.0)
    chances = chances / max(chances.sum(), CONSTANTS.smallest) + CONSTANTS.otherwise
    for scale, slope, noise in _slopes(silos, weights, mixtures):
        expected = np.array([model.slope(ratio, scale) for ratio in ratios])
        misfit = CONSTANTS.slope_error * model.slope(1.0, 0.0)
        off = (slope - expected) ** 2
        chances = chances * np.exp(-0.5 * (off - off.min()) / (noise**2 + misfit**2))
    chances /= chances.sum()
    likely = np.flatnonzero(chances > 0.01 * chances.max())
    ratio = math.exp(float(chances @ np.log(ratios)))
    scales = np.geomspace(0.03, 3.0, _SCALES) / ratio
    losses = [
        float(sum(chances[place] * model.loss(ratios[place], scale) for place in likely))
        for scale in scales
    ]
    return float(scales[np.argmin(losses)])


def _slopes(
    silos: Sequence[Released], weights: Weights, mixtures: Mixtures
) -> list[tuple[float, float, float]]:
    """What each later message says: at which scale, the loss's derivative by it, and its noise."""
    found = []
    square = float((weights**2).sum())
    for number in range(len(silos[0].precisions)):
        here = [own for own in silos if own.precisions[number] > 0]
        if not here:
            continue
        records = sum(float(own.records) for own in here)
        slope = -sum(float((own.gradients[number] * weights).sum()) for own in here) / records
        noise = sum(1.0 / float(own.precisions[number]) for own in here) * square
        # All were asked at one scale; a message that was made up may say another.
        scale = float(np.median([_scale_of(own, number, weights, mixtures) for own in here]))
        found.append((scale, slope, math.sqrt(noise) / records))
    return found


def _scale_of(own: Released, number: int, weights: Weights, mixtures: Mixtures) -> float:
    """The scale of the weights in the model that a silo's gradient was taken at."""
    at = own.at[number].copy()
    at[-1] -= np.log(frequencies_of(own, mixtures)) * float(own.length)
    return float((at * weights).sum()) / float((weights**2).sum())
