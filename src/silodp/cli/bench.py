"""`silodp bench`: measures methods where anybody can measure them again."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from silodp.base.errors import SilodpError, one_of
from silodp.cli.options import AsJson, Overwrite
from silodp.cli.progress import SweepProgress
from silodp.cli.sweep import GOES_ON
from silodp.cli.terminal import answers, errors, if_interrupted, notes, print_json, safe

if TYPE_CHECKING:
    from silodp.suite.comparing import Line

app = typer.Typer(
    help="Measures methods on many federations, beside the simple choices at their best.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Measures methods on many federations, beside the simple choices at their best."""


@app.command("suite")
def suite(
    out: Annotated[
        Path, typer.Option(help="Folder for what is finished; the same command goes on there.")
    ] = Path("runs/suite"),
    only: Annotated[
        str | None, typer.Option(help="Federations, separated by commas; by default all.")
    ] = None,
    part: Annotated[
        bool, typer.Option("--part", help="The part that takes minutes: few federations, 2 seeds.")
    ] = False,
    methods: Annotated[
        str | None, typer.Option(help="Methods at their defaults, separated by commas.")
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(help="Methods to show at their best settings, too, beside local and fedavg."),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Budgets, separated by commas; inf is none.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds; 5, or 2 of the part.")] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes at work; 1 uses all cores for one row.")
    ] = 1,
    page: Annotated[
        Path | None,
        typer.Option(help="File for the page; table and picture go into results/ beside it."),
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Train nothing: write what is finished.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Trains every method at its defaults on every federation, and writes table, page and picture.

    Data sets are looked up as in any run; the page names those that are missing. Beside methods
    stand local training and FedAvg at their best settings on the test records, and a constant.
    """
    from silodp.suite.cases import names
    from silodp.suite.report import write_report
    from silodp.suite.running import (
        DEFAULT_METHODS,
        EPSILONS,
        PART_EPSILONS,
        PART_METHODS,
        PART_SEEDS,
        SEEDS,
        cases_of,
        check_methods,
        rows_of,
        run_suite,
    )

    chosen = _listed(only) or names()
    for name in chosen:
        if name not in names():
            raise SilodpError(f"--only names {name!r}: use {one_of(name, names())}.")
    cases = cases_of(chosen, part)
    tried = _listed(methods) or list(PART_METHODS if part else DEFAULT_METHODS)
    check_methods([*tried, *_listed(best)])
    budgets = _budgets(epsilon) or (PART_EPSILONS if part else EPSILONS)
    count = seeds or (PART_SEEDS if part else SEEDS)
    page = out / "suite.md" if page is None else page
    missing: dict[str, str] = {}
    if not as_is:
        if_interrupted(GOES_ON)
        with SweepProgress(notes()) as progress:
            progress.begin("suite")
            missing = run_suite(
                *(out, cases, rows_of(tried, _listed(best)), budgets, count, jobs, progress),
                overwrite=overwrite,
            )
    lines = write_report(out, page, cases, missing)
    if as_json:
        print_json([{**vars(line)} for line in lines])
        return
    _print(lines)
    console = answers(soft_wrap=True)
    console.print(f"Written to {safe(str(page))}, and to results beside it.")
    for name, why in missing.items():
        errors().print(f"[yellow]Not run:[/] {safe(name)}: {safe(why)}")


def _listed(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def _budgets(text: str | None) -> tuple[float, ...]:
    budgets = []
    for one in _listed(text):
        try:
            budgets.append(float(one))
        except ValueError:
            raise SilodpError(f"--epsilon holds {one!r}: give numbers above 0, or inf.") from None
        if not budgets[-1] > 0:
            raise SilodpError(f"--epsilon holds {one!r}: give numbers above 0, or inf.")
    return tuple(budgets)


def _print(lines: "list[Line]") -> None:
    table = Table(
        "federation", "epsilon", "method", "mean", "excess", "verdict", box=box.SIMPLE_HEAD
    )
    for line in lines:
        if not line.verdict:
            continue
        table.add_row(
            *(safe(line.federation), "none" if math.isinf(line.epsilon) else f"{line.epsilon:g}"),
            *(safe(line.row), f"{line.mean:.4g}", f"{100 * line.excess:+.1f} %", line.verdict),
        )
    answers().print(table)
