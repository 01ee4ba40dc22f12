"""Reads off what a silo releases in a training pass: the noisy sums, through the real engine.

A pass of SGD from the model 0 that is pulled to 0 with strength s, at learning rate lr, ends at

    -lr / batch * sum over steps t of weight^(steps - 1 - t) * S_t,    weight = 1 - lr s,

where S_t is the noisy sum of step t, if gradients do not depend on the model. So one answer tells
the plain sum of all S_t (weight 1), the last of them alone (weight 0), the last few one by one
(weight 1/4: digits to the base 4), mostly the first (weight 2), or their alternating sum
(weight -1). The probes' records have such gradients: squared loss, at a learning rate so small that
the model stays 0 in all but what is read.

Sampler, clip, noise, lattice, keys and layout are those of any run: they come with the simulation.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.base import signals as interrupts
from silodp.data.federation import Federation, Records, Silo
from silodp.data.tasks.regression import TASK as REGRESSION
from silodp.engines.job import Job, Setting
from silodp.engines.layout import group_silos
from silodp.engines.programs import Programs
from silodp.engines.simulation import Simulation
from silodp.methods import MethodEntry
from silodp.methods.base import Method, Start
from silodp.models.metrics import metric_for
from silodp.models.model import get_model
from silodp.privacy.mechanisms.queries import Queries, Schedule
from silodp.privacy.plan import SiloPlan
from silodp.privacy.session import free_rounds

# So small that no gradient moves with the model, so large that single precision holds all of it.
TINY_LR = 2.0**-90
# So large that a single step drowns whatever model it started from.
HUGE_LR = 2.0**20
# Numbers that the records of trials which are run at once may hold.
_NUMBERS = 2.5e7


class _Probed(NamedTuple):
    """The state of a probed silo: how many rounds it has answered, and what."""

    round: Array
    answers: Array  # [rounds, passes, parameters]


def probing(passes: int, weights: Sequence[float], lr: float) -> MethodEntry:
    """A method that starts every pass at the same model and keeps all answers.

    Args:
      passes: number of passes in a round.
      weights: weight of earlier steps, in each round; empty: passes start from the run's first
        model, and nothing pulls.
      lr: learning rate of the runs.
    """

    def build(rounds: int) -> Method:
        def init(start: Start):
            size = sum(leaf.size for leaf in jax.tree.leaves(start.params))
            first = start.params
            if weights:
                first = jax.tree.map(jnp.zeros_like, first)
            return (), (first, _Probed(jnp.int32(0), jnp.zeros((rounds, passes, size))))

        def local(silo, _, queries: Queries):
            first, (number, answers) = silo
            pull: tuple[Any, ...] = ()
            if weights:
                strengths = jnp.asarray([(1.0 - weight) / lr for weight in weights], jnp.float32)
                pull = (first, strengths[number])
            moves = []
            for _ in range(passes):
                answer = queries.train(first, *pull)
                moved = jax.tree.map(lambda a, b: (a - b).ravel(), first, answer)
                moves.append(jnp.concatenate(jax.tree.leaves(moved)))
            all_answers = answers.at[number].set(jnp.stack(moves))
            return (first, _Probed(number + 1, all_answers)), ()

        return Method(
            schedule=lambda rounds: Schedule(rounds, train=passes),
            init=init,
            broadcast=lambda server: server,
            local=local,
            merge=lambda server, messages, weights: server,
            personal=lambda silo, _: silo[0],
        )

    return MethodEntry("reads off noisy sums", "the passes that it is built with", build)


def read_sums(
    job: Job,
    federations: Sequence[Federation],
    plans: Sequence[SiloPlan],
    seeds: Sequence[int],
    rounds: int,
    passes: int,
    weights: Sequence[float],
) -> np.ndarray:
    """Weighted noisy sums, in clips: [trials, silos, rounds, passes, parameters].

    Args:
      job: what is audited.
      federations: one for each trial, or one for all.
      plans: the plan of each silo.
      seeds: the seed of each trial.
      rounds: number of rounds of a trial.
      passes: number of passes of a round.
      weights: as for `probing`. Without them every plan must have passes of one step.
    """
    lr = TINY_LR if weights else HUGE_LR
    probe = replace(
        job,
        method=probing(passes, weights, lr),
        fixed={},
        rounds=rounds,
        weights=np.full(len(plans), 1 / len(plans)),
        regulariser="outside",
        optimiser="sgd",
    )
    setting = Setting(lr, plans_of(probe, plans), {})
    groups = group_silos(setting.plans, probe.release)
    order = np.argsort(np.concatenate([group.members for group in groups]))
    scale = np.array([plan.expected_batch / lr / plan.clip for plan in plans])[:, None, None, None]
    at_once = _at_once(federations[0], plans, rounds * passes * probe.parameters, len(seeds))
    parts, simulation, programs = [], None, Programs()
    for first in range(0, len(seeds), at_once):
        chosen = seeds[first : first + at_once]
        if simulation is None or len(federations) > 1:
            own = [federations[(first + i) % len(federations)] for i in range(len(chosen))]
            simulation = Simulation(probe, chosen, own, [setting], programs)
        simulation.reseed(chosen)
        state, _ = simulation.advance(
            simulation.initial_state(), free_rounds(0, rounds), evaluate=False
        )
        answers = [np.asarray(group[1].answers)[:, :, 0] for group in state.silos]
        parts.append(np.concatenate(answers, axis=1)[: len(chosen), order].astype(float) * scale)
        if interrupts.requested():
            raise KeyboardInterrupt
    return np.concatenate(parts)


def _at_once(federation: Federation, plans: Sequence[SiloPlan], kept: int, trials: int) -> int:
    """How many trials fit the memory that is allowed; each part is as long as the others."""
    records = sum(silo.train.x.size for silo in federation.silos)
    drawn = sum(
        plan.steps * (plan.batch_capacity + federation.silos[0].train.x[0].size) for plan in plans
    )
    fitting = max(2, int(_NUMBERS / (2 * records + 3 * drawn + 2 * kept * len(plans))))
    parts = -(-trials // min(trials, fitting))
    return -(-trials // parts)


def plans_of(probe: Job, plans: Sequence[SiloPlan]) -> tuple[SiloPlan, ...]:
    """The plans with what the probe asks: the host draws for a release what a plan asks for."""
    return tuple(replace(plan, schedule=probe.schedule) for plan in plans)


def linear_job(job: Job, features: int) -> Job:
    """The job with linear regression in place of its model, on the engine's way for that model."""
    model = get_model(REGRESSION.model, REGRESSION.name, (features,))
    model = model._replace(heavy=job.model.heavy)
    return replace(job, model=model, metric=metric_for(model.task), subjects=False)


def regression_silos(silos: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> Federation:
    """Silos of these names, features and labels; nothing is tested."""
    return Federation(
        "probe",
        tuple(Silo(name, Records(x, y), Records(x[:1], y[:1])) for name, x, y in silos),
        REGRESSION.name,
    )


def full_batch(plan: SiloPlan, records: int) -> SiloPlan:
    """The plan for so many records that are all taken in the single step of a pass."""
    return replace(
        plan,
        public_count=records,
        true_count=records,
        max_count=records,
        expected_batch=records,
        epochs=1,
        steps=1,
        draw="every",
        batch_capacity=records,
    )
