"""Means: of a round's updates over silos, and of where a silo begins over rounds."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.free_tests import score_of
from silodp.methods.ebmtl.shapes import Averaging, Received, Server


def weights_of_mean(got: Received, t: Int[Array, ""], by_precision: bool) -> Float[Array, " silos"]:
    """p, the weights of a round's mean: as given where silos are equally noisy, else by precision.

    What silos differ by is the same in every round, and adds up; noise averages out (eq. 6).
    """
    U, v, g = got.U, got.v, got.g
    if not by_precision:
        return g
    usual = v @ g
    lasting = (t + 1.0) * _between(U, v, g)
    total = lasting + v
    known = got.discloses_noise & (total > 0)
    precision = jnp.where(known, (lasting + usual) / jnp.where(known, total, 1.0), 1.0)
    return g * precision / (precision @ g)


def _between(
    U: Float[Array, "silos params"], v: Float[Array, " silos"], g: Float[Array, " silos"]
) -> Float[Array, ""]:
    """b, the variance between silos in a round, beyond their noise (eq. 7)."""
    apart = jnp.mean((U - g @ U) ** 2, axis=1)
    return jnp.maximum(0.0, (apart - v) @ g)


def averaged(
    before: Averaging,
    w: Float[Array, "silos params"],
    power: Float[Array, ""],
    t: Int[Array, ""],
) -> Averaging:
    """The mean of where silos began, round t counting by t^power (eq. 21)."""
    recent = (power + 1.0) / (t + power + 1.0)
    return Averaging(before.average + recent * (w - before.average), power)


def power_after(server: Server, got: Received) -> Float[Array, ""]:
    """Recent rounds count more while losses fall from that mean to where silos are (eq. 22)."""
    average, power = server.averaging
    g = jnp.where(got.discloses_noise, got.g, 0.0)
    z = score_of(got.U, server.w - average, g, got.v)
    moved = power * jnp.exp(CONSTANTS.power_rate * jnp.tanh(z))
    moved = jnp.clip(moved, CONSTANTS.least_power, CONSTANTS.most_power)
    # In the first two rounds silos are at their mean: what is between is rounding.
    return jnp.where(server.round > 1, moved, power)
