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
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from silodp.data.federation import Federation
from silodp.engines.host_draws import HostDraws
from silodp.engines.job import Job, Setting
from silodp.engines.layout import GroupData, Knobs, group_data, group_silos, knobs_of, widest
from silodp.engines.programs import Programs
from silodp.engines.rounds import (
    State,
    advance_rounds,
    broadcast_of,
    first_state,
    of_each_server,
    personal_models_of,
    prepared_groups,
)
from silodp.engines.spreading import (
    placed,
    repeated_to,
    shardings,
    spread_over_devices,
    with_pivots,
)
from silodp.privacy.mechanisms.randomness import run_key
from silodp.privacy.session import PaidRounds

# XLA's older emitters, which compile small models in half the time, into programs that take less.
_SMALL: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}


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
        spread, devices = spread_over_devices(len(seeds), len(settings))
        self._places = np.arange(len(settings))  # of the settings, among those that are run
        if spread == "seeds":
            seeds, federations = (
                repeated_to(seeds, len(devices)),
                repeated_to(federations, len(devices)),
            )
        elif job.pivot:
            settings, self._places = with_pivots(settings, len(devices))
        else:
            settings = repeated_to(settings, len(devices))
        by_device = len(settings) // len(devices) if spread == "settings" else len(settings)
        servers = by_device if job.pivot else 1  # of so many settings, the first has a server
        apart = len({setting.trial for setting in settings}) > 1
        groups = group_silos(widest(settings), job.release)
        members = np.concatenate([group.members for group in groups])
        self._order = np.argsort(members)
        sizes_of_groups = [len(group.members) for group in groups]

        # Which axes of the arrays are spread over the devices.
        seed, setting = ("runs", None) if spread == "seeds" else (None, "runs")
        mesh = Mesh(np.array(devices), ("runs",))
        by_group = GroupData(P(seed), P(seed), P(seed), P(None, setting), P(None, setting))
        self._draws = HostDraws(job, seeds, federations, settings, groups) if job.release else None
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
        raw, *others = placed(fixed, fixed_specs, mesh)
        self._state_specs, self._mesh = state_specs, mesh
        # Not those of a release: tests hold its sums to the last bit as XLA makes them by itself.
        compiling = None if job.release or job.model.heavy else _SMALL
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
            prepare = partial(prepared_groups, job)
            return jax.jit(
                jax.shard_map(
                    prepare, mesh=mesh, in_specs=(specs,), out_specs=specs, check_vma=False
                ),
                compiler_options=compiling,
            )

        def compiled() -> tuple[Any, Any]:
            own = [group.members for group in groups]
            # Made where it will be: spreading each array afterwards is a program for each shape.
            initial = jax.jit(
                partial(first_state, job, own, servers),
                out_shardings=shardings(state_specs, mesh),
                compiler_options=compiling,
            )
            program = jax.shard_map(
                partial(advance_rounds, job, shapes, self._order, servers, apart),
                mesh=mesh,
                in_specs=(state_specs, *fixed_specs, drawn_specs, P(), P(), P()),
                out_specs=(state_specs, P(seed, None, setting)),
                check_vma=False,
            )
            state = self._begun(initial)
            lowered = jax.jit(program, donate_argnums=0).lower(
                state, *self._fixed, self._drawn(0, 1), np.int32(0), np.int32(1), np.bool(True)
            )
            return initial, lowered.compile(compiling)

        num_seeds = len(seeds)

        def models(state: State, options: Sequence[Any], knobs: Knobs) -> list[Any]:
            """The models of each group's silos."""
            broadcast = broadcast_of(job, state.server, knobs, num_seeds, servers)
            return [
                personal_models_of(job, broadcast, silos, own, (num_seeds, size, len(knobs.lr)))
                for silos, own, size in zip(state.silos, options, sizes_of_groups, strict=True)
            ]

        def learned(server: Any, knobs: Knobs) -> dict[str, Any]:
            return of_each_server(job, lambda m: m.learned, server, knobs, num_seeds, servers)

        # Once, and not with each call: of images that takes as long as a round.
        self._fixed = (programs.get(("prepare", *key), preparing)(raw), *others)
        self._initial, self._program = programs.get(key, compiled)
        # Each as a whole: operations one by one would each be compiled.
        jitted = partial(jax.jit, compiler_options=compiling)
        self._models = programs.get(("models", *key), lambda: jitted(models))
        self._learned = programs.get(("learned", *key), lambda: jitted(learned))

    def reseed(self, seeds: Sequence[int]) -> None:
        """Goes on with other seeds (no more than before) on these records."""
        data, knobs, keys, weights = self._fixed
        filled = repeated_to(seeds, len(keys))
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
        return placed(state, self._state_specs, self._mesh)

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
        return placed(drawn, (self._drawn_spec,) * len(drawn), self._mesh)

    def personal_models(self, state: State) -> Any:
        """Each silo's own model: leaves are [seeds, settings, silos, ...]."""
        data, knobs, *_ = self._fixed
        models = self._models(state, [group.options for group in data], knobs)
        joined = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *models)
        return jax.tree.map(self._in_order, joined)

    def learned(self, state: State) -> dict[str, Any]:
        """What each run's method found out: leaves are [seeds, settings, ...]."""
        by_run = self._learned(state.server, self._fixed[1])
        return jax.tree.map(lambda a: np.asarray(a)[: self._num_seeds, self._places], by_run)

    def _in_order(self, by_group: Array) -> np.ndarray:
        """[seeds, silos by group, settings, ...] -> [seeds, settings, silos, ...]."""
        ordered = np.moveaxis(np.asarray(by_group)[:, self._order], 1, 2)
        return ordered[: self._num_seeds, self._places]
