"""Charging a run to the ledgers of its silos: all of them, before anything is released, or none."""

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from silodp.errors import SilodpError
from silodp.privacy import events
from silodp.privacy.chain import canonical, next_entry
from silodp.privacy.ledger import Ledger, OpenLedger, create, exists, locked, read_ledger
from silodp.privacy.spending import (
    NEW,
    Account,
    Allowance,
    Cost,
    account_of,
    already_charged,
    cost_of,
    event_text,
    next_state,
    set_aside,
    spent,
)


@dataclass(frozen=True)
class Charge:
    """What a run will cost one silo.

    Attributes:
      event: all that it releases.
      overflow: the chance that any draw of the run does not fit its slots, in which case `event`
        is not what happens. It is a chance, not a part of delta: what it takes off delta depends
        on all that is spent (see `set_aside`).
      about: for people, in plain JSON: data, method, records, noise and so on. Never keys or seeds.
      rounds: of the run.
      event_of_rounds: all that its first so many rounds release.
    """

    event: DpEvent
    overflow: float
    about: dict[str, Any]
    rounds: int
    event_of_rounds: Callable[[int], DpEvent]


def would_exceed(
    directory: Path,
    charges: Mapping[str, Charge],
    allowances: Mapping[str, Allowance],
    *,
    strictest: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Refuses charges that do not fit, as `charge_all` would, but writes nothing.

    A silo without a ledger is new: nothing was spent.
    """
    accounts = _accounts(directory, charges, allowances)
    _check(accounts, charges, _in_force(accounts, allowances, strictest), progress)


def charge_all(
    directory: Path,
    charges: Mapping[str, Charge],
    allowances: Mapping[str, Allowance],
    run: str,
    *,
    strictest: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Charges a run to all its silos, or (if it does not fit one of them) to none.

    Nothing may be released before this returns. If the process is killed within, some silos may be
    charged for a run that released nothing, never the other way round.

    Args:
      directory: that holds the ledgers; missing ones are opened.
      charges: of each silo.
      allowances: of each silo. One that differs from that in force is written down as a change.
      run: its name, never used before.
      strictest: whether an allowance that is in force and stricter holds on: where several parties
        charge one ledger, none of them loosens what another relies on (see `allow`).
      progress: called with (done, total) while costs are worked out.
    """
    _check_name(run)
    # Costs are worked out here, unlocked; what is refused leaves neither folder nor file behind.
    accounts = _accounts(directory, charges, allowances)
    _check_unused(accounts, run)
    _check(accounts, charges, _in_force(accounts, allowances, strictest), progress)
    for silo in charges:
        if not exists(directory, silo):
            create(directory, silo, allowances[silo].relation, allowances[silo].unit)
    with locked(directory, charges) as ledgers:
        # Again, because another process may have charged meanwhile.
        accounts = {
            silo: _account(ledger.content, allowances[silo]) for silo, ledger in ledgers.items()
        }
        _check_unused(accounts, run)
        in_force = _in_force(accounts, allowances, strictest)
        _check(accounts, charges, in_force, None)
        for silo, ledger in ledgers.items():
            if accounts[silo].allowance != in_force[silo]:
                _append_policy(ledger, in_force[silo])
            ledger.append("charge", run, _body(silo, charges[silo]))
        _commit_all(ledgers, run)


def allow(directory: Path, silo: str, epsilon: float, delta: float | None = None) -> Allowance:
    """Changes a silo's lifetime allowance, more or less; the change is written down.

    It is meant for ledgers that several parties charge, none of which may loosen it. Without a
    delta, that in force stays.
    """
    with locked(directory, [silo]) as ledgers:
        ledger, content = ledgers[silo], ledgers[silo].content
        before = account_of(content).allowance
        if delta is None and before is not None:
            delta = before.delta
        if delta is None:
            raise SilodpError(f"Silo {silo!r} has no lifetime delta yet: give one, such as 1e-5.")
        allowance = Allowance(epsilon, delta, content.relation, content.unit)
        if allowance != before:
            _append_policy(ledger, allowance)
            ledger.commit()
    return allowance


def _append_policy(ledger: OpenLedger, allowance: Allowance) -> None:
    ledger.append("policy", "", {"epsilon": allowance.epsilon, "delta": allowance.delta})


def _in_force(
    accounts: Mapping[str, Account], allowances: Mapping[str, Allowance], strictest: bool
) -> Mapping[str, Allowance]:
    """The allowances that hold once a run is charged."""
    if not strictest:
        return allowances
    return {silo: allowances[silo].stricter(one.allowance) for silo, one in accounts.items()}


def resume_all(directory: Path, silos: Collection[str], run: str, round: int) -> None:
    """An interrupted run goes on after this round: what it was charged for covers the rest."""
    _append_all(directory, run, "resume", {silo: {"round": round} for silo in silos})


def finish_all(directory: Path, silos: Collection[str], run: str) -> None:
    """A run has ended as charged."""
    _append_all(directory, run, "finish", {silo: {} for silo in silos})


def void_all(directory: Path, silos: Collection[str], run: str, reason: str) -> None:
    """A run failed before it released anything: it does not count any more.

    Only the caller knows that nothing was released. If in doubt, settle or finish.
    """
    _append_all(directory, run, "void", {silo: {"reason": reason} for silo in silos})


def settle_all(directory: Path, charges: Mapping[str, Charge], run: str) -> None:
    """A run has ended early: it counts for these charges, which may not be dearer, from now on."""
    bodies = {silo: _body(silo, charge) for silo, charge in charges.items()}
    _append_all(directory, run, "settle", bodies)


def _append_all(directory: Path, run: str, kind: str, bodies: Mapping[str, dict]) -> None:
    """One entry about a run that is open, to each ledger or to none."""
    _check_name(run)
    with locked(directory, bodies) as ledgers:
        for silo, ledger in ledgers.items():
            account = account_of(ledger.content)
            next_state(silo, account, next_entry(None, kind, run, bodies[silo]))
            if kind == "settle":
                _check_cheaper(silo, account, run, cost_of(bodies[silo]))
        for silo, ledger in ledgers.items():
            ledger.append(kind, run, bodies[silo])
        _commit_all(ledgers, run)


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


def _check_cheaper(silo: str, account: Account, run: str, cost: Cost) -> None:
    allowance, before = account.allowance, account.runs[run].cost
    assert allowance is not None  # there is a charge, and none precedes the allowance
    costs = [spent([replace(c, overflow=0.0)], allowance) for c in (before, cost)]
    if not costs[1] <= costs[0]:
        raise SilodpError(
            f"Silo {silo!r}: run {run!r} cannot be settled for epsilon {costs[1]:.4g}, because it "
            f"was charged for {costs[0]:.4g}: a run never costs more than was charged beforehand."
        )


def _accounts(
    directory: Path, charges: Mapping[str, Charge], allowances: Mapping[str, Allowance]
) -> dict[str, Account]:
    """Where each silo stands; read one by one, and not held."""
    for silo in charges:
        if silo not in allowances:
            raise SilodpError(f"Silo {silo!r} has no lifetime allowance: give it one.")
    return {
        silo: _account(read_ledger(directory, silo), allowances[silo])
        if exists(directory, silo)
        else NEW
        for silo in charges
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
    return account_of(ledger)


def _check(
    accounts: Mapping[str, Account],
    charges: Mapping[str, Charge],
    allowances: Mapping[str, Allowance],
    progress: Callable[[int, int], None] | None,
) -> None:
    """Refuses the charges if any silo's allowance would be exceeded."""
    beyond = []
    for done, (silo, account) in enumerate(accounts.items(), start=1):
        cost = cost_of(_body(silo, charges[silo]))
        if not spent((*account.live, cost), allowances[silo]) <= allowances[silo].epsilon:
            beyond.append(silo)
        if progress is not None:
            progress(done, len(accounts))
    if beyond:
        raise _too_much(beyond, accounts, charges, allowances)


class BudgetSpentError(SilodpError):
    """A charge that does not fit what a silo allows."""


def _too_much(
    beyond: list[str],
    accounts: Mapping[str, Account],
    charges: Mapping[str, Charge],
    allowances: Mapping[str, Allowance],
) -> BudgetSpentError:
    """Names the silo in which the fewest rounds fit."""
    tightest, most = "", math.inf
    for silo in beyond:
        if most == 0:
            break
        account, charge, allowance = accounts[silo], charges[silo], allowances[silo]

        def fits(rounds: int, account=account, charge=charge, allowance=allowance) -> bool:
            event = event_text(charge.event_of_rounds(rounds))
            cost = Cost(event, charge.overflow, rounds, {})
            return spent((*account.live, cost), allowance) <= allowance.epsilon

        # Most silos are dealt with by one look: they are no tighter than the tightest so far.
        if most == math.inf or not fits(int(most)):
            tightest = silo
            most = _largest(fits, charge.rounds if most == math.inf else int(most))
    allowance, charge = allowances[tightest], charges[tightest]
    live = accounts[tightest].live
    cost = cost_of(_body(tightest, charge))
    count = len(beyond) - 1
    others = f" (nor that of {count} other silo{'s' * (count > 1)})" if count else ""
    aside = set_aside((*live, cost), allowance.epsilon)
    note = (
        f"; draws that may not fit take {aside:.2g} of its delta"
        if aside > allowance.delta / 10
        else ""
    )
    return BudgetSpentError(
        f"Silo {tightest!r}: this run does not fit its lifetime allowance{others}: "
        f"{spent(live, allowance):.4g} of epsilon {allowance.epsilon:g} at delta "
        f"{allowance.delta:g} is spent, and the run would bring it to "
        f"{spent((*live, cost), allowance):.4g}{note}; with the same noise {most} of its "
        f"{charge.rounds} rounds would still fit: give the run a smaller epsilon, or have the silo "
        "raise its allowance."
    )


def _largest(fits: Callable[[int], bool], too_many: int) -> int:
    """The largest number below `too_many` that fits; 0 always does, because it releases nothing."""
    fitting = 0
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
            raise already_charged(silo, run)


def _check_name(run: str) -> None:
    if not run or len(run) > 200 or not run.isprintable():
        raise SilodpError(
            f"The run is called {run!r}: give it a name of 1 to 200 printable characters."
        )


def _body(silo: str, charge: Charge) -> dict[str, Any]:
    """The charge in plain JSON, as it will be read back."""
    if type(charge.rounds) is not int or charge.rounds < 0:
        raise SilodpError(f"Silo {silo!r}: a run of {charge.rounds!r} rounds cannot be charged.")
    if not 0 <= charge.overflow <= 1:
        raise SilodpError(
            f"Silo {silo!r}: overflow is {charge.overflow!r}, but is a chance: give 0 to 1."
        )
    body = {
        "event": events.to_json(charge.event),
        "overflow": float(charge.overflow),
        "rounds": charge.rounds,
        "about": charge.about,
    }
    try:
        return json.loads(canonical(body))
    except (TypeError, ValueError) as error:
        raise SilodpError(
            f"Silo {silo!r}: the charge cannot be written as JSON ({error}): give plain numbers, "
            "text, lists and tables."
        ) from None
