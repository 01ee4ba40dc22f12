"""Output to the terminal: answers, notes and errors, with text of others made safe.

Answers go to standard output, everything else to standard error, so that a script can read one and
a person the other. Every command writes to the consoles made here.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from silodp.base.text import shown


@dataclass
class Settings:
    """How the current command writes.

    Attributes:
      quiet: no answers but JSON, and no notes.
      debug: errors show where in the program they arose.
      if_interrupted: a sentence shown after Ctrl-C: how to go on.
    """

    quiet: bool = False
    debug: bool = False
    if_interrupted: str = ""


_settings = Settings()


def settings() -> Settings:
    """The settings of the current command."""
    return _settings


@contextmanager
def one_command() -> Iterator[None]:
    """Gives a command settings of its own while it runs."""
    global _settings
    before, _settings = _settings, Settings()
    try:
        yield
    finally:
        _settings = before


def if_interrupted(sentence: str) -> None:
    """Sets what is shown if the user stops the command from here on: how to go on."""
    _settings.if_interrupted = sentence


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for `Commands`, which ends every command


def answers(soft_wrap: bool = False) -> Console:
    """The console for answers, in words and tables; silent with --quiet."""
    return _Console(quiet=_settings.quiet, soft_wrap=soft_wrap, highlight=False, emoji=False)


def notes(soft_wrap: bool = False) -> Console:
    """The console for progress, warnings and remarks; silent with --quiet."""
    return _Console(
        stderr=True, quiet=_settings.quiet, soft_wrap=soft_wrap, highlight=False, emoji=False
    )


def errors() -> Console:
    """The console for errors, which --quiet does not silence."""
    return _Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def print_json(content: Any) -> None:
    """Prints the answer for a script: one JSON document on standard output."""
    import typer

    from silodp.base.values import plain

    typer.echo(json.dumps(plain(content), indent=2, allow_nan=False))


def say_written(out: Path) -> None:
    """Prints where the files of an answer are."""
    answers(soft_wrap=True).print(f"Written to {safe(str(out))}")


def safe(text: str) -> str:
    """Escapes markup and control characters for a console that takes markup."""
    return escape(shown(text, None))
