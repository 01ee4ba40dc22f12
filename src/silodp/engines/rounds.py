"""The rounds of all silos and runs: what `simulation` compiles into one program.

Each function here is over [seeds, silos, settings, ...], for silos in groups of one shape: first
states, a round (`one_round` in `advance_rounds`), the models that silos use, and their metric.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.engines.job import Job
from silodp.engines.layout import GroupData, Knobs
from silodp.methods.base import Method
from silodp.models.model import Model
from silodp.privacy.mechanisms.queries import SiloRecords, guarded
from silodp.privacy.mechanisms.randomness import (
    draw_pass,
    draw_passes,
    pass_keys,
    selection_keys,
    selection_words,
)
from silodp.privacy.mechanisms.release_draws import RoundDraws, host_words
from silodp.privacy.mechanisms.training import PassShape


class State(NamedTuple):
    """Where a simulation stands: the server's state, and the silos' by group."""

    server: Any  # [seeds, settings, ...]
    silos: tuple[Any, ...]  # [seeds, silos, settings, ...] for each group


def first_state(
    job: Job, members: Sequence[np.ndarray], servers: int, keys: Array, knobs: Knobs
) -> State:
    """Every silo and the server start from the same model, drawn from the run's key."""

    def of_seed(key: Array):
        def of_run(place, options):
            return job.first_states(job.build(options), key, place)

        def by_setting(place, knobs):
            over = jax.vmap(of_run, in_axes=(None, 0), axis_size=len(knobs.lr))
            return over(place, knobs.options)

        by_silo = jax.vmap(by_setting, in_axes=(0, None))
        server, _ = by_setting(jnp.int32(0), _of_servers(knobs, servers))
        return server, tuple(by_silo(jnp.asarray(own), knobs)[1] for own in members)

    return State(*jax.vmap(of_seed)(keys))


def advance_rounds(
    job: Job,
    shapes: tuple[PassShape, ...],
    order: np.ndarray,
    servers: int,
    apart: bool,
    state: State,
    data: Sequence[GroupData],
    knobs: Knobs,
    keys: Array,
    weights: Array,
    drawn: Sequence[RoundDraws],
    start: Array,
    stop: Array,
    evaluate: Array,
) -> tuple[State, Array]:
    """Rounds start..stop of every run, then the test metric [seeds, silos, settings].

    `drawn` is what the host has drawn for these rounds of a release; none for an experiment.
    """

    def random_in(number: Array) -> Sequence[Any]:
        if job.release:
            return [
                tuple(
                    jax.tree.map(
                        lambda a: jax.lax.dynamic_index_in_dim(a, number - start, keepdims=False),
                        group,
                    )
                )
                for group in drawn
            ]
        trials = knobs.trial if apart else knobs.trial[:1]
        return _randomness(job, shapes, data, keys, number, trials)

    def one_round(number: Array, state: State) -> State:
        broadcast = broadcast_of(job, state.server, knobs, len(keys), servers)
        randomness = random_in(number)
        silos, messages = [], []
        for shape, group, states, drawn in zip(shapes, data, state.silos, randomness, strict=True):
            new, message = _local(job, shape, number, states, broadcast, group, knobs, drawn)
            silos.append(new)
            # Trials send nothing: only settings with a server have messages.
            messages.append(jax.tree.map(lambda m: m[:, :, ::servers], message))
        joined = jax.tree.map(lambda *p: jnp.concatenate(p, axis=1)[:, order], *messages)
        merging = _of_servers(knobs, servers)
        return State(_merge(job, state.server, joined, weights, merging, len(keys)), tuple(silos))

    def metric(state: State) -> Array:
        broadcast = broadcast_of(job, state.server, knobs, len(keys), servers)
        metrics = [
            _evaluate(job, broadcast, silos, group, knobs)
            for silos, group in zip(state.silos, data, strict=True)
        ]
        return jnp.concatenate(metrics, axis=1)

    def nothing(state: State) -> Array:
        return jnp.full((len(keys), len(weights), len(knobs.lr)), jnp.nan)

    state = jax.lax.fori_loop(start, stop, one_round, state)
    return state, jax.lax.cond(evaluate, metric, nothing, state)


def prepared_groups(job: Job, data: Sequence[GroupData]) -> tuple[GroupData, ...]:
    """The groups with features as the model wants them."""

    def prepared(model: Model, part: SiloRecords) -> SiloRecords:
        return part._replace(features=jax.vmap(jax.vmap(model.prepare))(part.features))

    return tuple(
        group._replace(
            train=prepared(job.unit_model, group.train), test=prepared(job.model, group.test)
        )
        for group in data
    )


def _over(function: Callable, in_axes: tuple, one_by_one: bool) -> Callable:
    """`function` over the leading axis of the arguments whose axis is 0; the others are shared."""
    if not one_by_one:
        return jax.vmap(function, in_axes=in_axes)

    def mapped(*args):
        moving = tuple(arg for arg, axis in zip(args, in_axes, strict=True) if axis == 0)

        def of_one(slices):
            remaining = iter(slices)
            return function(
                *(
                    next(remaining) if axis == 0 else arg
                    for arg, axis in zip(args, in_axes, strict=True)
                )
            )

        return jax.lax.map(of_one, moving)

    return mapped


def _of_servers(knobs: Knobs, servers: int) -> Knobs:
    """Every n-th setting: those that own a server state."""
    return jax.tree.map(lambda a: a[::servers], knobs)


def broadcast_of(job: Job, server, knobs: Knobs, num_seeds: int, servers: int):
    """The broadcast of each run: [seeds, settings, ...]."""
    return of_each_server(job, lambda m: m.broadcast, server, knobs, num_seeds, servers)


def of_each_server(
    job: Job,
    function: Callable[[Method], Callable],
    server,
    knobs: Knobs,
    num_seeds: int,
    servers: int,
):
    """What that function of the method gives: [seeds, settings, ...].

    Settings that have no server show what their pivot's gives.
    """

    def of_run(server, options):
        return function(job.build(options))(server)

    own = _of_servers(knobs, servers)
    by_setting = jax.vmap(of_run, axis_size=len(own.lr))
    by_server = jax.vmap(by_setting, in_axes=(0, None), axis_size=num_seeds)(server, own.options)
    if servers == 1:
        return by_server
    return jax.tree.map(lambda a: jnp.repeat(a, servers, axis=1), by_server)


def _merge(job: Job, server, messages, weights, knobs: Knobs, num_seeds: int):
    def of_run(server, messages, options):
        return job.build(options).merge(server, messages, weights)

    # Messages are [silos, settings, ...].
    by_setting = jax.vmap(of_run, in_axes=(0, 1, 0), axis_size=len(knobs.lr))
    by_seed = jax.vmap(by_setting, in_axes=(0, 0, None), axis_size=num_seeds)
    return by_seed(server, messages, knobs.options)


def _randomness(job: Job, shapes, data, keys: Array, number: Array, trials: Array) -> list[Any]:
    """What is random in this round, for each group: of the passes [seeds, silos, trials, passes,
    ...], and the key of a selection [seeds, silos, trials, 2].

    For heavy models only the keys of passes: their words are drawn silo by silo, as they are too
    many.
    """
    passes = job.schedule.train
    ends = np.cumsum([len(group.number[0]) for group in data])[:-1]

    def of_seed(key: Array, places: Array) -> list[Any]:
        of_trials = jax.vmap(pass_keys, (None, None, None, None, 0), out_axes=1)
        by_group = jnp.split(of_trials(key, places, number, passes, trials), ends)
        chosen = jax.vmap(selection_keys, (None, None, None, 0), out_axes=1)
        select = jnp.split(chosen(key, places, number, trials), ends)
        if job.model.heavy:
            return list(zip(by_group, select, strict=True))
        sizes = [shape.size(job.parameters) for shape in shapes]
        drawn = draw_passes([k.reshape(-1, 2) for k in by_group], sizes)
        return [
            (jax.tree.map(lambda a, k=k: a.reshape(*k.shape[:-1], *a.shape[1:]), own), chosen)
            for k, own, chosen in zip(by_group, drawn, select, strict=True)
        ]

    places = jnp.concatenate([group.number for group in data], axis=1)
    return jax.vmap(of_seed)(keys, places)


def _local(
    job: Job,
    shape: PassShape,
    number: Array,
    silos,
    broadcast,
    group: GroupData,
    knobs: Knobs,
    drawn,
):
    def of_run(silo, broadcast, records, noise, options, drawn, lr):
        passes, select = drawn

        def train(number_of_pass, params, towards, strength):
            own = jax.tree.map(lambda a: a[number_of_pass], passes)
            if job.model.heavy and not job.release:
                own = draw_pass(own, shape.size(job.parameters))
            return job.train(shape, records, noise, lr, own, params, towards, strength)

        def words_of(candidates: int) -> Array:
            return (host_words if job.release else selection_words)(select, candidates)

        def select_one(candidates):
            return job.select(records, noise.select, words_of, candidates)

        of_pass = job.pass_noise(shape, records, noise, lr)
        queries = guarded(job.schedule, number, train, select_one, of_pass)
        return job.build(options).local(silo, broadcast, queries)

    heavy = job.model.heavy
    # What all settings share is not copied: a step of all of them is one matrix product.
    shared = drawn[1].shape[2] == 1
    drawn = jax.tree.map(lambda a: a[:, :, 0], drawn) if shared else drawn
    by_setting = _over(of_run, (0, 0, None, 0, 0, None if shared else 0, 0), heavy)
    by_silo = _over(by_setting, (0, None, 0, 0, 0, 0, None), heavy)
    by_seed = _over(by_silo, (0, 0, 0, None, None, 0, None), heavy)
    return by_seed(silos, broadcast, group.train, group.noise, group.options, drawn, knobs.lr)


def personal_models_of(job: Job, broadcast, silos, options, sizes: tuple[int, int, int]):
    """The model of each silo: leaves are [seeds, silos, settings, ...], of these sizes."""
    num_seeds, num_silos, num_settings = sizes

    def of_run(silo, broadcast, options):
        return job.build(options).personal(silo, broadcast)

    # A silo's state or the broadcast may be empty: the sizes cannot always be inferred.
    by_setting = jax.vmap(of_run, axis_size=num_settings)
    by_silo = jax.vmap(by_setting, in_axes=(0, None, 0), axis_size=num_silos)
    by_seed = jax.vmap(by_silo, in_axes=(0, 0, None), axis_size=num_seeds)
    return by_seed(silos, broadcast, options)


def _evaluate(job: Job, broadcast, silos, group: GroupData, knobs: Knobs) -> Array:
    models = personal_models_of(
        job, broadcast, silos, group.options, (*group.number.shape, len(knobs.lr))
    )

    def of_run(params, test: SiloRecords):
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]).all()
        return jnp.where(finite, job.measure(params, test), jnp.nan)

    heavy = job.model.heavy
    by_setting = _over(of_run, (0, None), heavy)
    by_silo = _over(by_setting, (0, 0), heavy)
    by_seed = _over(by_silo, (0, 0), heavy)
    return by_seed(models, group.test)
