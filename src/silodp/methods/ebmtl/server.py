"""What the server does with a round's updates: `merge` is docs/ebmtl.md, step by step."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from silodp.methods.ebmtl.averaging import averaged, power_after, weights_of_mean
from silodp.methods.ebmtl.choices import Choices
from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.deviations import added, deviations_of_round, first_deviations
from silodp.methods.ebmtl.diagnostics import first_kept, kept_so_far
from silodp.methods.ebmtl.estimators import first_structure, structure_of
from silodp.methods.ebmtl.free_tests import Layers
from silodp.methods.ebmtl.mixture import first_log_shares, log_shares_after, mixed
from silodp.methods.ebmtl.sampling import first_sampling, observed, sampling_drift
from silodp.methods.ebmtl.shapes import Averaging, Received, Server
from silodp.privacy.mechanisms.queries import PassNoise


def first_server(
    model: Float[Array, " params"], silos: int, rounds: int, layers: Layers, choices: Choices
) -> Server:
    """Before any round: every silo begins with the same model."""
    models = jnp.tile(model, (silos, 1))
    return Server(
        round=jnp.int32(0),
        wbar=model,
        w=models,
        deviations=first_deviations(*models.shape),
        sampling=first_sampling(*models.shape),
        structure=first_structure(*models.shape),
        log_shares=first_log_shares(choices.only, len(layers.ends)),
        averaging=Averaging(models, jnp.float32(CONSTANTS.first_power)),
        kept=first_kept(rounds, silos),
    )


def received(
    U: Float[Array, "silos params"], passes: PassNoise, g: Float[Array, " silos"]
) -> Received:
    """The updates of a round (eq. 1); a silo of weight 0 took no part, whatever it says."""
    took_part, discloses_noise = g > 0, jnp.isfinite(passes.variance)
    v = jnp.where(took_part & discloses_noise, passes.variance, 0.0)
    return Received(U, v, g, took_part, discloses_noise, passes)


def merge(server: Server, got: Received, layers: Layers, rounds: int, choices: Choices) -> Server:
    """The server after a round: its updates test the last estimates, and make the next."""
    t = server.round
    p = weights_of_mean(got, t, bool(choices.precision))  # (eq. 6)
    Ubar = p @ got.U  # (eq. 2)
    step = deviations_of_round(got, Ubar)  # (eq. 3)
    sampling = observed(server.sampling, got, t)  # (eq. 8)
    drift = sampling_drift(got, sampling, bool(choices.sampling))  # (eq. 9)
    log_shares = log_shares_after(server, got, step, drift, layers, not choices.only)  # (eq. 18)
    deviations = added(server.deviations, step, got, p, drift)  # (eq. 3, eq. 4, eq. 10)
    structure = structure_of(deviations, server.structure)  # (eq. 11, eq. 13, eq. 14)
    Dhat = mixed(deviations, structure, log_shares, layers)  # (eq. 16)
    wbar = server.wbar + Ubar  # (eq. 2)
    w = wbar + Dhat  # (eq. 5)
    averaging = averaged(server.averaging, w, power_after(server, got), t)  # (eq. 21, eq. 22)
    kept = kept_so_far(server.kept, w - wbar, server.w - server.wbar + step, t, rounds)  # (eq. 23)
    return Server(t + 1, wbar, w, deviations, sampling, structure, log_shares, averaging, kept)
