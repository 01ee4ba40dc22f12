"""All silos, all rounds and many runs in one compiled program on one machine.

A run is a seed and a setting (lambda, learning rate, epsilon...). Arrays are laid out as
[seeds, silos, settings, ...]: runs of one seed share records, batches and unit noise, so that what
differs between settings is only scaled, and a step of all of them is one matrix product.

Whatever a run does follows from its seed and setting alone: it gives the same numbers by itself and
within a sweep.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from silodp.engines.layout import Group, group_silos, pad_rows
from silodp.errors import SilodpError
from silodp.federation import Federation
from silodp.methods import MethodEntry
from silodp.models import Model, score
from silodp.optimisers import OPTIMISERS, Optimiser
from silodp.privacy.plan import SiloPlan
from silodp.privacy.queries import (
    PassShape,
    Queries,
    Regulariser,
    SiloNoise,
    SiloRecords,
    training_pass,
)
from silodp.privacy.randomness import draw_pass, draw_passes, pass_keys, run_key
from silodp.privacy.sampling import threshold_of


class Setting(NamedTuple):
    """One point of a sweep: what may differ between runs of one compiled program."""

    lr: float
    plans: tuple[SiloPlan, ...]  # of each silo: the noise, calibrated to its policy
    options: dict[str, float]  # of the method


@dataclass(frozen=True)
class Job:
    """Everything that the compiled program depends on, besides seeds and settings."""

    model: Model
    method: MethodEntry
    rounds: int
    clip: float
    weights: np.ndarray
    regulariser: Regulariser = "outside"
    optimiser: Optimiser = "sgd"

    def train(self, shape: PassShape, *args) -> Any:
        """A training pass of this job; see `queries.training_pass` for the arguments."""
        optimiser = OPTIMISERS[self.optimiser]
        return training_pass(self.model, shape, self.regulariser, optimiser, *args)

    @property
    def passes_a_round(self) -> int:
        """Training passes that the method's schedule pays for in each round."""
        anything = dict.fromkeys(self.method.options, 0.0)
        schedule = self.method.build(rounds=self.rounds, **anything).schedule(self.rounds)
        return schedule.training_passes // self.rounds

    @property
    def parameters(self) -> int:
        """Numbers in the model."""
        shapes = jax.eval_shape(self.model.init, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))


class State(NamedTuple):
    """Where a simulation stands: the server's state, and the silos' by group."""

    server: Any  # [seeds, settings, ...]
    silos: tuple[Any, ...]  # [seeds, silos, settings, ...] for each group


class _Knobs(NamedTuple):
    """What differs between settings, as arrays [settings]."""

    lr: Array
    options: dict[str, Array]


class _GroupData(NamedTuple):
    """The silos of one group; features are prepared for the model inside the program."""

    train: SiloRecords  # [seeds, silos, ...]
    test: SiloRecords
    number: Array  # [seeds, silos]: the place in the federation, which a silo's keys come from
    noise: SiloNoise  # [silos, settings]


def use_all_cores() -> None:
    """Gives JAX one CPU device a core, if JAX has not started yet.

    Runs are then spread over the cores; a single CPU device leaves most of them idle.
    """
    import os

    try:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    except RuntimeError:
        pass  # JAX is running already: its devices are what there is


class Simulation:
    """A job on given federations (one a seed) and settings, ready to run."""

    def __init__(
        self,
        job: Job,
        seeds: Sequence[int],
        federations: Sequence[Federation],
        settings: Sequence[Setting],
    ):
        check_equal_shapes(federations)
        self._job = job
        self._num_seeds, self._num_settings = len(seeds), len(settings)
        spread, devices = _spread(len(seeds), len(settings))
        if spread == "seeds":
            seeds, federations = _filled(seeds, len(devices)), _filled(federations, len(devices))
        else:
            settings = _filled(settings, len(devices))
        groups = group_silos(_widest(settings))
        members = np.concatenate([group.members for group in groups])
        self._order = np.argsort(members)
        self._sizes = [len(group.members) for group in groups]

        # Which axes of the arrays are spread over the devices.
        seed, setting = ("runs", None) if spread == "seeds" else (None, "runs")
        mesh = Mesh(np.array(devices), ("runs",))
        by_group = _GroupData(P(seed), P(seed), P(seed), P(None, setting))
        fixed_specs = ((by_group,) * len(groups), P(setting), P(seed), P())
        state_specs = State(P(seed, setting), (P(seed, None, setting),) * len(groups))
        fixed = (
            tuple(_group_data(job, group, federations, settings) for group in groups),
            _knobs(settings),
            np.stack([run_key(number) for number in seeds]),
            np.asarray(job.weights[members], np.float32),
        )
        self._fixed = _placed(fixed, fixed_specs, mesh)
        self._state_specs, self._mesh = state_specs, mesh
        program = jax.shard_map(
            partial(_advance, job, tuple(group.shape for group in groups)),
            mesh=mesh,
            in_specs=(state_specs, *fixed_specs, P(), P()),
            out_specs=(state_specs, P(seed, None, setting)),
            check_vma=False,
        )
        self._program = jax.jit(program, donate_argnums=0)

    def compile(self) -> None:
        """Compiles the program now, so that the time for it is not counted as training."""
        self._program = self._program.lower(
            self.initial_state(), *self._fixed, np.int32(0), np.int32(1)
        ).compile()

    def initial_state(self) -> State:
        """Every silo and the server start from the same model, drawn from the seed."""
        job = self._job
        _, knobs, keys, _ = self._fixed

        @jax.jit
        def initial(keys: Array, options: dict[str, Array]) -> State:
            def of_seed(key: Array):
                params = job.model.init(jax.random.wrap_key_data(key))

                def of_setting(options):
                    return job.method.build(rounds=job.rounds, **options).init(params)

                server, silo = jax.vmap(of_setting, axis_size=len(knobs.lr))(options)
                return server, tuple(
                    jax.tree.map(lambda a, k=k: jnp.broadcast_to(a, (k, *a.shape)), silo)
                    for k in self._sizes
                )

            return State(*jax.vmap(of_seed)(keys))

        return self.placed(initial(keys, knobs.options))

    def placed(self, state: State) -> State:
        """A state (such as one read from disk) on the devices."""
        return _placed(state, self._state_specs, self._mesh)

    def advance(self, state: State, start: int, stop: int) -> tuple[State, np.ndarray]:
        """Trains rounds start..stop; also gives the test metric [seeds, settings, silos].

        The memory of the given state is used for the new one: do not use it again.
        """
        state, metric = self._program(state, *self._fixed, np.int32(start), np.int32(stop))
        return state, self._in_order(metric)

    def personal_models(self, state: State) -> Any:
        """Each silo's own model: leaves are [seeds, settings, silos, ...]."""
        _, knobs, keys, _ = self._fixed
        models = [
            _personal(self._job, state.server, silos, knobs, (len(keys), size))
            for silos, size in zip(state.silos, self._sizes, strict=True)
        ]
        joined = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *models)
        return jax.tree.map(self._in_order, joined)

    def _in_order(self, by_group: Array) -> np.ndarray:
        """[seeds, silos by group, settings, ...] -> [seeds, settings, silos, ...]."""
        ordered = np.moveaxis(np.asarray(by_group)[:, self._order], 1, 2)
        return ordered[: self._num_seeds, : self._num_settings]


def _placed(tree: Any, specs: Any, mesh: Mesh) -> Any:
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda s: isinstance(s, P)
    )
    return jax.device_put(tree, shardings)


def _filled(items: Sequence, multiple: int) -> list:
    """Repeats the last item until the number divides; the repeats are left out of results."""
    return [*items, *[items[-1]] * (-len(items) % multiple)]


def check_equal_shapes(federations: Sequence[Federation]) -> None:
    """Federations of different seeds must hold as many records in each silo."""
    first = federations[0]
    for other in federations[1:]:
        if (
            other.names != first.names
            or other.input_shape != first.input_shape
            or not np.array_equal(other.train_counts, first.train_counts)
            or not np.array_equal(other.test_counts, first.test_counts)
        ):
            raise SilodpError(
                f"Data {first.name!r} have other silos or record counts from one seed to the next: "
                "a split must keep each silo's counts."
            )


def _spread(seeds: int, settings: int) -> tuple[str, list]:
    """Whether to spread seeds or settings over devices: what wastes least; a single run on one."""
    devices = jax.local_devices()
    n = len(devices)
    waste = {
        "seeds": -(-seeds // n) * n / seeds,
        "settings": -(-settings // n) * n / settings,
    }
    axis = min(waste, key=lambda name: waste[name])
    return axis, devices if waste[axis] <= 1.5 else devices[:1]


def _widest(settings: Sequence[Setting]) -> tuple[SiloPlan, ...]:
    """Of each silo, the plan that needs most slots: all settings must fit the compiled shape."""
    return tuple(
        max(plans, key=lambda plan: plan.slots)
        for plans in zip(*(setting.plans for setting in settings), strict=True)
    )


def _knobs(settings: Sequence[Setting]) -> _Knobs:
    names = settings[0].options
    return _Knobs(
        lr=np.array([setting.lr for setting in settings], np.float32),
        options={
            name: np.array([setting.options[name] for setting in settings], np.float32)
            for name in names
        },
    )


def _group_data(
    job: Job,
    group: Group,
    federations: Sequence[Federation],
    settings: Sequence[Setting],
) -> _GroupData:
    members, shape = group
    plans = [settings[0].plans[number] for number in members]
    silos = [[federation.silos[number] for number in members] for federation in federations]

    def padded(part: str, rows: int) -> SiloRecords:
        def stack(field: str) -> np.ndarray:
            return np.stack(
                [
                    [pad_rows(getattr(getattr(silo, part), field), rows) for silo in row]
                    for row in silos
                ]
            )

        def of_each(value: Callable[[Any, SiloPlan], Any], dtype) -> np.ndarray:
            row = [value(*pair) for pair in zip(silos[0], plans, strict=True)]
            return np.tile(np.array(row, dtype), (len(federations), 1))

        return SiloRecords(
            features=stack("x"),
            y=stack("y"),
            records=of_each(lambda silo, plan: len(getattr(silo, part)), np.int32),
            batch=of_each(lambda silo, plan: plan.batch, np.int32),
            steps=of_each(lambda silo, plan: plan.steps, np.int32),
            threshold=of_each(lambda _, plan: threshold_of(plan.batch / plan.records), np.uint32),
        )

    return _GroupData(
        train=padded("train", shape.rows),
        test=padded("test", max(len(silo.test) for silo in silos[0])),
        number=np.tile(members, (len(federations), 1)),
        noise=silo_noise(job.clip, [[s.plans[number] for s in settings] for number in members]),
    )


def silo_noise(clip: float, plans: Sequence[Sequence[SiloPlan]]) -> SiloNoise:
    """Clip and noise of [silos][settings] plans; a run without privacy is not clipped."""
    clips = [[clip if plan.private else np.inf for plan in row] for row in plans]
    scales = [
        [clip * plan.noise_multiplier if plan.private else 0.0 for plan in row] for row in plans
    ]
    return SiloNoise(np.array(clips, np.float32), np.array(scales, np.float32))


def _advance(
    job: Job, shapes: tuple[PassShape, ...], state, data, knobs, keys, weights, start, stop
):
    """Rounds start..stop of every run, then the test metric [seeds, silos, settings]."""
    data = [_prepare(job.model, group) for group in data]

    def one_round(number: Array, state: State) -> State:
        broadcast = _broadcast(job, state.server, knobs, len(keys))
        randomness = _randomness(job, shapes, data, keys, number)
        silos, messages = [], []
        for shape, group, states, drawn in zip(shapes, data, state.silos, randomness, strict=True):
            new, message = _local(job, shape, states, broadcast, group, knobs, drawn)
            silos.append(new)
            messages.append(message)
        joined = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *messages)
        return State(_merge(job, state.server, joined, weights, knobs, len(keys)), tuple(silos))

    state = jax.lax.fori_loop(start, stop, one_round, state)
    metrics = [
        _evaluate(job, state.server, silos, group, knobs)
        for silos, group in zip(state.silos, data, strict=True)
    ]
    return state, jnp.concatenate(metrics, axis=1)


def _prepare(model: Model, group: _GroupData) -> _GroupData:
    def prepared(part: SiloRecords) -> SiloRecords:
        return part._replace(features=jax.vmap(jax.vmap(model.prepare))(part.features))

    return group._replace(train=prepared(group.train), test=prepared(group.test))


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


def _broadcast(job: Job, server, knobs: _Knobs, num_seeds: int):
    def of_run(server, options):
        return job.method.build(rounds=job.rounds, **options).broadcast(server)

    by_setting = jax.vmap(of_run, axis_size=len(knobs.lr))
    return jax.vmap(by_setting, in_axes=(0, None), axis_size=num_seeds)(server, knobs.options)


def _merge(job: Job, server, messages, weights, knobs: _Knobs, num_seeds: int):
    def of_run(server, messages, options):
        method = job.method.build(rounds=job.rounds, **options)
        return method.merge(server, messages, weights)

    num = len(knobs.lr)
    by_setting = jax.vmap(
        of_run, in_axes=(0, 1, 0), axis_size=num
    )  # messages are [silos, settings, ...]
    by_seed = jax.vmap(by_setting, in_axes=(0, 0, None), axis_size=num_seeds)
    return by_seed(server, messages, knobs.options)


def _randomness(job: Job, shapes, data, keys: Array, number: Array) -> list[Any]:
    """What is random in this round, for each group: [seeds, silos, passes, ...].

    For heavy models only the keys: their words are drawn silo by silo, as they are too many.
    """
    passes = job.passes_a_round
    ends = np.cumsum([len(group.number[0]) for group in data])[:-1]

    def of_seed(key: Array, places: Array) -> list[Any]:
        by_group = jnp.split(pass_keys(key, places, number, passes), ends)
        if job.model.heavy:
            return by_group
        sizes = [shape.size(job.parameters) for shape in shapes]
        drawn = draw_passes([k.reshape(-1, 2) for k in by_group], sizes)
        return [
            jax.tree.map(lambda a, k=k: a.reshape(len(k), passes, *a.shape[1:]), own)
            for k, own in zip(by_group, drawn, strict=True)
        ]

    places = jnp.concatenate([group.number for group in data], axis=1)
    return jax.vmap(of_seed)(keys, places)


def _local(job: Job, shape: PassShape, silos, broadcast, group: _GroupData, knobs: _Knobs, drawn):
    def of_run(silo, told, records, noise, drawn, knob):
        method = job.method.build(rounds=job.rounds, **knob.options)

        def train(asked, params, towards, strength):
            own = jax.tree.map(lambda a: a[asked], drawn)
            if job.model.heavy:
                own = draw_pass(own, shape.size(job.parameters))
            return job.train(shape, records, noise, knob.lr, own, params, towards, strength)

        return method.local(silo, told, Queries(train, job.passes_a_round))

    heavy = job.model.heavy
    by_setting = _over(of_run, (0, 0, None, 0, None, 0), heavy)
    by_silo = _over(by_setting, (0, None, 0, 0, 0, None), heavy)
    by_seed = _over(by_silo, (0, 0, 0, None, 0, None), heavy)
    return by_seed(silos, broadcast, group.train, group.noise, drawn, knobs)


def _personal(job: Job, server, silos, knobs: _Knobs, sizes: tuple[int, int]):
    """The model of each silo: leaves are [seeds, silos, settings, ...]; sizes: of the first two."""
    num_seeds, num_silos = sizes
    broadcast = _broadcast(job, server, knobs, num_seeds)

    def of_run(silo, told, options):
        return job.method.build(rounds=job.rounds, **options).personal(silo, told)

    # A method may keep nothing in a silo, or tell it nothing: the sizes cannot always be inferred.
    by_setting = jax.vmap(of_run, axis_size=len(knobs.lr))
    by_silo = jax.vmap(by_setting, in_axes=(0, None, None), axis_size=num_silos)
    by_seed = jax.vmap(by_silo, in_axes=(0, 0, None), axis_size=num_seeds)
    return by_seed(silos, broadcast, knobs.options)


def _evaluate(job: Job, server, silos, group: _GroupData, knobs: _Knobs) -> Array:
    models = _personal(job, server, silos, knobs, group.number.shape)

    def of_run(params, test: SiloRecords):
        scores = score(job.model.task, job.model.apply(params, test.features), test.y)
        return jnp.sum(jnp.where(jnp.arange(len(test.y)) < test.records, scores, 0)) / test.records

    heavy = job.model.heavy
    by_setting = _over(of_run, (0, None), heavy)
    by_silo = _over(by_setting, (0, 0), heavy)
    by_seed = _over(by_silo, (0, 0), heavy)
    return by_seed(models, group.test)
