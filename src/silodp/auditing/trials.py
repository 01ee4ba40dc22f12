"""Many runs of one world, by the simulation engine: each trial is a seed of its own."""

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from silodp.auditing.watch import Watched
from silodp.base import signals as interrupts
from silodp.data.federation import Federation
from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_silos
from silodp.engines.simulation import Simulation, State
from silodp.privacy.session import free_rounds

# What trials that are run at once may take: more than fits the processors' caches is slower.
MEMORY = 1.6e7


def run_trials(
    job: Job,
    federation: Federation,
    settings: Sequence[Setting],
    seeds: Sequence[int],
    progress: Callable[[float], None],
) -> np.ndarray:
    """What the adversary sees of each silo: [trials, silos, settings, passes of the run].

    Args:
      job: a job whose method is `watched`.
      federation: the same in all trials.
      settings: in which every trial is run; their plans are the same.
      seeds: the seed of each trial.
      progress: called with the part of all trials that is done.
    """
    at_once = min(len(seeds), _trials_at_once(job, federation, settings))
    groups = group_silos(settings[0].plans, job.release)
    order = np.argsort(np.concatenate([group.members for group in groups]))
    simulation = Simulation(job, seeds[:at_once], [federation] * at_once, settings)
    parts = []
    for first in range(0, len(seeds), at_once):
        chosen = seeds[first : first + at_once]
        simulation.reseed(chosen)
        state, _ = simulation.advance(
            simulation.initial_state(), free_rounds(0, job.rounds), evaluate=False
        )
        parts.append(_seen(state, order)[: len(chosen)])
        progress((first + len(chosen)) / len(seeds))
        if interrupts.requested():
            raise KeyboardInterrupt
    return np.concatenate(parts)


def _seen(state: State, order: np.ndarray) -> np.ndarray:
    """What was seen, in the federation's order: [seeds, silos, settings, rounds * passes]."""
    groups: list[Watched] = list(state.silos)
    by_group = np.concatenate([np.asarray(group.seen) for group in groups], axis=1)
    return by_group.reshape(*by_group.shape[:3], -1)[:, order]


def _trials_at_once(job: Job, federation: Federation, settings: Sequence[Setting]) -> int:
    """How many fit memory: each holds the records twice, its random words and its models."""
    records = sum(silo.train.x.nbytes + silo.test.x.nbytes for silo in federation.silos)
    words = sum(plan.steps * (plan.batch_capacity + job.parameters) for plan in settings[0].plans)
    rows = sum(plan.batch_capacity for plan in settings[0].plans)
    gathered = 0 if job.model.heavy else rows * math.prod(federation.input_shape)
    a_run = gathered + 8 * len(federation.silos) * job.parameters
    a_trial = 2.5 * records + 4.0 * (4 * words + len(settings) * a_run)
    # A power of two: then one program often serves both worlds, which hardly differ in size.
    fitting = 2 ** int(math.log2(max(1.0, MEMORY / a_trial)))
    return max(len(jax.local_devices()), fitting)
