"""Does one record move a sum by no more than the clip, with the model and the records at hand?

Every silo of the probe (see `probes`) is a world of its own: a few of the audited silo's records,
alone or with made-up ones that try to add as much as they can. All records are taken in one step
without noise, so that the difference of two worlds' sums is what the made-up record adds: of a
release in whole grains, exactly.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from silodp.auditing.canary import joined
from silodp.auditing.checks import Check, exactly
from silodp.auditing.noise_checks import noise_checks
from silodp.auditing.probes import full_batch, read_sums
from silodp.data.federation import Federation, Records, Silo
from silodp.data.tasks import get_task
from silodp.engines.job import Job
from silodp.engines.layout import silo_lattice
from silodp.models.whole_sums import CLIP_SLACK
from silodp.privacy.plan import SiloPlan

# Units of the silo's own that every world has.
_FEW_LIGHT, _FEW_HEAVY = 16, 4
_AXES = 6
_LENGTHS = (1.0, 1e3, 1e6)
_STARTS = 2  # first models that are tried
_PAIRS = 6  # of made-up units that are added both
# In place of a plan's noise: far below a grain.
_NONE = 2.0**-60
# So many records that a grain is some 2^-13 clips: whole grains can be read one by one.
_MOST = 2**16
_READ = 0.2  # grains by which a reading may be off
# Of a clip: what rounding in single precision may add, in an experiment.
_SLACK = 0.01
# In which the noise on the model's own parameters is read.
_ROUNDS, _FEWEST_TRIALS, _MOST_TRIALS = 16, 4, 64
_NUMBERS = 1e6


def check_sensitivity(
    job: Job, federation: Federation, place: int, plan: SiloPlan, seeds: Sequence[int]
) -> list[Check]:
    """What made-up records add to a sum of the silo at that place."""
    base = some_units(federation.silos[place].train, _FEW_HEAVY if job.model.heavy else _FEW_LIGHT)
    canaries = made_up_units(federation, base)
    pairs = [(first, len(canaries) - 1 - first) for first in range(_PAIRS)]
    worlds = [base, *(joined(base, unit) for unit in canaries)]
    worlds += [joined(joined(base, canaries[a]), canaries[b]) for a, b in pairs]
    silent = replace(plan, noise_multiplier=_NONE)
    plans = [
        # What is public is the same in all worlds, and so much that grains are coarse.
        replace(
            full_batch(silent, base.units),
            true_count=world.units,
            batch_capacity=world.units,
            max_count=_MOST,
        )
        for world in worlds
    ]
    shown = _federation(federation, worlds)
    sums = read_sums(job, [shown], plans, seeds[:_STARTS], 1, job.schedule.train, ())
    sums = np.moveaxis(sums, 1, 0).reshape(len(worlds), -1, sums.shape[-1])
    checks, unit, slack, off = [], 1.0, _SLACK, _SLACK
    if job.release:
        unit, slack, off = silo_lattice(plans[0]).grain / plans[0].clip, CLIP_SLACK, 0.0
        sums = sums / unit
        checks = [_whole(np.abs(sums - np.round(sums)))]
        sums = np.round(sums)
    added = sums[1 : 1 + len(canaries)] - sums[0]
    most = unit * np.max(np.linalg.norm(added, axis=-1))
    both = sums[1 + len(canaries) :] - sums[0]
    apart = np.stack([added[a] + added[b] for a, b in pairs])
    together = unit * np.max(np.linalg.norm(both - apart, axis=-1))
    return [
        *checks,
        exactly(
            "one record adds at most one clip",
            bool(most <= 1 + slack),
            f"{most:.7g} clips (the most of {len(canaries)} made-up {plan.unit}s)",
            "at most 1",
        ),
        exactly(
            "what a record adds does not hang on others",
            bool(together <= off),
            f"two add {together:.2g} clips more or less than both",
            "0",
        ),
    ]


def _whole(off: np.ndarray) -> Check:
    furthest = float(np.nan_to_num(np.max(off), nan=1.0))
    return exactly(
        "what records add is whole grains",
        furthest <= _READ,
        f"up to {furthest:.2g} grains off",
        f"0 but for reading, at most {_READ:g}",
    )


def check_own_noise(
    job: Job,
    federation: Federation,
    plans: Sequence[SiloPlan],
    place: int,
    seeds: Sequence[int],
) -> list[Check]:
    """The noise on all parameters of the model at hand, one step a pass."""
    few = _FEW_HEAVY if job.model.heavy else _FEW_LIGHT
    bases = [some_units(silo.train, few) for silo in federation.silos]
    probed = [full_batch(plan, base.units) for plan, base in zip(plans, bases, strict=True)]
    shown = _federation(federation, bases)
    passes = job.schedule.train
    read = _ROUNDS * passes * job.parameters * len(plans)
    trials = int(np.clip(_NUMBERS / read, _FEWEST_TRIALS, _MOST_TRIALS))
    sums = read_sums(job, [shown], probed, seeds[:trials], _ROUNDS, passes, ())
    # Every round starts from the same model: what two of them differ in is noise.
    noise = (sums[:, :, ::2] - sums[:, :, 1::2]) / np.sqrt(2)
    found = noise_checks(noise, probed, place, np.ones(noise.shape[2]))
    return [replace(check, name=f"own model: {check.name}") for check in found]


def some_units(records: Records, few: int) -> Records:
    """The first few units, of two classes where there are classes."""
    unit_of = np.arange(len(records)) if records.subject is None else records.subject
    kept = np.arange(min(few - 1, records.units))
    other = records.y != records.y[np.isin(unit_of, kept)][0]
    unlike = np.flatnonzero(other.reshape(len(other), -1).any(axis=1))
    if len(unlike):
        kept = np.union1d(kept, unit_of[unlike[-1]])
    return records.take(np.flatnonzero(np.isin(unit_of, kept)))


def _federation(federation: Federation, worlds: Sequence[Records]) -> Federation:
    tests = [federation.silos[0].test] * len(worlds)
    silos = tuple(
        Silo(f"world {number}", world, test)
        for number, (world, test) in enumerate(zip(worlds, tests, strict=True))
    )
    return replace(federation, silos=silos)


def made_up_units(federation: Federation, base: Records) -> list[Records]:
    """Units that try to add much: long ones along axes and across, with unlikely labels."""
    shape = federation.input_shape
    random = np.random.default_rng(0)
    across = random.choice([-1.0, 1.0], shape) / np.sqrt(np.prod(shape))
    directions = [across, -across]
    for axis in np.unique(np.linspace(0, np.prod(shape) - 1, _AXES).astype(int)):
        directions.append(np.eye(1, int(np.prod(shape)), axis).reshape(shape))
    xs = [length * direction for direction in directions for length in _LENGTHS]
    xs += [length * base.x[0] for length in _LENGTHS]
    if federation.feature_bound is not None:
        xs = [np.clip(x, -federation.feature_bound, federation.feature_bound) for x in xs]
    labels = get_task(federation.task).extreme_labels(federation.num_classes)
    most = 1 if base.subject is None else int(np.bincount(base.subject).max())
    return [
        Records(
            np.repeat(x[None], most, 0).astype(np.float32),
            np.broadcast_to(np.asarray(label, base.y.dtype), (most, *base.y.shape[1:])).copy(),
            None if base.subject is None else np.zeros(most, np.int32),
        )
        for x in xs
        for label in labels
    ]
