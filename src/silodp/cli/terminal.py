"""What reaches the terminal: answers, notes, errors; and how text of others gets there.

Answers go to standard output, everything else to standard error, so that a script can read one and
a person the other. Every command talks through the consoles made here.
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
    """How the command at hand is to talk.

    Attributes:
      quiet: no answers but JSON, and no notes.
      debug: errors come with where in the program they arose.
      if_interrupted: a sentence for after Ctrl-C: how to go on.
    """

    quiet: bool = False
    debug: bool = False
    if_interrupted: str = ""


_settings = Settings()


def settings() -> Settings:
    """Those of the command at hand."""
    return _settings


@contextmanager
def one_command() -> Iterator[None]:
    """For as long as a command runs: how it talks is its own, and the next one's begins anew."""
    global _settings
    before, _settings = _settings, Settings()
    try:
        yield
    finally:
        _settings = before


def if_interrupted(sentence: str) -> None:
    """What to tell if the user stops the command from here on: how it can be gone on with."""
    _settings.if_interrupted = sentence


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for `Commands`, which ends every command


def answers(soft_wrap: bool = False) -> Console:
    """For what was asked for, in words and tables; says nothing with --quiet."""
    return _Console(quiet=_settings.quiet, soft_wrap=soft_wrap, highlight=False, emoji=False)


def notes(soft_wrap: bool = False) -> Console:
    """For progress, warnings and remarks; says nothing with --quiet."""
    return _Console(
        stderr=True, quiet=_settings.quiet, soft_wrap=soft_wrap, highlight=False, emoji=False
    )


def errors() -> Console:
    """For what must be said."""
    return _Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def print_json(content: Any) -> None:
    """The answer for a script: one document on standard output."""
    import typer

    from silodp.base.values import plain

    typer.echo(json.dumps(plain(content), indent=2, allow_nan=False))


def say_written(out: Path) -> None:
    """Where the files of an answer are."""
    answers(soft_wrap=True).print(f"Written to {safe(str(out))}")


def safe(text: str) -> str:
    """For a console that takes markup: neither markup nor control characters in it do anything."""
    return escape(shown(text, None))
