"""What released messages say of silos beside their models.

Which features differ: along one feature j alone, what silo k has released says that its weight
deviates from the mean by q / i, with an error of variance 1 / i - spread, where in the notation of
`hierarchy`, with the covariance V_k = S_k (spread I) S_k + residual S_k + noise_k I,

    q = e_j' S_k V_k^-1 (b_k - S_k mean),   i = e_j' S_k V_k^-1 S_k e_j

(the spread of all other weights is in V_k, that of j itself is taken out again). If silos did not
differ in j, the sum of the squares of q / (1 - spread i) would be what noise makes it: the usual
score test of a variance.

Who is alike: the mean product u_k' H u_l of what two silos' predictions deviate by from those of
the mean model, over the sizes of both. What is not known of u_k makes it smaller, and where the
sign of the product may be either, what was released does not tell the two apart.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import chi2

from silodp.methods.fewround.constants import CONSTANTS
from silodp.methods.fewround.hierarchy import Prior, Sums, likeliest_variance

Vector = Float[np.ndarray, " size"]
Square = Float[np.ndarray, "size size"]
Models = Float[np.ndarray, "silos size"]

MOST_RELATED = 300  # silos: with more, a table of all pairs would be most of the result
# Silos are compared along so many directions, those in which features vary most.
_MOST_DIRECTIONS = 40
# A product beyond so many of its deviations has a sign that is told.
_TOLD = 1.96


class Differing(NamedTuple):
    """How far silos differ in each weight.

    Attributes:
      spread: deviation of the weight between silos.
      chance: of such differences, or larger ones, if silos did not differ in it.
    """

    spread: Vector
    chance: Vector


class Related(NamedTuple):
    """Who is alike.

    Attributes:
      relations: 1 of two silos that deviate from the mean in the same way, -1 in opposite ways; 0
        if they have nothing in common, or nothing is known of it.
      told: where what was released tells which of both.
    """

    relations: Float[np.ndarray, "silos silos"]
    told: Bool[np.ndarray, "silos silos"]


def findings(
    here: Bool[np.ndarray, " silos"], models: Models, present: Sums, prior: Prior, gram: Square
) -> dict[str, np.ndarray]:
    """All of it by name; of silos without messages, that nothing is known.

    Args:
      here: which silos have sent messages.
      models: of all silos.
      present: what is known of those that are here.
      prior: what silos have in common.
      gram: pooled second moments.
    """
    places = np.flatnonzero(here)
    found = nothing_found(len(here), models.shape[1])
    found["kept_of_own"][places] = kept_of(present, prior, gram)
    found["cross_noise"][places] = present.noise
    if len(places) < 2:
        return found
    differs = differing(present, prior)
    found |= {"differs": differs.spread, "chances": differs.chance}
    if "relations" in found:
        alike = related(models[places], present, prior, gram)
        found["relations"][np.ix_(places, places)] = alike.relations
        found["told"][np.ix_(places, places)] = alike.told
    return found


def nothing_found(silos: int, size: int) -> dict[str, np.ndarray]:
    """What is known of silos that have sent nothing: the same names, however many have."""
    found = {"kept_of_own": np.zeros(silos), "cross_noise": np.full(silos, np.inf)}
    if silos > 1:
        found |= {"differs": np.zeros(size), "chances": np.ones(size)}
    if 1 < silos <= MOST_RELATED:
        found |= {"relations": np.eye(silos), "told": np.eye(silos)}
    return found


def kept_of(silos: Sums, prior: Prior, gram: Square) -> Float[np.ndarray, " silos"]:
    """What part of what is its own each silo's model keeps: 0 is the mean model, 1 its own."""
    s, spread = silos.values, float(prior.spread)
    total = spread * s**2 + float(prior.residual) * s + silos.noise[:, None]
    gain = spread * s**2 / np.maximum(total, CONSTANTS.smallest**2)
    weights = _in_axes_of(silos, gram)
    return (gain * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), CONSTANTS.smallest)


def differing(silos: Sums, prior: Prior) -> Differing:
    """In which weights silos differ; all silos but one are needed to know their mean."""
    spread, s = float(prior.spread), silos.values
    total = np.maximum(
        spread * s**2 + float(prior.residual) * s + silos.noise[:, None], CONSTANTS.smallest**2
    )
    deviations = (silos.cross[:, None, :] @ silos.axes)[:, 0] - s * (prior.mean @ silos.axes)
    q = (silos.axes @ (s / total * deviations)[:, :, None])[:, :, 0]
    i = np.maximum((silos.axes**2 @ (s**2 / total)[:, :, None])[:, :, 0], CONSTANTS.smallest)
    left = np.maximum(1.0 - spread * i, CONSTANTS.smallest)
    score, information = q / left, i / left  # with the spread of this weight taken out
    # About the mean of this weight that the silos themselves say.
    together = information.sum(axis=0)
    score = score - information * (score.sum(axis=0) / together)
    usual = information * (1.0 - information / together)
    chances, spreads = [], []
    for own, expected, known in zip(score.T, usual.T, information.T, strict=True):
        # A sum of squares with these variances, as a multiple of one of chi squared.
        scale = float((expected**2).sum() / max(expected.sum(), CONSTANTS.smallest))
        freedom = float(expected.sum() / max(scale, CONSTANTS.smallest))
        chances.append(chi2.sf(float((own**2).sum()) / max(scale, CONSTANTS.smallest), freedom))
        squares = (own / known) ** 2 + 1.0 / known.sum()
        spreads.append(likeliest_variance(squares, 1.0 / known))
    return Differing(np.sqrt(spreads), np.array(chances))


def related(models: Models, silos: Sums, prior: Prior, gram: Square) -> Related:
    """Who is alike, allowing for what is not known of silos' models."""
    values, axes = np.linalg.eigh(gram)
    axes = (axes * np.sqrt(np.maximum(values, 0.0)))[:, -_MOST_DIRECTIONS:]
    own = (models - prior.mean) @ axes
    # Where chance makes the likeliest spread 0, silos may differ all the same.
    s, spread = silos.values, float(prior.expected_spread)
    error = float(prior.residual) * s + silos.noise[:, None]
    variance = spread * error / np.maximum(spread * s**2 + error, CONSTANTS.smallest**2)
    turned = np.swapaxes(silos.axes, 1, 2) @ axes  # [silos, own axes, directions]
    unknown = np.swapaxes(turned, 1, 2) @ (variance[:, :, None] * turned)
    sizes = (own**2).sum(axis=1) + np.trace(unknown, axis1=1, axis2=2)
    products = own @ own.T
    across = np.einsum("li,kij,lj->kl", own, unknown, own, optimize=True)
    flat = unknown.reshape(len(own), -1)
    deviation = np.sqrt(across + across.T + flat @ flat.T)
    relations = products / np.maximum(np.sqrt(np.outer(sizes, sizes)), CONSTANTS.smallest)
    told = np.abs(products) > _TOLD * deviation
    np.fill_diagonal(relations, 1.0)
    np.fill_diagonal(told, True)
    return Related(np.clip(relations, -1.0, 1.0), told)


def _in_axes_of(silos: Sums, gram: Square) -> Float[np.ndarray, "silos size"]:
    """The pooled second moments along each silo's own axes."""
    return (silos.axes * (gram @ silos.axes)).sum(axis=1)
