"""Are batches drawn as planned: each record by itself, at the plan's rate, anew in every step?

Probes (see `probes`) with little noise, on records whose gradients are far above the clip and lie
along an axis of their own each. What a parameter shows is then how often its record was drawn, in
clips, divided by what is public: in the rounds of weight 1, over all steps of a pass; in the
others, in each of the last few steps. What is left beside whole numbers is the noise, which must
not tell who was drawn. A silo of more records than that shows them in groups, and the last step
alone.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy import special

from silodp.auditing.checks import (
    Check,
    correlations,
    exactly,
    of_correlation,
    of_count,
    of_variance,
    pair,
    strangest,
)
from silodp.auditing.probes import linear_job, read_sums, regression_silos
from silodp.engines.job import Job
from silodp.privacy.plan import SiloPlan

# How long records are, and how large their labels: gradients are then LONG^2 long.
_LONG = 1000.0
_BASE = 4  # of the digits that show steps one by one
_MOST_DIGITS = 4
_FEWEST_STEPS, _MOST_STEPS = 3, 32
_MOST_PARAMETERS, _MOST_FEATURES = 400, 4e5
_ROUNDS = 40
_FEWEST_TRIALS, _MOST_TRIALS = 12, 64
_WORK = 4e8  # multiplications of one probe
# Of a reading: how far from a whole number it may be, and what rounding may add to it.
_CLOSE, _ROUNDED = 0.05, 0.01
# In place of a plan's noise: too little to hide a record, enough to be read beside it.
_LITTLE = 2.0**-17


def check_draws(
    job: Job, plans: Sequence[SiloPlan], place: int, seeds: Sequence[int]
) -> list[Check]:
    """Checks of the batches of the silo at that place; arguments as for `check_noise`."""
    probed = tuple(_probed(plan) for plan in plans)
    largest = max(plan.true_count for plan in probed)
    groups = int(np.clip(_MOST_FEATURES // largest, 16, _MOST_PARAMETERS))
    group_of = [_groups(plan.true_count, groups) for plan in probed]
    size = max(int(own.max()) for own in group_of) + 1
    silos = []
    for plan, own in zip(probed, group_of, strict=True):
        # Labels of both signs, in no order that the sampler could know.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], plan.true_count)
        x = np.zeros((plan.true_count, size), np.float32)
        x[np.arange(plan.true_count), own] = _LONG * signs
        silos.append((plan.silo, x, -_LONG * signs))
    own, groups_of_own = probed[place], group_of[place]
    alone = int(groups_of_own.max()) + 1 == own.true_count
    digits = _digits(own) if alone else 1
    single = 1 / _BASE if digits > 1 else 0.0
    weights = [1.0 if number % 2 else single for number in range(_ROUNDS)]
    work = sum(plan.steps * plan.batch_capacity for plan in probed) * size * _ROUNDS
    trials = int(np.clip(_WORK / work, _FEWEST_TRIALS, _MOST_TRIALS))
    federation = regression_silos(silos)
    sums = read_sums(
        linear_job(job, size), [federation], probed, seeds[:trials], _ROUNDS, 1, weights
    )[:, :, :, 0, :size]
    counts = [np.bincount(group, minlength=size) for group in group_of]
    steps = [sums[:, number, ::2, :] for number in range(len(probed))]
    checks, drawn = _decoded(steps[place], own, digits, alone)
    records_on = counts[place]
    checks += _totals(sums[:, place, 1::2], own, records_on)
    if own.expected_batch < own.public_count:
        checks += _rates(drawn, own, records_on)
        checks += _independence(drawn, own, records_on)
        checks.append(_noise_of_batches(sums[:, place, 1::2][..., records_on == 1]))
        for number, plan in enumerate(probed):
            if number != place and plan.expected_batch < plan.public_count:
                checks.append(_silos(drawn, steps[number], own, plan, records_on, counts[number]))
    return checks


def _probed(plan: SiloPlan) -> SiloPlan:
    """The plan with hardly any noise, and with a few steps in which records are really drawn."""
    plan = replace(plan, noise_multiplier=_LITTLE)
    if plan.expected_batch == plan.public_count and plan.public_count > 1:
        half = plan.public_count // 2
        plan = replace(
            plan, expected_batch=half, steps=2, draw="every", batch_capacity=plan.true_count
        )
    return replace(plan, steps=int(np.clip(plan.steps, _FEWEST_STEPS, _MOST_STEPS)))


def _groups(records: int, groups: int) -> np.ndarray:
    """The parameter on which each record shows: one each, or else the first and last ones alone."""
    if records <= groups:
        return np.arange(records)
    alone = groups // 4
    among = np.random.default_rng(1).integers(2 * alone, groups, records)
    among[:alone], among[-alone:] = np.arange(alone), np.arange(alone, 2 * alone)
    return np.unique(among, return_inverse=True)[1]


def _digits(plan: SiloPlan) -> int:
    """How many steps a reading tells apart: each step is rounded to the lattice."""
    largest = plan.expected_batch * plan.max_count / plan.public_count
    rounding = 2.0**-22 * (largest + 10 * math.sqrt(largest)) + 10 * _LITTLE
    fitting = int(math.log(_ROUNDED / rounding, _BASE)) + 1
    return int(np.clip(fitting, 1, min(_MOST_DIGITS, plan.steps)))


def _decoded(
    readings: np.ndarray, plan: SiloPlan, digits: int, alone: bool
) -> tuple[list[Check], np.ndarray]:
    """What was drawn [trials, rounds, steps, parameters] in the last steps, the last one first."""
    # Of earlier steps less than a third of a unit is left, if each record counts at most once.
    value = np.nan_to_num(readings, nan=-1.0, posinf=-1.0, neginf=-1.0) * _BASE ** (digits - 1)
    whole = np.floor(value + 1 / 3)
    rest = value - whole
    hidden = 1 < digits < plan.steps
    strange = np.abs(rest - 1 / 6) - 1 / 6 if hidden else np.abs(rest)
    parts = [whole // _BASE ** (digits - 1 - digit) for digit in range(digits)]
    later = [b - _BASE * a for a, b in pairwise(parts)]
    drawn = np.stack([parts[0], *later], axis=2)
    once = not alone or bool(np.all((drawn == 0) | (drawn == 1)))
    close = bool(np.max(strange) <= _CLOSE)
    furthest = float(np.max(np.abs(readings))) if alone else float(np.max(np.abs(rest)))
    check = exactly(
        "a drawn record adds one clip, once",
        once and close and bool(np.min(whole) >= 0),
        f"up to {furthest:.4g} clips" if alone else f"{furthest:.2g} off a whole number of clips",
        f"0 or 1 in each of {digits} steps" if alone else "whole numbers",
    )
    return [check], drawn


def _totals(readings: np.ndarray, plan: SiloPlan, records_on: np.ndarray) -> list[Check]:
    """Over all steps of a pass [trials, rounds, parameters]."""
    readings = np.nan_to_num(readings, nan=-1.0, posinf=-1.0, neginf=-1.0)
    whole = np.round(readings)
    off = np.max(np.abs(readings - whole))
    checks = [
        exactly(
            "a pass adds whole records",
            bool(off <= _CLOSE * math.sqrt(plan.steps)),
            f"{off:.2g} off a whole number of clips",
            "whole numbers",
        )
    ]
    rate = min(1.0, plan.expected_batch / plan.public_count)
    if rate == 1.0:
        expected = np.broadcast_to(plan.steps * records_on, whole.shape)
        right = bool(np.all(whole == expected))
        seen = "all" if right else "not all"
        return [*checks, exactly("every step takes all records", right, seen, "all")]
    tries = plan.steps * records_on
    variance = tries * rate * (1 - rate)
    seen = records_on > 0
    squares = float(np.sum((whole - tries * rate)[..., seen] ** 2 / variance[seen]))
    count = whole[..., seen].size
    excess = float(np.mean((1 - 6 * rate * (1 - rate)) / variance[seen]))
    checks.append(
        Check(
            "batches of the steps of a pass differ",
            f"variance {squares / count:.4g} of {plan.steps} independent draws",
            "1",
            float(of_variance(squares, count, excess)),
        )
    )
    return checks


def _rates(drawn: np.ndarray, plan: SiloPlan, records_on: np.ndarray) -> list[Check]:
    trials, rounds, steps, _ = drawn.shape
    rate = plan.expected_batch / plan.public_count
    seen = np.flatnonzero(records_on)
    hits = drawn.sum(axis=(0, 1, 2))[seen]
    tries = trials * rounds * steps * records_on[seen]
    worst, p = strangest(of_count(hits, tries, rate))
    every = float(of_count(hits.sum(), tries.sum(), rate))
    sizes = drawn.sum(axis=3).ravel()
    variance = plan.true_count * rate * (1 - rate)
    spread = np.sum((sizes - plan.true_count * rate) ** 2) / variance
    excess = (1 - 6 * rate * (1 - rate)) / variance
    return [
        Check(
            "each record is drawn at the plan's rate",
            f"rate {hits[worst] / tries[worst]:.4g} (record {worst + 1})",
            f"{rate:.4g}",
            p,
        ),
        Check(
            "all records together are",
            f"{sizes.mean():.5g} in a batch",
            f"{plan.true_count * rate:.5g}",
            every,
        ),
        Check(
            "batch sizes vary as drawn one by one",
            f"variance {sizes.var():.4g}",
            f"{variance:.4g}",
            float(of_variance(spread, len(sizes), excess)),
        ),
    ]


def _independence(drawn: np.ndarray, plan: SiloPlan, records_on: np.ndarray) -> list[Check]:
    """Checks that records, steps, rounds and trials are drawn independently."""
    trials, rounds, steps, _ = drawn.shape
    rate = plan.expected_batch / plan.public_count
    seen = records_on > 0
    unit = (drawn - records_on * rate)[..., seen] / np.sqrt(records_on[seen] * rate * (1 - rate))
    checks = [_sums_of_records(unit, rate, records_on[seen])]
    single = bool(np.all(records_on[seen] == 1))
    # Among groups, single records are drawn too rarely for what is nearly normal.
    unit = unit if single else unit[..., records_on[seen] > 1]
    kinds = [
        ("rounds", np.moveaxis(unit, 1, 0).reshape(rounds, -1)),
        ("trials", unit.reshape(trials, -1)),
    ]
    if steps > 1:
        kinds.insert(0, ("steps", np.moveaxis(unit, 2, 0).reshape(steps, -1)))
    for what, rows in kinds:
        checks.append(_overlap(what, rows, rate if single else None))
    return checks


def _sums_of_records(unit: np.ndarray, rate: float, records_on: np.ndarray) -> Check:
    """Sums over records with signs: records that come together, or in turn, make them vary more."""
    size = unit.shape[-1]
    place = np.arange(size)
    random = np.random.default_rng(2)
    signs = np.stack(
        [
            np.where(place < size / 2, 1.0, -1.0),
            np.where(place % 2, 1.0, -1.0),
            np.where(place // 2 % 2, 1.0, -1.0),
            np.where(place < max(1, size // 10), 1.0, 0.0),
            # The signs of the labels that the probe gave the records.
            np.random.default_rng(0).choice([-1.0, 1.0], size),
            *random.choice([-1.0, 1.0], (8, size)),
        ]
    )
    sums = unit.reshape(-1, size) @ signs.T / np.sqrt(np.sum(signs**2, axis=1))
    kurtosis = (1 - 6 * rate * (1 - rate)) / (rate * (1 - rate))
    excess = kurtosis * np.sum(signs**4 / records_on, axis=1) / np.sum(signs**2, axis=1) ** 2
    p_values = [
        float(of_variance(np.sum(column**2), len(column), extra))
        for column, extra in zip(sums.T, excess, strict=True)
    ]
    worst, p = strangest(np.array(p_values))
    return Check(
        "records are drawn independently of each other",
        f"variance {np.mean(sums[:, worst] ** 2):.4g} (of {len(signs)} sums over records)",
        "1",
        p,
    )


def _noise_of_batches(readings: np.ndarray) -> Check:
    """Is the noise of a pass [trials, rounds, parameters] independent of which records are drawn?

    Whoever can tell from the noise who was drawn has no amplification by sampling. What is left
    beside whole records is noise: for given batches it is normal, and so are the scores of its
    sizes, so that the chances of correlations are exact however rarely a record is drawn.
    """
    readings = (
        np.nan_to_num(readings, nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, readings.shape[-1]).T
    )
    counts = np.round(readings)
    noise = readings - counts
    noise = noise / max(float(np.sqrt(np.mean(noise**2))), 1e-300)
    # P(|Z| <= |z|) as a normal score; the least and largest numbers are no nearer to 0 and 1.
    scores = special.ndtri(np.clip(special.erf(np.abs(noise) / np.sqrt(2)), 1e-16, 1 - 1e-16))
    signed, sizes = (_across(kind, counts) for kind in (noise, scores))
    # A record's own parameter shows, besides noise, by how little its clipping misses the clip.
    np.fill_diagonal(signed, 0.0)
    strengths = np.stack([signed, sizes])
    worst, p = strangest(of_correlation(strengths, readings.shape[1]))
    parameter, record = divmod(worst % signed.size, len(counts))
    return Check(
        "noise is independent of batches",
        f"correlation {strengths.ravel()[worst]:.3g} "
        f"(parameter {parameter + 1}, record {record + 1})",
        f"0 within {1 / np.sqrt(readings.shape[1]):.2g}",
        p,
    )


def _across(noise: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Correlations of each row of the noise, whose mean is 0, with each row of counts."""
    about = counts - counts.mean(axis=1, keepdims=True)
    lengths = [np.sqrt(np.sum(rows**2, axis=1)) for rows in (noise, about)]
    products = noise @ about.T
    both = np.multiply.outer(*lengths)
    return np.where(both > 0, products / np.where(both > 0, both, 1.0), 0.0)


def _overlap(what: str, rows: np.ndarray, rate: float | None) -> Check:
    """Do batches of different steps, rounds or trials have more in common than by chance?"""
    if rate is None:
        found = correlations(rows)
        worst, p = strangest(of_correlation(found, rows.shape[1]))
        measured, expected = f"correlation {found[worst]:.3g}", "0"
    else:
        # How often a record is in both is a count, whose chances are exact.
        bits = (rows * math.sqrt(rate * (1 - rate)) + rate > 0.5).astype(float)
        both = np.round((bits @ bits.T)[np.triu_indices(len(bits), 1)])
        worst, p = strangest(of_count(both, rows.shape[1], rate**2))
        measured = f"{both[worst] / rows.shape[1]:.4g} of records in both"
        expected = f"{rate**2:.4g}"
    one, other = pair(worst, len(rows))
    return Check(
        f"batches of different {what} are independent",
        f"{measured} ({what} {one + 1} and {other + 1})",
        expected,
        p,
    )


def _silos(
    drawn: np.ndarray,
    other: np.ndarray,
    plan: SiloPlan,
    others: SiloPlan,
    records_on: np.ndarray,
    of_other: np.ndarray,
) -> Check:
    """The last steps' batches of two silos, record by record."""
    both = (records_on == 1) & (of_other == 1)
    a, b = plan.expected_batch / plan.public_count, others.expected_batch / others.public_count
    mine = drawn[:, :, 0, :][..., both] > 0.5
    theirs = np.nan_to_num(other[..., both]) > 0.5
    common = int(np.sum(mine & theirs))
    p = float(of_count(common, mine.size, a * b)) if mine.size else 1.0
    return Check(
        f"batches of another silo ({others.silo}) are independent",
        f"{common / max(1, mine.size):.4g} of records in both",
        f"{a * b:.4g}",
        p,
    )
