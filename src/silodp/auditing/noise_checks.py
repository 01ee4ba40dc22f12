"""Is the noise the plan's: of its size, in every coordinate, step, round, pass, trial and silo?

Probes (see `probes`) on records without any gradient show noise alone. Each round weighs the steps
of a pass in another way, so that noise which is missing in some steps, or used in several of them,
shows as a variance that is not the sum over the steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import special, stats

from silodp.auditing.checks import (
    Check,
    correlations,
    of_correlation,
    of_count,
    of_variance,
    pair,
    strangest,
)
from silodp.auditing.low_bits import low_bit_checks
from silodp.auditing.probes import full_batch, linear_job, read_sums, regression_silos
from silodp.engines.job import Job
from silodp.engines.layout import silo_noise
from silodp.privacy.plan import SiloPlan

WEIGHTS = (1.0, 0.0, -1.0, 0.5, 2.0)
# Rounding to the lattice is paid for by a little more noise.
MORE_VARIANCE = 1.1
# Passes are probed with no fewer and no more steps.
_FEWEST_STEPS, _MOST_STEPS = 3, 64
_FEWEST_ROUNDS, _MOST_ROUNDS = 20, 200
_FEWEST_TRIALS = 16
_SAMPLES = 4000  # of each coordinate
MOST_PARAMETERS = 1024
_MOST_NUMBERS = 4e7  # random ones of one probe
# Other silos' noise is so many times the plan's: an exchange of silos shows.
_OTHERS = 1.5
# Correlations of more rows than that are looked at for some of them.
_MOST_ROWS = 400
# Of standard deviations: how many numbers lie beyond.
_TAILS = (2.0, 3.0, 4.0)
_MOST_SORTED = 100_000
# For low bits: records, parameters, trials and rounds; the noise multiplier to begin with, and the
# deviation in grains at which all of a sum's bits can be read.
_POWER_OF_TWO, _LOW_BIT_PARAMETERS, _LOW_BIT_RUNS = 16, 32, (16, 100)
_MUCH_NOISE = 64.0
_MOST_CELLS = 2.0**20


def check_noise(
    job: Job, plans: Sequence[SiloPlan], place: int, seeds: Sequence[int]
) -> list[Check]:
    """Checks of the noise of the silo at that place, and of what others have in common with it.

    Args:
      job: what is audited.
      plans: plans of the silos that are private.
      place: the audited silo's place among them.
      seeds: seeds that may be used.
    """
    rounds = int(np.clip(job.rounds, _FEWEST_ROUNDS, _MOST_ROUNDS))
    passes = job.schedule.train
    probed = tuple(
        replace(
            plan,
            steps=int(np.clip(plan.steps, _FEWEST_STEPS, _MOST_STEPS)),
            noise_multiplier=plan.noise_multiplier * (1.0 if number == place else _OTHERS),
        )
        for number, plan in enumerate(plans)
    )
    trials = max(_FEWEST_TRIALS, -(-_SAMPLES // (rounds * passes)))
    drawn = sum(plan.steps for plan in probed) * rounds * passes * trials
    size = int(np.clip(_MOST_NUMBERS / drawn, 8, min(max(job.parameters, 8), MOST_PARAMETERS)))
    federation = regression_silos(
        [
            (plan.silo, np.ones((plan.true_count, size - 1)), np.zeros(plan.true_count))
            for plan in probed
        ]
    )
    weights = [WEIGHTS[number // 2 % len(WEIGHTS)] for number in range(rounds)]
    sums = read_sums(
        linear_job(job, size - 1), [federation], probed, seeds[:trials], rounds, passes, weights
    )
    return noise_checks(sums, probed, place, np.array(weights))


def check_low_bits(job: Job, plan: SiloPlan, seeds: Sequence[int]) -> list[Check]:
    """Checks of the low bits of what a release of that plan adds to sums.

    A batch that is a power of two divides sums exactly. Noise is as many grains wide as can be read
    from an answer, which is in single precision: there a pattern shows best, and it is made in the
    same way whatever its width.
    """
    probe = linear_job(job, _LOW_BIT_PARAMETERS - 1)
    plan = replace(full_batch(plan, _POWER_OF_TWO), noise_multiplier=_MUCH_NOISE)
    while _cells(plan)[1] > _MOST_CELLS:
        plan = replace(plan, noise_multiplier=plan.noise_multiplier / 2)
    grain, width = _cells(plan)
    x, y = np.ones((plan.true_count, _LOW_BIT_PARAMETERS - 1)), np.zeros(plan.true_count)
    federation = regression_silos([(plan.silo, x, y)])
    trials, rounds = _LOW_BIT_RUNS
    sums = read_sums(probe, [federation], [plan], seeds[:trials], rounds, 1, ())
    return low_bit_checks(sums * plan.clip, grain, width * grain)


def _cells(plan: SiloPlan) -> tuple[float, float]:
    """The grain of the plan's releases, and how many of them the noise's deviation is."""
    noise = silo_noise([[plan]])
    grain = float(noise.grain[0, 0])
    return grain, float(noise.scale[0, 0]) / grain


def noise_checks(
    sums: np.ndarray, plans: Sequence[SiloPlan], place: int, weights: np.ndarray
) -> list[Check]:
    """Checks of noise that was read: [trials, silos, rounds, passes, parameters], in clips."""
    unit = [
        sums[:, number] / _deviations(plan, weights)[:, None, None]
        for number, plan in enumerate(plans)
    ]
    others = {
        f"another silo ({plan.silo})": one
        for number, (plan, one) in enumerate(zip(plans, unit, strict=True))
        if number != place
    }
    own = unit[place]
    return [*unit_noise_checks(own, others, _fineness(plans[place])), *_of_kinds(own, weights)]


def unit_noise_checks(
    own: np.ndarray, others: Mapping[str, np.ndarray], fine: float
) -> list[Check]:
    """Checks of noise [trials, rounds, passes, parameters], in deviations of what is planned.

    Args:
      own: the audited silo's.
      others: what it must not have anything in common with, by what that is.
      fine: a grid on which hardly two numbers agree.
    """
    checks = [*_sizes(own), *_shape(own), *_dependence(own, fine)]
    for name, other in others.items():
        checks += _between(own, other, name)
    return checks


def _deviations(plan: SiloPlan, weights: np.ndarray) -> np.ndarray:
    """Standard deviation of the weighted sum of a pass's noise, in clips, for each weight."""
    powers = np.abs(weights[:, None]) ** np.arange(plan.steps)[None, :]
    return plan.noise_multiplier * np.sqrt(np.sum(powers**2, axis=1))


def _sizes(own: np.ndarray) -> list[Check]:
    trials, _, passes, size = own.shape
    squares = own**2
    checks = [_variance("size of the noise", squares, (0, 1, 2, 3), None)]
    checks.append(_variance("noise of each parameter", squares, (0, 1, 2), "parameter"))
    checks.append(_variance("noise of each round", squares, (0, 2, 3), "round"))
    if passes > 1:
        checks.append(_variance("noise of each pass", squares, (0, 1, 3), "pass"))
    checks.append(_variance("noise of each trial", squares, (1, 2, 3), "trial"))
    # A single parameter in a single round: too few numbers to see more than that they are small.
    cells = np.sum(squares, axis=(0, 2))
    worst, p = strangest(special.chdtr(trials * passes, cells))
    checks.append(
        Check(
            "noise of each parameter in each round",
            f"variance {cells.ravel()[worst] / (trials * passes):.3g} of the plan's "
            f"(round {worst // size + 1}, parameter {worst % size + 1})",
            "1",
            p,
        )
    )
    return checks


def _of_kinds(own: np.ndarray, weights: np.ndarray) -> list[Check]:
    """Rounds by how they weigh the steps of a pass."""
    trials, _, passes, size = own.shape
    squares = own**2
    kinds = [weight for weight in WEIGHTS if weight in weights]
    by_kind = np.array([np.sum(squares[:, weights == weight]) for weight in kinds])
    counts = np.array([np.sum(weights == weight) for weight in kinds]) * trials * passes * size
    worst, p = strangest(of_variance(by_kind, counts, more=MORE_VARIANCE))
    return [
        Check(
            "noise in every step of a pass",
            f"variance {by_kind[worst] / counts[worst]:.4g} of the plan's "
            f"(earlier steps weighed by {kinds[worst]:g})",
            "1",
            p,
        )
    ]


def _variance(name: str, squares: np.ndarray, axes: tuple[int, ...], each: str | None) -> Check:
    totals = np.sum(squares, axis=axes).ravel()
    count = squares.size / totals.size
    worst, p = strangest(of_variance(totals, count, more=MORE_VARIANCE))
    where = f" ({each} {worst + 1})" if each else ""
    return Check(name, f"variance {totals[worst] / count:.4g} of the plan's{where}", "1", p)


def _shape(own: np.ndarray) -> list[Check]:
    """Is it a bell curve, as far out as can be seen?"""
    flat = own.ravel()
    scale = np.sqrt(np.mean(flat**2))
    flat = flat / (scale if scale > 0 else 1.0)
    some = flat[:: -(-len(flat) // _MOST_SORTED)]
    fit = stats.kstest(some, "norm")
    checks = [
        Check(
            "noise is normal (Kolmogorov and Smirnov)",
            f"distance {fit.statistic:.2g} of {len(some)} numbers",
            f"about {0.87 / np.sqrt(len(some)):.2g}",
            float(fit.pvalue),
        )
    ]
    beyond = np.array([np.sum(np.abs(flat) > tail) for tail in _TAILS])
    rates = np.array([2 * stats.norm.sf(tail) for tail in _TAILS])
    p_values = [float(of_count(b, len(flat), r)) for b, r in zip(beyond, rates, strict=True)]
    worst, p = strangest(np.array(p_values))
    checks.append(
        Check(
            "tails of the noise",
            f"{beyond[worst]} of {len(flat)} numbers beyond {_TAILS[worst]:g} deviations",
            f"{rates[worst] * len(flat):.4g}",
            p,
        )
    )
    return checks


def _fineness(plan: SiloPlan) -> float:
    """A grid, in deviations of noise, on which hardly two agree, coarser than the lattice."""
    largest = plan.expected_batch * plan.max_count / plan.public_count
    grain = 2.0**-22 * (largest + 10 * np.sqrt(largest) + 10 * plan.noise_multiplier)
    return max(2.0**-17, 16 * grain / plan.noise_multiplier)


def _dependence(own: np.ndarray, fine: float) -> list[Check]:
    trials, rounds, passes, size = own.shape
    by_parameter = own.reshape(-1, size).T
    checks = [
        _pairs("noise of different parameters", by_parameter, "parameters"),
        _pairs("noise of different trials", own.reshape(trials, -1), "trials"),
    ]
    if rounds > 1:
        by_round = np.moveaxis(own, 1, 0).reshape(rounds, -1)
        checks.append(_pairs("noise of different rounds", by_round, "rounds"))
    if passes > 1:
        by_pass = np.moveaxis(own, 2, 0).reshape(passes, -1)
        checks.append(_pairs("noise of different passes", by_pass, "passes"))
    rows = own.reshape(-1, size)
    # Noise with its sign turned is as bad as the noise itself again.
    some = np.abs(rows) if size > 1 else rows[:0]
    repeated = len(some) - len(np.unique(np.round(some / max(1e-4, fine)), axis=0))
    again = [_again(own, lag, fine) for lag in (1, 2)]
    worst, p = strangest(np.array([chance for _, chance in again]))
    return [
        *checks,
        Check(
            "noise is never used again",
            f"{repeated} answers repeat; {again[worst][0]} numbers repeat",
            "0 answers; 0 numbers but by chance",
            0.0 if repeated else p,
        ),
    ]


def _again(own: np.ndarray, lag: int, fine: float) -> tuple[int, float]:
    """How many numbers of a round come again in any place `lag` rounds later, and the chance."""
    trials, rounds, passes, size = own.shape
    found = expected = 0.0
    for trial in range(min(trials, 8)):
        cells = np.round(np.abs(own[trial]) / fine).reshape(rounds, -1)
        for number in range(rounds - lag):
            found += np.sum(np.isin(cells[number + lag], cells[number]))
            # Two sizes of normal numbers agree to within a fineness with a chance of it / sqrt(pi).
            expected += (passes * size) ** 2 * fine / np.sqrt(np.pi)
    return int(found), float(stats.poisson.sf(found - 1, expected))


def _pairs(name: str, rows: np.ndarray, what: str) -> Check:
    """The strongest correlation of any two rows [n, numbers]."""
    chosen = np.unique(np.linspace(0, len(rows) - 1, _MOST_ROWS).astype(int))
    found = correlations(rows[chosen])
    worst, p = strangest(of_correlation(found, rows.shape[1]))
    one, other = pair(worst, len(chosen))
    return Check(
        f"{name} is independent",
        f"correlation {found[worst]:.3g} ({what} {chosen[one] + 1} and {chosen[other] + 1})",
        f"0 within {1 / np.sqrt(rows.shape[1]):.2g}",
        p,
    )


def _between(own: np.ndarray, other: np.ndarray, name: str) -> list[Check]:
    both = np.stack([own.ravel(), other.ravel()])
    correlation = correlations(both)
    p = float(of_correlation(correlation, both.shape[1])[0])
    squares = np.sum(other**2)
    return [
        Check(
            f"noise of {name} is independent",
            f"correlation {correlation[0]:.3g}",
            f"0 within {1 / np.sqrt(both.shape[1]):.2g}",
            p,
        ),
        Check(
            f"size of the noise of {name}",
            f"variance {squares / other.size:.4g} of the plan's",
            "1",
            float(of_variance(squares, other.size, more=MORE_VARIANCE)),
        ),
    ]
