"""`silodp federation`: for the coordinator of sites, who sees what they release, nothing else."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from silodp.cli.options import AsJson
from silodp.cli.terminal import answers, if_interrupted, notes, print_json, safe

app = typer.Typer(
    help="Coordinates sites that train together, each on its own machine.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The federation's folder.")]
Run = Annotated[
    int, typer.Option("--run", help="2, 3, ... for a further run, which is charged again.", min=1)
]


@app.command("init")
def init(
    file: Annotated[
        Path, typer.Argument(metavar="FED.toml", help="The federation file that sites agree on.")
    ],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to make; else named after the file.")
    ] = None,
) -> None:
    """Makes the coordinator's folder, and a kit to hand over to each site."""
    from silodp.sites.federation_setup import set_up_federation

    console = answers(soft_wrap=True)
    with notes().status("Making certificates and kits..."):
        setup = set_up_federation(file, folder)
    for kit in setup.kits:
        console.print(f"Kit: {safe(str(kit))}")
    console.print(
        "Hand each site its kit over a channel that nobody else reads: it holds the site's key. "
        "There: silodp site init KIT."
    )
    console.print(f"Next: silodp federation start {safe(str(setup.folder))}")


@app.command("start")
def start(folder: Folder) -> None:
    """Starts the coordinator's server, in the background."""
    from silodp.sites.federation_setup import proposal_of_federation
    from silodp.sites.flare.processes import start_server

    proposal_of_federation(folder)
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
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for sites that are not there yet.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Trains, or goes on with an interrupted job; shows progress until the job is finished."""
    from silodp.sites.federation_setup import proposal_of_federation
    from silodp.sites.flare.submission import run_job

    proposal = proposal_of_federation(folder)
    job = proposal.job(run)
    if_interrupted("The state of the job is kept: the same command goes on with it.")
    with Live(_table(None, proposal.sites, job), console=notes(True), transient=True) as live:
        progress = run_job(
            folder,
            job,
            proposal.sites,
            patience=wait,
            report=lambda progress: live.update(_table(progress, proposal.sites, job)),
            say=lambda words: live.console.print(safe(words)),
        )
    if as_json:
        print_json(progress)
    else:
        answers(soft_wrap=True).print(_table(progress, proposal.sites, job))


@app.command("status")
def status(folder: Folder, as_json: AsJson = False) -> None:
    """Shows whether the server runs, which sites are connected, and the state of jobs."""
    from silodp.sites.federation_setup import jobs_of, proposal_of_federation
    from silodp.sites.flare.jobs import registered
    from silodp.sites.flare.processes import SERVER_PID, is_running

    proposal = proposal_of_federation(folder)
    running = is_running(folder / SERVER_PID)
    connected = registered(folder) if running else []
    jobs = jobs_of(folder)
    if as_json:
        print_json({"running": running, "connected": connected, "jobs": jobs})
        return
    console = answers(soft_wrap=True)
    state = "running" if running else "not running"
    missing = [site for site in proposal.sites if site not in connected]
    console.print(f"{safe(proposal.name)}: the server is {state}.")
    if running:
        console.print(
            f"Connected: {safe(', '.join(connected) or 'none')}. Missing: "
            f"{safe(', '.join(missing) or 'none')}."
        )
    for progress in jobs:
        console.print(_table(progress, proposal.sites, progress["job"]))


@app.command("watch")
def watch(folder: Folder, run: Run = 1) -> None:
    """Shows a job's progress until it is finished, or until Ctrl-C; the job goes on without it."""
    from silodp.sites.federation_setup import is_finished, progress_of, proposal_of_federation

    proposal = proposal_of_federation(folder)
    job = proposal.job(run)
    progress = progress_of(folder, job)
    if_interrupted("The job goes on without being watched.")
    with Live(_table(progress, proposal.sites, job), console=answers(True)) as live:
        while not is_finished(progress, len(proposal.sites)):
            time.sleep(0.5)
            progress = progress_of(folder, job)
            live.update(_table(progress, proposal.sites, job))


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
    table = Table("site", "state", title=title)
    for site in sites:
        words = "" if progress is None else progress["sites"].get(site, "")
        if progress is not None and site in progress["finished"]:
            words = "finished"
        metric = None if progress is None else progress["metrics"].get(site)
        table.add_row(safe(site), safe(words) + ("" if metric is None else f" ({metric:.5f})"))
    return table
