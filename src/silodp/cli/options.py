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
"""The panels of help texts that follow those of the run options."""

# Of several commands. Every command has --quiet, --debug and --help besides: see `group`.
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the answer as JSON, and nothing else there.",
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
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder with data files, looked into first.")
]


class Given(dict[str, Any]):
    """The run options that were given.

    Attributes:
      in_file: the names of those that stand in the --config file alone.
    """

    in_file: frozenset[str] = frozenset()


def takes_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds every run option to a command, and `--config`; it gets those given, as a dict.

    The command's first parameter is `given`.
    """
    return _with_config(command, OPTIONS)


def takes_budget_options(command: Callable[..., None]) -> Callable[..., None]:
    """As `takes_run_options`, with those alone that say which data, and what may be spent."""
    return _with_config(command, {"data", *DATA_OPTIONS, *tagged("advised")})


def takes_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the run options that say which data, and how; the command gets those given, as a dict.

    The command's first parameter is `given`.
    """

    def wrapped(**kwargs: Any) -> None:
        given, own = _parted(kwargs, DATA_OPTIONS)
        command(given, **own)

    return _with_parameters(wrapped, command, _parameters(DATA_OPTIONS))


def without_useless(
    given: Given, console: Console, method: str | None = None, uses: Collection[str] = ()
) -> dict[str, Any]:
    """The options without those of the --config file that would do nothing, which are told.

    A file may be shared by runs of several methods. What was typed stays, and is refused.

    Args:
      given: what was given.
      console: where notes go.
      method: the one that is used if none is named.
      uses: options that the command makes use of, whatever a run would do with them.
    """
    looked_at = [name for name in given.in_file if name not in uses]
    if not looked_at:
        return dict(given)
    from silodp.runs.requests import without_effect

    values = ({"method": method} if method else {}) | given
    useless = without_effect(values, looked_at)
    for reason in useless.values():
        console.print(f"[yellow]Note:[/] Passed over in the --config file: {safe(reason)}")
    return {name: value for name, value in given.items() if name not in useless}


def _with_config(command: Callable[..., None], names: Collection[str]) -> Callable[..., None]:
    """The command with the run options of these names, and `--config`."""
    config = Annotated[
        Path | None,
        typer.Option(help="TOML file with the same options.", rich_help_panel=GENERAL),
    ]

    def wrapped(config: Path | None = None, **kwargs: Any) -> None:
        typed, own = _parted(kwargs, names)
        in_file = read_config(config) if config else {}
        given = Given(in_file | typed)
        given.in_file = frozenset(in_file.keys() - typed.keys())
        command(given, **own)

    keyword = inspect.Parameter.KEYWORD_ONLY
    config_option = inspect.Parameter("config", keyword, default=None, annotation=config)
    return _with_parameters(wrapped, command, _parameters(names), (config_option,))


def _parted(kwargs: dict[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of these names that were given, and all that is not one of them."""
    given = {name: kwargs.pop(name) for name in names}
    return {name: value for name, value in given.items() if value is not None}, kwargs


def _with_parameters(
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
    shown = "" if option.default is None else f" (default: {option.default})"
    # One name each: a second one for "no" would take the room of the help texts.
    names = (option.flag,) if option.kind is bool else ()
    annotation = Annotated[
        option.kind | None,
        typer.Option(
            *names,
            help=option.help + shown,
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
