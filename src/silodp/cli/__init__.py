"""The command line: parses, calls, prints."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from silodp import interrupts
from silodp.cli import advise as advise_commands
from silodp.cli import audit as audit_commands
from silodp.cli import data as data_commands
from silodp.cli import federation as federation_commands
from silodp.cli import figure as figure_commands
from silodp.cli import ledger as ledger_commands
from silodp.cli import plan as plan_commands
from silodp.cli import run as run_commands
from silodp.cli import site as site_commands
from silodp.cli import sweep as sweep_commands
from silodp.cli import theory as theory_commands
from silodp.cli import tune as tune_commands
from silodp.cli.terminal import safe
from silodp.errors import SilodpError


class _Commands(TyperGroup):
    """Errors that the user can mend are one sentence and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        try:
            return super().invoke(ctx)
        except SilodpError as error:
            console.print(f"[bold red]Error:[/] {safe(str(error))}")
        except KeyboardInterrupt:
            more = ""
            if ctx.invoked_subcommand in ("run", "tune"):
                more = (
                    " If --out was given, the same command with --resume goes on from the last "
                    "checkpoint."
                )
            if ctx.invoked_subcommand in ("sweep", "figure"):
                more = " What is finished is kept: the same command goes on from there."
            console.print(f"[bold red]Interrupted.[/]{more}")
        raise typer.Exit(2)


app = typer.Typer(
    cls=_Commands,
    help="Private, personalised learning across data silos.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_commands.app, name="data")
app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(federation_commands.app, name="federation")
app.add_typer(site_commands.app, name="site")
app.command("run")(run_commands.run)
app.command("sweep")(sweep_commands.sweep)
app.command("tune")(tune_commands.tune)
app.command("plan")(plan_commands.plan)
app.command("advise")(advise_commands.advise)
app.command("audit")(audit_commands.audit)
app.command("demo")(run_commands.demo)
app.command("theory")(theory_commands.theory)
app.command("figure")(figure_commands.figure)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"silodp {version('silodp')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    """Private, personalised learning across data silos."""


@app.command("methods")
def methods() -> None:
    """Lists the methods, each with its cost in queries."""
    from silodp.methods import ALIASES, METHODS, announced, load, warm_starts

    table = Table("method", "what it does", "asks of each silo", show_lines=True)
    table.add_column("options", no_wrap=True)  # an option that is cut short is of no use
    aliases = {name: f" ({other})" for other, name in ALIASES.items()}
    entries = dict(METHODS)
    broken = {}
    for name, point in announced().items():
        try:
            entries[name] = load(point)
        except SilodpError as error:  # of others' making: it must not hide the rest
            broken[name] = str(error)
    for name, entry in entries.items():
        options = ["--" + option.replace("_", "-") for option in entry.option_names]
        options = [option for option in options if not option.startswith("--server")]
        options += ["--silo-lam"] if "lam" in entry.of_silo else []
        options += [f"--method-options {option}={value}" for option, value in entry.own.items()]
        options += ["--server-..."] if "server_lr" in entry.options else []
        table.add_row(
            safe(name + aliases.get(name, "")),
            safe(entry.summary),
            safe(entry.cost),
            "\n".join(map(safe, options)),
        )
    for name, error in broken.items():
        table.add_row(safe(name), f"[red]{safe(error)}[/]", "", "")
    Console().print(table)
    typer.echo(f"Warm starts (IFCA first): {', '.join(warm_starts(entries))}")


def main() -> None:
    """Entry point of the `silodp` command."""
    interrupts.handle()  # a run that is asked to end saves its checkpoint, as for Ctrl-C
    app()
