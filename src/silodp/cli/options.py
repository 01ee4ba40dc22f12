"""Run options as command-line options, and from a `--config` file: one list for both."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from silodp.base.documents import read_toml
from silodp.cli import completion
from silodp.config.data_options import DataOptions
from silodp.config.option_values import (
    HINTS,
    option_name,
    option_value,
    plain_type,
)
from silodp.config.options import RunOptions

# Of several commands. Every command has --quiet, --debug and --help besides: see `group`.
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the answer as JSON, and nothing else there.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in --out.")]
SaveModels = Annotated[
    bool, typer.Option("--save-models", help="Write the silos' models to --out.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder with data files, looked into first.")
]

_OF_DATA = tuple(name for name in HINTS if name in {option.name for option in fields(DataOptions)})
_OF_BUDGET = (
    *("epsilon", "delta", "relation", "policies", "ledger", "lifetime_epsilon", "lifetime_delta"),
    "lifetime_filter",
    *("model", "clip", "weights", "first_seed", "entropy"),
)


def takes_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds every run option to a command, and `--config`; it gets those given, as a dict.

    The command's first parameter is `given`.
    """
    return _with_config(command, tuple(HINTS))


def takes_budget_options(command: Callable[..., None]) -> Callable[..., None]:
    """As `takes_run_options`, with those alone that say which data, and what may be spent."""
    return _with_config(command, ("data", *_OF_DATA, *_OF_BUDGET))


def takes_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the run options that say which data, and how; the command gets those given, as a dict.

    The command's first parameter is `given`.
    """

    def wrapped(**kwargs: Any) -> None:
        given, own = _parted(kwargs, _OF_DATA)
        command(given, **own)

    return _with_parameters(wrapped, command, tuple(map(_parameter, _OF_DATA)))


def _with_config(command: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    """The command with the run options of these names, and `--config`."""
    config = Annotated[Path | None, typer.Option(help="TOML file with the same options.")]

    def wrapped(config: Path | None = None, **kwargs: Any) -> None:
        given, own = _parted(kwargs, names)
        command((read_config(config) if config else {}) | given, **own)

    keyword = inspect.Parameter.KEYWORD_ONLY
    config_option = inspect.Parameter("config", keyword, default=None, annotation=config)
    return _with_parameters(wrapped, command, (*map(_parameter, names), config_option))


def _parted(kwargs: dict[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of these names that were given, and all that is not one of them."""
    given = {name: kwargs.pop(name) for name in names}
    return {name: value for name, value in given.items() if value is not None}, kwargs


def _with_parameters(
    wrapped: Callable[..., None],
    command: Callable[..., None],
    parameters: tuple[inspect.Parameter, ...],
) -> Callable[..., None]:
    """Makes `wrapped` look like the command with these parameters instead of `given`."""
    own = [p for name, p in inspect.signature(command).parameters.items() if name != "given"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters += tuple(p.replace(kind=keyword) for p in own)
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    return wrapped


def _parameter(name: str) -> inspect.Parameter:
    option = next(f for f in fields(RunOptions) if f.name == name)
    shown = "" if option.default is None else f" (default: {option.default})"
    kind = plain_type(HINTS[name])
    # One name each: a second one for "no" would take the room of the help texts.
    names = ("--" + name.replace("_", "-"),) if kind is bool else ()
    annotation = Annotated[
        kind | None,  # type: ignore[operator]
        typer.Option(
            *names,
            help=option.metadata["help"] + shown,
            show_default=False,
            autocompletion=completion.run_option(name),
        ),
    ]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
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
