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

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from silodp.base.errors import SilodpError
from silodp.config.choices import LifetimeFilter, Relation
from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.chain import Entry
from silodp.privacy.ledger.costs import ROUNDING, Cost, cost_of
from silodp.privacy.ledger.lifetime import Lifetime, open_lifetime
from silodp.privacy.ledger.storage import FORMAT, Ledger, Unit
from silodp.privacy.mechanisms.queries import PREPARATION

State = Literal["reserved", "charged", "closed"]


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
    slack = 1 + ROUNDING
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
