"""A federation on one machine, to try silodp out: processes, certificates and files are real."""

import contextlib
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.privacy.ledger.storage import read_ledger
from silodp.privacy.policy import Policy
from silodp.results.result import Result, read_result
from silodp.runs.requests import without_effect
from silodp.runs.run import run
from silodp.sites.federation_setup import set_up_federation
from silodp.sites.flare.processes import (
    SERVER_PID,
    SITE_PID,
    start_server,
    start_site,
    stop,
)
from silodp.sites.flare.submission import run_job
from silodp.sites.job_at_site import RESULTS
from silodp.sites.made_up import BUDGETS, DELTA, NAMES, fed_text, in_rounds, made_up_table
from silodp.sites.membership.authority import Authority, open_authority
from silodp.sites.membership.coordinator import approve, read_request
from silodp.sites.membership.site import take_certificate, write_request
from silodp.sites.proposal import Proposal
from silodp.sites.site_data import DataAtSite, load_records
from silodp.sites.site_files import read_site
from silodp.sites.site_setup import (
    SiteSettings,
    consent_to,
    offered_proposal,
    set_up,
    site_status,
)


def run_demo(
    out: Path,
    sites: int,
    rounds: int,
    say: Callable[[str], None],
    report: Callable[[dict[str, Any] | None, Sequence[str], str], None],
) -> list[dict[str, Any]]:
    """Sets a federation up, trains, stops it; returns a row for each site."""
    if out.exists() and any(out.iterdir()):
        raise SilodpError(f"{out} is there already: choose another --out.")
    names = NAMES[:sites]
    fed = write_file(out / "demo.toml", fed_text(names, free_port(), in_rounds(rounds)))
    say("Making an authority, and for each site a key and a certificate")
    passphrase = secrets.token_hex()  # of no further use: this federation stays as it is
    made = set_up_federation(fed, out / "coordinator", passphrase)
    authority = open_authority(made.folder, passphrase)
    folders = {}
    for place, (name, invitation) in enumerate(zip(names, made.invitations, strict=True)):
        records = out / "records" / f"{name}.csv"
        write_file(records, made_up_table(place).to_csv(index=False))
        data = DataAtSite(path=records.absolute())
        policy = Policy(BUDGETS[place % len(BUDGETS)], DELTA)
        folders[name] = set_up(invitation, out / "sites" / name, SiteSettings(data, policy))
        consent_to(folders[name], offered_proposal(folders[name], None))
        let_in(made.folder, authority, folders[name])
    with contextlib.ExitStack() as stack:
        stack.callback(stop, made.folder / SERVER_PID)
        say("Starting the coordinator's server")
        start_server(made.folder)
        for name, folder in folders.items():
            stack.callback(stop, folder / SITE_PID)
            say(f"Starting site {name}")
            start_site(folder)
        job = made.proposal.job()
        run_job(
            made.folder,
            job,
            made.proposal.sites,
            patience=60.0,
            report=lambda progress: report(progress, made.proposal.sites, job),
            say=say,
        )
        say("Stopping")
    local = _local_errors(folders, made.proposal)
    return [
        {
            "site": name,
            "epsilon": read_site(folder).policy.epsilon,
            "spent": site_status(folder)["spent"],
            **_tested(read_result(folder / RESULTS / job)),
            "local": local[name],
            "ledger": f"intact, {len(read_ledger(read_site(folder).ledger, name).entries)} entries",
        }
        for name, folder in folders.items()
    ]


def let_in(fed: Path, authority: Authority, site: Path) -> None:
    """Asks for a site's certificate, approves it, takes it: all on one machine."""
    request = read_request(fed, write_request(site))
    take_certificate(site, approve(fed, authority, request))


def _tested(result: Result) -> dict[str, Any]:
    """The site's metric, by its own name."""
    return {"metric": result.metric, result.metric: result.mean}


def _local_errors(folders: dict[str, Path], proposal: Proposal) -> dict[str, float]:
    """The error of local training at each site with the same budget, by simulation."""
    errors = {}
    for name, folder in folders.items():
        site = read_site(folder)
        alone = load_records(
            name,
            site.data,
            proposal.schema,
            seed=site.seed,
            test_fraction=site.test_fraction,
            id_column=site.id_column,
        )
        training = {n: v for n, v in proposal.training.items() if v is not None}
        training |= {"method": "local"}
        useless = without_effect(training, training)  # beside a method that was not agreed on
        training = {option: value for option, value in training.items() if option not in useless}
        result = run(
            federation=replace(alone, name="demo"),
            epsilon=site.policy.epsilon,
            delta=site.policy.delta,
            seeds=5,
            **training,
        )
        errors[name] = result.mean
    return errors


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
