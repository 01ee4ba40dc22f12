"""`silodp doctor`: whether this installation can do its work."""

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from silodp.cli.group import NOT_SO
from silodp.cli.options import AsJson, DataDir
from silodp.cli.terminal import answers, errors, notes, print_json, safe

if TYPE_CHECKING:
    from silodp.doctor import Finding

_MARKS = {
    "fine": "[green]fine[/]",
    "absent": "[yellow]not here[/]",
    "problem": "[bold red]WRONG[/]",
}


def doctor(
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("runs"),
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Looks at versions, cores, JAX, data and extras, and says what to do about what is missing.

    Exit code 1 means that something silodp needs is wrong. What is optional (an extra, a data set)
    may be missing.
    """
    with notes().status("Looking..."):
        findings = _look(out, data_dir)
    wrong = [finding for finding in findings if finding.state == "problem"]
    if as_json:
        rows = [finding._asdict() for finding in findings]
        print_json({"sound": not wrong, "findings": rows})
    else:
        _print(findings)
    for finding in wrong:
        problem = f"{finding.name}: {finding.found}. {finding.remedy}"
        errors().print(f"[bold red]Wrong:[/] {safe(problem)}")
    if wrong:
        raise typer.Exit(NOT_SO)


def _look(results: Path, data_dir: Path | None) -> "list[Finding]":
    from silodp import doctor

    findings = [*doctor.check_packages(), *doctor.check_extras(), *doctor.check_machine()]
    findings += doctor.check_jax()
    if any(finding.state == "problem" for finding in findings):
        # Reading data sets would fail for the same reasons, with less helpful messages.
        return [*findings, *doctor.check_folders(results), *doctor.check_terminal()]
    findings += doctor.check_data(data_dir)
    return [*findings, *doctor.check_folders(results), *doctor.check_terminal()]


def _print(findings: "list[Finding]") -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for column in ("part", "what", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for part, members in groupby(findings, key=lambda finding: finding.part):
        for number, finding in enumerate(members):
            cell = safe(finding.found)
            if finding.remedy:
                cell += f"\n[bold]{safe(finding.remedy)}[/]"
            first = part if number == 0 else ""
            table.add_row(first, safe(finding.name), _MARKS[finding.state], cell)
        table.add_section()
    answers().print(table)
    if all(finding.state != "problem" for finding in findings):
        answers(soft_wrap=True).print("All that silodp needs is here.")
