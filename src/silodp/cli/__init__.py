"""The command line: parses, calls, prints."""

import io
import logging
import os
import sys
import warnings
from typing import Annotated

import typer

from silodp.base import signals as interrupts
from silodp.base.version import own_version
from silodp.cli import accept as accept_commands
from silodp.cli import advise as advise_commands
from silodp.cli import audit as audit_commands
from silodp.cli import bench as bench_commands
from silodp.cli import data as data_commands
from silodp.cli import doctor as doctor_commands
from silodp.cli import exchange as exchange_commands
from silodp.cli import export as export_commands
from silodp.cli import federation as federation_commands
from silodp.cli import figure as figure_commands
from silodp.cli import ledger as ledger_commands
from silodp.cli import methods as methods_commands
from silodp.cli import plan as plan_commands
from silodp.cli import predict as predict_commands
from silodp.cli import report as report_commands
from silodp.cli import run as run_commands
from silodp.cli import site as site_commands
from silodp.cli import sweep as sweep_commands
from silodp.cli import theory as theory_commands
from silodp.cli import tune as tune_commands
from silodp.cli.group import Commands

app = typer.Typer(
    cls=Commands,
    help="Private, personalised learning across data silos.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data_commands.app, name="data")
app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(federation_commands.app, name="federation")
app.add_typer(site_commands.app, name="site")
app.add_typer(exchange_commands.app, name="exchange")
app.add_typer(bench_commands.app, name="bench")
app.command("run")(run_commands.run)
app.command("sweep")(sweep_commands.sweep)
app.command("tune")(tune_commands.tune)
app.command("plan")(plan_commands.plan)
app.command("report")(report_commands.report)
app.command("serve")(report_commands.serve)
app.command("predict")(predict_commands.predict)
app.command("accept")(accept_commands.accept)
app.command("export")(export_commands.export)
app.command("advise")(advise_commands.advise)
app.command("audit")(audit_commands.audit)
app.command("demo")(run_commands.demo)
app.command("theory")(theory_commands.theory)
app.command("figure")(figure_commands.figure)
app.command("methods")(methods_commands.methods)
app.command("doctor")(doctor_commands.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"silodp {own_version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version of silodp."
        ),
    ] = False,
) -> None:
    """Private, personalised learning across data silos."""


def main() -> None:
    """Runs the `silodp` command, and ends the process."""
    interrupts.handle()  # a run that is asked to end saves its checkpoint, as for Ctrl-C
    _calm()
    app()


def _calm() -> None:
    """Silences the warnings of libraries (--debug shows them), and spells out characters that the
    terminal cannot show.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA's log; errors are raised as well
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
