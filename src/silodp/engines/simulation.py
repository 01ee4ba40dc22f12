"""All silos, all rounds and many runs in one compiled program on one machine.

A run is a seed and a setting (lambda, learning rate, epsilon...). Arrays are laid out as
[seeds, silos, settings, ...]: runs of one seed share records, batches and unit noise, so that what
differs between settings is only scaled, and a step of all of them is one matrix product.

Whatever a run does follows from its seed (of a release: and the secret) and setting alone: it gives
the same numbers by itself and within a sweep. A release is trained a few rounds at a time, each
with what the host has drawn for it. Settings of different trials have batches and noise of their
own. If the job has a pivot, the first setting is a run as any other, and the others are trials
within the silos: they get the broadcasts of the first one's server, and send nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from silodp.data.federation import Federation
from silodp.engines.job import Job, Setting
from silodp.engines.layout import GroupData, Knobs, group_data, group_silos, knobs_of, widest
from silodp.engines.one_silo import release_draws_of
from silodp.engines.programs import Programs
from silodp.methods.base import Method
from silodp.models.model import Model
from silodp.privacy.mechanisms.queries import SiloRecords, guarded
from silodp.privacy.mechanisms.randomness import (
    draw_pass,
    draw_passes,
    pass_keys,
    run_key,
    selection_keys,
    selection_words,
)
from silodp.privacy.mechanisms.release_draws import RoundDraws, SiloGroup, host_words
from silodp.privacy.mechanisms.training import PassShape
from silodp.privacy.session import PaidRounds

# What the host may draw at once for a release: bytes, and rounds.
_DRAWN_BYTES = 3.2e7
_DRAWN_ROUNDS = 16
# What a seed costs by itself (random words, gathering batches), in runs of a single setting.
SEED_WORK = 8


class State(NamedTuple):
    """Where a simulation stands: the server's state, and the silos' by group."""

    server: Any  # [seeds, settings, ...]
    silos: tuple[Any, ...]  # [seeds, silos, settings, ...] for each group


class Simulation:
    """A job on given federations (one a seed) and settings, compiled and ready to run."""

    def __init__(
        self,
        job: Job,
        seeds: Sequence[int],
        federations: Sequence[Federation],
        settings: Sequence[Setting],
        programs: Programs | None = None,
    ):
        """Takes the program from `programs`, if it was compiled before."""
        self._job = job
        self._num_seeds = len(seeds)
        spread, devices = _spread(len(seeds), len(settings))
        self._places = np.arange(len(settings))  # of the settings, among those that are run
        if spread == "seeds":
            seeds, federations = _filled(seeds, len(devices)), _filled(federations, len(devices))
        elif job.pivot:
            settings, self._places = _with_pivots(settings, len(devices))
        else:
            settings = _filled(settings, len(devices))
        by_device = len(settings) // len(devices) if spread == "settings" else len(settings)
        servers = by_device if job.pivot else 1  # of so many settings, the first has a server
        apart = len({setting.trial for setting in settings}) > 1
        groups = group_silos(widest(settings), job.release)
        members = np.concatenate([group.members for group in groups])
        self._order = np.argsort(members)
        self._sizes = [len(group.members) for group in groups]

        # Which axes of the arrays are spread over the devices.
        seed, setting = ("runs", None) if spread == "seeds" else (None, "runs")
        mesh = Mesh(np.array(devices), ("runs",))
        by_group = GroupData(P(seed), P(seed), P(seed), P(None, setting), P(None, setting))
        self._draws = _HostDraws(job, seeds, federations, settings, groups) if job.release else None
        # [rounds, seeds, silos, settings, ...]
        self._drawn_spec = P(None, seed, None, setting)
        drawn_specs = (self._drawn_spec,) * len(groups) if job.release else ()
        fixed_specs = ((by_group,) * len(groups), P(setting), P(seed), P())
        state_specs = State(P(seed, setting), (P(seed, None, setting),) * len(groups))
        fixed = (
            tuple(group_data(job, group, federations, settings) for group in groups),
            knobs_of(settings),
            np.stack([run_key(number, job.secret) for number in seeds]),
            np.asarray(job.weights, np.float32),
        )
        raw, *others = _placed(fixed, fixed_specs, mesh)
        self._state_specs, self._mesh = state_specs, mesh
        self._servers = servers
        programs = programs or Programs()
        shapes = tuple(group.shape for group in groups)
        sizes = jax.tree.map(lambda a: (a.shape, str(a.dtype)), (raw, others))
        about = (
            job.identity,
            federations[0].pixels,
            shapes,
            members.tobytes(),
            servers,
            apart,
            spread,
        )
        key = (*about, len(devices), str(sizes))

        def preparing() -> Callable:
            specs = fixed_specs[0]
            prepare = partial(_prepared, job)
            return jax.jit(
                jax.shard_map(
                    prepare, mesh=mesh, in_specs=(specs,), out_specs=specs, check_vma=False
                )
            )

        def compiled() -> tuple[Any, Any]:
            own = [group.members for group in groups]
            # Made where it will be: spreading each array afterwards is a program for each shape.
            initial = jax.jit(
                partial(_initial_state, job, own, servers),
                out_shardings=_shardings(state_specs, mesh),
            )
            program = jax.shard_map(
                partial(_advance, job, shapes, self._order, servers, apart),
                mesh=mesh,
                in_specs=(state_specs, *fixed_specs, drawn_specs, P(), P(), P()),
                out_specs=(state_specs, P(seed, None, setting)),
                check_vma=False,
            )
            state = self._begun(initial)
            lowered = jax.jit(program, donate_argnums=0).lower(
                state, *self._fixed, self._drawn(0, 1), np.int32(0), np.int32(1), np.bool(True)
            )
            return initial, lowered.compile()

        # Once, and not with each call: of images that takes as long as a round.
        self._fixed = (programs.get(("prepare", *key), preparing)(raw), *others)
        self._initial, self._program = programs.get(key, compiled)

    def reseed(self, seeds: Sequence[int]) -> None:
        """Goes on with other seeds (no more than before) on these records."""
        data, knobs, keys, weights = self._fixed
        filled = _filled(seeds, len(keys))
        if self._draws is not None:
            self._draws.reseed(filled)
        fresh = [run_key(number, self._job.secret) for number in filled]
        self._fixed = (data, knobs, jax.device_put(np.stack(fresh), keys.sharding), weights)

    def initial_state(self) -> State:
        """Every silo and the server start from the same model, drawn from the seed."""
        return self._begun(self._initial)

    def _begun(self, initial: Callable) -> State:
        _, knobs, keys, _ = self._fixed
        return initial(keys, knobs)

    def placed(self, state: State) -> State:
        """A state (such as one read from disk) on the devices."""
        return _placed(state, self._state_specs, self._mesh)

    def advance(
        self, state: State, paid: PaidRounds, evaluate: bool = True
    ) -> tuple[State, np.ndarray]:
        """Trains rounds that are paid for; also gives the test metric [seeds, settings, silos].

        The metric is NaN where a model is not finite, and everywhere without `evaluate`; it is
        infinite where test records have none. The memory of the given state is used for the new
        one: do not use it again.
        """
        start, stop = paid.first, paid.last
        at_once = stop - start if self._draws is None else self._draws.rounds
        metric = None
        for first in range(start, stop, at_once):
            last = min(first + at_once, stop)
            # While the devices train these rounds, the host draws the next.
            state, metric = self._program(
                state,
                *self._fixed,
                self._drawn(first, last),
                np.int32(first),
                np.int32(last),
                np.bool(evaluate and last == stop),
            )
        assert metric is not None, "there are no rounds to train"
        return state, self._in_order(metric)

    def _drawn(self, start: int, stop: int) -> Any:
        """What the host draws for these rounds of a release, on the devices."""
        if self._draws is None:
            return ()
        drawn = self._draws.of_rounds(start, stop)
        return _placed(drawn, (self._drawn_spec,) * len(drawn), self._mesh)

    def personal_models(self, state: State) -> Any:
        """Each silo's own model: leaves are [seeds, settings, silos, ...]."""
        data, knobs, keys, _ = self._fixed
        models = [
            _personal(
                self._job,
                _broadcast(self._job, state.server, knobs, len(keys), self._servers),
                silos,
                group.options,
                (len(keys), size, len(knobs.lr)),
            )
            for silos, group, size in zip(state.silos, data, self._sizes, strict=True)
        ]
        joined = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *models)
        return jax.tree.map(self._in_order, joined)

    def learned(self, state: State) -> dict[str, Any]:
        """What each run's method found out: leaves are [seeds, settings, ...]."""
        _, knobs, keys, _ = self._fixed
        by_run = _of_each_server(
            self._job, lambda m: m.learned, state.server, knobs, len(keys), self._servers
        )
        return jax.tree.map(lambda a: np.asarray(a)[: self._num_seeds, self._places], by_run)

    def _in_order(self, by_group: Array) -> np.ndarray:
        """[seeds, silos by group, settings, ...] -> [seeds, settings, silos, ...]."""
        ordered = np.moveaxis(np.asarray(by_group)[:, self._order], 1, 2)
        return ordered[: self._num_seeds, self._places]


class _HostDraws:
    """What is random in a release, of all seeds and settings.

    Attributes:
      rounds: number of rounds drawn at once; the program is compiled for so many.
    """

    def __init__(
        self,
        job: Job,
        seeds: Sequence[int],
        federations: Sequence[Federation],
        settings: Sequence[Setting],
        groups: Sequence[SiloGroup],
    ):
        self._job, self._groups = job, groups
        self._federations = federations
        # What is drawn depends on the trial and the plans alone: settings share it that share them.
        unlike: dict[Any, Setting] = {}
        about = [(setting.trial, setting.plans) for setting in settings]
        for own, setting in zip(about, settings, strict=True):
            unlike.setdefault(own, setting)
        self._unlike = list(unlike.values())
        self._places = [list(unlike).index(own) for own in about]
        self.reseed(seeds)
        a_round = sum(
            len(group.members)
            * group.shape.steps
            * (4 * group.shape.batch_capacity + 4 * job.parameters)
            for group in groups
        )
        fits = _DRAWN_BYTES / (a_round * job.schedule.train * len(seeds) * len(settings))
        self.rounds = max(1, min(int(fits), _DRAWN_ROUNDS, job.rounds))

    def reseed(self, seeds: Sequence[int]) -> None:
        """Goes on with draws for these seeds."""
        self._draws = [
            release_draws_of(self._job, seeds, self._federations, setting, self._groups)
            for setting in self._unlike
        ]

    def of_rounds(self, start: int, stop: int) -> tuple[RoundDraws, ...]:
        """Draws of each group: [rounds, seeds, silos, settings, ...]; unused rounds are 0."""

        def of_round(number: int) -> list[RoundDraws]:
            drawn = [own.of_round(number) for own in self._draws]
            by_setting = [drawn[place] for place in self._places]
            return [_stacked(of_group, axis=2) for of_group in zip(*by_setting, strict=True)]

        drawn = [of_round(number) for number in range(start, stop)]
        empty = [jax.tree.map(np.zeros_like, group) for group in drawn[0]]
        drawn += [empty] * (self.rounds - len(drawn))
        return tuple(_stacked(rounds, axis=0) for rounds in zip(*drawn, strict=True))


def _stacked(trees: Sequence[Any], axis: int) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=axis), *trees)


def _placed(tree: Any, specs: Any, mesh: Mesh) -> Any:
    return jax.device_put(tree, _shardings(specs, mesh))


def _shardings(specs: Any, mesh: Mesh) -> Any:
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda s: isinstance(s, P)
    )


def _filled(items: Sequence, multiple: int) -> list:
    """Repeats the last item until the number divides; the repeats are left out of results."""
    return [*items, *[items[-1]] * (-len(items) % multiple)]


def _spread(seeds: int, settings: int) -> tuple[str, list]:
    """Whether to spread seeds or settings over devices, and how many: what is done soonest."""
    devices = jax.local_devices()

    def time(seeds: int, settings: int) -> int:
        return seeds * (SEED_WORK + settings)

    by_seed, by_setting = min(seeds, len(devices)), min(settings, len(devices))
    if time(-(-seeds // by_seed), settings) <= time(seeds, -(-settings // by_setting)):
        return "seeds", devices[:by_seed]
    return "settings", devices[:by_setting]


def _with_pivots(settings: Sequence, blocks: int) -> tuple[list, np.ndarray]:
    """The trials in blocks, each after the pivot (the first setting); and where each setting is."""
    pivot, trials = settings[0], _filled(settings[1:], blocks)
    size = len(trials) // blocks
    arranged = [one for block in range(blocks) for one in (pivot, *trials[block * size :][:size])]
    number = np.arange(len(settings) - 1)
    return arranged, np.concatenate([[0], number + number // size + 1])


def _initial_state(
    job: Job, members: Sequence[np.ndarray], servers: int, keys: Array, knobs: Knobs
) -> State:
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


def _advance(
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
        broadcast = _broadcast(job, state.server, knobs, len(keys), servers)
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
        broadcast = _broadcast(job, state.server, knobs, len(keys), servers)
        metrics = [
            _evaluate(job, broadcast, silos, group, knobs)
            for silos, group in zip(state.silos, data, strict=True)
        ]
        return jnp.concatenate(metrics, axis=1)

    def nothing(state: State) -> Array:
        return jnp.full((len(keys), len(weights), len(knobs.lr)), jnp.nan)

    state = jax.lax.fori_loop(start, stop, one_round, state)
    return state, jax.lax.cond(evaluate, metric, nothing, state)


def _prepared(job: Job, data: Sequence[GroupData]) -> tuple[GroupData, ...]:
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


def _broadcast(job: Job, server, knobs: Knobs, num_seeds: int, servers: int):
    """The broadcast of each run: [seeds, settings, ...]."""
    return _of_each_server(job, lambda m: m.broadcast, server, knobs, num_seeds, servers)


def _of_each_server(
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


def _personal(job: Job, broadcast, silos, options, sizes: tuple[int, int, int]):
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
    models = _personal(job, broadcast, silos, group.options, (*group.number.shape, len(knobs.lr)))

    def of_run(params, test: SiloRecords):
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]).all()
        return jnp.where(finite, job.measure(params, test), jnp.nan)

    heavy = job.model.heavy
    by_setting = _over(of_run, (0, None), heavy)
    by_silo = _over(by_setting, (0, 0), heavy)
    by_seed = _over(by_silo, (0, 0), heavy)
    return by_seed(models, group.test)
