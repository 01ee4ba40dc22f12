"""Reservations in the silos' ledgers: what a run may take of each, from options and plans.

A simulation has none by default; `--ledger DIR` turns them on. `privacy.session` uses them.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dp_accounting.dp_event import DpEvent, SelfComposedDpEvent

from silodp.base.errors import SilodpError
from silodp.base.values import plain
from silodp.config.options import RunRequest, tagged
from silodp.data import registry as datasets
from silodp.data.tasks import USUAL_TASK
from silodp.methods import get_method
from silodp.models.model import is_heavy
from silodp.privacy.ledger.account import Allowance
from silodp.privacy.ledger.charging import Reservation
from silodp.privacy.ledger.storage import SUFFIX, Ledger, ledger_paths, read_path
from silodp.privacy.ledger.words import QUESTION
from silodp.privacy.mechanisms.statistics import gaussian_event
from silodp.privacy.plan import SiloPlan
from silodp.privacy.policy import Policy
from silodp.privacy.session import RunLedgers
from silodp.runs.prepare import Prepared, data_options, plans_of, policies_of
from silodp.runs.resolve import ResolvedOptions, resolve


class Release(NamedTuple):
    """Statistics that a silo releases outside any run, by one Gaussian mechanism."""

    silo: str
    what: str
    records: int
    unit: str
    noise_multiplier: float
    epsilon: float
    delta: float


# The number of blocks in which a simulated run is charged; each is a write to every ledger.
BLOCKS = 4


def ledgers_of(prepared: Prepared) -> RunLedgers | None:
    """What the run may take of each ledger; None without ledgers."""
    spec = prepared.specs[0]
    if spec.request.ledger is None:
        return None
    if len(prepared.specs) > 1:
        raise SilodpError(
            "--ledger: settings of one sweep share their noise, so that their costs do not add up: "
            "charge one setting at a time, with `run`."
        )
    names = prepared.federations[0].names
    for plan in spec.plans:
        if not plan.private or plan.unproven:
            reason = plan.statement()["unproven"][0].removesuffix(".")
            raise SilodpError(
                f"Silo {plan.silo!r}: a ledger holds only what is proven, and this run is not "
                f"({reason.rstrip('.')}): change it, or leave out --ledger."
            )
    return _ledgers(spec, names, spec.plans, spec.policies)


def _ledgers(
    options: ResolvedOptions,
    names: Sequence[str],
    plans: Sequence[SiloPlan],
    policies: Sequence[Policy],
) -> RunLedgers:
    assert options.request.ledger is not None
    return RunLedgers(
        options.request.ledger,
        {name: _reservation(options, plan) for name, plan in zip(names, plans, strict=True)},
        _allowances(names, policies),
    )


def _allowances(names: Sequence[str], policies: Sequence[Policy]) -> dict[str, Allowance]:
    return {
        name: Allowance(*policy.lifetime, policy.relation, policy.unit, policy.lifetime_filter)  # type: ignore[arg-type]
        for name, policy in zip(names, policies, strict=True)
    }


def ledgers_of_release(
    request: RunRequest, releases: Sequence[Release], policies: Sequence[Policy]
) -> RunLedgers | None:
    """What statistics released outside any run may take of each ledger; None without ledgers.

    In a ledger they are a run of one round: all of them are released at once, or none.
    """
    if request.ledger is None:
        return None
    for release in releases:
        if math.isinf(release.epsilon):
            raise SilodpError(
                f"Silo {release.silo!r}: a ledger holds only what is proven, and no privacy is "
                "asked for there: give it a finite epsilon, or leave out --ledger."
            )
    names = [release.silo for release in releases]
    reservations = {release.silo: _reservation_of_release(request, release) for release in releases}
    return RunLedgers(request.ledger, reservations, _allowances(names, policies))


def _reservation_of_release(request: RunRequest, release: Release) -> Reservation:
    def event_of(first: int, last: int) -> DpEvent:
        return gaussian_event(release.noise_multiplier, int(first <= 0 < last))

    about = {
        "summary": f"{release.what} of {request.data}, {release.records} {release.unit}s, noise "
        f"{release.noise_multiplier:.4g}",
        "data": request.data,
        "data_options": _which_records(request),
        **release._asdict(),
    }
    return Reservation(0.0, about, 1, event_of)


def _reservation(options: ResolvedOptions, plan: SiloPlan) -> Reservation:
    """The reservation of a silo; each seed is a run of its own, and costs as much again."""
    request = options.request

    def event_of(first: int, last: int) -> DpEvent:
        return SelfComposedDpEvent(plan.event_of(first, last), request.seeds)

    seeds = f", {request.seeds} seeds" if request.seeds > 1 else ""
    about = {
        "summary": f"{request.method} on {request.data}{seeds}, {plan.public_count} {plan.unit}s, "
        f"noise {plan.noise_multiplier:.4g} ({', '.join(sorted(plan.queries()))})",
        "data": request.data,
        "data_options": _which_records(request),
        "method": request.method,
        "model": options.model_name,
        "seeds": request.seeds,
        "records": plan.public_count,
        "queries": sorted(plan.queries()),
        **plan.statement(),
    }
    return Reservation(
        overflow=min(1.0, plan.overflow * request.seeds),
        about=about,
        rounds=plan.schedule.rounds,
        event_of=event_of,
        # The guarantee of tuning is proven for the run as a whole, not for a block.
        blocks=1 if plan.tuning is not None else BLOCKS,
    )


def refuse_early(request: RunRequest) -> None:
    """Refuses a run that would exceed a silo's policy before any record is read.

    Each ledger knows its silo's record count from the last run on these data. With a new ledger,
    or other data, the check after loading decides.
    """
    if request.ledger is None or not any(request.ledger.glob(f"*{SUFFIX}")):
        return
    ledgers = [read_path(path) for path in ledger_paths(request.ledger)]
    # The folder may hold ledgers of other data too: only those charged for these data count.
    ledgers = [ledger for ledger in ledgers if _is_about(_last_about(ledger), request)]
    counts = {ledger.silo: _last_about(ledger)["records"] for ledger in ledgers}
    if not counts:
        return
    defaults = datasets.defaults_without_reading(request.data, data_options(request))
    options = resolve(request, defaults, None, request.task or USUAL_TASK)
    by_subject = any(ledger.unit == "subject" for ledger in ledgers)
    try:
        policies = policies_of(options, list(counts), by_subject)
        plans = plans_of(
            options,
            list(counts),
            list(counts.values()),
            policies,
            get_method(request.method),
            is_heavy(options.model_name),
        )
    except SilodpError:
        return  # the ledgers are not those of these silos: the check after loading decides
    _ledgers(options, list(counts), plans, policies).check()


def _is_about(about: dict[str, Any], request: RunRequest) -> bool:
    """Whether a charge was for the records of this request."""
    same_data = about.get("data") == request.data
    # A tuned run trains on part of the records only.
    all_trained = "tuning" not in about.get("queries", ())
    return same_data and all_trained and about.get("data_options") == _which_records(request)


def _which_records(request: RunRequest) -> dict[str, Any]:
    """The data options that decide which records a silo has."""
    options = data_options(request)
    given = {name: getattr(options, name) for name in tagged("records")}
    return plain({name: value for name, value in given.items() if value is not None})


def _last_about(ledger: Ledger) -> dict[str, Any]:
    """The description of the silo's latest run, such as its data and record count."""
    about = [entry.body["about"] for entry in ledger.entries if "about" in entry.body]
    about = [one for one in about if QUESTION not in one]
    return about[-1] if about else {}
