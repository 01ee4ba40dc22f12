"""`silodp ledger`: what silos have spent and on what, what is left, and whether it is sound."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from silodp.cli.options import AsJson
from silodp.cli.terminal import answers, notes, print_json, safe
from silodp.errors import SilodpError
from silodp.names import in_cell
from silodp.privacy.chain import COLUMNS, canonical
from silodp.privacy.entry_words import in_words
from silodp.privacy.ledger import (
    Ledger,
    check_head,
    exists,
    ledger_path,
    ledger_paths,
    read_path,
)

app = typer.Typer(
    help="Shows and checks privacy ledgers: what each silo has spent, and what is left.",
    no_args_is_help=True,
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that holds the ledgers.")]
OneSilo = Annotated[str | None, typer.Option("--silo", help="Only this silo; else all.")]


@app.command("show")
def show(directory: Directory, silo: OneSilo = None, as_json: AsJson = False) -> None:
    """Shows every entry, what it cost, and what was spent by then."""
    ledgers = _ledgers(directory, silo)
    with _progress("Working out costs", sum(len(one.entries) for one in ledgers)) as step:
        silos = [_history(ledger, step) for ledger in ledgers]
    if as_json:
        print_json({"silos": silos})
        return
    console = answers()
    for ledger, told in zip(ledgers, silos, strict=True):
        table = Table(
            title=safe(f"{ledger.silo} ({ledger.relation}, per {ledger.unit})"),
            box=box.SIMPLE_HEAD,
            padding=(0, 1),
            collapse_padding=True,
        )
        table.add_column("time", no_wrap=True)
        table.add_column("what")
        table.add_column("run", overflow="fold")
        table.add_column("epsilon alone", justify="right")
        table.add_column("spent so far", justify="right")
        for entry, row in zip(ledger.entries, told["entries"], strict=True):
            table.add_row(
                safe(entry.time[:19].replace("T", " ")),
                safe(in_words(entry)),
                safe(entry.run),
                _number(row["epsilon"]),
                _number(row["spent_epsilon"]),
            )
        console.print(table)
        console.print(f"Head: {ledger.head} (entry {len(ledger.entries)})\n")


@app.command("verify")
def verify(
    directory: Directory,
    silo: OneSilo = None,
    head: Annotated[
        str | None, typer.Option(help="A hash noted earlier, which the chain must hold.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Checks that no entry was changed, moved or taken out; ends with exit code 2 if one was."""
    paths = _paths(directory, silo)
    if head is not None and len(paths) > 1:
        raise SilodpError(f"--head is the hash of one of {len(paths)} silos: say which by --silo.")
    silos = [_verdict(path, silo, head) for path in paths]
    wrong = [told["problem"] for told in silos if not told["intact"]]
    if as_json:
        print_json({"silos": silos})
    else:
        table = Table("silo", "chain", "entries", "head")
        table.columns[3].overflow = "fold"  # a hash that is cut short cannot be compared
        for told in silos:
            table.add_row(
                safe(told["silo"] or told["file"]),
                "intact" if told["intact"] else "[bold red]NOT INTACT[/]",
                str(told["entries"] or ""),
                told["head"] or "",
            )
        answers().print(table)
    if wrong:
        more = f" ({len(wrong) - 1} more ledgers are not sound either.)" if wrong[1:] else ""
        raise SilodpError(wrong[0] + more)


@app.command("export")
def export(
    directory: Directory,
    silo: OneSilo = None,
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="jsonl (exact) or csv (to read).")
    ] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="File to write; else standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Writes out all entries, with the hashes that chain them."""
    from silodp.result import write_file

    ledgers = _ledgers(directory, silo)
    entries = [
        {"silo": ledger.silo, **entry.as_json()} for ledger in ledgers for entry in ledger.entries
    ]
    content = _csv(entries)
    if form == "jsonl":
        content = "".join(canonical(entry) + "\n" for entry in entries)
    if out is not None:
        try:
            write_file(out, content)
        except OSError as error:
            raise SilodpError(
                f"{out} cannot be written ({error.strerror}): choose another --out."
            ) from None
        notes(soft_wrap=True).print(f"{len(entries)} entries written to {safe(str(out))}")
    if as_json:
        print_json({"entries": entries})
    elif out is None:
        typer.echo(content, nl=False)


@app.command("remaining")
def remaining(directory: Directory, silo: OneSilo = None, as_json: AsJson = False) -> None:
    """Shows what each silo has spent, and what is left of its lifetime allowance.

    What is left is the largest epsilon of one further Gaussian release that still fits. It is more
    than lifetime less spent, because costs compose.
    """
    from silodp.privacy.spending import remaining as remaining_of

    names = [ledger.silo for ledger in _ledgers(directory, silo)]
    silos = []
    with _progress("Working out what is left", len(names)) as step:
        for name in names:
            silos.append(remaining_of(directory, name))
            step()
    if as_json:
        print_json({"silos": silos})
        return
    table = Table("silo", "spent", "left for one more", "lifetime", "delta", "runs", "counted per")
    for told in silos:
        table.add_row(
            safe(told["silo"]),
            _number(told["spent_epsilon"]),
            _number(told["remaining_epsilon"]),
            _number(told["lifetime_epsilon"]),
            _number(told["lifetime_delta"]),
            str(told["runs"]),
            f"{told['unit']}, {told['relation']}",
        )
    answers().print(table)


@app.command("allow")
def allow(
    directory: Directory,
    silo: Annotated[str, typer.Option("--silo", help="The silo, or the source of a site.")],
    lifetime_epsilon: Annotated[float, typer.Option(help="For all runs together, from now on.")],
    lifetime_delta: Annotated[
        float | None, typer.Option(help="Its delta; else that which it has.")
    ] = None,
) -> None:
    """Changes a lifetime allowance that several federations share; the change is an entry.

    None of them changes it by itself, unless to a stricter one.
    """
    from silodp.privacy.charging import allow as allow_from_now

    told = allow_from_now(directory, silo, lifetime_epsilon, lifetime_delta)
    answers().print(
        f"{safe(silo)} may spend epsilon {told.epsilon:g} at delta {told.delta:g} in its lifetime."
    )


def _paths(directory: Path, silo: str | None) -> list[Path]:
    if silo is None:
        return ledger_paths(directory)
    ledger_paths(directory)  # a folder that is not there or not readable is told first
    if not exists(directory, silo):
        raise SilodpError(
            f"Silo {silo!r} has no ledger in {directory}: leave out --silo to see which have."
        )
    return [ledger_path(directory, silo)]


def _ledgers(directory: Path, silo: str | None) -> list[Ledger]:
    ledgers = [read_path(path, silo) for path in _paths(directory, silo)]
    return sorted(ledgers, key=lambda ledger: ledger.silo)


def _verdict(path: Path, silo: str | None, head: str | None) -> dict[str, Any]:
    """Whether the ledger is whole and understood; if not, why."""
    from silodp.privacy.spending import account_of

    told: dict[str, Any] = {"silo": silo, "file": path.name, "entries": None, "head": None}
    try:
        ledger = read_path(path, silo)
        told |= {"silo": ledger.silo, "entries": len(ledger.entries), "head": ledger.head}
        account_of(ledger)
        if head is not None:
            told["noted_at"] = check_head(ledger, head).seq
    except SilodpError as error:
        return {**told, "intact": False, "problem": str(error)}
    return {**told, "intact": True, "problem": None}


def _history(ledger: Ledger, step: Callable[[], None]) -> dict[str, Any]:
    """Each entry with its cost alone and what was spent by then, at the allowance then in force."""
    from silodp.privacy import spending

    rows = []
    for entry, account in spending.history(ledger):
        allowance = account.allowance
        alone = None
        if allowance is not None and entry.kind in ("charge", "settle"):
            alone = spending.spent([account.runs[entry.run].cost], allowance)
        by_then = spending.spent(account.live, allowance) if allowance is not None else 0.0
        rows.append({**entry.as_json(), "epsilon": alone, "spent_epsilon": by_then})
        step()
    return {
        "silo": ledger.silo,
        "relation": ledger.relation,
        "unit": ledger.unit,
        "head": ledger.head,
        "entries": rows,
    }


def _csv(entries: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("silo", *COLUMNS))
    for entry in entries:
        cells = {**entry, "body": canonical(entry["body"])}
        writer.writerow([in_cell(str(cells[name])) for name in ("silo", *COLUMNS)])
    return text.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on the terminal; call what it gives after each part."""
    console = notes()
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_interactive,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
