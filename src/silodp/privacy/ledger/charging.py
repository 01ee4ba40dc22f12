"""Writing to the ledgers of the silos of a run: all of them, or none.

A run is reserved, charged block by block, and closed: see `account`, which knows what may follow
what. `session` is who calls this, in that order, and nobody else does.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from silodp.base.errors import SilodpError
from silodp.privacy.accounting import events
from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.account import (
    NEW,
    Account,
    Allowance,
    Promise,
    Run,
    account_of,
    already_reserved,
    next_state,
    with_promise,
)
from silodp.privacy.ledger.admission import DoesNotFit, admits, planned_epsilon
from silodp.privacy.ledger.chain import canonical, next_entry
from silodp.privacy.ledger.costs import Cost, cost_of, event_text
from silodp.privacy.ledger.lifetime import Lifetime
from silodp.privacy.ledger.standing import keeps, left_of
from silodp.privacy.ledger.storage import (
    FORMAT,
    Ledger,
    OpenLedger,
    create,
    exists,
    locked,
    read_ledger,
)
from silodp.privacy.mechanisms.queries import PREPARATION


@dataclass(frozen=True)
class Reservation:
    """What a run may take of one silo.

    Attributes:
      overflow: the chance that any draw of the run does not fit its slots, in which case the event
        is not what happens. It is a chance, not a part of delta: what it takes off delta depends
        on the lifetime.
      about: for people, in plain JSON: data, method, records, noise and so on. Never keys or seeds.
      rounds: number of rounds of the run.
      event_of: first, last -> all that rounds first..last (the last not included) release, where
        round -1 is the preparation and round `rounds` the final evaluation (see `PREPARATION`).
      blocks: how many blocks the rounds are charged in, at most, beside preparation and final
        evaluation; 1 for what can only be charged whole, these included.
    """

    overflow: float
    about: dict[str, Any]
    rounds: int
    event_of: Callable[[int, int], DpEvent]
    blocks: int = 1

    @property
    def event(self) -> DpEvent:
        """All that the run releases."""
        return self.event_of(PREPARATION, self.rounds + 1)

    def block_of(self, number: int) -> tuple[int, int]:
        """The block that holds this round: its first round, and the first one after it."""
        if self.blocks == 1:
            return PREPARATION, self.rounds + 1
        if not 0 <= number < self.rounds:
            return number, number + 1
        size = math.ceil(self.rounds / self.blocks)
        first = number // size * size
        return first, min(self.rounds, first + size)

    def cost(self, first: int, last: int) -> dict[str, Any]:
        """The cost of these rounds, in plain JSON."""
        drawn = max(0, min(last, self.rounds) - max(first, 0))
        return {
            "event": events.to_json(self.event_of(first, last)),
            "overflow": float(self.overflow) * (drawn / self.rounds),
        }


def would_exceed(
    directory: Path,
    reservations: Mapping[str, Reservation],
    allowances: Mapping[str, Allowance],
    *,
    strictest: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Refuses what does not fit, as `reserve_all` would, but writes nothing.

    A silo without a ledger is new: nothing was spent. Returns, of each silo, what the run would
    take of its lifetime, and what is spent, reserved and left before that, all as shares of it.
    """
    accounts = _accounts(directory, reservations, allowances)
    in_force = _in_force(accounts, allowances, strictest)
    alone = _admitted(accounts, reservations, in_force, progress)
    shares = {}
    for silo, account in accounts.items():
        promises = _promises(account, in_force[silo])
        filtered = promises[-1].lifetime

        def share(costs: Iterable[Cost], of: Lifetime = filtered) -> float:
            return math.fsum(cost.taken(of) for cost in costs) / of.budget

        spent = share(account.spent)
        shares[silo] = {
            "lifetime_epsilon": in_force[silo].epsilon,
            "lifetime_delta": in_force[silo].delta,
            "takes_share": share([cost_of(_body(silo, reservations[silo]))]),
            "spent_share": spent,
            "reserved_share": max(0.0, share(account.counted) - spent),
            "left_share": left_of(Account(promises, account.runs)) / filtered.budget,
            "alone": alone[silo],
        }
    return shares


def reserve_all(
    directory: Path,
    reservations: Mapping[str, Reservation],
    allowances: Mapping[str, Allowance],
    run: str,
    *,
    strictest: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Reserves all that a run may take of its silos, or (if it does not fit one) of none.

    If the process is killed within, some silos may hold a reservation of a run that never began:
    `close_all` gives it back.

    Args:
      directory: the folder of the ledgers; missing ones are opened.
      reservations: the reservation of each silo.
      allowances: the allowance of each silo. One that differs from that in force is written down
        as a change.
      run: its name, never used before.
      strictest: whether an allowance that is in force and stricter holds on: where several parties
        charge one ledger, none of them loosens what another relies on (see `allow`).
      progress: called with (done, total) while costs are worked out.
    """
    _check_name(run)
    # Costs are worked out here, unlocked; what is refused leaves neither folder nor file behind.
    accounts = _accounts(directory, reservations, allowances)
    _check_unused(accounts, run)
    _admitted(accounts, reservations, _in_force(accounts, allowances, strictest), progress)
    for silo in reservations:
        if not exists(directory, silo):
            create(directory, silo, allowances[silo].relation, allowances[silo].unit)
    with locked(directory, reservations) as ledgers:
        # Again, because another process may have reserved meanwhile.
        accounts = {
            silo: _account(ledger.content, allowances[silo]) for silo, ledger in ledgers.items()
        }
        _check_unused(accounts, run)
        in_force = _in_force(accounts, allowances, strictest)
        alone = _admitted(accounts, reservations, in_force, None)
        for silo, ledger in ledgers.items():
            if accounts[silo].allowance != in_force[silo]:
                _append_policy(ledger, in_force[silo], accounts[silo].allowance)
            body = _body(silo, reservations[silo]) | {"alone": alone[silo]}
            ledger.append("reserve", run, body)
        _commit_all(ledgers, run)


def charge_all(
    directory: Path, reservations: Mapping[str, Reservation], run: str, first: int, last: int
) -> dict[str, str]:
    """Charges rounds first..last of a run; they may be answered once this returns, not before.

    Returns the head of each ledger as it was left.

    If the process is killed within, some silos are charged for rounds that were never answered.
    Refused where the run was closed meanwhile: then it must not go on.
    """
    bodies = {
        silo: {"first": first, "last": last, "of": one.rounds} | _plain(silo, one.cost(first, last))
        for silo, one in reservations.items()
    }
    return _append_all(directory, run, "charge", bodies)


def close_all(directory: Path, silos: Collection[str], run: str, reason: str) -> None:
    """A run is over: what was reserved and not charged is given back, and nothing can follow."""
    if not reason:
        raise SilodpError(f"Run {run!r} cannot be closed without a reason: say why.")
    _append_all(directory, run, "close", {silo: {"reason": reason} for silo in silos})


def close_everywhere(directory: Path, silos: Collection[str], run: str, reason: str) -> list[str]:
    """Closes the run in those of the ledgers in which it is open; returns their silos."""
    holding = []
    for silo in silos:
        standing = run_of(directory, silo, run)
        if standing is not None and standing.closed is None:
            holding.append(silo)
    if not holding:
        raise SilodpError(
            f"No ledger in {directory} holds an open run {run!r}: silodp ledger show names them."
        )
    close_all(directory, holding, run, reason)
    return holding


def run_of(directory: Path, silo: str, run: str) -> Run | None:
    """Where a run stands in a silo's ledger; None if it is not there."""
    if not exists(directory, silo):
        return None
    return account_of(read_ledger(directory, silo)).runs.get(run)


def allow(directory: Path, silo: str, epsilon: float, delta: float | None = None) -> Allowance:
    """Changes a silo's lifetime allowance, more or less; the change is written down.

    It is meant for ledgers that several parties charge, none of which may loosen it. Without a
    delta, that in force stays.
    """
    with locked(directory, [silo]) as ledgers:
        ledger, content = ledgers[silo], ledgers[silo].content
        account = account_of(content)
        _check_format(silo, account)
        before = account.allowance
        if delta is None and before is not None:
            delta = before.delta
        if delta is None:
            raise SilodpError(f"Silo {silo!r} has no lifetime delta yet: give one, such as 1e-5.")
        kind = "renyi" if before is None else before.filter
        allowance = Allowance(epsilon, delta, content.relation, content.unit, kind)
        if allowance != before:
            _append_policy(ledger, allowance, before)
            ledger.commit()
    return allowance


def convert(directory: Path, silo: str) -> None:
    """Makes a ledger of the first format one of this: from now on its filter decides what fits.

    What it holds stays as it is and counts in full. Runs that were open are closed, because their
    charge was for all of their rounds: they cannot go on under this format.
    """
    with locked(directory, [silo]) as ledgers:
        ledger = ledgers[silo]
        account = account_of(ledger.content)
        if account.format == FORMAT:
            raise SilodpError(f"Silo {silo!r}: its ledger has format {FORMAT}: leave it as it is.")
        for name, run in account.runs.items():
            if run.closed is None:
                ledger.append("finish", name, {})
        ledger.append("converted", "", {"format": FORMAT})
        if account.allowance is not None:
            _append_policy(ledger, account.allowance, None)
        ledger.commit()


def _append_policy(ledger: OpenLedger, allowance: Allowance, before: Allowance | None) -> None:
    body: dict[str, Any] = {
        "epsilon": allowance.epsilon,
        "delta": allowance.delta,
        "filter": lifetime.to_json(allowance.opened()),
    }
    if before is not None:
        body["before"] = {"epsilon": before.epsilon, "delta": before.delta}
    ledger.append("policy", "", body)


def _in_force(
    accounts: Mapping[str, Account], allowances: Mapping[str, Allowance], strictest: bool
) -> Mapping[str, Allowance]:
    """The allowances that hold once a run is reserved."""
    if not strictest:
        return allowances
    return {silo: allowances[silo].stricter(one.allowance) for silo, one in accounts.items()}


def _promises(account: Account, allowance: Allowance) -> tuple[Promise, ...]:
    """The promises in force once this allowance is."""
    if account.allowance == allowance:
        return account.promises
    return with_promise(account, Promise(allowance, allowance.opened(), _NOT_YET))


_NOT_YET = 2**62  # after every entry


def _append_all(directory: Path, run: str, kind: str, bodies: Mapping[str, dict]) -> dict[str, str]:
    """One entry about a run that is open, to each ledger or to none; the heads that these have."""
    _check_name(run)
    with locked(directory, bodies) as ledgers:
        for silo, ledger in ledgers.items():
            account = account_of(ledger.content)
            _check_format(silo, account)
            after = next_state(silo, account, next_entry(None, kind, run, bodies[silo]))
            if kind == "charge":
                _check_lowered(silo, account, run, after)
        for silo, ledger in ledgers.items():
            ledger.append(kind, run, bodies[silo])
        _commit_all(ledgers, run)
        return {silo: ledger.head for silo, ledger in ledgers.items()}


def _check_lowered(silo: str, account: Account, name: str, run: Run) -> None:
    """Refuses a charge that a lifetime has no room for which was set after the run was reserved."""
    charged = Account(account.promises, {**account.runs, name: run})
    for promise in account.promises:
        if promise.since > run.since and not keeps(charged, promise):
            raise BudgetSpentError(
                f"Silo {silo!r}: its lifetime allowance was changed to epsilon "
                f"{promise.allowance.epsilon:g} at delta {promise.allowance.delta:g} since run "
                f"{name!r} began, and its next rounds do not fit that: close the run (silodp "
                "ledger close), or have the silo raise its allowance."
            )


def _commit_all(ledgers: Mapping[str, OpenLedger], run: str) -> None:
    done = []
    for silo, ledger in ledgers.items():
        try:
            ledger.commit()
        except SilodpError as error:
            raise SilodpError(
                f"Run {run!r} was written to the ledgers of {len(done)} of {len(ledgers)} silos "
                f"before one failed, and must not go on: {error}"
            ) from None
        done.append(silo)


def _accounts(
    directory: Path,
    reservations: Mapping[str, Reservation],
    allowances: Mapping[str, Allowance],
) -> dict[str, Account]:
    """Where each silo stands; read one by one, and not held."""
    for silo in reservations:
        if silo not in allowances:
            raise SilodpError(f"Silo {silo!r} has no lifetime allowance: give it one.")
    return {
        silo: _account(read_ledger(directory, silo), allowances[silo])
        if exists(directory, silo)
        else NEW
        for silo in reservations
    }


def _account(ledger: Ledger, allowance: Allowance) -> Account:
    """What the ledger says, if it counts in the way that the allowance does."""
    for field in ("relation", "unit"):
        kept, given = getattr(ledger, field), getattr(allowance, field)
        if kept != given:
            raise SilodpError(
                f"Silo {ledger.silo!r}: its ledger counts with {field} {kept!r}, but this run with "
                f"{given!r}, and the two cannot be added up: set the run's {field} to {kept!r}."
            )
    account = account_of(ledger)
    _check_format(ledger.silo, account)
    fixed = account.allowance
    if fixed is not None and fixed.filter != allowance.filter:
        raise SilodpError(
            f"Silo {ledger.silo!r}: its ledger was opened with the filter {fixed.filter!r}, which "
            f"is fixed for good, but the policy says {allowance.filter!r}: set lifetime_filter to "
            f"{fixed.filter!r}."
        )
    return account


def _check_format(silo: str, account: Account) -> None:
    if account.format != FORMAT:
        raise SilodpError(
            f"Silo {silo!r}: its ledger has format {account.format}, which added runs up as if all "
            "had been planned beforehand: silodp ledger convert makes it one that holds however "
            "runs are chosen, and says what it can still promise."
        )


def _admitted(
    accounts: Mapping[str, Account],
    reservations: Mapping[str, Reservation],
    allowances: Mapping[str, Allowance],
    progress: Callable[[int, int], None] | None,
) -> dict[str, bool]:
    """Whether each silo's lifetime is given to this run alone; refused if it fits nowhere."""
    alone: dict[str, bool] = {}
    beyond: dict[str, DoesNotFit] = {}
    for done, (silo, account) in enumerate(accounts.items(), start=1):
        cost = cost_of(_body(silo, reservations[silo]))
        promises = _promises(account, allowances[silo])
        why = lifetime.why_not(reservations[silo].event, promises[-1].lifetime)
        if why is not None and promises[-1].lifetime.kind == "gaussian":
            raise SilodpError(f"Silo {silo!r}: {why}.")
        try:
            alone[silo] = admits(account, cost, promises) == "alone"
        except DoesNotFit as misfit:
            beyond[silo] = misfit
        if progress is not None:
            progress(done, len(accounts))
    if beyond:
        raise _too_much(beyond, accounts, reservations, allowances)
    return alone


class BudgetSpentError(SilodpError):
    """A run that does not fit what a silo allows."""


def _too_much(
    beyond: Mapping[str, DoesNotFit],
    accounts: Mapping[str, Account],
    reservations: Mapping[str, Reservation],
    allowances: Mapping[str, Allowance],
) -> BudgetSpentError:
    """Names the silo in which the fewest rounds fit."""
    fitting = {
        silo: _rounds_that_fit(accounts[silo], reservations[silo], allowances[silo])
        for silo in beyond
    }
    tightest = min(beyond, key=lambda silo: (beyond[silo].given_to is None, fitting[silo]))
    account, reservation = accounts[tightest], reservations[tightest]
    misfit, allowance = beyond[tightest], allowances[tightest]
    count = len(beyond) - 1
    others = f" (nor that of {count} other silo{'s' * (count > 1)})" if count else ""
    if misfit.given_to is not None:
        return BudgetSpentError(
            f"Silo {tightest!r}: its lifetime allowance (epsilon {allowance.epsilon:g} at delta "
            f"{allowance.delta:g}) was given to run {misfit.given_to!r} alone, which did not fit "
            f"otherwise, and nothing else fits beside it{others}: have the silo raise its "
            "allowance."
        )
    promises = _promises(account, allowance)
    filtered = promises[-1].lifetime
    cost = cost_of(_body(tightest, reservation))
    taken = cost.taken(filtered)
    share = f"{taken / filtered.budget:.0%}" if math.isfinite(taken) else "more than all"
    left = left_of(Account(promises, account.runs)) / filtered.budget
    waiting = [name for name, run in account.runs.items() if run.closed is None]
    note = ""
    if waiting:
        note = (
            f" (of which {len(waiting)} open run{'s' * (len(waiting) > 1)} such as {waiting[0]!r} "
            "hold a part: silodp ledger close gives back what is never answered)"
        )
    elif not any(run.live for run in account.runs.values()):
        note = (
            f" (by itself it costs epsilon {planned_epsilon(cost, allowance):.4g} at the lifetime "
            "delta)"
        )
    overflow = math.fsum(one.overflow for one in (*account.counted, cost))
    if overflow > filtered.overflow_budget:
        return BudgetSpentError(
            f"Silo {tightest!r}: this run does not fit its lifetime allowance{others}: its draws "
            f"may overflow their slots with a chance of {cost.overflow:.2g}, and all runs together "
            f"may with {filtered.overflow_budget:.2g}, which a part of the lifetime's delta pays "
            "for: give the run a smaller delta, or have the silo raise its lifetime delta."
        )
    return BudgetSpentError(
        f"Silo {tightest!r}: this run does not fit its lifetime allowance{others}: {left:.0%} of "
        f"epsilon {allowance.epsilon:g} at delta {allowance.delta:g} is left{note}, and the run "
        f"would take {share}; with the same noise {fitting[tightest]} of its {reservation.rounds} "
        "rounds would still fit: give the run a smaller epsilon, or have the silo raise its "
        "allowance."
    )


def _rounds_that_fit(account: Account, reservation: Reservation, allowance: Allowance) -> int:
    """The largest number of rounds that fits; 0 always does, because it releases nothing."""
    promises = _promises(account, allowance)
    if reservation.blocks == 1:
        return 0

    def fits(rounds: int) -> bool:
        chance = reservation.overflow * rounds / reservation.rounds
        cost = Cost(event_text(reservation.event_of(PREPARATION, rounds)), chance)
        try:
            admits(account, cost, promises)
        except DoesNotFit:
            return False
        return True

    fitting, too_many = 0, reservation.rounds
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if fits(middle):
            fitting = middle
        else:
            too_many = middle
    return fitting


def _check_unused(accounts: Mapping[str, Account], run: str) -> None:
    for silo, account in accounts.items():
        if run in account.runs:
            raise already_reserved(silo, run)


def _check_name(run: str) -> None:
    if not run or len(run) > 200 or not run.isprintable():
        raise SilodpError(
            f"The run is called {run!r}: give it a name of 1 to 200 printable characters."
        )


def _body(silo: str, reservation: Reservation) -> dict[str, Any]:
    """The reservation in plain JSON, as it will be read back."""
    if type(reservation.rounds) is not int or reservation.rounds < 1:
        raise SilodpError(
            f"Silo {silo!r}: a run of {reservation.rounds!r} rounds cannot be reserved."
        )
    if not 0 <= reservation.overflow <= 1:
        raise SilodpError(
            f"Silo {silo!r}: overflow is {reservation.overflow!r}, but is a chance: give 0 to 1."
        )
    return _plain(
        silo,
        {
            **reservation.cost(PREPARATION, reservation.rounds + 1),
            "rounds": reservation.rounds,
            "about": reservation.about,
        },
    )


def _plain(silo: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(canonical(body))
    except (TypeError, ValueError) as error:
        raise SilodpError(
            f"Silo {silo!r}: the charge cannot be written as JSON ({error}): give plain numbers, "
            "text, lists and tables."
        ) from None
