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

from silodp.base.errors import SilodpError
from silodp.methods.base import Method, Params, choose, difference, one_pass_a_round
from silodp.methods.denoising import LEAST_SHARE, coordinate, found, gram, relation, spread
from silodp.methods.eigenvectors import first_basis, follow, full_sweep
from silodp.methods.free_tests import Layers, products, score, scores
from silodp.methods.records_spread import records_so_far, seen_this_round, spread_of_records
from silodp.privacy.mechanisms.queries import PassNoise

# How fast a knob follows the free tests: a round moves a log-weight by at most RATE.
RATE = 0.5
LEAST_LOG = -6.0  # a weight that has fallen can still come back
# The mean over rounds: round t counts by t^power, as t -> infinity.
POWER, LEAST_POWER, MOST_POWER, POWER_RATE = 10.0, 1.0, 1000.0, 0.5
# How much they vary is taken for this share of what the clip allows, where every step takes all
# records, so that it cannot be seen.
OF_CLIP = 0.25
# What silos kept is told for so many parts of all rounds: to note it for each is slow.
MOST_PARTS = 50
# How many entries of D are worth the work of rotating one entry of the matrix of directions.
TURNS = 1
# Where the tests say nothing, a silo's own differences are kept if this share of all directions
# among silos is found to be real, and dropped if it is less.
DOUBT, TRUST = 0.2, 4.0


class Server(NamedTuple):
    """What the server knows; all of it from released updates. Rows are silos."""

    mean: Array  # wbar
    own: Array  # D: differences, with noise
    related: Array  # what the relations between silos make of them
    tau2: Array  # how much silos differ, by parameter
    starts: Array  # where each silo begins the next round
    average: Array  # over the last rounds, of where each silo began
    variance: Array  # V; infinite of silos that do not tell how noisy they are
    summed: Array  # the variance of noise in each entry of the sum of a silo's updates
    noisy: Array  # whether a silo's updates are
    sampled: Array  # how far another sample of records would have led, summed over rounds
    records: Array  # two sums, whose ratio is the spread (variance) of records' gradients
    last: Array  # updates of the round before
    log_shares: Array  # of the three estimates, by layer
    power: Array
    basis: Array
    found: Array  # how surely each direction of the basis is found
    round: Array
    kept: Array  # [parts, silos]: how much of its own each kept, summed over each part's rounds


class Update(NamedTuple):
    """What a silo sends: its update, and what its plan alone says about it.

    The variance is infinite if the silo keeps it to itself.
    """

    update: Params
    noise: PassNoise


class Told(NamedTuple):
    """What every silo is told: where it starts, and its mean over rounds."""

    start: Params
    average: Params


class Silo(NamedTuple):
    """What a silo keeps: its own model, as it trained it last, and where it is in the list."""

    own: Params
    place: Array
    noisy: Array  # whether its updates are: without noise, or alone, it keeps all of its own


class Choices(NamedTuple):
    """What can be left out, to see what it is worth (docs/ebmtl.md has the numbers).

    Attributes:
      average: 0 to use the last round's model in place of the mean over the last rounds.
      precision: 0 for a mean by the given weights alone.
      sampling: 0 to take no account of the records' being a sample.
      only: 1, 2 or 3 for one estimate in place of the mixture: by coordinate, by relations, or as
        it is.
    """

    average: float = 1.0
    precision: float = 1.0
    sampling: float = 1.0
    only: float = 0.0


def _checked(chosen: Choices) -> Choices:
    for name, value in chosen._asdict().items():
        allowed = (0, 1, 2, 3) if name == "only" else (0, 1)
        if value not in allowed:
            raise SilodpError(
                f"--method-options: {name} of method 'ebmtl' is {value:g}: give one of "
                f"{', '.join(map(str, allowed))}."
            )
    return chosen


def ebmtl(rounds: int, **choices: float) -> Method:
    """Personal models; how much each keeps of its own is learned from released updates."""
    chosen = _checked(Choices(**choices))

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
            starts=rows + flat,
            average=rows + flat,
            variance=by_silo,
            summed=by_silo,
            noisy=jnp.ones(start.silos, bool),
            sampled=by_silo,
            records=jnp.zeros(2),
            last=rows,
            log_shares=_first_shares(chosen.only, len(layers.ends)),
            power=jnp.float32(POWER),
            basis=basis,
            found=jnp.zeros(basis.shape[1]),
            round=jnp.int32(0),
            kept=jnp.zeros((min(rounds, MOST_PARTS), start.silos)),
        )
        # The model itself is told as it is, so that its shapes are known.
        silo = Silo(start.params, jnp.int32(start.place), jnp.bool(start.silos > 1))
        return (server, start.params), silo

    def broadcast(state) -> Told:
        server, example = state
        rows = jax.vmap(ravel_pytree(example)[1])
        # A silo without privacy has its own model; what it released is told in the mean alone.
        told = [
            jnp.where(server.noisy[:, None], one, server.mean)
            for one in (server.starts, server.average)
        ]
        return Told(*map(rows, told))

    def train(silo: Silo, told: Told, queries) -> tuple[Silo, Update]:
        noisy = (queries.noise.variance > 0) & (_silos(told) > 1)
        start = jax.tree.map(lambda leaf: leaf[silo.place], told.start)
        start = choose(noisy, start, silo.own)
        trained = queries.train(start)
        return Silo(trained, silo.place, noisy), Update(difference(trained, start), queries.noise)

    def merge(state, sent: Update, weights):
        server, example = state
        updates = jax.vmap(lambda one: ravel_pytree(one)[0])(sent.update)
        layers = _layers(example)
        return _merged(chosen, rounds, server, updates, sent, weights, layers), example

    def personal(silo: Silo, told: Told) -> Params:
        used = told.average if chosen.average else told.start
        return choose(silo.noisy, jax.tree.map(lambda leaf: leaf[silo.place], used), silo.own)

    def learned(state) -> dict[str, Any]:
        server, example = state
        relations, sizes, differs = _compared(server.average)
        return {
            "kept": server.kept / _rounds_of_parts(rounds)[:, None],
            "relations": relations,
            "sizes": sizes,
            "differs": ravel_pytree(example)[1](differs),
            "shares": _shares(server.log_shares),
        }

    return Method(one_pass_a_round, init, broadcast, train, merge, personal, learned)


def _merged(
    chosen: Choices,
    rounds: int,
    server: Server,
    updates: Array,
    sent: Update,
    weights: Array,
    layers: Layers,
) -> Server:
    """A round: what the updates say about the last estimates, the new sums, the new estimates."""
    # A silo that has no say in a round took no part: it stays as far from the mean as it is.
    here = weights > 0
    told = jnp.isfinite(sent.noise.variance)
    noise = jnp.where(told & here, sent.noise.variance, 0.0)
    reach = jnp.where(told & here, sent.noise.sampling, 0.0)
    tested = jnp.where(told, weights, 0.0)
    if chosen.precision:
        weights = _precise(updates, noise, told, weights, server.round)
    step = weights @ updates
    deviations = jnp.where(here[:, None], updates - step, 0.0)

    records = server.records
    if chosen.sampling:
        moved = jnp.sum((updates - server.last) ** 2, axis=1) / 2.0
        fresh = seen_this_round(moved, updates.shape[1], noise, told & here, sent.noise)
        # Before the first round there is none to compare it with.
        records = records_so_far(records, jnp.where(server.round > 0, fresh, 0.0), told, sent.noise)
    unseen = jnp.where(chosen.sampling * sent.noise.batches > 0, 0.0, chosen.sampling * OF_CLIP)
    vary = jnp.where(unseen > 0, unseen * sent.noise.clip**2, spread_of_records(records))
    afresh = reach * jnp.sqrt(vary)
    log_shares = server.log_shares
    if not chosen.only:
        log_shares = _tested_shares(server, deviations, afresh, noise, tested, layers)
    power = _tested_power(server, updates, noise, tested)

    # The noise of U_k - Ubar: that of U_k, which is in the mean as well, and that of the others.
    fresh = noise * (1.0 - 2.0 * weights) + jnp.sum(weights**2 * noise)
    variance = server.variance + jnp.where(told, jnp.where(here, fresh, 0.0), jnp.inf)
    own = server.own + deviations
    new = server._replace(
        mean=server.mean + step,
        own=own,
        variance=variance,
        summed=server.summed + noise,
        noisy=jnp.where(here, ~told | (noise > 0), server.noisy),
        sampled=server.sampled + afresh,
        records=records,
        last=jnp.where(here[:, None], updates, server.last),
        log_shares=log_shares,
        power=power,
        round=server.round + 1,
    )
    total = _uncertainty(new)

    known = jnp.isfinite(variance)[:, None]
    shown = jnp.where(known, own, 0.0)
    whitened = shown / jnp.sqrt(total)[:, None]
    basis, values = follow(gram(whitened), server.basis, _turns(server.basis, own.size))
    seen = found(values, *own.shape)
    related = relation(whitened, basis, seen) * jnp.sqrt(total)[:, None]
    new = new._replace(related=related, tau2=spread(shown, total), basis=basis, found=seen)
    begins = _starts(new, layers)
    recent = (power + 1.0) / (server.round + power + 1.0)
    average = server.average + recent * (begins - server.average)
    part = server.round * len(server.kept) // rounds
    kept = _kept(begins - new.mean, server.starts - server.mean + deviations)
    return new._replace(starts=begins, average=average, kept=server.kept.at[part].add(kept))


def _estimates(server: Server) -> tuple[Array, Array, Array]:
    """Of the differences without noise: by coordinate, by relations, and as they are."""
    known = jnp.isfinite(server.variance)[:, None]
    by_coordinate = coordinate(server.own, _uncertainty(server), server.tau2)
    by_coordinate = jnp.where(known, by_coordinate, 0.0)
    return by_coordinate, server.related, jnp.where(known, server.own, 0.0)


def _starts(server: Server, layers: Layers) -> Array:
    """wbar + Dhat_k."""
    shares = [layers.widened(of_layers) for of_layers in _shares(server.log_shares)]
    mixed = sum(share * one for share, one in zip(shares, _estimates(server), strict=True))
    return server.mean + jnp.where(server.noisy[:, None], mixed, server.own)


def _first_shares(only: float, layers: int) -> Array:
    """The log-weights of the estimates at first: equal, or of one alone."""
    logs = jnp.zeros(3) if not only else jnp.where(jnp.arange(3) == only - 1, 0.0, -jnp.inf)
    return jnp.tile(logs[:, None], (1, layers))


def _shares(log_shares: Array) -> Array:
    return jax.nn.softmax(log_shares, axis=0)


def _tested_shares(
    server: Server, deviations: Array, afresh: Array, noise: Array, weights: Array, layers: Layers
) -> Array:
    """The log-weights of the three estimates, moved towards those along which losses fall."""
    rises, errors = products(deviations, _estimates(server), weights, noise, layers)
    sizes = jnp.diff(jnp.array((0, *layers.ends))) / layers.ends[-1]
    # A silo's records are in its update and in its differences alike: of what they say for more
    # personalisation, so much is true of these records only, and not of others like them.
    common = sizes * jnp.sum(weights * afresh * server.sampled)
    rises = rises - common * errors[:, 2] / jnp.where(errors[2, 2] > 0, errors[2, 2], 1.0)
    by_layer, pooled = scores(rises, errors, _shares(server.log_shares))
    silos, parameters = deviations.shape
    real = jnp.sum(server.found) / max(min(silos - 1, parameters), 1)
    doubt = jnp.array([0.0, 0.0, 1.0])[:, None] * TRUST * (real - DOUBT)
    moved = (jnp.tanh(by_layer + doubt) + jnp.tanh(pooled[:, None] + doubt)) / 2.0
    logs = server.log_shares + jnp.where(server.round > 0, RATE * moved, 0.0)
    return jnp.maximum(logs - jnp.max(logs, axis=0), LEAST_LOG)


def _uncertainty(server: Server) -> Array:
    """The variance of each entry of D: from noise, and from records' being a sample.

    Silos' differences from their mean hang together: of two silos, each is the other's opposite.
    Counted with the noise of their sums, which do not, differences look no more alike than noise
    makes them; V is a little less.
    """
    total = server.summed + server.sampled**2 / server.own.shape[1]
    return _positive(jnp.where(jnp.isfinite(server.variance), total, jnp.inf))


def _tested_power(server: Server, updates: Array, noise: Array, weights: Array) -> Array:
    """Recent rounds count more while losses fall from the mean over rounds to where silos are."""
    away = server.starts - server.average
    rise = jnp.sum(weights[:, None] * updates * away)
    error = jnp.sum((weights**2 * noise)[:, None] * away**2)
    moved = server.power * jnp.exp(POWER_RATE * jnp.tanh(score(rise, error)))
    # In the first two rounds silos are at their mean: what is between is rounding.
    return jnp.where(server.round > 1, jnp.clip(moved, LEAST_POWER, MOST_POWER), server.power)


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


def _turns(basis: Array, entries: int) -> int:
    """How far the directions among silos are followed in a round: for about as much work as all
    the rest, or to the end if that is less."""
    return min(full_sweep(basis), max(TURNS * entries // basis.shape[1] ** 2, 1))


def _positive(variances: Array) -> Array:
    """Variances that can be divided by: at least a share of the largest."""
    known = jnp.where(jnp.isfinite(variances), variances, 0.0)
    most = jnp.max(known)
    floor = jnp.maximum(known, LEAST_SHARE * jnp.where(most > 0, most, 1.0))
    # Of a silo that does not say how noisy it is, nothing is known: as good as nothing but noise.
    return jnp.where(jnp.isfinite(variances), floor, 1e6 * jnp.where(most > 0, most, 1.0))


@jax.jit
def _compared(models: Array) -> tuple[Array, Array, Array]:
    """Of models [silos, parameters]: cosines between silos, how far from their mean each is, and
    how much each parameter differs."""
    apart = models - jnp.mean(models, axis=0)
    norms = jnp.maximum(jnp.linalg.norm(apart, axis=1), 1e-30)
    directions = apart / norms[:, None]
    return directions @ directions.T, norms, jnp.sqrt(jnp.mean(apart**2, axis=0))


def _kept(begins: Array, trained: Array) -> Array:
    """How much of its own each silo keeps: 0 as in FedAvg, 1 as in local training.

    That is, of how far from the mean it was after its training pass, how much it begins the next
    round with: 1 / (1 + lambda) of `meanpull`.
    """
    size = jnp.sum(trained**2, axis=1)
    return jnp.where(size > 0, jnp.sum(begins * trained, axis=1) / jnp.where(size > 0, size, 1), 0)


def _rounds_of_parts(rounds: int) -> np.ndarray:
    """How many rounds each part of them has for which is told what silos kept."""
    parts = min(rounds, MOST_PARTS)
    return np.bincount(np.arange(rounds) * parts // rounds, minlength=parts)


def _silos(told: Told) -> int:
    return jax.tree.leaves(told.start)[0].shape[0]


def _layers(params: Params) -> Layers:
    return Layers(tuple(int(end) for end in np.cumsum([p.size for p in jax.tree.leaves(params)])))
