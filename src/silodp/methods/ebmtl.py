"""EBMTL: empirical-Bayes multi-task learning. Personalisation that tunes itself, at no cost.

Ours; docs/ebmtl.md derives it. After "Future directions" of Z. Liu, S. Hu, Z. S. Wu, V. Smith. On
privacy and personalization in cross-silo federated learning. NeurIPS 2022, which asks how lambda
could be found without spending privacy on it.

All that a silo sends is private already, and the variance of the noise in it is known. So the
server can find out how much of the difference between silos is real, by post-processing alone:

    each round, silo k starts from w_k = wbar + Dhat_k, makes a training pass, sends its update U_k
    Ubar = mean of U_k by weight and precision;   wbar += Ubar;   D_k += U_k - Ubar
    V_k += the known noise variance of each entry of U_k - Ubar
    Dhat = a mixture of estimates of D without noise; what mixture, the next updates tell for free
    what silo k uses: the mean of its w_k over the last rounds; how many, the updates tell as well

With Dhat = 0 that is FedAvg, with Dhat = D local training. It costs what local training costs.
Without noise a silo keeps all of its own: it is local training, to the last bit; so it is with one
silo. With noise without end it goes FedAvg's path.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from silodp.methods.base import Method, Params, choose, difference, one_pass_a_round
from silodp.methods.denoising import LEAST_SHARE, coordinate, found, gram, relation, spread
from silodp.methods.eigenvectors import first_basis, follow
from silodp.methods.free_tests import Layers, products, score, scores

# How fast a knob follows the free tests: a round moves a log-weight by at most RATE.
RATE = 0.5
LEAST_LOG = -6.0  # a weight that has fallen can still come back
# The mean over rounds: round t counts by t^power, as t -> infinity.
POWER, LEAST_POWER, MOST_POWER, POWER_RATE = 10.0, 1.0, 30.0, 0.2
# How far silos' records, another sample of the same kind, would have led elsewhere: the clip bounds
# it. In all directions together it is taken for half the bound.
OF_BOUND = 0.5
# Where the tests say nothing, a silo's own differences are kept if this share of all directions
# among silos is found to be real, and dropped if it is less.
DOUBT = 0.2


class Server(NamedTuple):
    """What the server knows; all of it from released updates. Rows are silos."""

    mean: Array  # wbar
    own: Array  # D: differences, with noise
    related: Array  # what the relations between silos make of them
    tau2: Array  # how much silos differ, by parameter
    average: Array  # over the last rounds, of where each silo began
    variance: Array  # V
    sampling: Array  # how far another sample of records would have led, summed over rounds
    log_shares: Array  # of the three estimates, by layer
    power: Array
    basis: Array
    found: Array  # how surely each direction of the basis is found
    round: Array
    kept: Array  # [rounds, silos]: how much of its own each kept


class Update(NamedTuple):
    """What a silo sends: its update, and two numbers that its plan alone gives."""

    update: Params
    variance: Array  # of the noise in each entry; infinite if the silo keeps it to itself
    sampling: Array


class Told(NamedTuple):
    """What every silo is told: where it starts, and its mean over rounds."""

    start: Params
    average: Params


class Silo(NamedTuple):
    """What a silo keeps: its own model, as it trained it last, and where it is in the list."""

    own: Params
    place: Array
    noisy: Array  # whether its updates are: without noise it keeps all of its own


def ebmtl(rounds: int, average: float = 1.0) -> Method:
    """Personal models; how much each keeps of its own is learned from released updates.

    Args:
      rounds: of the run.
      average: 0 to use the last round's model in place of the mean over the last rounds.
    """

    def init(start):
        flat, _ = ravel_pytree(start.params)
        rows = jnp.zeros((start.silos, flat.size))
        by_silo = jnp.zeros(start.silos)
        layers = _layers(start.params)
        basis = first_basis(min(rows.shape))
        server = Server(
            mean=flat,
            own=rows,
            related=rows,
            tau2=jnp.zeros_like(flat),
            average=rows + flat,
            variance=by_silo,
            sampling=by_silo,
            log_shares=jnp.zeros((3, len(layers.ends))),
            power=jnp.float32(POWER),
            basis=basis,
            found=jnp.zeros(basis.shape[1]),
            round=jnp.int32(0),
            kept=jnp.zeros((rounds, start.silos)),
        )
        # The model itself is told as it is, so that its shapes are known.
        return (server, start.params), Silo(start.params, jnp.int32(start.place), jnp.bool(True))

    def broadcast(state) -> Told:
        server, example = state
        rows = jax.vmap(ravel_pytree(example)[1])
        return Told(rows(_starts(server, _layers(example))), rows(server.average))

    def train(silo: Silo, told: Told, queries) -> tuple[Silo, Update]:
        noisy = queries.noise.variance > 0
        start = jax.tree.map(lambda leaf: leaf[silo.place], told.start)
        start = choose(noisy, start, silo.own)
        trained = queries.train(start)
        sent = Update(difference(trained, start), *queries.noise)
        return Silo(trained, silo.place, noisy), sent

    def merge(state, sent: Update, weights):
        server, example = state
        updates = jax.vmap(lambda one: ravel_pytree(one)[0])(sent.update)
        return _merged(server, updates, sent, weights, _layers(example)), example

    def personal(silo: Silo, told: Told) -> Params:
        alone = jax.tree.leaves(told.start)[0].shape[0] == 1
        used = told.average if average and not alone else told.start
        return choose(silo.noisy, jax.tree.map(lambda leaf: leaf[silo.place], used), silo.own)

    def learned(state) -> dict[str, Any]:
        server, example = state
        kept = server.average - jnp.mean(server.average, axis=0)
        norms = jnp.maximum(jnp.linalg.norm(kept, axis=1), 1e-30)
        differs = jnp.sqrt(jnp.mean(kept**2, axis=0))
        return {
            "kept": server.kept,
            "relations": (kept / norms[:, None]) @ (kept / norms[:, None]).T,
            "sizes": norms,
            "differs": ravel_pytree(example)[1](differs),
            "shares": _shares(server.log_shares),
        }

    return Method(one_pass_a_round, init, broadcast, train, merge, personal, learned)


def _merged(server: Server, updates: Array, sent: Update, weights: Array, layers: Layers) -> Server:
    """A round: what the updates say about the last estimates, the new sums, the new estimates."""
    told = jnp.isfinite(sent.variance)
    noise = jnp.where(told, sent.variance, 0.0)
    tested = jnp.where(told, weights, 0.0)
    weights = _precise(updates, noise, told, weights, server.round)
    step = weights @ updates
    deviations = updates - step

    log_shares = _tested_shares(server, deviations, sent.sampling, noise, tested, layers)
    starts = _starts(server, layers)
    power = _tested_power(server, starts, updates, noise, tested)

    # The noise of U_k - Ubar: that of U_k, which is in the mean as well, and that of the others.
    fresh = sent.variance * (1.0 - 2.0 * weights) + jnp.sum(weights**2 * noise)
    variance = server.variance + jnp.where(sent.variance > 0, fresh, 0.0)
    sampling = server.sampling + sent.sampling
    own = server.own + deviations
    total = _positive(variance + OF_BOUND * sampling**2 / own.shape[1])

    whitened = own / jnp.sqrt(total)[:, None]
    basis, values = follow(gram(whitened), server.basis)
    seen = found(values, *own.shape)
    related = relation(whitened, basis, seen) * jnp.sqrt(total)[:, None]
    known = jnp.isfinite(variance)[:, None]
    new = server._replace(
        mean=server.mean + step,
        own=own,
        related=jnp.where(known, related, 0.0),
        tau2=spread(own, total),
        variance=variance,
        sampling=sampling,
        log_shares=log_shares,
        power=power,
        basis=basis,
        found=seen,
        round=server.round + 1,
    )
    begins = _starts(new, layers)
    recent = (power + 1.0) / (server.round + power + 1.0)
    average = server.average + recent * (begins - server.average)
    kept = _kept(begins - new.mean, starts - server.mean + deviations)
    return new._replace(average=average, kept=server.kept.at[server.round].set(kept))


def _estimates(server: Server) -> tuple[Array, Array, Array]:
    """Of the differences without noise: by coordinate, by relations, and as they are."""
    total = _positive(server.variance + OF_BOUND * server.sampling**2 / server.own.shape[1])
    known = jnp.isfinite(server.variance)[:, None]
    by_coordinate = jnp.where(known, coordinate(server.own, total, server.tau2), 0.0)
    return by_coordinate, server.related, jnp.where(known, server.own, 0.0)


def _starts(server: Server, layers: Layers) -> Array:
    """wbar + Dhat_k."""
    shares = [layers.widened(of_layers) for of_layers in _shares(server.log_shares)]
    mixed = sum(share * one for share, one in zip(shares, _estimates(server), strict=True))
    return server.mean + jnp.where((server.variance > 0)[:, None], mixed, server.own)


def _shares(log_shares: Array) -> Array:
    return jax.nn.softmax(log_shares, axis=0)


def _tested_shares(
    server: Server, deviations: Array, sampling: Array, noise: Array, weights: Array, layers: Layers
) -> Array:
    """The log-weights of the three estimates, moved towards those along which losses fall."""
    rises, errors = products(deviations, _estimates(server), weights, noise, layers)
    sizes = jnp.diff(jnp.array((0, *layers.ends))) / layers.ends[-1]
    # A silo's records are in its update and in its differences alike: of what they say for more
    # personalisation, so much is true of these records only, and not of others like them.
    common = OF_BOUND * sizes * jnp.sum(weights * sampling * server.sampling)
    rises = rises - common * errors[:, 2] / jnp.where(errors[2, 2] > 0, errors[2, 2], 1.0)
    by_layer, pooled = scores(rises, errors, _shares(server.log_shares))
    silos, parameters = deviations.shape
    real = jnp.sum(server.found) / max(min(silos - 1, parameters), 1)
    doubt = jnp.array([0.0, 0.0, 1.0])[:, None] * 2.0 * (real - DOUBT)
    moved = (jnp.tanh(by_layer + doubt) + jnp.tanh(pooled[:, None] + doubt)) / 2.0
    logs = server.log_shares + jnp.where(server.round > 0, RATE * moved, 0.0)
    return jnp.maximum(logs - jnp.max(logs, axis=0), LEAST_LOG)


def _tested_power(
    server: Server, starts: Array, updates: Array, noise: Array, weights: Array
) -> Array:
    """Recent rounds count more while losses fall from the mean over rounds to where silos are."""
    away = starts - server.average
    rise = jnp.sum(weights @ (updates * away))
    error = jnp.sum((weights**2 * noise) @ away**2)
    moved = server.power * jnp.exp(POWER_RATE * jnp.tanh(score(rise, error)))
    return jnp.clip(moved, LEAST_POWER, MOST_POWER)


def _precise(updates: Array, noise: Array, told: Array, weights: Array, number: Array) -> Array:
    """The weights of a round's mean: as given where silos are equally noisy, else by precision.

    What silos differ by is the same in every round, and adds up; noise averages out.
    """
    usual = weights @ noise
    apart = (updates - weights @ updates) ** 2
    between = jnp.maximum(0.0, weights @ (jnp.mean(apart, axis=1) - noise))
    lasting = (number + 1.0) * between
    total = lasting + noise
    precision = jnp.where(told & (total > 0), (lasting + usual) / jnp.where(total > 0, total, 1), 1)
    precise = weights * precision
    return precise / jnp.sum(precise)


def _positive(variances: Array) -> Array:
    """Variances that can be divided by: at least a share of the largest."""
    known = jnp.where(jnp.isfinite(variances), variances, 0.0)
    most = jnp.max(known)
    floor = jnp.maximum(known, LEAST_SHARE * jnp.where(most > 0, most, 1.0))
    # Of a silo that does not say how noisy it is, nothing is known: as good as nothing but noise.
    return jnp.where(jnp.isfinite(variances), floor, 1e6 * jnp.where(most > 0, most, 1.0))


def _kept(begins: Array, trained: Array) -> Array:
    """How much of its own each silo keeps: 0 as in FedAvg, 1 as in local training.

    That is, of how far from the mean it was after its training pass, how much it begins the next
    round with: 1 / (1 + lambda) of `meanpull`.
    """
    size = jnp.sum(trained**2, axis=1)
    return jnp.where(size > 0, jnp.sum(begins * trained, axis=1) / jnp.where(size > 0, size, 1), 0)


def _layers(params: Params) -> Layers:
    return Layers(tuple(int(end) for end in np.cumsum([p.size for p in jax.tree.leaves(params)])))
