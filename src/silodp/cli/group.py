"""What all commands share: --quiet, --debug, --help, and how they end."""

import errno
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from silodp.base import signals as interrupts
from silodp.base.errors import SilodpError, meant
from silodp.cli import terminal
from silodp.cli.options import GENERAL
from silodp.cli.terminal import safe

DONE, NOT_SO, REFUSED, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141
"""Exit codes: done; a check says no, or silodp has a bug; what was given is wrong;
interrupted; the reader of the output went away."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Commands(TyperGroup):
    """The group of all commands: an error is one sentence, without a traceback."""

    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        for command in _all(self):
            _split_help(command)
            command.params += _shared_options(command)
            _without_types(command.params)

    def get_params(self, ctx: Any) -> list[Any]:
        """Parameters without types for flags: typer adds options for completion late."""
        return _without_types(super().get_params(ctx))

    def main(self, *args: Any, **more: Any) -> None:
        """Runs the command that is asked for, and ends the process with its exit code."""
        with terminal.one_command():
            try:
                code = super().main(*args, **more | {"standalone_mode": False})
            except Exception as error:
                code = _report(error)
        sys.exit(code or DONE)

    def invoke(self, ctx: Any) -> Any:
        """Invokes the command; words and codes of interruptions are silodp's, not typer's."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt:
            _say_interrupted()
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _close_output()
            raise typer.Exit(UNREAD) from None


def _all(command: Any) -> Iterator[Any]:
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _all(below)


def _without_types(parameters: list[Any]) -> list[Any]:
    """Flags take no value: their help does not say <bool>."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.display_type_rich = lambda ctx: None
    return parameters


# --- help of commands with many options: a first screen, and all of it


def _split_help(command: Any) -> None:
    """Notes the hidden options, which the first screen of help leaves out, and unhides them.

    So Tab offers them, too. Commands without any show their options without panels.
    """
    command.left_out = [one for one in command.params if getattr(one, "hidden", False)]
    for one in command.params:
        one.hidden = False
        if not command.left_out:
            one.rich_help_panel = None


def _help_of(ctx: typer.Context, everything: bool) -> str:
    left_out = [] if everything else ctx.command.left_out  # type: ignore[attr-defined]
    for one in left_out:
        one.hidden = True
    try:
        return ctx.get_help()
    finally:
        for one in left_out:
            one.hidden = False


# --- options of every command


def _set_quiet(wanted: bool) -> None:
    if wanted:
        terminal.settings().quiet = True


def _set_debug(wanted: bool) -> None:
    if wanted:
        terminal.settings().debug = True
        warnings.simplefilter("default")
        logging.disable(logging.NOTSET)


def _show_help(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        typer.echo(_help_of(ctx, everything=False), color=ctx.color)
        raise typer.Exit


def _show_all_help(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        typer.echo(_help_of(ctx, everything=True), color=ctx.color)
        raise typer.Exit


def _shared(
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            help="No progress, tables or remarks: errors, files and --json alone.",
            callback=_set_quiet,
            expose_value=False,
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show where in the program an error arose, and warnings (or SILODP_DEBUG=1).",
            callback=_set_debug,
            expose_value=False,
            envvar="SILODP_DEBUG",
            show_envvar=False,
        ),
    ] = False,
    wants_help: Annotated[
        bool,
        typer.Option(
            "--help",
            "-h",
            help="Show this text.",
            callback=_show_help,
            expose_value=False,
            is_eager=True,
        ),
    ] = False,
    wants_all: Annotated[
        bool,
        typer.Option(
            "--help-all",
            help="Show all options.",
            callback=_show_all_help,
            expose_value=False,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Carries the options of all commands."""


def _shared_options(command: Any) -> list[Any]:
    """Makes the options of all commands for one of them."""
    carrier = typer.Typer(add_completion=False)
    carrier.command()(_shared)
    shared: list[Any] = list(typer.main.get_command(carrier).params)
    if not command.left_out:
        return [one for one in shared if one.name != "wants_all"]
    for one in shared:
        one.rich_help_panel = GENERAL
        if one.name in ("quiet", "debug"):
            command.left_out.append(one)
    return shared


# --- how commands end


def _report(error: Exception) -> int:
    """Prints in one sentence why a command failed; returns the exit code."""
    if _is_help(error):
        return REFUSED
    if terminal.settings().debug:
        traceback.print_exception(error)
    if isinstance(error, typer.Abort) and isinstance(error.__context__, KeyboardInterrupt):
        _say_interrupted()
        return INTERRUPTED
    sentence = _sentence(error)
    if sentence is not None:
        terminal.errors().print(f"[bold red]Error:[/] {safe(sentence)}")
        return REFUSED
    if interrupts.requested():  # some libraries turn it into an error of their own
        _say_interrupted()
        return INTERRUPTED
    what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".:")
    then = "Run again with --debug and send what it prints"
    if terminal.settings().debug:
        then = "Send what is printed above"
    terminal.errors().print(f"[bold red]This is a bug in silodp:[/] {safe(what)}. {then}.")
    return NOT_SO


def _is_help(error: Exception) -> bool:
    """Whether the error only says that no arguments were given: help was shown instead."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _sentence(error: Exception) -> str | None:
    """What is wrong and what to do, if the user can fix it; else None."""
    if isinstance(error, SilodpError):
        return str(error)
    if isinstance(error, typer.TyperException):  # an error in the command line
        place = getattr(getattr(error, "ctx", None), "command_path", "silodp")
        words = _typed_wrong(error) or error.format_message()
        return f"{words}{'' if words.endswith(('.', '?')) else '.'} See {place} --help."
    if isinstance(error, typer.Abort):
        return "There is nobody to answer a question: give what is asked for as options, and --yes."
    if isinstance(error, MemoryError) or str(error).startswith("RESOURCE_EXHAUSTED"):
        return "There is not enough memory: ask for less at once (--seeds, --batch-size, --silos)."
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"The disk is full ({error.filename or error.strerror}): free some space and go on."
    return None


_NUMBERS = {
    "float_parsing": "a number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
}
"""What a value should have been, by the kinds of error of the library that reads values."""


def _typed_wrong(error: Any) -> str | None:
    """Silodp's own words for misspelled options, and for values that are no numbers."""
    if type(error).__name__ == "NoSuchOption" and error.ctx is not None:
        known = [flag for one in error.ctx.command.params for flag in one.opts]
        return f"There is no option {error.option_name}: {meant(error.option_name, known)}"
    details = getattr(error.__cause__, "errors", list)()
    if isinstance(error, typer.BadParameter) and details and details[0]["type"] in _NUMBERS:
        flag = error.param.opts[0] if error.param is not None else "The value"
        return f"{flag} is {details[0]['input']!r}: give {_NUMBERS[details[0]['type']]}"
    return None


def _say_interrupted() -> None:
    more = terminal.settings().if_interrupted
    terminal.errors().print(f"[bold red]Interrupted.[/]{' ' + safe(more) if more else ''}")


def _close_output() -> None:
    """Drops further output, here and at the end of Python: its reader has gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:  # not a real file: nothing will be written there
        return
