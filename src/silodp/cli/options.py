"""Run options as command-line options, and from a `--config` file: one list for both."""

import inspect
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from silodp.base.documents import read_toml
from silodp.cli import completion
from silodp.cli.terminal import safe
from silodp.config.declared import GROUPS, Option
from silodp.config.option_values import option_name, option_value
from silodp.config.options import DATA_OPTIONS, OPTIONS, tagged

OUTPUT, GENERAL = "Output", "General"
"""Panels of help texts, shown after those of the run options."""

# Options of several commands. Every command also has --quiet, --debug and --help: see `group`.
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON, and nothing else there.",
        rich_help_panel=OUTPUT,
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with an interrupted run.", rich_help_panel=OUTPUT),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace what is in --out.", rich_help_panel=OUTPUT),
]
SaveModels = Annotated[
    bool,
    typer.Option("--save-models", help="Write the silos' models to --out.", rich_help_panel=OUTPUT),
]
Yes = Annotated[bool, typer.Option("--yes", help="Say yes without being asked, for scripts.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder with data files, searched first.")
]


class Given(dict[str, Any]):
    """The run options that were given.

    Attributes:
      in_file: the names of options given in the --config file alone.
    """

    in_file: frozenset[str] = frozenset()


def takes_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds every run option and `--config` to a command.

    The command's first parameter, `given`, gets the options that were given, as a dict.
    """
    return _with_config(command, OPTIONS)


def takes_budget_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--config` and the run options on data and budgets, as `takes_run_options` does."""
    return _with_config(command, {"data", *DATA_OPTIONS, *tagged("advised")})


def takes_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the run options on data to a command.

    The command's first parameter, `given`, gets the options that were given, as a dict.
    """

    return _with_options(command, DATA_OPTIONS)


def takes_checked_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the run options on data, and those that decide whether data fit a run."""
    return _with_options(command, {*DATA_OPTIONS, *tagged("checked")})


def without_useless(
    given: Given, console: Console, method: str | None = None, uses: Collection[str] = ()
) -> dict[str, Any]:
    """Drops options of the --config file that would do nothing, with a note for each.

    A file may be shared by runs of several methods. A useless option that was typed stays, and is
    refused later.

    Args:
      given: the options that were given.
      console: where notes go.
      method: the method if none is named.
      uses: options that the command uses even if a run would not.
    """
    candidates = [name for name in given.in_file if name not in uses]
    if not candidates:
        return dict(given)
    from silodp.runs.requests import without_effect

    values = ({"method": method} if method else {}) | given
    useless = without_effect(values, candidates)
    for reason in useless.values():
        console.print(f"[yellow]Note:[/] Ignored in the --config file: {safe(reason)}")
    return {name: value for name, value in given.items() if name not in useless}


def _with_options(command: Callable[..., None], names: Collection[str]) -> Callable[..., None]:
    """Adds the run options of these names to the command."""

    def wrapped(**kwargs: Any) -> None:
        given, own = _split(kwargs, names)
        command(given, **own)

    return with_parameters(wrapped, command, _parameters(names))


def _with_config(command: Callable[..., None], names: Collection[str]) -> Callable[..., None]:
    """Adds the run options of these names, and `--config`, to the command."""
    config = Annotated[
        Path | None,
        typer.Option(help="TOML file with the same options.", rich_help_panel=GENERAL),
    ]

    def wrapped(config: Path | None = None, **kwargs: Any) -> None:
        typed, own = _split(kwargs, names)
        in_file = read_config(config) if config else {}
        given = Given(in_file | typed)
        given.in_file = frozenset(in_file.keys() - typed.keys())
        command(given, **own)

    keyword = inspect.Parameter.KEYWORD_ONLY
    config_option = inspect.Parameter("config", keyword, default=None, annotation=config)
    return with_parameters(wrapped, command, _parameters(names), (config_option,))


def _split(kwargs: dict[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits arguments into the given options of these names and all others."""
    given = {name: kwargs.pop(name) for name in names}
    return {name: value for name, value in given.items() if value is not None}, kwargs


def with_parameters(
    wrapped: Callable[..., None],
    command: Callable[..., None],
    first: tuple[inspect.Parameter, ...],
    last: tuple[inspect.Parameter, ...] = (),
) -> Callable[..., None]:
    """Makes `wrapped` look like the command with these parameters instead of `given`."""
    own = [p for name, p in inspect.signature(command).parameters.items() if name != "given"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = (*first, *(p.replace(kind=keyword) for p in own), *last)
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    return wrapped


def _parameters(names: Collection[str]) -> tuple[inspect.Parameter, ...]:
    """The options of these names, panel by panel: basic ones first within each."""
    options = [option for name, option in OPTIONS.items() if name in names]

    def place(option: Option) -> tuple[int, bool, bool]:
        return GROUPS.index(option.group), not option.basic, option.name in DATA_OPTIONS

    options.sort(key=place)
    return tuple(map(_parameter, options))


def _parameter(option: Option) -> inspect.Parameter:
    default = "" if option.default is None else f" (default: {option.default})"
    # One flag each: a second one (--no-...) would leave less room for the help text.
    names = (option.flag,) if option.kind is bool else ()
    annotation = Annotated[
        option.kind | None,
        typer.Option(
            *names,
            help=option.help + default,
            show_default=False,
            autocompletion=completion.run_option(option.name),
            rich_help_panel=option.group,
            hidden=not option.basic,  # on the first screen of help: see `group`
        ),
    ]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def read_config(path: Path) -> dict[str, Any]:
    """The options in a TOML file; names may be written with - or _."""
    where = f"Config file {path}"
    content = read_toml(path, where, missing="check --config")
    options = {}
    for written, value in content.items():
        name = option_name(written, where)
        options[name] = option_value(name, value, where, path.parent)
    return options
