"""What a silo's ledger means: which runs count, what they cost together, and what is left.

What was spent is the cost of all runs that count, composed, at the lifetime delta. That is less
than the sum of their epsilons, and is never read off what a run says of itself.
"""

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, get_sigma_gaussian

from silodp.choices import Relation
from silodp.errors import SilodpError
from silodp.privacy import events
from silodp.privacy.accounting import epsilon_of
from silodp.privacy.chain import Entry, canonical
from silodp.privacy.ledger import Ledger, Unit, read_ledger

State = Literal["open", "finished", "settled", "void"]

# Noise beyond which a further Gaussian mechanism is as good as none, and how closely (as a ratio)
# the least noise that fits is searched.
_MOST_NOISE = 1e6
_CLOSE = 1.003


@dataclass(frozen=True)
class Allowance:
    """All that a silo may spend in its lifetime.

    Attributes:
      epsilon: at most; finite.
      delta: at most, draws that do not fit their slots included.
      relation: under which it is counted.
      unit: for which it is counted.
    """

    epsilon: float
    delta: float
    relation: Relation = "add-remove"
    unit: Unit = "record"

    def __post_init__(self):
        if not 0 < self.epsilon < math.inf:
            raise SilodpError(
                f"The lifetime epsilon is {self.epsilon}, but must be above 0 and finite: give one "
                "such as 10."
            )
        if not 0 < self.delta < 1:
            raise SilodpError(
                f"The lifetime delta is {self.delta}, but must lie between 0 and 1: give one such "
                "as 1e-5."
            )
        for field, known in (("relation", Relation), ("unit", Unit)):
            value = getattr(self, field)
            if value not in get_args(known):
                choices = ", ".join(get_args(known))
                raise SilodpError(f"The {field} {value!r} is unknown: choose one of {choices}.")

    def stricter(self, other: "Allowance | None") -> "Allowance":
        """What keeps to both: less of each number is less in all."""
        if other is None:
            return self
        return replace(
            self, epsilon=min(self.epsilon, other.epsilon), delta=min(self.delta, other.delta)
        )


@dataclass(frozen=True)
class Cost:
    """What one run counts for, as it is written in a ledger."""

    event: str  # canonical JSON
    overflow: float
    rounds: int
    about: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run that was charged, and where it stands."""

    state: State
    cost: Cost
    resumed_from: int = 0  # the furthest round; what came before it was released


@dataclass(frozen=True)
class Account:
    """A ledger, understood: the allowance in force (if any was set yet), and the runs."""

    allowance: Allowance | None
    runs: dict[str, Run]

    @property
    def live(self) -> tuple[Cost, ...]:
        """What counts: all that was charged, but for what is void."""
        return tuple(run.cost for run in self.runs.values() if run.state != "void")


NEW = Account(None, {})
"""Of a silo that has no ledger yet."""


# What was spent


def history(ledger: Ledger) -> Iterator[tuple[Entry, Account]]:
    """Each entry, and where the silo stood after it; refuses what cannot be followed."""
    account = NEW
    for entry in ledger.entries:
        if entry.kind != "opened":
            account = _after(ledger, account, entry)
        yield entry, account


def account_of(ledger: Ledger) -> Account:
    """Where the silo stands."""
    *_, (_, account) = history(ledger)
    return account


def _after(ledger: Ledger, account: Account, entry: Entry) -> Account:
    try:
        if entry.kind == "policy":
            epsilon, delta = entry.body["epsilon"], entry.body["delta"]
            allowance = Allowance(epsilon, delta, ledger.relation, ledger.unit)
            return replace(account, allowance=allowance)
        run = next_state(ledger.silo, account, entry)
        return replace(account, runs={**account.runs, entry.run: run})
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SilodpError(
            f"Silo {ledger.silo!r}: entry {entry.seq} of its ledger cannot be understood "
            f"({type(error).__name__}: {error}): use the version of silodp that wrote it."
        ) from None


def set_aside(costs: Iterable[Cost], epsilon: float) -> float:
    """The part of delta that pays for draws which do not fit, when all is held to `epsilon`.

    If everything without overflow is (epsilon, d)-DP, and overflow has chance p in all on either of
    two neighbours, then what really happens is (epsilon, d + (1 + e^epsilon) p)-DP.
    """
    chance = math.fsum(cost.overflow for cost in costs)
    if chance == 0:
        return 0.0
    return (1 + math.exp(epsilon)) * chance if epsilon < 700 else math.inf


def spent(costs: Iterable[Cost], allowance: Allowance) -> float:
    """Epsilon of all costs together at the lifetime delta; true as long as it is within epsilon."""
    costs = tuple(costs)
    if not costs:
        return 0.0
    delta = allowance.delta - set_aside(costs, allowance.epsilon)
    if not delta > 0:
        return math.inf
    return _epsilon_of_texts(tuple(sorted(c.event for c in costs)), delta, allowance.relation)


def remaining(directory: Path, silo: str) -> dict[str, Any]:
    """What the silo has spent and what is left, in plain values.

    What is left, `remaining_epsilon`, is the largest epsilon (at the lifetime delta) of ONE further
    release by the Gaussian mechanism that still fits. It is not the lifetime epsilon less what was
    spent: costs compose, and so more is left than that. A run of DP-SGD is much like one Gaussian
    mechanism, so about that epsilon can be given to one further run.
    """
    ledger = read_ledger(directory, silo)
    account = account_of(ledger)
    allowance, live = account.allowance, account.live
    states = [run.state for run in account.runs.values()]
    return {
        "silo": silo,
        "spent_epsilon": spent(live, allowance) if allowance else 0.0,
        "remaining_epsilon": _left(live, allowance) if allowance else None,
        "lifetime_epsilon": allowance.epsilon if allowance else None,
        "lifetime_delta": allowance.delta if allowance else None,
        "set_aside_delta": set_aside(live, allowance.epsilon) if allowance else 0.0,
        "relation": ledger.relation,
        "unit": ledger.unit,
        "runs": len(live),
        "open_runs": states.count("open"),
        "void_runs": states.count("void"),
        "entries": len(ledger.entries),
        "head": ledger.head,
    }


def _left(live: tuple[Cost, ...], allowance: Allowance) -> float:
    if not live:
        return allowance.epsilon
    now = spent(live, allowance)
    if now >= allowance.epsilon:
        return 0.0

    def gaussian(noise: float) -> Cost:
        return Cost(event_text(GaussianDpEvent(noise)), 0.0, 1, {})

    def fits(noise: float) -> bool:
        return spent((*live, gaussian(noise)), allowance) <= allowance.epsilon

    # Nearly a Gaussian mechanism was spent, and the squares of 1/noise add up: a good first guess.
    delta = allowance.delta - set_aside(live, allowance.epsilon)
    whole, gone = (
        get_sigma_gaussian(epsilon, delta) ** -2 if epsilon > 0 else 0.0
        for epsilon in (allowance.epsilon, now)
    )
    noise = min(max(whole - gone, _MOST_NOISE**-2) ** -0.5, _MOST_NOISE)
    too_little, enough, stride = 0.0, math.inf, 1.005
    while enough > _CLOSE * too_little:
        if fits(noise):
            enough = noise
        elif noise >= _MOST_NOISE:
            return 0.0
        else:
            too_little = noise
        if too_little and enough < math.inf:
            noise = math.sqrt(too_little * enough)
        else:
            noise = min(noise * stride, _MOST_NOISE) if too_little else noise / stride
            stride *= stride
    return min(
        _epsilon_of_texts((gaussian(enough).event,), allowance.delta, allowance.relation),
        allowance.epsilon,
    )


@functools.lru_cache(maxsize=2**16)
def _epsilon_of_texts(texts: tuple[str, ...], delta: float, relation: Relation) -> float:
    """Silos often share their events, and one charge is checked twice. Texts are event JSON."""
    parts = [_read_event(text) for text in texts]
    return epsilon_of(ComposedDpEvent(parts), delta, "best", relation)


# Rules


def next_state(silo: str, account: Account, entry: Entry) -> Run:
    """Where a run stands after an entry about it; refused if the entry cannot follow."""
    run = account.runs.get(entry.run)
    if entry.kind == "charge":
        if run is not None:
            raise already_charged(silo, entry.run)
        if account.allowance is None:
            raise SilodpError(f"Silo {silo!r} has no allowance: set one before it is charged.")
        return Run("open", cost_of(entry.body))
    if run is None:
        raise SilodpError(
            f"Silo {silo!r} was never charged for run {entry.run!r}: check the name, or start anew."
        )
    if run.state != "open":
        raise SilodpError(
            f"Silo {silo!r}: run {entry.run!r} is {run.state}, and nothing can follow that: start "
            "a new run."
        )
    if entry.kind == "resume":
        done = entry.body["round"]
        if type(done) is not int or not 0 <= done <= run.cost.rounds:
            raise SilodpError(
                f"Silo {silo!r}: run {entry.run!r} cannot go on from round {done!r}: it was "
                f"charged for {run.cost.rounds} rounds."
            )
        return replace(run, resumed_from=max(done, run.resumed_from))
    if entry.kind == "finish":
        return replace(run, state="finished")
    if entry.kind == "void":
        if run.resumed_from > 0:
            raise SilodpError(
                f"Silo {silo!r}: run {entry.run!r} went on from round {run.resumed_from}, so it "
                "has released something and cannot be void: settle it instead."
            )
        return replace(run, state="void")
    if entry.kind != "settle":
        raise SilodpError(f"Entries of kind {entry.kind!r} are unknown: update silodp.")
    cost = cost_of(entry.body)
    if not run.resumed_from <= cost.rounds <= run.cost.rounds or cost.overflow > run.cost.overflow:
        raise SilodpError(
            f"Silo {silo!r}: run {entry.run!r} cannot be settled for {cost.rounds} rounds: it was "
            f"charged for {run.cost.rounds}, and released at least {run.resumed_from}."
        )
    return Run("settled", cost, run.resumed_from)


def already_charged(silo: str, run: str) -> SilodpError:
    """To let it pass would charge once what is released twice."""
    return SilodpError(
        f"Silo {silo!r} was charged for run {run!r} already: resume that run, or start a new one "
        "under a name of its own."
    )


# Costs as they are written


def cost_of(body: Mapping[str, Any]) -> Cost:
    """What a charge's body says, once its event is known to mean the same when read back."""
    text, overflow, rounds = canonical(body["event"]), body["overflow"], body["rounds"]
    if type(overflow) is not float or not 0 <= overflow <= 1:
        raise SilodpError(f"overflow is {overflow!r}, which is no chance.")
    if type(rounds) is not int or rounds < 0:
        raise SilodpError(f"rounds is {rounds!r}, which is no number of rounds.")
    if event_text(_read_event(text)) != text:
        raise SilodpError(f"the event {text} does not mean what it says.")
    return Cost(text, overflow, rounds, dict(body["about"]))


def event_text(event: DpEvent) -> str:
    """The event as it is written in a ledger."""
    return canonical(events.to_json(event))


@functools.lru_cache(maxsize=2**12)
def _read_event(text: str) -> DpEvent:
    return events.from_json(json.loads(text))
