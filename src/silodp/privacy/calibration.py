"""How much noise meets a budget: the least noise whose cost is at most epsilon, never above.

A federation asks this once for each silo. Silos of one size share an answer, silos of like size
have like answers, and answers are kept on disk, so that a second run asks nothing.
"""

import contextlib
import functools
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import cast

import numpy as np
from dp_accounting import DpEvent, get_epsilon_gaussian, get_sigma_gaussian
from scipy.optimize import root_scalar

from silodp.base.cache import cache_dir
from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import whole_file
from silodp.config.choices import Accountant, Relation
from silodp.privacy.accounting.accountant import contenders, epsilon_of
from silodp.privacy.accounting.events import steps_of
from silodp.privacy.accounting.steps import LEAST_NOISE, describe, sort_key, total_spread

# What is searched, and its logarithms.
MOST_NOISE = 1e6
_LEAST, _MOST = math.log(LEAST_NOISE), math.log(MOST_NOISE)

# Search aims at this share below the budget, and stops at a cost less than 0.02 % below it.
_AIM = 5e-5
_CLOSE_ENOUGH = 2e-4

# Raise it whenever an event may cost more than it did before: it makes old answers unknown.
_CACHE_FORMAT = 3
_DP_ACCOUNTING = version("dp-accounting")
_CACHE_ENTRIES = 10_000


@dataclass(frozen=True)
class CalibrationRequest:
    """One silo's budget, and what it will be asked.

    Attributes:
      event_of: noise multiplier -> the event of everything that the silo will be asked.
        Parts whose price is fixed (selections, statistics) may stand beside those with this noise.
      epsilon: the budget; infinity asks for no privacy.
      delta: the chance with which the bound may fail.
      label: the owner of the budget, for error messages.
      relation: which data sets are neighbours.
    """

    event_of: Callable[[float], DpEvent]
    epsilon: float
    delta: float
    label: str = ""
    relation: Relation = "add-remove"


@dataclass(frozen=True)
class Calibration:
    """The noise that meets a budget, and what it really costs (at most the budget).

    `accountant` is the one that proves it, "pld" or "rdp"; empty without privacy.
    """

    noise_multiplier: float
    epsilon: float
    accountant: str


def calibrate_many(
    requests: Sequence[CalibrationRequest],
    accountant: Accountant = "best",
    *,
    cache: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> list[Calibration]:
    """The least noise multiplier that meets each budget, to 0.02 % of epsilon and never above it.

    Under "best" it is the least of what any accountant proves that knows all of the event.
    No less than `LEAST_NOISE` is given, even where the budget would allow less or nothing is asked.
    `progress` is called with the number of requests answered and the number of all.
    """
    for request in requests:
        _check(request)
    stored = _read_cache() if cache else {}
    new: dict[str, dict] = {}
    answers: dict[int, Calibration] = {}
    biases: dict[str, float] = {}
    try:
        # Neighbours in this order are alike, so that one's answer is a guess for the next.
        for i in sorted(range(len(requests)), key=lambda i: _likeness(requests[i])):
            request = requests[i]
            if request.epsilon == math.inf:
                answers[i] = Calibration(0.0, math.inf, "")
            else:
                names = contenders(request.event_of(1.0), accountant, request.relation)
                key = _key(request, accountant)
                answer = _recall(stored.get(key), request, names)
                if answer is None:
                    answer = _solve_best(request, names, biases)
                    stored[key] = new[key] = _entry(answer, request)
                answers[i] = answer
            if progress is not None:
                progress(len(answers), len(requests))
    finally:
        # What was found before an error or an interruption is not lost.
        if cache and new:
            _write_cache(new)
    return [answers[i] for i in range(len(requests))]


def _check(request: CalibrationRequest) -> None:
    if not request.epsilon > 0:
        raise SilodpError(
            f"{_who(request)}epsilon is {request.epsilon}, but must be above 0: give one such as "
            "3, or inf for no privacy."
        )
    if not 0 < request.delta < 1:
        raise SilodpError(
            f"{_who(request)}delta is {request.delta}, but must lie between 0 and 1: give one such "
            "as 1e-5."
        )


def _likeness(request: CalibrationRequest) -> tuple:
    steps = steps_of(request.event_of(1.0))
    return request.relation, request.delta, request.epsilon, [sort_key(step) for step in steps]


# Search


def _solve_best(
    request: CalibrationRequest, names: Sequence[str], biases: dict[str, float]
) -> Calibration:
    """The least noise that any of the named accountants proves; keeps their biases up to date."""
    best = None
    for name in names:
        # An accountant that charges too much for the best noise so far needs more noise.
        if best is not None and _cost(request, best.noise_multiplier, name) > request.epsilon:
            continue
        answer, biases[name] = _solve(request, name, biases.get(name, 0.0))
        if answer is not None and (best is None or answer.noise_multiplier < best.noise_multiplier):
            best = answer
    if best is None:
        raise _too_dear(request, names)
    return best


def _cost(request: CalibrationRequest, noise: float, name: str) -> float:
    accountant = cast(Accountant, name)
    return epsilon_of(request.event_of(noise), request.delta, accountant, request.relation)


def _solve(request: CalibrationRequest, name: str, bias: float) -> tuple[Calibration | None, float]:
    """The answer, and how far (in log spread) it lies from a Gaussian mechanism of equal cost.

    There is no answer where no noise is enough. Many steps resemble one Gaussian mechanism, whose
    noise is known. What is left is nearly a constant factor: `bias`, known from the request before
    or else from the first evaluation.
    """
    target = request.epsilon
    if _log_spread(request, _LEAST) == -math.inf:
        return Calibration(LEAST_NOISE, 0.0, name), bias
    ideal, slope = _gaussian_of(target, request.delta)
    x = _at_spread(request, ideal + bias)
    low, high = -math.inf, math.inf  # log noise: too little, and enough
    answer, new_bias = None, bias
    last = None
    for attempt in range(60):
        epsilon = _cost(request, _noise(x), name)
        spread = _log_spread(request, x)
        if epsilon <= target:
            answer, new_bias = Calibration(_noise(x), epsilon, name), spread - ideal
            high = x
        else:
            low = x
        close = target * (1 - _CLOSE_ENOUGH) < epsilon <= target
        if close or high <= _LEAST or low >= _MOST or high - low < 1e-6:
            break
        middle = (max(low, _LEAST) + min(high, _MOST)) / 2
        if not 0 < epsilon < math.inf:
            # Where some noise is already free, the least may be.
            x = _LEAST if epsilon == 0 and low == -math.inf else middle
            continue
        cost = math.log(epsilon)
        if last is not None and spread != last[0] and cost != last[1]:
            slope = (cost - last[1]) / (spread - last[0])
        last = spread, cost
        x = _at_spread(request, spread + (math.log(target * (1 - _AIM)) - cost) / slope)
        # The bracket is the safeguard, and halving it now and then keeps the search from stalling.
        if not low < x < high or attempt % 4 == 3:
            x = middle
    return answer, new_bias


def _noise(log_noise: float) -> float:
    # The ends of the search are met exactly, whatever rounding does.
    if log_noise <= _LEAST:
        return LEAST_NOISE
    return min(math.exp(log_noise), MOST_NOISE)


def _log_spread(request: CalibrationRequest, log_noise: float) -> float:
    total = total_spread(steps_of(request.event_of(_noise(log_noise))), request.relation)
    return math.log(total) if total > 0 else -math.inf


def _at_spread(request: CalibrationRequest, log_spread: float) -> float:
    """The log noise at which the event has this spread, within what is searched."""

    def excess(log_noise: float) -> float:
        return _log_spread(request, log_noise) - log_spread

    if not excess(_LEAST) > 0:
        return _LEAST
    if not excess(_MOST) < 0:
        return _MOST
    return float(root_scalar(excess, bracket=(_LEAST, _MOST), xtol=1e-9).root)


@functools.lru_cache(maxsize=1024)
def _gaussian_of(epsilon: float, delta: float) -> tuple[float, float]:
    """The Gaussian mechanism at this budget: its log spread, and d log epsilon / d log spread."""
    epsilon = min(epsilon, 1e6)  # beyond it nothing is searched
    with np.errstate(all="ignore"):
        noise = get_sigma_gaussian(epsilon, delta)
        dearer = get_epsilon_gaussian(noise / 1.01, delta)
    slope = math.log(dearer / epsilon) / math.log(1.01) if dearer > epsilon else 1.0
    return -math.log(noise), slope


def _too_dear(request: CalibrationRequest, names: Sequence[str]) -> SilodpError:
    event = request.event_of(MOST_NOISE)
    epsilon = min(_cost(request, MOST_NOISE, name) for name in names)
    usual = steps_of(request.event_of(1.0))
    fixed = "; ".join(describe(step) for step in steps_of(event) if step in usual)
    if epsilon == math.inf:
        return SilodpError(
            f"{_who(request)}no finite epsilon can be proven at delta {request.delta:g}, whatever "
            "the noise: raise delta, or leave out what is not private."
        )
    cost = (
        f"epsilon {epsilon:.4g} at delta {request.delta:g}, above the budget of {request.epsilon:g}"
    )
    if fixed:
        return SilodpError(
            f"{_who(request)}the queries whose noise is fixed ({fixed}) alone cost {cost}: ask "
            "them less often or at a lower epsilon of their own, or raise the silo's epsilon or "
            "delta."
        )
    return SilodpError(
        f"{_who(request)}even with noise {MOST_NOISE:g} the queries cost {cost}: raise epsilon or "
        "delta, or ask fewer."
    )


def _who(request: CalibrationRequest) -> str:
    return f"{request.label}: " if request.label else ""


# Answers kept on disk


def _cache_file() -> Path:
    return cache_dir() / "calibration.json"


def _key(request: CalibrationRequest, accountant: Accountant) -> str:
    # Two probes tell noise that is fixed from noise that happens to equal the probe.
    probes = [steps_of(request.event_of(noise)) for noise in (1.0, 2.7)]
    budget = float(request.epsilon), float(request.delta)
    how = _CACHE_FORMAT, _DP_ACCOUNTING, accountant, request.relation
    return _digest((how, budget, probes))


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def _entry(answer: Calibration, request: CalibrationRequest) -> dict:
    return {
        "noise": answer.noise_multiplier,
        "epsilon": answer.epsilon,
        "accountant": answer.accountant,
        "event": _digest(steps_of(request.event_of(answer.noise_multiplier))),
    }


def _recall(entry: object, request: CalibrationRequest, names: Sequence[str]) -> Calibration | None:
    """The stored answer, if it is whole, meets the budget, and was found for this very event."""
    if not isinstance(entry, dict):
        return None
    noise, epsilon = entry.get("noise"), entry.get("epsilon")
    if not isinstance(noise, float) or not isinstance(epsilon, float):
        return None
    accountant = entry.get("accountant")
    if not isinstance(accountant, str) or accountant not in names:
        return None
    if not LEAST_NOISE <= noise <= MOST_NOISE or not 0 <= epsilon <= request.epsilon:
        return None
    if entry.get("event") != _digest(steps_of(request.event_of(noise))):
        return None
    return Calibration(noise, epsilon, accountant)


def _read_cache() -> dict[str, object]:
    """What is kept, or nothing where the file is missing, unreadable or damaged."""
    try:
        entries = read_json(_cache_file(), remedy="remove it")
    except SilodpError:
        return {}
    return entries if isinstance(entries, dict) else {}


def _write_cache(new: dict[str, dict]) -> None:
    """Adds to the file whole or not at all; a folder that cannot be written is no error.

    Read again just before, so that what other processes wrote meanwhile is kept.
    """
    entries = {**_read_cache(), **new}
    kept = dict(list(entries.items())[-_CACHE_ENTRIES:])
    path = _cache_file()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, sync="none") as file:
            file.write(json.dumps(kept).encode())
