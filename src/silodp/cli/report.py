"""`silodp report` and `silodp serve`: one page about runs, sweeps and ledgers."""

from pathlib import Path
from typing import Annotated

import typer

from silodp.cli.options import AsJson, Overwrite
from silodp.cli.progress import LiveProgress
from silodp.cli.terminal import answers, errors, notes, print_json, safe, say_written, settings

_DEFAULT_FOLDER = Path("runs")
Ledgers = Annotated[
    Path | None,
    typer.Option("--ledger", help="Folder of silos' ledgers: shows what was spent and is left."),
]


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN", help="Folders of runs or sweeps, or folders that contain them."
        ),
    ] = None,
    ledger: Ledgers = None,
    silo: Annotated[str | None, typer.Option("--silo", help="Only this silo; else all.")] = None,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(help="Title of the page; else the names of its data.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Writes one page to look at: who gained, by how much, at what privacy.

    The page is one HTML file that needs no network: open it, print it, send it. Give one run, or
    several to compare (local training and FedAvg of the same data among them are what the others
    are compared with), or a sweep. With --ledger it tells a data protection officer what was
    released, and what that could tell an attacker.
    """
    from silodp.report import write_report

    with LiveProgress(notes()) as progress:
        progress.stage("reading")
        path = write_report(
            runs or [],
            out,
            ledger=ledger,
            silo=silo,
            title=title,
            overwrite=overwrite,
            progress=progress.counted,
        )
    if as_json:
        print_json({"report": path, "bytes": path.stat().st_size})
    else:
        say_written(path)


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN",
            help="Folders of runs or sweeps: finished, going on, or yet to come (default: runs).",
        ),
    ] = None,
    ledger: Ledgers = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes any that is free.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the page in this machine's browser.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Shows the report live while runs go on: rounds, metric, budgets and time left.

    The page answers on 127.0.0.1 alone, and only to those who know the token in its address. It can
    be read, and nothing else. Ctrl-C ends it.
    """
    from silodp.report.server import ReportServer

    with ReportServer(runs or [_DEFAULT_FOLDER], ledger, port, settings().debug) as server:
        if as_json:
            print_json({"address": server.address})
        elif settings().quiet:
            errors().print(server.address)  # without it nobody could look
        else:
            answers(soft_wrap=True).print(f"{safe(server.address)}\nCtrl-C ends it.")
        if browser:
            typer.launch(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            notes().print("Ended.")
