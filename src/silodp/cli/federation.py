"""`silodp federation`: for the coordinator of sites, who sees what they release, nothing else."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.cli.options import AsJson, Yes
from silodp.cli.site import Check, Foreground, ServiceOut, print_problems, say_check
from silodp.cli.terminal import answers, if_interrupted, notes, print_json, safe

if TYPE_CHECKING:
    from silodp.sites.federation_setup import Proposed

PASSPHRASE = "SILODP_PASSPHRASE"

app = typer.Typer(
    help="Coordinates sites that train together, each on its own machine.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The federation's folder.")]
Earlier = Annotated[
    int | None,
    typer.Option("--proposal", help="Number of an earlier proposal, to go on with its job.", min=1),
]
Run = Annotated[
    int, typer.Option("--run", help="2, 3, ... for a further run, which is charged again.", min=1)
]


def _passphrase(new: bool = False) -> str:
    """The passphrase of the authority's key: from the environment, or asked for."""
    given = os.environ.get(PASSPHRASE)
    if given:
        return given
    if not sys.stdin.isatty():
        raise SilodpError(
            f"The passphrase of the authority's key is missing: give it in {PASSPHRASE}, or at a "
            "terminal."
        )
    words = "A passphrase for the authority's key" if new else "The authority's passphrase"
    return typer.prompt(words, hide_input=True, confirmation_prompt=new)


@app.command("init")
def init(
    file: Annotated[
        Path, typer.Argument(metavar="FED.toml", help="The federation file that sites agree on.")
    ],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to make; else named after the file.")
    ] = None,
) -> None:
    """Makes the coordinator's folder, its authority, and an invitation to send to each site.

    The authority's key lets sites in. A passphrase protects it: it is asked for, or taken from
    SILODP_PASSPHRASE. Nobody can give it back to you.
    """
    from silodp.sites.federation_setup import set_up_federation

    console = answers(soft_wrap=True)
    passphrase = _passphrase(new=True)
    with notes().status("Making keys and certificates..."):
        setup = set_up_federation(file, folder, passphrase)
    here = safe(str(setup.folder))
    _say_send(setup.invitations)
    console.print(f"Fingerprint of the authority: {setup.fingerprint}")
    console.print(
        "Read it to each site by phone: a site that sees another one has an invitation from "
        "somebody else. There: silodp site init INVITATION."
    )
    console.print(f"Next: silodp federation start {here}, and approve the requests that come back")


@app.command("approve")
def approve(
    folder: Folder,
    files: Annotated[
        list[Path], typer.Argument(metavar="REQUESTS...", help="What sites sent: NAME.request.")
    ],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="The site's present key is lost or stolen: it is shut out at once.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Issues the certificates that sites ask for, after their fingerprints were compared.

    A renewal is by the key that the site has: there is nothing to compare. Other sites are not
    touched.
    """
    from silodp.sites.membership import coordinator
    from silodp.sites.membership.authority import open_authority

    console = answers(soft_wrap=True)
    requests = [coordinator.read_request(folder, path, replace) for path in files]
    for one in requests:
        console.print(f"{safe(one.site)} asks with the key {one.fingerprint}")
    unproven = [one.site for one in requests if not (one.proven or one.known)]
    if unproven and not yes:
        question = (
            f"Have you compared by phone, with a number that you knew: {', '.join(unproven)}?"
        )
        if not typer.confirm(question, default=False):
            console.print("Nothing was approved.")
            return
    authority = open_authority(folder, _passphrase())
    _say_send([coordinator.approve(folder, authority, one, replace) for one in requests])
    console.print("There: silodp site join DIR FILE")


@app.command("add-site")
def add_site(
    folder: Folder,
    names: Annotated[list[str], typer.Argument(metavar="NAMES...", help="Names of new sites.")],
) -> None:
    """Invites further sites: makes a proposal that has them too, for all sites to consent to."""
    from silodp.sites.federation_setup import add_sites

    _say_proposed(folder, add_sites(folder, names, _passphrase()))


@app.command("remove-site")
def remove_site(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The site.")],
    yes: Yes = False,
) -> None:
    """Shuts a site out, for good and at once; its name does not come back. No other is touched."""
    from silodp.sites.membership.coordinator import remove

    if not yes and not typer.confirm(f"Shut {name!r} out for good?", default=False):
        answers().print("Nothing was changed.")
        return
    remove(folder, name)
    console, here = answers(soft_wrap=True), safe(str(folder))
    console.print(f"{safe(name)} is shut out.")
    console.print(
        "Jobs go on without it, as long as the others are a quorum. To agree on a federation "
        f"without it: silodp federation propose {here} FED.toml"
    )


@app.command("propose")
def propose(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(metavar="FED.toml", help="What is to be agreed on from now on.")
    ],
) -> None:
    """Makes a new proposal for all sites to consent to; sites that are new in it are invited.

    Its [server] is not looked at: see renew.
    """
    from silodp.sites.federation_setup import propose_file

    _say_proposed(folder, propose_file(folder, file, _passphrase()))


@app.command("renew")
def renew(
    folder: Folder,
    host: Annotated[
        str | None, typer.Option(help="The server's new name, as sites know it.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Its new port, as sites know it.", min=1, max=65535)
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option(help="Where it listens: 0.0.0.0, or 127.0.0.1 behind a proxy."),
    ] = None,
    bind_port: Annotated[
        int | None, typer.Option(help="The port at which it listens.", min=1, max=65535)
    ] = None,
) -> None:
    """Makes new certificates for the coordinator's server; with --host, where it has moved.

    Sites keep theirs. If the server moved, a file for each site says so.
    """
    from silodp.base.documents import decode
    from silodp.sites.federation_setup import renew_coordinator
    from silodp.sites.membership.members import read_members
    from silodp.sites.proposal import ServerTable

    listens = None
    if bind is not None or bind_port is not None:
        before = read_members(folder)
        table = {"host": host or before.server.host, "port": port or before.server.port}
        table |= {"bind": bind or before.bind[0], "bind_port": bind_port or before.bind[1]}
        listens = decode(ServerTable, table, "silodp federation renew")
    files = renew_coordinator(folder, _passphrase(), host, port, listens)
    console, here = answers(soft_wrap=True), safe(str(folder))
    if files:
        _say_send(files)
        console.print("There: silodp site join DIR FILE, then stop and start the site")
    console.print(
        f"Next: silodp federation stop {here}, then start: it uses what is new from then on"
    )


def _say_send(files: Sequence[Path]) -> None:
    for path in files:
        answers(soft_wrap=True).print(f"Send: {safe(str(path))}")


def _say_proposed(folder: Path, proposed: "Proposed") -> None:
    console = answers(soft_wrap=True)
    _say_send(proposed.files)
    console.print(
        f"This is proposal {proposed.number}. At each site: silodp site consent DIR --proposal FILE"
    )
    if proposed.new:
        console.print(
            f"New: {safe(', '.join(proposed.new))}: silodp site init INVITATION there, and "
            f"silodp federation approve {safe(str(folder))} what comes back"
        )


@app.command("start")
def start(folder: Folder, foreground: Foreground = False) -> None:
    """Starts the coordinator's server, in the background."""
    from silodp.sites.federation_setup import proposal_of_federation
    from silodp.sites.flare.processes import become_server, start_server

    proposal_of_federation(folder)
    if foreground:
        become_server(folder)
    with notes().status("Starting the server..."):
        start_server(folder)
    answers(soft_wrap=True).print(
        f"The server runs. Next: silodp federation submit {safe(str(folder))}"
    )


@app.command("stop")
def stop_server(folder: Folder) -> None:
    """Stops the server. The state of jobs is kept: `submit` goes on with them."""
    from silodp.sites.flare.processes import SERVER_PID, stop

    answers().print("Stopped." if stop(folder / SERVER_PID) else "It did not run.")


@app.command("submit")
def submit(
    folder: Folder,
    run: Run = 1,
    number: Earlier = None,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for sites that are not there yet.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Trains, or goes on with an interrupted job; shows progress until the job is finished.

    Ends with exit code 1 if a site that belongs to the federation has no model yet.
    """
    from silodp.sites.federation_setup import (
        is_finished,
        present_sites,
        proposal_of_federation,
    )
    from silodp.sites.flare.submission import run_job

    proposal = proposal_of_federation(folder, number)
    sites, job = present_sites(folder, proposal), proposal.job(run)
    if_interrupted("The state of the job is kept: the same command goes on with it.")
    with Live(_table(None, proposal.sites, job), console=notes(True), transient=True) as live:
        progress = run_job(
            folder,
            job,
            sites,
            patience=wait,
            report=lambda progress: live.update(_table(progress, proposal.sites, job)),
            say=lambda words: live.console.print(safe(words)),
        )
    if as_json:
        print_json(progress)
    else:
        answers(soft_wrap=True).print(_table(progress, proposal.sites, job))
    if not is_finished(progress, present_sites(folder, proposal)):
        raise typer.Exit(1)


@app.command("status")
def status(folder: Folder, check: Check = False, as_json: AsJson = False) -> None:
    """Shows whether the server runs, who is connected, what is wrong, and the state of jobs."""
    from silodp.sites.federation_setup import jobs_of, proposal_of_federation
    from silodp.sites.flare.jobs import registered
    from silodp.sites.flare.processes import SERVER_PID, is_running
    from silodp.sites.health import WORDS, federation_problems, level_of, states_of_sites
    from silodp.sites.membership.members import read_members

    proposal = proposal_of_federation(folder)
    running = is_running(folder / SERVER_PID)
    jobs, problems = jobs_of(folder), federation_problems(folder, running)
    words, level = [one.words for one in problems], level_of(problems)
    sites = states_of_sites(folder, running)
    if check:
        say_check(level, words)
    if as_json:
        print_json(
            {
                "running": running,
                "connected": registered(folder) if running else [],
                "removed": read_members(folder).removed,
                "state": WORDS[level],
                "level": level,
                "problems": words,
                "sites": sites,
                "jobs": jobs,
            }
        )
        return
    console = answers(soft_wrap=True)
    state = "running" if running else "not running"
    console.print(f"{safe(proposal.name)}: the server is {state}; {WORDS[level]}.")
    table = Table("site", "state", "certificate until", "clock", "silodp")
    for site, own in sites.items():
        clock = "" if own["clock"] is None else f"{own['clock']:+.1f} s"
        version, until = own["version"] or "", own["certificate_until"] or ""
        table.add_row(safe(site), safe(own["state"]), until, clock, safe(version))
    console.print(table)
    print_problems(words)
    for progress in jobs:
        console.print(_table(progress, list(progress["sites"]), progress["job"]))


@app.command("watch")
def watch(folder: Folder, run: Run = 1, number: Earlier = None) -> None:
    """Shows a job's progress until it is finished, or until Ctrl-C; the job goes on without it."""
    from silodp.sites.federation_setup import (
        is_finished,
        present_sites,
        progress_of,
        proposal_of_federation,
    )

    proposal = proposal_of_federation(folder, number)
    job = proposal.job(run)
    progress = progress_of(folder, job)
    if_interrupted("The job goes on without being watched.")
    with Live(_table(progress, proposal.sites, job), console=answers(True)) as live:
        while not is_finished(progress, present_sites(folder, proposal)):
            time.sleep(0.5)
            progress = progress_of(folder, job)
            live.update(_table(progress, proposal.sites, job))


@app.command("service")
def service(folder: Folder, out: ServiceOut = Path()) -> None:
    """Writes a unit for systemd and a container file that run the server and restart it."""
    from silodp.sites.federation_setup import proposal_of_federation
    from silodp.sites.service import Service, write_service

    made = Service("federation", proposal_of_federation(folder).name, folder)
    for path in write_service(made, out):
        answers(soft_wrap=True).print(
            f"Written: {safe(str(path))}. Its first lines say how to use it."
        )


@app.command("demo")
def demo(
    sites: Annotated[int, typer.Option(help="How many sites.", min=2, max=12)] = 4,
    out: Annotated[Path, typer.Option(help="Folder for everything.")] = Path("runs/federation"),
    rounds: Annotated[int, typer.Option(help="Rounds of training.", min=1)] = 40,
    as_json: AsJson = False,
) -> None:
    """Runs a federation on one machine: sets it up, trains, shows the table, and stops it."""
    from silodp.models.metrics import get_metric
    from silodp.sites.demo import run_demo

    with Live("", console=notes(True), transient=True) as live:
        rows = run_demo(
            out,
            sites,
            rounds,
            say=lambda words: live.console.print(safe(words)),
            report=lambda progress, names, job: live.update(_table(progress, names, job)),
        )
    if as_json:
        print_json(rows)
        return
    metric = get_metric(rows[0]["metric"])
    tested = f"test {metric.noun} ({metric.name})"
    table = Table("site", "epsilon", "spent", tested, "local training", "ledger")
    for row in rows:
        table.add_row(
            safe(row["site"]),
            f"{row['epsilon']:g}",
            f"{row['spent']:.4g}",
            f"{row[metric.name]:.5f}",
            f"{row['local']:.5f}",
            row["ledger"],
        )
    console = answers(soft_wrap=True)
    console.print(table)
    console.print(
        "Each site has a model of its own. The errors were read in the sites' folders: the "
        "coordinator never learns them. local training: with the same budget, without the others."
    )
    console.print(f"All of it is in {safe(str(out))}")


def _table(progress: dict[str, Any] | None, sites: Any, job: str) -> Table:
    title = f"Job {safe(job)}: waiting for sites"
    if progress is not None:
        pace = ""
        if progress["round"]:
            pace = f", {progress['seconds'] / progress['round']:.2f} s per round"
        title = (
            f"{safe(progress['method'])}: round {progress['round']} of {progress['rounds']}{pace}"
        )
    table = Table("site", "took part in", "state", title=title)
    for site in sites:
        words = "" if progress is None else progress["sites"].get(site, "")
        if progress is not None and site in progress["finished"]:
            words = "finished"
        metric = None if progress is None else progress["metrics"].get(site)
        part = ""
        if progress is not None and "answered" in progress:
            part = f"{progress['answered'].get(site, 0)} of {progress['round']} rounds"
        shown = safe(words) + ("" if metric is None else f" ({metric:.5f})")
        table.add_row(safe(site), part, shown)
    return table
