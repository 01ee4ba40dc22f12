"""What of the deviations between silos is real, given how noisy they are.

D is how far each silo has gone from the mean of all, by its own released updates; each entry of row
k has variance T_k, which is known. Each function here is an estimate of D without noise, or a part
of one. All is computed from what was released: it costs no privacy.

- `by_coordinate`: empirical Bayes for each parameter by itself. C. Morris. Parametric empirical
  Bayes inference. JASA 1983.
- `by_relations`: by what silos have in common with others, found as the singular vectors of D that
  stand out of the noise. M. Gavish, D. Donoho. Optimal shrinkage of singular values. IEEE
  Transactions on Information Theory 2017. Ours: a direction is kept as far as it is *found*, and
  not shrunk further for the noise within it (docs/ebmtl.md says why).
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.deviations import shown
from silodp.methods.ebmtl.eigenvectors import first_basis, follow, full_sweep
from silodp.methods.ebmtl.shapes import Deviations, Estimates, Structure


def first_structure(silos: int, parameters: int) -> Structure:
    """Before any round: silos do not differ, and nothing is found."""
    basis = first_basis(min(silos, parameters))
    found, related = jnp.zeros(basis.shape[1]), jnp.zeros((silos, parameters))
    return Structure(jnp.zeros(parameters), basis, found, related)


def structure_of(deviations: Deviations, before: Structure) -> Structure:
    """What deviations look like without noise; directions go on from those of the round before."""
    D, T = shown(deviations), deviations.T
    deviation = jnp.sqrt(T)[:, None]
    whitened = D / deviation
    basis, values = follow(gram(whitened), before.basis, _turns(before.basis, D.size))
    found = surely_found(values, *D.shape)  # (eq. 13)
    related = by_relations(whitened, basis, found) * deviation  # (eq. 14)
    return Structure(heterogeneity(D, T), basis, found, related)


def estimates_of(deviations: Deviations, structure: Structure) -> Estimates:
    """D without noise: by coordinate, by relations, and as it is."""
    as_is = shown(deviations)  # (eq. 15)
    coordinate = by_coordinate(as_is, deviations.T, structure.tau2)  # (eq. 12)
    return Estimates(coordinate, structure.related, as_is)


def heterogeneity(
    D: Float[Array, "silos params"], T: Float[Array, " silos"]
) -> Float[Array, " params"]:
    """tau2: how much silos really differ in each parameter (eq. 11).

    Silos count by 1 / T^2, which is what the noise of D^2 - T asks for. What noise alone gives one
    time in forty is taken off, so that silos without differences keep little, few silos too.
    """
    largest = jnp.max(T)
    squared = (largest / T) ** 2
    total = jnp.sum(squared)
    weights = squared / total
    usual = weights @ T
    # As many are free to vary as there are silos, but one: their mean is taken off. They count as
    # fewer where noise differs, since a few silos then make most of the sum.
    free = (len(T) - 1) / len(T) if len(T) > 1 else 1.0
    most = usual * _largest_mean_square(free * total * (usual / largest) ** 2)
    return jnp.maximum(0.0, weights @ D**2 - most)


def _largest_mean_square(freedom: Float[Array, ""]) -> Float[Array, ""]:
    """The mean of so many squares of noise with variance 1, as large as it is by chance.

    E. Wilson, M. Hilferty. The distribution of chi-square. PNAS 1931.
    """
    part = 2.0 / (9.0 * freedom)
    return (1.0 - part + CONSTANTS.chance * jnp.sqrt(part)) ** 3


def by_coordinate(
    D: Float[Array, "silos params"], T: Float[Array, " silos"], tau2: Float[Array, " params"]
) -> Float[Array, "silos params"]:
    """Each entry kept by tau2 / (tau2 + T) (eq. 12)."""
    return D * (tau2 / (tau2 + T[:, None]))


def _turns(basis: Float[Array, "rows directions"], entries: int) -> int:
    """How far directions are followed in a round: for about as much work as all the rest, or to the
    end if that is less."""
    turns = CONSTANTS.turns_per_entry * entries // basis.shape[1] ** 2
    return min(full_sweep(basis), max(turns, 1))


def surely_found(
    values: Float[Array, " directions"], silos: int, parameters: int
) -> Float[Array, " directions"]:
    """How surely each direction among silos is found, from 0 to 1 (eq. 13).

    It is the squared cosine between a left singular vector of (signal + noise of variance 1) and
    that of the signal alone, in the limit of large matrices (F. Benaych-Georges, R. Nadakuditi.
    2012). Directions that noise alone could give have 0: those below the largest value of a matrix
    of noise, with a margin for its chance (I. Johnstone. 2001).

    Args:
      values: squared singular values of the noisy matrix.
      silos: its rows.
      parameters: its columns.
    """
    beta = silos / parameters
    over = values / parameters - 1.0 - beta
    edge = 2.0 * math.sqrt(beta)
    seen = over > edge + CONSTANTS.chance * _edge_spread(silos, parameters) / parameters
    # No squares of values: with little noise they would be too large.
    root = jnp.sqrt(jnp.where(seen, over - edge, 0.0)) * jnp.sqrt(jnp.where(seen, over + edge, 0.0))
    theta2 = jnp.where(seen, (over + root) / 2.0, 1.0)
    cosine2 = 1.0 - (beta / theta2) * ((1.0 + theta2) / (theta2 + beta))
    return jnp.where(seen, jnp.clip(cosine2, 0.0, 1.0), 0.0)


def _edge_spread(silos: int, parameters: int) -> float:
    """How much the largest squared singular value of noise varies, in Johnstone's scaling."""
    rows, columns = math.sqrt(silos), math.sqrt(parameters)
    return (rows + columns) * (1.0 / rows + 1.0 / columns) ** (1.0 / 3.0)


def gram(whitened: Float[Array, "silos params"]) -> Float[Array, "rows rows"]:
    """The products of rows, or those of columns if these are fewer."""
    silos, parameters = whitened.shape
    return whitened @ whitened.T if silos <= parameters else whitened.T @ whitened


def by_relations(
    whitened: Float[Array, "silos params"],
    basis: Float[Array, "rows directions"],
    share: Float[Array, " directions"],
) -> Float[Array, "silos params"]:
    """The (whitened) deviations in the directions of the basis, each by its share (eq. 14)."""
    projection = (basis * share) @ basis.T
    silos, parameters = whitened.shape
    return projection @ whitened if silos <= parameters else whitened @ projection
