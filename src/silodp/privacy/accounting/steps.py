"""An event as a flat list of steps: what the accountants and the search for noise work on.

Composition is commutative, so events that ask the same in another order have the same steps.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    ZCDpEvent,
)

from silodp.base.errors import SilodpError
from silodp.config.choices import Relation
from silodp.privacy.accounting.events import (
    BoundedRangeDpEvent,
    EitherDpEvent,
    PureDpEvent,
    no_price,
    parameters_of,
)

# With less noise one step's loss nears the largest exponent of a float, and no bound is computed.
# Nobody sets such a budget. Steps on every record go further, because they have a closed form.
LEAST_NOISE = 0.05
_LEAST_MERGED = 1e-3
_MOST_EPSILON = 500.0

# More noise is charged as this, so that its square stays a float.
_MOST_NOISE = 1e12


@dataclass(frozen=True)
class Steps:
    """Gaussian mechanisms, each on a Poisson sample (on every record if `sampling` is 1).

    Noise is in units of one record's largest norm, whatever the neighbouring relation.
    """

    sampling: float
    noise: float
    repeats: int


@dataclass(frozen=True)
class TruncatedSteps:
    """Gaussian mechanisms on Poisson samples cut to at most `most` of the `records`."""

    records: int
    sampling: float
    most: int
    noise: float
    repeats: int


@dataclass(frozen=True)
class Selections:
    """Mechanisms of bounded range."""

    epsilon: float
    repeats: int


@dataclass(frozen=True)
class PureSteps:
    """Mechanisms of pure differential privacy."""

    epsilon: float
    repeats: int


@dataclass(frozen=True)
class ConcentratedSteps:
    """Mechanisms whose Rényi divergence is at most xi + rho * order."""

    rho: float
    xi: float
    repeats: int


@dataclass(frozen=True)
class TunedSteps:
    """The best of a random number of runs, each of them all of `steps`."""

    steps: "tuple[Step, ...]"
    mean: float
    shape: float
    repeats: int


@dataclass(frozen=True)
class EitherSteps:
    """All steps of one of `parts`: which one hangs on the record."""

    parts: "tuple[tuple[Step, ...], ...]"
    repeats: int


Step = (
    Steps | TruncatedSteps | Selections | PureSteps | ConcentratedSteps | TunedSteps | EitherSteps
)


def steps_of(event: DpEvent) -> tuple[Step, ...]:
    """The event as a sorted list of steps: equal for events that ask the same in another order.

    Steps that cost nothing are left out; an event without privacy is a step without noise.
    """
    counts: Counter[Step] = Counter()

    def walk(part: DpEvent, times: int) -> None:
        values = parameters_of(part)
        if times == 0:
            return
        match part:
            case NoOpDpEvent():
                pass
            case ComposedDpEvent():
                for inner in part.events:
                    walk(inner, times)
            case SelfComposedDpEvent():
                # Counts are multiplied here and nowhere else: dp_accounting loses some of them.
                walk(part.event, times * values["count"])
            case _:
                counts[_step_of(part, values)] += times

    walk(event, 1)
    steps = [replace(step, repeats=times) for step, times in counts.items() if not _is_free(step)]
    return tuple(sorted(steps, key=sort_key))


def _step_of(event: DpEvent, values: dict) -> Step:
    """One mechanism, once."""
    match event:
        case NonPrivateDpEvent():
            return Steps(1.0, 0.0, 1)
        case GaussianDpEvent():
            return Steps(1.0, _charged_noise(values), 1)
        case PoissonSampledDpEvent() if type(event.event) is GaussianDpEvent:
            noise = _charged_noise(parameters_of(event.event))
            return Steps(values["sampling_probability"], noise, 1)
        case TruncatedSubsampledGaussianDpEvent():
            return TruncatedSteps(
                values["dataset_size"],
                values["sampling_probability"],
                values["truncated_batch_size"],
                _charged_noise(values),
                1,
            )
        case BoundedRangeDpEvent():
            return Selections(values["epsilon"], 1)
        case PureDpEvent():
            return PureSteps(values["epsilon"], 1)
        case ZCDpEvent():
            return ConcentratedSteps(values["rho"], values["xi"], 1)
        case RepeatAndSelectDpEvent():
            return TunedSteps(steps_of(event.event), values["mean"], values["shape"], 1)
        case EitherDpEvent():
            return EitherSteps(tuple(steps_of(part) for part in event.events), 1)
    raise no_price(event)


def _charged_noise(values: dict) -> float:
    noise = values["noise_multiplier"]
    return noise if noise == math.inf else min(noise, _MOST_NOISE)


def _is_free(step: Step) -> bool:
    match step:
        case Steps():
            return step.sampling == 0 or step.noise == math.inf
        case TruncatedSteps():
            return step.sampling == 0 or step.noise == math.inf or step.most == 0
        case Selections() | PureSteps():
            return step.epsilon == 0
        case ConcentratedSteps():
            return step.rho == 0 and step.xi == 0
        case TunedSteps():
            return not step.steps
        case EitherSteps():
            return not any(step.parts)


def sort_key(step: Step) -> tuple:
    """Like steps stand next to each other, and the order is total."""

    def numbers(values: Sequence) -> list[float]:
        return [n for v in values for n in (numbers(v) if isinstance(v, tuple) else [v])]

    return type(step).__name__, numbers(astuple(step)), repr(step)


def merge_unsampled(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Gaussian mechanisms on every record are, exactly, one Gaussian mechanism of less noise."""
    unsampled = [step for step in steps if isinstance(step, Steps) and step.sampling == 1]
    others = tuple(step for step in steps if step not in unsampled)
    precision = math.fsum(step.repeats * spread_of(step) * spread_of(step) for step in unsampled)
    if precision == 0:
        return others
    return (*others, Steps(1.0, 1 / math.sqrt(precision), 1))


def relative_noise(step: Steps | TruncatedSteps, relation: Relation) -> float:
    """The noise in units of the most by which neighbours can differ.

    One record replaced by another moves a sum by twice a record's largest norm. In a cut sample a
    record may also take another one's place, which doubles it again.
    """
    cut = 2 if isinstance(step, TruncatedSteps) else 1
    return step.noise / (cut * moved_by(relation))


def moved_by(relation: Relation) -> float:
    """How far neighbours can move a sum, in units of what one record can add to it.

    One record more or less moves it once; one that is exchanged for another, twice.
    """
    return 1.0 if relation == "add-remove" else 2.0


def is_computable(step: Step, relation: Relation) -> bool:
    """Whether a bound on the step can be computed, beyond the plain sum of pure epsilons."""
    match step:
        case Steps() if step.sampling == 1:
            return relative_noise(step, relation) >= _LEAST_MERGED
        case Steps() | TruncatedSteps():
            return relative_noise(step, relation) >= LEAST_NOISE
        case Selections() | PureSteps():
            return step.epsilon <= _MOST_EPSILON
    return True


def spread_of(step: Step, relation: Relation = "add-remove") -> float:
    """About the standard deviation of one step's privacy loss: rises as the noise falls.

    By the central limit theorem many such steps resemble one Gaussian mechanism of noise 1/spread
    (Bu et al. 2020, "Deep learning with Gaussian differential privacy"). A guide for grids and
    first guesses, not a bound.
    """
    match step:
        case Steps() | TruncatedSteps():
            return _gaussian_spread(step) * moved_by(relation)
        case Selections():
            return min(step.epsilon / math.sqrt(3), math.sqrt(2 * step.epsilon))
        case PureSteps():
            return min(step.epsilon, math.sqrt(2 * step.epsilon))
        case ConcentratedSteps():
            return math.sqrt(2 * (step.rho + step.xi))
        case TunedSteps():
            # Choosing the best of a few runs costs two to three times as much as one run.
            return 2.5 * total_spread(step.steps, relation)
        case EitherSteps():
            return max(total_spread(part, relation) for part in step.parts)


def total_spread(steps: Sequence[Step], relation: Relation) -> float:
    """The spread of all steps together."""
    spreads = [(step.repeats, spread_of(step, relation)) for step in steps]
    return math.sqrt(math.fsum(repeats * spread * spread for repeats, spread in spreads))


def _gaussian_spread(step: Steps | TruncatedSteps) -> float:
    if step.noise == 0:
        return math.inf
    if step.sampling == 1:
        return 1 / step.noise
    # The formula explodes below noise 1/2, where the loss itself only grows like 1/noise.
    tempered = max(step.noise, 0.5)
    return step.sampling * math.sqrt(math.expm1(tempered**-2)) * tempered / step.noise


def describe(step: Step) -> str:
    """The step in the words of an error message."""
    match step:
        case Steps():
            where = "on every record" if step.sampling == 1 else "on a Poisson sample"
            return f"Gaussian mechanism {where}, noise {step.noise:g}, {_times(step)}"
        case TruncatedSteps():
            return f"Gaussian mechanism on a truncated Poisson sample, {_times(step)}"
        case Selections():
            return f"selection of epsilon {step.epsilon:g}, {_times(step)}"
        case PureSteps():
            return f"pure mechanism of epsilon {step.epsilon:g}, {_times(step)}"
        case ConcentratedSteps():
            return f"zCDP mechanism of rho {step.rho:g} and xi {step.xi:g}, {_times(step)}"
        case TunedSteps():
            return f"repeat-and-select of mean {step.mean:g}, {_times(step)}"
        case EitherSteps():
            return f"mechanisms on {len(step.parts)} parts of the records, {_times(step)}"


def _times(step: Step) -> str:
    return "once" if step.repeats == 1 else f"{step.repeats} times"


def check_relation(relation: str) -> None:
    """Refuses a relation that is not known."""
    if relation not in ("add-remove", "replace-one"):
        raise SilodpError(
            f"Relation {relation!r} is unknown: choose 'add-remove' (one record more or less) or "
            "'replace-one' (one record changed)."
        )
