"""A run and the silos' ledgers: refused if it does not fit, charged before it starts, closed after.

Off by default in simulation; `--ledger DIR` turns it on.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from dp_accounting.dp_event import DpEvent, SelfComposedDpEvent

from silodp import datasets
from silodp.engines.checkpoint import Checkpoint
from silodp.errors import SilodpError
from silodp.json_values import plain
from silodp.methods import get_method
from silodp.models import is_heavy
from silodp.options import RunOptions
from silodp.prepare import Prepared, data_options, filled, plans_of, policies_of
from silodp.privacy.charging import (
    Charge,
    charge_all,
    finish_all,
    resume_all,
    void_all,
    would_exceed,
)
from silodp.privacy.ledger import SUFFIX, Ledger, ledger_paths, read_path
from silodp.privacy.plan import SiloPlan
from silodp.privacy.policy import Policy
from silodp.privacy.spending import Allowance
from silodp.privacy.statistics import gaussian_event
from silodp.reporting import Reporter


class Account(NamedTuple):
    """What a run will be charged for, in which ledgers.

    Attributes:
      directory: of the ledgers.
      charges: of each ledger, by its name.
      allowances: likewise.
      strictest: whether a stricter allowance that is in force holds on (see `charge_all`).
    """

    directory: Path
    charges: dict[str, Charge]
    allowances: dict[str, Allowance]
    strictest: bool = False

    def to_source(self, name: str) -> "Account":
        """The same of a single silo, charged to the ledger of its records, which others use too."""
        ((silo, charge),) = self.charges.items()
        return Account(self.directory, {name: charge}, {name: self.allowances[silo]}, True)

    def marked(self, **about: Any) -> "Account":
        """The same, with more that the charges say of themselves."""
        charges = {n: replace(one, about=one.about | about) for n, one in self.charges.items()}
        return self._replace(charges=charges)

    def check(self) -> None:
        """Refuses what does not fit, and writes nothing."""
        would_exceed(self.directory, self.charges, self.allowances, strictest=self.strictest)

    def charge(self, run: str, progress: Callable[[int, int], None] | None = None) -> None:
        """Charges all ledgers for a run of that name, or none."""
        charge_all(
            self.directory,
            self.charges,
            self.allowances,
            run,
            strictest=self.strictest,
            progress=progress,
        )


class OpenCharge:
    """A run that is paid for: the only place that knows whether its charge may still be voided.

    That may be only while no record was asked anything, which nothing but `before_query` ends, and
    nothing begins again: neither progress, nor a later part of the run, nor going on after an
    interruption. Whatever is not an error of that time (an interruption, a process that is killed)
    keeps the charge. A run whose engine never called `before_query` cannot end well, ledger or not,
    so that an engine which forgets to is found by whoever runs it first.

    Attributes:
      run: its name in the ledgers; empty without any.
    """

    def __init__(self, account: Account | None, at: Checkpoint | None, reporter: Reporter):
        """Charges the run, or goes on with one that was charged."""
        self._account, self._queried = account, at is not None
        self.run = ""
        if account is None:
            return
        if at is not None:
            self.run = at.charge
            resume_all(account.directory, list(account.charges), self.run, at.round)
            return
        self.run = secrets.token_hex(8)
        reporter.stage("charging ledgers")
        account.charge(self.run, reporter.calibrated)

    def before_query(self) -> None:
        """To be called before records are asked anything: from here on the charge stays."""
        self._queried = True

    def finish(self) -> None:
        """The run has ended as charged."""
        if self._account is not None:
            finish_all(self._account.directory, list(self._account.charges), self.run)

    def __enter__(self) -> "OpenCharge":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Voids the charge where the run failed before any query."""
        if error is None and not self._queried:
            raise RuntimeError("The engine did not say that it asks records: see OpenCharge.")
        if self._account is not None and isinstance(error, Exception) and not self._queried:
            why = f"failed before any query: {type(error).__name__}"
            void_all(self._account.directory, list(self._account.charges), self.run, why)


class Release(NamedTuple):
    """Statistics that a silo releases outside any run, by one Gaussian mechanism."""

    silo: str
    what: str
    records: int
    unit: str
    noise_multiplier: float
    epsilon: float
    delta: float


def account_of(prepared: Prepared) -> Account | None:
    """What the run will be charged for; None without a ledger."""
    asked = prepared.asked[0]
    if asked.ledger is None:
        return None
    if len(prepared.plans) > 1:
        raise SilodpError(
            "--ledger: settings of one sweep share their noise, so that their costs do not add up: "
            "charge one setting at a time, with `run`."
        )
    names = prepared.federations[0].names
    plans, policies = prepared.plans[0], prepared.policies[0]
    for plan in plans:
        if not plan.private or plan.unproven:
            reason = plan.statement()["unproven"][0]
            raise SilodpError(
                f"Silo {plan.silo!r}: a ledger holds only what is proven, and this run is not "
                f"({reason}): change it, or leave out --ledger."
            )
    return _account(asked, names, plans, policies)


def _account(
    asked: RunOptions,
    names: Sequence[str],
    plans: Sequence[SiloPlan],
    policies: Sequence[Policy],
) -> Account:
    assert asked.ledger is not None
    return Account(
        asked.ledger,
        {name: _charge(asked, plan) for name, plan in zip(names, plans, strict=True)},
        _allowances(names, policies),
    )


def _allowances(names: Sequence[str], policies: Sequence[Policy]) -> dict[str, Allowance]:
    return {
        name: Allowance(*policy.lifetime, policy.relation, policy.unit)  # type: ignore[arg-type]
        for name, policy in zip(names, policies, strict=True)
    }


def account_of_release(
    asked: RunOptions, releases: Sequence[Release], policies: Sequence[Policy]
) -> Account | None:
    """What statistics that are released outside any run will be charged for; None without a ledger.

    In a ledger they are a run of one round, because all of it is released at once or nothing is.
    """
    if asked.ledger is None:
        return None
    for release in releases:
        if math.isinf(release.epsilon):
            raise SilodpError(
                f"Silo {release.silo!r}: a ledger holds only what is proven, and no privacy is "
                "asked for there: give it a finite epsilon, or leave out --ledger."
            )
    names = [release.silo for release in releases]
    charges = {release.silo: _charge_of_release(asked, release) for release in releases}
    return Account(asked.ledger, charges, _allowances(names, policies))


def _charge_of_release(asked: RunOptions, release: Release) -> Charge:
    event = gaussian_event(release.noise_multiplier, 1)

    def event_of_rounds(rounds: int) -> DpEvent:
        return SelfComposedDpEvent(event, rounds)

    about = {
        "summary": f"{release.what} of {asked.data}, {release.records} {release.unit}s, noise "
        f"{release.noise_multiplier:.4g}",
        "data": asked.data,
        "data_options": _which_records(asked),
        **release._asdict(),
    }
    return Charge(event, 0.0, about, 1, event_of_rounds)


def _charge(asked: RunOptions, plan: SiloPlan) -> Charge:
    """Each seed is a run of its own: together they cost that many times as much."""

    def event_of_rounds(rounds: int) -> DpEvent:
        return SelfComposedDpEvent(plan.event_of_rounds(rounds), asked.seeds)

    seeds = f", {asked.seeds} seeds" if asked.seeds > 1 else ""
    about = {
        "summary": f"{asked.method} on {asked.data}{seeds}, {plan.records} {plan.unit}s, noise "
        f"{plan.noise_multiplier:.4g} ({', '.join(sorted(plan.queries()))})",
        "data": asked.data,
        "data_options": _which_records(asked),
        "method": asked.method,
        "model": asked.model,
        "seeds": asked.seeds,
        "records": plan.records,
        "queries": sorted(plan.queries()),
        **plan.statement(),
    }
    return Charge(
        event=event_of_rounds(plan.schedule.rounds),
        overflow=min(1.0, plan.overflow * asked.seeds),
        about=about,
        rounds=plan.schedule.rounds,
        event_of_rounds=event_of_rounds,
    )


def refuse_early(asked: RunOptions) -> None:
    """Refuses a run that would exceed a silo's policy before any record is read.

    How many records a silo has, its ledger knows from its last run on these data. If the ledger is
    new, or the data are others, the same check after loading decides.
    """
    if asked.ledger is None or not any(asked.ledger.glob(f"*{SUFFIX}")):
        return
    ledgers = [read_path(path) for path in ledger_paths(asked.ledger)]
    # A folder may hold the ledgers of others too: only those that these data were charged to count.
    ledgers = [ledger for ledger in ledgers if _is_about(_last_about(ledger), asked)]
    counts = {ledger.silo: _last_about(ledger)["records"] for ledger in ledgers}
    if not counts:
        return
    defaults = datasets.defaults_without_reading(asked.data, data_options(asked))
    asked = filled(asked, defaults, None, asked.task or "")
    by_subject = any(ledger.unit == "subject" for ledger in ledgers)
    try:
        policies = policies_of(asked, list(counts), by_subject)
        plans = plans_of(
            asked,
            list(counts),
            list(counts.values()),
            policies,
            get_method(asked.method),
            is_heavy(asked.model or ""),
        )
    except SilodpError:
        return  # the ledgers are of other silos than the data: what is loaded will tell
    _account(asked, list(counts), plans, policies).check()


def _is_about(about: dict[str, Any], asked: RunOptions) -> bool:
    """Whether a charge was for the same records as are asked for now."""
    same_data = about.get("data") == asked.data
    # A tuned run trains on a part of them.
    all_trained = "tuning" not in about.get("queries", ())
    return same_data and all_trained and about.get("data_options") == _which_records(asked)


def _which_records(asked: RunOptions) -> dict[str, Any]:
    """The data options that decide which records a silo has."""
    given = asdict(data_options(asked))
    for name in ("data_dir", "no_cache", "preprocess"):
        del given[name]
    return plain({name: value for name, value in given.items() if value is not None})


def _last_about(ledger: Ledger) -> dict[str, Any]:
    """What the silo's latest charge says of itself: such as data and record count."""
    charges = [entry.body for entry in ledger.entries if entry.kind == "charge"]
    return charges[-1]["about"] if charges else {}
