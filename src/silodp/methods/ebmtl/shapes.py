"""The parts of the state and of a round, with their shapes: what each module reads and writes.

Letters are those of docs/ebmtl.md; rows are silos.
"""

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int

from silodp.methods.base import Params
from silodp.privacy.mechanisms.queries import PassNoise


class Update(NamedTuple):
    """The message of a silo: its update, and what its plan alone says about it.

    The variance is infinite if the silo keeps it to itself.
    """

    update: Params
    noise: PassNoise


class Broadcast(NamedTuple):
    """The message to every silo: where each of them starts, and its mean over rounds."""

    start: Params
    average: Params


class Silo(NamedTuple):
    """The state of a silo: its own model, as it trained it last, and its place in the list.

    Attributes:
      own: the model.
      place: the silo's place in the federation.
      private: whether its updates are noisy; without noise, or alone, it keeps all of its own.
    """

    own: Params
    place: Int[Array, ""]
    private: Bool[Array, ""]


class Received(NamedTuple):
    """What the server receives in a round (eq. 1).

    Attributes:
      U: the updates.
      v: the variance of the noise in each entry of a row of U; 0 where it is not known.
      g: the given weights.
      took_part: whether the silo has a say in the round: its weight is not 0.
      discloses_noise: whether the silo says how noisy it is.
      passes: what silos say about their training passes, as it came.
    """

    U: Float[Array, "silos params"]
    v: Float[Array, " silos"]
    g: Float[Array, " silos"]
    took_part: Bool[Array, " silos"]
    discloses_noise: Bool[Array, " silos"]
    passes: PassNoise


class Deviations(NamedTuple):
    """How far each silo's updates have led it from the mean, and how uncertain that is.

    Attributes:
      D: the deviations, with noise (eq. 3).
      V: the variance of the noise in each entry; infinite if the silo keeps it to itself (eq. 4).
      update_noise_var: the variance of the noise in each entry of the sum of a silo's updates.
      sampling_drift: how far another sample of records would have led, summed over rounds (eq. 9).
      T: the variance that estimates count with, of noise and of sampling (eq. 10).
      private: whether a silo's updates are noisy; of one that is not, all of D is real.
    """

    D: Float[Array, "silos params"]
    V: Float[Array, " silos"]
    update_noise_var: Float[Array, " silos"]
    sampling_drift: Float[Array, " silos"]
    T: Float[Array, " silos"]
    private: Bool[Array, " silos"]


class Sampling(NamedTuple):
    """What shows how much the gradients of records vary.

    Attributes:
      last_updates: U of the round before.
      grad_var_moments: (sum xy, sum xx) of a regression through 0 (eq. 8).
    """

    last_updates: Float[Array, "silos params"]
    grad_var_moments: Float[Array, "2"]


class Structure(NamedTuple):
    """What silos' deviations look like without noise.

    Attributes:
      tau2: how much silos differ, by parameter (eq. 11).
      basis: orthonormal columns, over silos or over parameters, whichever are fewer; followed from
        round to round.
      found: how surely each direction of the basis is found, from 0 to 1 (eq. 13).
      related: D as far as it lies in these directions (eq. 14).
    """

    tau2: Float[Array, " params"]
    basis: Float[Array, "rows directions"]
    found: Float[Array, " directions"]
    related: Float[Array, "silos params"]


class Estimates(NamedTuple):
    """D without noise, three times; all are 0 for a silo whose noise is not known.

    Attributes:
      by_coordinate: shrunk parameter by parameter (eq. 12).
      by_relations: projected on the directions that are found among silos (eq. 14).
      as_is: D itself (eq. 15).
    """

    by_coordinate: Float[Array, "silos params"]
    by_relations: Float[Array, "silos params"]
    as_is: Float[Array, "silos params"]


class Averaging(NamedTuple):
    """The mean over rounds, which is what silos use.

    Attributes:
      average: the mean of where each silo began, late rounds counting more (eq. 21).
      power: by how much they count more (eq. 22).
    """

    average: Float[Array, "silos params"]
    power: Float[Array, ""]


class Server(NamedTuple):
    """The state of the server; all of it follows from released updates.

    Attributes:
      round: t, the number of rounds done.
      wbar: the mean model (eq. 2).
      w: where each silo begins the next round (eq. 5).
      deviations: D, and how uncertain it is.
      sampling: how much the gradients of records vary.
      structure: what silos have in common, and in what they differ.
      log_shares: the log-weights of the three estimates, by layer (eq. 18).
      averaging: the mean over rounds.
      kept: how much of its own each silo kept, summed over each part's rounds (eq. 23).
    """

    round: Int[Array, ""]
    wbar: Float[Array, " params"]
    w: Float[Array, "silos params"]
    deviations: Deviations
    sampling: Sampling
    structure: Structure
    log_shares: Float[Array, "3 layers"]
    averaging: Averaging
    kept: Float[Array, "parts silos"]
