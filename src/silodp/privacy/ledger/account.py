"""What a silo's ledger means: what is promised, what its runs take of it, and what is left.

A run *reserves* all that it may take, so that it can finish. It is *charged* block by block of its
rounds, each before the first answer of the block. When it is *closed* (it has ended, it was
abandoned, or it was refused) what was reserved and never charged is given back, and no further
block can be charged. What is charged is never given back. So there are three states, and no way
back from any of them:

    reserved  ->  charged  ->  closed
        \\______________________/

What counts against a lifetime is all that was charged, and all that open runs still hold reserved.
Whether that fits is decided by a filter that holds however the next run is chosen after seeing what
the last one released: see `lifetime`, whose theorem asks for no more than that each answer is
charged before it is given. Who ends a run, when and why does not matter there.

One run may fit a lifetime by its own plan and not by the filter, because a plan that is fixed
before it starts is composed more tightly (by privacy loss distributions). A ledger that has charged
nothing else may give its lifetime to such a run *alone*: then nothing but that run is ever released
under that lifetime, in a plan that was fixed beforehand, so that the plan's own epsilon is true,
and so it is where the run ends early, which is a part of what it could have released. From its
first charge on, nothing else fits.

A lifetime that is lowered joins the ones in force, and all of them hold. One that is raised ends
those that it exceeds: it is a new promise about everything since the ledger was opened, and holds
as far as the decision to raise it did not depend on what was released. So does a lowered one, of
what was charged before it: whoever lowers a lifetime to just what was spent has chosen the order of
its filter in hindsight. What was spent is therefore said by the promise that was fixed before
anything was charged, and by it alone.
"""

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from dp_accounting import ComposedDpEvent, DpEvent

from silodp.base.errors import SilodpError
from silodp.config.choices import LifetimeFilter, Relation
from silodp.privacy.accounting import events
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.chain import Entry, canonical
from silodp.privacy.ledger.lifetime import Lifetime, open_lifetime
from silodp.privacy.ledger.storage import FORMAT, Ledger, Unit, read_ledger
from silodp.privacy.mechanisms.queries import PREPARATION

State = Literal["reserved", "charged", "closed"]

# What sums of shares may be off by.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Allowance:
    """All that a silo may spend in its lifetime.

    Attributes:
      epsilon: at most; finite.
      delta: at most, draws that do not fit their slots included.
      relation: under which it is counted.
      unit: for which it is counted.
      filter: by which it is decided what fits.
    """

    epsilon: float
    delta: float
    relation: Relation = "add-remove"
    unit: Unit = "record"
    filter: LifetimeFilter = "renyi"

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
        for field, known in (("relation", Relation), ("unit", Unit), ("filter", LifetimeFilter)):
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

    def opened(self) -> Lifetime:
        """The filter that keeps to it, as it is fixed from now on."""
        return open_lifetime(self.epsilon, self.delta, self.relation, self.filter)


@dataclass(frozen=True)
class Promise:
    """A lifetime that is in force, and the entry that it holds since."""

    allowance: Allowance
    lifetime: Lifetime
    since: int


@dataclass(frozen=True)
class Cost:
    """What something releases, as it is written in a ledger.

    Attributes:
      event: the event as canonical JSON.
      overflow: the chance that any of its draws does not fit its slots.
    """

    event: str
    overflow: float

    def taken(self, of: Lifetime) -> float:
        """What it takes of the filter's budget."""
        return _taken(self.event, of)


@dataclass(frozen=True)
class Block:
    """Rounds first..last (the last one not included) of a run, charged together.

    Round -1 is the preparation, and the round after the last one the final evaluation.
    """

    first: int
    last: int
    cost: Cost


@dataclass(frozen=True)
class Run:
    """A run in a ledger, and where it stands.

    Attributes:
      whole: what it reserved.
      rounds: number of rounds of the run.
      about: what it says of itself, for people.
      since: the entry that reserved it.
      alone: whether a lifetime was given to it alone.
      blocks: what was charged, in the order of rounds.
      closed: why it was closed; None while it is open.
    """

    whole: Cost
    rounds: int
    about: dict[str, Any]
    since: int
    alone: bool = False
    blocks: tuple[Block, ...] = ()
    closed: str | None = None

    @property
    def charged(self) -> int:
        """How many of its rounds are charged."""
        spans = [(max(b.first, 0), min(b.last, self.rounds)) for b in self.blocks]
        return sum(max(0, last - first) for first, last in spans)

    @property
    def state(self) -> State:
        """Where it stands."""
        if self.closed is not None:
            return "closed"
        return "charged" if self.blocks else "reserved"

    @property
    def counted(self) -> tuple[Cost, ...]:
        """What counts: all of it while it is open, then what was charged."""
        return (self.whole,) if self.closed is None else self.spent

    @property
    def spent(self) -> tuple[Cost, ...]:
        """The costs that were charged."""
        return tuple(block.cost for block in self.blocks)

    @property
    def live(self) -> bool:
        """Whether it has released, or may yet release, anything."""
        return self.closed is None or bool(self.blocks)


@dataclass(frozen=True)
class Account:
    """A ledger, understood.

    Attributes:
      promises: those in force, the latest last.
      runs: by their names.
      format: the ledger's format.
      fixed: the latest promise that was made before anything was charged, in force or not.
    """

    promises: tuple[Promise, ...]
    runs: dict[str, Run]
    format: int = FORMAT
    fixed: Promise | None = None

    @property
    def allowance(self) -> Allowance | None:
        """The latest; None if none was set yet."""
        return self.promises[-1].allowance if self.promises else None

    @property
    def counted(self) -> tuple[Cost, ...]:
        """What counts of all runs."""
        return tuple(cost for run in self.runs.values() for cost in run.counted)

    @property
    def spent(self) -> tuple[Cost, ...]:
        """What was charged, of all runs."""
        return tuple(cost for run in self.runs.values() for cost in run.spent)

    def given_to(self, promise: Promise) -> str | None:
        """The run that the promise was given to alone, if it was."""
        for name, run in self.runs.items():
            if run.alone and run.live and run.since > promise.since:
                return name
        return None


NEW = Account((), {})
"""The account of a silo that has no ledger yet."""


# What a ledger says


def history(ledger: Ledger) -> Iterator[tuple[Entry, Account]]:
    """Each entry, and where the silo stood after it; refuses what cannot be followed."""
    account = replace(NEW, format=ledger.entries[0].body["format"])
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
            promises = _promised(ledger, account, entry)
            fixed = account.fixed if account.spent else promises[-1]
            return replace(account, promises=promises, fixed=fixed)
        if entry.kind == "converted":
            if account.format == FORMAT or entry.body["format"] != FORMAT:
                raise ValueError("there is nothing to convert")
            return replace(account, format=FORMAT)
        if account.format == FORMAT:
            run = next_state(ledger.silo, account, entry)
        else:
            run = next_state_of_format_1(ledger.silo, account, entry)
        return replace(account, runs={**account.runs, entry.run: run})
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise SilodpError(
            f"Silo {ledger.silo!r}: entry {entry.seq} of its ledger cannot be understood "
            f"({type(error).__name__}: {error}): use the version of silodp that wrote it."
        ) from None


def _promised(ledger: Ledger, account: Account, entry: Entry) -> tuple[Promise, ...]:
    """The promises in force once a lifetime is lowered or raised."""
    epsilon, delta = entry.body["epsilon"], entry.body["delta"]
    if account.format == FORMAT:
        filtered = lifetime.from_json(epsilon, delta, ledger.relation, entry.body["filter"])
    else:  # by which it was not decided, but it is what can be said now
        filtered = open_lifetime(epsilon, delta, ledger.relation)
    allowance = Allowance(epsilon, delta, ledger.relation, ledger.unit, filtered.kind)
    return with_promise(account, Promise(allowance, filtered, entry.seq))


def with_promise(account: Account, new: Promise) -> tuple[Promise, ...]:
    """The promises in force once there is a new one: it ends those that it exceeds."""
    kept = [
        promise
        for promise in account.promises
        if promise.allowance.epsilon >= new.allowance.epsilon
        and promise.allowance.delta >= new.allowance.delta
    ]
    return (*kept, new)


def next_state(silo: str, account: Account, entry: Entry) -> Run:
    """Where a run stands after an entry about it; refused if the entry cannot follow."""
    run, body = account.runs.get(entry.run), entry.body
    if entry.kind == "reserve":
        if run is not None:
            raise already_reserved(silo, entry.run)
        if account.allowance is None:
            raise SilodpError(f"Silo {silo!r} has no allowance: set one before it is charged.")
        rounds, alone = body["rounds"], body["alone"]
        if type(rounds) is not int or rounds < 1 or type(alone) is not bool:
            raise ValueError("it does not say how many rounds it reserves")
        return Run(cost_of(body), rounds, dict(body["about"]), entry.seq, alone)
    if run is None:
        raise SilodpError(
            f"Silo {silo!r} has nothing reserved for run {entry.run!r}: check the name, or start "
            "anew."
        )
    if run.closed is not None:
        raise RunClosedError(
            f"Silo {silo!r}: run {entry.run!r} is closed ({run.closed}), and nothing can follow "
            "that: start a new run."
        )
    if entry.kind == "charge":
        first, last = body["first"], body["last"]
        if type(first) is not int or type(last) is not int:
            raise ValueError("it does not say which rounds it charges")
        after = run.blocks[-1].last if run.blocks else PREPARATION
        if not after <= first < last <= run.rounds + 1:
            raise SilodpError(
                f"Silo {silo!r}: run {entry.run!r} cannot be charged for rounds {first + 1} to "
                f"{last} of {run.rounds}: what it was charged for ends with round {after}, and no "
                "round is charged twice."
            )
        charged = replace(run, blocks=(*run.blocks, Block(first, last, cost_of(body))))
        _check_covered(silo, account, entry.run, charged)
        return charged
    if entry.kind == "close":
        if not isinstance(body["reason"], str) or not body["reason"]:
            raise ValueError("it does not say why")
        return replace(run, closed=body["reason"])
    raise SilodpError(f"Entries of kind {entry.kind!r} are unknown: update silodp.")


def next_state_of_format_1(silo: str, account: Account, entry: Entry) -> Run:
    """`next_state` for a ledger that charged runs whole, when they began.

    Such a ledger is read, and takes no further charge before it is converted: what it decided, it
    decided as if all runs had been planned beforehand.
    """
    run = account.runs.get(entry.run)
    if entry.kind == "charge" and run is None:
        cost, rounds = cost_of(entry.body), entry.body["rounds"]
        blocks = (Block(0, rounds, cost),)
        return Run(cost, rounds, dict(entry.body["about"]), entry.seq, blocks=blocks)
    if run is None or run.closed is not None or entry.kind == "charge":
        raise ValueError(f"it cannot follow what is known of run {entry.run!r}")
    match entry.kind:
        case "resume":
            return run
        case "finish":
            return replace(run, closed="finished")
        case "void":
            return replace(run, blocks=(), closed=f"void: {entry.body['reason']}")
        case "settle":
            rounds = entry.body["rounds"]
            blocks = (Block(0, rounds, cost_of(entry.body)),)
            return replace(run, blocks=blocks, closed="ended early")
    raise ValueError(f"entries of kind {entry.kind!r} are unknown")


def _check_covered(silo: str, account: Account, name: str, run: Run) -> None:
    """Refuses a charge that takes the run beyond what it reserved."""
    slack = 1 + _ROUNDING
    for promise in account.promises:
        filtered = promise.lifetime
        taken = math.fsum(cost.taken(filtered) for cost in run.spent)
        if not taken <= run.whole.taken(filtered) * slack:
            raise SilodpError(_beyond(silo, name))
    if math.fsum(cost.overflow for cost in run.spent) > run.whole.overflow * slack:
        raise SilodpError(_beyond(silo, name))


def _beyond(silo: str, run: str) -> str:
    return (
        f"Silo {silo!r}: run {run!r} cannot be charged for more than it reserved: start a new run."
    )


class RunClosedError(SilodpError):
    """A run that was closed, by whoever: nothing of it can be answered any more."""


def already_reserved(silo: str, run: str) -> SilodpError:
    """The refusal of a run's name used again: it would charge once what is released twice."""
    return SilodpError(
        f"Silo {silo!r} knows run {run!r} already: resume that run, or start a new one under a "
        "name of its own."
    )


# What fits


def admits(account: Account, cost: Cost, promises: Iterable[Promise]) -> Literal["shared", "alone"]:
    """Whether a further run fits all promises: among others, or (a first run) alone.

    Raises:
      DoesNotFit: if it fits in neither way.
    """
    promises = tuple(promises)
    for promise in promises:
        if (given := account.given_to(promise)) is not None:
            raise DoesNotFit(promise, given)
    misfits = [promise for promise in promises if not _fits(account, cost, promise.lifetime)]
    if not misfits:
        return "shared"
    if not any(run.live for run in account.runs.values()) and all(
        planned_epsilon(cost, promise.allowance) <= promise.allowance.epsilon
        for promise in promises
    ):
        return "alone"
    raise DoesNotFit(misfits[0], None)


class DoesNotFit(Exception):
    """A run that a promise has no room for; `given_to` names the run that has all of it."""

    def __init__(self, promise: Promise, given_to: str | None):
        super().__init__()
        self.promise, self.given_to = promise, given_to


def _fits(account: Account, cost: Cost, of: Lifetime) -> bool:
    costs = (*account.counted, cost)
    return lifetime.fits([c.taken(of) for c in costs], [c.overflow for c in costs], of)


def planned_epsilon(cost: Cost, allowance: Allowance) -> float:
    """Epsilon, at the lifetime delta, of a run by itself: its plan is fixed before it starts.

    If everything without overflow is (epsilon, d)-DP, and overflow has chance p in all on either of
    two neighbours, then what really happens is (epsilon, d + (1 + e^epsilon) p)-DP.
    """
    aside = 0.0
    if cost.overflow:
        aside = (1 + math.exp(min(allowance.epsilon, 700.0))) * cost.overflow
    left = allowance.delta - aside
    return _planned(cost.event, left, allowance.relation) if left > 0 else math.inf


@functools.lru_cache(maxsize=2**16)
def _planned(text: str, delta: float, relation: Relation) -> float:
    """Silos often share their events, and one run is checked twice."""
    return epsilon_of(ComposedDpEvent([_read_event(text)]), delta, "best", relation)


# What was spent, and what is left


def spent_epsilon(account: Account) -> float:
    """Epsilon of all that was charged, at the lifetime delta; true however runs were chosen.

    The least of three bounds, each of which fails with a chance of at most delta: the odometer's;
    the lifetime's, where it is kept; and, of a ledger with a single run, that of its plan. The
    first two go by the lifetime that was fixed before anything was charged: one that was set since
    may have been chosen after seeing what was released.
    """
    if not account.spent or not account.promises:
        return 0.0
    promise = account.promises[-1]
    fixed, allowance = account.fixed or promise, promise.allowance
    overflow = math.fsum(cost.overflow for cost in account.spent)
    events = [_read_event(cost.event) for cost in account.spent]
    bounds = [lifetime.odometer(events, overflow, promise.lifetime, fixed.lifetime)]
    if fixed.allowance.delta <= allowance.delta and keeps(account, fixed):
        bounds.append(fixed.allowance.epsilon)
    if (only := _only_run(account)) is not None:
        bounds.append(planned_epsilon(only.whole, allowance))
    return min(bounds)


def keeps(account: Account, promise: Promise) -> bool:
    """Whether what was charged keeps the promise: by the filter, or as the plan of a single run."""
    filtered, spent = promise.lifetime, account.spent
    if lifetime.fits([c.taken(filtered) for c in spent], [c.overflow for c in spent], filtered):
        return True
    only = _only_run(account)
    return only is not None and (
        planned_epsilon(only.whole, promise.allowance) <= promise.allowance.epsilon
    )


def _only_run(account: Account) -> Run | None:
    """The run that was charged, if it is the only one."""
    runs = [run for run in account.runs.values() if run.blocks]
    return runs[0] if len(runs) == 1 else None


def left_of(account: Account) -> float:
    """What is left of the latest promise's budget, for what is not yet reserved."""
    promise = account.promises[-1]
    if account.given_to(promise) is not None:
        return 0.0
    budgets = [
        1 - math.fsum(c.taken(p.lifetime) for c in account.counted) / p.lifetime.budget
        for p in account.promises
    ]
    return max(0.0, min(budgets)) * promise.lifetime.budget


def remaining(directory: Path, silo: str) -> dict[str, Any]:
    """What the silo has spent and what is left, in plain values: see `standing`.

    Examples:
      >>> from pathlib import Path
      >>> result = silodp.run(
      ...     data="synthetic", silos=2, method="local", epsilon=1, rounds=2,
      ...     lifetime_epsilon=4, ledger="ledgers",
      ... )
      >>> left = silodp.remaining(Path("ledgers"), result.per_silo[0]["silo"])
      >>> left["runs"], left["spent_epsilon"] <= 1, left["left_share"] > 0.5
      (1, True, True)
    """
    return standing(read_ledger(directory, silo))


def standing(ledger: Ledger) -> dict[str, Any]:
    """What was spent, is reserved and is left of the lifetime.

    Shares are of what the filter allows, and add up: spent_share + reserved_share + left_share = 1
    (but for a lifetime that was given to one run alone, whose share may be above 1).
    `given_back_share` was reserved once, never charged, and is left again. `spent_epsilon` is the
    epsilon of all that was charged (see `spent_epsilon`), and `remaining_epsilon` the largest
    epsilon (at the lifetime delta) of ONE further release by the Gaussian mechanism that still
    fits; epsilons do not add up. `changed` says whether the lifetime was set after something had
    been charged under another. `same_again` says what a further run like the latest would take.
    """
    account = account_of(ledger)
    amounts: dict[str, Any] = {
        "silo": ledger.silo,
        "relation": ledger.relation,
        "unit": ledger.unit,
        "format": account.format,
        "entries": len(ledger.entries),
        "head": ledger.head,
        "runs": sum(run.live for run in account.runs.values()),
        "open_runs": [name for name, run in account.runs.items() if run.closed is None],
        "lifetime_epsilon": None,
        "lifetime_delta": None,
        "filter": None,
        "spent_epsilon": spent_epsilon(account),
        "remaining_epsilon": None,
        "spent_share": 0.0,
        "reserved_share": 0.0,
        "given_back_share": 0.0,
        "left_share": None,
        "given_to": None,
        "changed": False,
        "same_again": None,
        "broken": [],
    }
    if not account.promises:
        return amounts
    promise = account.promises[-1]
    filtered = promise.lifetime

    def share(costs: Iterable[Cost]) -> float:
        return math.fsum(cost.taken(filtered) for cost in costs) / filtered.budget

    runs = account.runs.values()
    spent = share(account.spent)
    left = left_of(account)
    # A first run may have the lifetime alone, by its own plan (see `admits`).
    further = promise.allowance.epsilon
    if any(run.live for run in runs):
        further = lifetime.epsilon_of_left(left, filtered)
    amounts |= {
        "lifetime_epsilon": promise.allowance.epsilon,
        "lifetime_delta": promise.allowance.delta,
        "filter": {"kind": filtered.kind, "order": filtered.order},
        "spent_share": spent,
        "reserved_share": max(0.0, share(account.counted) - spent),
        "given_back_share": math.fsum(_given_back(run, share) for run in runs if run.closed),
        "left_share": left / filtered.budget,
        "remaining_epsilon": further,
        "given_to": account.given_to(promise),
        "changed": account.fixed is not None and account.fixed.lifetime != filtered,
        "same_again": _same_again(account, promise, left),
        "broken": _broken(account),
    }
    return amounts


def _given_back(run: Run, share: Callable[[Iterable[Cost]], float]) -> float:
    """What was reserved and never charged, but for rounding."""
    whole, spent = share([run.whole]), share(run.spent)
    return whole - spent if whole > spent * (1 + _ROUNDING) else 0.0


def _same_again(account: Account, promise: Promise, left: float) -> dict[str, Any] | None:
    """What one more run like the latest would take, and how many of these fit."""
    runs = [run for run in account.runs.values() if run.live]
    if not runs:
        return None
    taken = runs[-1].whole.taken(promise.lifetime)
    return {
        "share": taken / promise.lifetime.budget,
        "runs": math.floor(left / taken * (1 + _ROUNDING)) if taken > 0 else None,
        "rounds": runs[-1].rounds,
    }


def _broken(account: Account) -> list[dict[str, float]]:
    """The promises in force that what was charged does not keep, if runs were chosen adaptively."""
    return [
        {"epsilon": promise.allowance.epsilon, "delta": promise.allowance.delta}
        for promise in account.promises
        if not keeps(account, promise)
    ]


def summed_up(standings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What silos spent, by their lifetime, without names of silos or runs.

    Of each lifetime, how many silos have it, and the least and the most of each share, rounded to
    whole per cents.
    """
    alike: dict[tuple, list[Mapping[str, Any]]] = {}
    fields = ("lifetime_epsilon", "lifetime_delta", "relation", "unit")
    for one in standings:
        if one["lifetime_epsilon"] is not None:
            alike.setdefault(tuple(one[name] for name in fields), []).append(one)
    shares = ("spent_share", "reserved_share", "given_back_share", "left_share")
    rows = []
    for known in sorted(alike):
        rows.append(
            dict(zip(fields, known, strict=True))
            | {"silos": len(alike[known])}
            | {name: _ends(one[name] for one in alike[known]) for name in shares}
        )
    return {"silos": sum(map(len, alike.values())), "lifetimes": rows}


def _ends(values: Iterable[float]) -> list[float]:
    rounded = [round(value, 2) for value in values]
    return [min(rounded), max(rounded)]


# Costs as they are written


def cost_of(body: Mapping[str, Any]) -> Cost:
    """What a body says, once its event is known to mean the same when read back."""
    text, overflow = canonical(body["event"]), body["overflow"]
    if type(overflow) is not float or not 0 <= overflow <= 1:
        raise SilodpError(f"overflow is {overflow!r}, which is no chance.")
    if not _means_what_it_says(text):
        raise SilodpError(f"the event {text} does not mean what it says.")
    return Cost(text, overflow)


def event_text(event: DpEvent) -> str:
    """The event as it is written in a ledger."""
    return canonical(events.to_json(event))


@functools.lru_cache(maxsize=2**16)
def _means_what_it_says(text: str) -> bool:
    """Ledgers are read several times in a run, and silos often share their events."""
    return event_text(_read_event(text)) == text


@functools.lru_cache(maxsize=2**12)
def _read_event(text: str) -> DpEvent:
    return events.from_json(json.loads(text))


@functools.lru_cache(maxsize=2**16)
def _taken(text: str, of: Lifetime) -> float:
    return lifetime.cost(_read_event(text), of)
