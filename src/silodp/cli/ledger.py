"""`silodp ledger`: what silos have spent and on what, what is left, whether all is intact."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from silodp.base.errors import SilodpError, meant
from silodp.base.files import write_file
from silodp.base.text import in_cell
from silodp.cli.options import AsJson
from silodp.cli.terminal import answers, notes, print_json, safe
from silodp.privacy.ledger.chain import COLUMNS, canonical
from silodp.privacy.ledger.storage import (
    Ledger,
    check_head,
    exists,
    ledger_path,
    ledger_paths,
    read_path,
)
from silodp.privacy.ledger.words import in_words, standing_notes

if TYPE_CHECKING:
    from silodp.privacy.ledger.costs import Cost
    from silodp.privacy.ledger.lifetime import Lifetime
    from silodp.privacy.policy import Policy

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
    for ledger, history in zip(ledgers, silos, strict=True):
        table = Table(
            title=safe(f"{ledger.silo} ({ledger.relation}, per {ledger.unit})"),
            box=box.SIMPLE_HEAD,
            padding=(0, 1),
            collapse_padding=True,
        )
        table.add_column("time", no_wrap=True)
        table.add_column("what")
        table.add_column("run", no_wrap=True, overflow="fold")  # `ledger close` takes it whole
        table.add_column("takes", justify="right")
        table.add_column("spent", justify="right")
        table.add_column("reserved", justify="right")
        for entry, row in zip(ledger.entries, history["entries"], strict=True):
            table.add_row(
                safe(entry.time[:16].replace("T", " ")),
                safe(in_words(entry)),
                safe(entry.run),
                _share(row["share"]),
                _share(row["spent_share"]),
                _share(row["reserved_share"]),
            )
        console.print(table)
        if history["spent_epsilon"] is not None:
            console.print(
                f"Shares are of the lifetime allowance. All that was charged costs epsilon "
                f"{history['spent_epsilon']:.4g}, however runs were chosen."
            )
        # On a line of its own: a hash that is cut or wrapped cannot be copied and compared.
        console.print(f"Head, after entry {len(ledger.entries)}:\n{ledger.head}\n", soft_wrap=True)


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
        raise SilodpError(
            f"--head is the hash of one of {len(paths)} silos: choose one with --silo."
        )
    silos = [_verdict(path, silo, head) for path in paths]
    wrong = [verdict["problem"] for verdict in silos if not verdict["intact"]]
    if as_json:
        print_json({"silos": silos})
    else:
        table = Table("silo", "chain", "entries")
        for verdict in silos:
            table.add_row(
                safe(verdict["silo"] or verdict["file"]),
                "intact" if verdict["intact"] else "[bold red]NOT INTACT[/]",
                str(verdict["entries"] or ""),
            )
        answers().print(table)
        heads = [v for v in silos if v["head"]]
        if heads:
            answers().print("Heads, one line each:")
        for verdict in heads:  # a hash that is wrapped or cut short cannot be copied and compared
            answers(soft_wrap=True).print(f"{verdict['head']}  {safe(verdict['silo'])}")
    if wrong:
        more = f" ({len(wrong) - 1} more ledgers are not intact either.)" if wrong[1:] else ""
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
    """Shows what each silo has spent and reserved, and what is left of its lifetime allowance.

    Shares of the lifetime add up. Epsilons do not: what was spent is the epsilon of all that was
    charged, however runs were chosen. The delta of a lifetime is in brackets. One more run is a run
    like the last: its share, and how many such runs fit.
    """
    from silodp.privacy.ledger.standing import standing

    ledgers = _ledgers(directory, silo)
    silos = []
    with _progress("Working out what is left", len(ledgers)) as step:
        for ledger in ledgers:
            silos.append(standing(ledger))
            step()
    if as_json:
        print_json({"silos": silos})
        return
    table = Table(
        *("silo", "spent", "reserved", "given back", "left", "epsilon", "lifetime", "one more run"),
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
    )
    table.columns[0].overflow = "fold"
    for row in silos:
        table.add_row(
            safe(row["silo"]),
            # The filter's shares mean nothing where a run has the lifetime alone: a note says so.
            "all" if row["given_to"] is not None else _share(row["spent_share"]),
            _share(row["reserved_share"]),
            _share(row["given_back_share"]),
            _share(row["left_share"]),
            _number(row["spent_epsilon"]),
            _lifetime(row),
            "" if row["given_to"] is not None else _again(row["same_again"]),
        )
    console = answers()
    console.print(table)
    for row in silos:
        for note in standing_notes(row):
            console.print(safe(f"{row['silo']}: {note}"), soft_wrap=True)


@app.command("close")
def close(
    directory: Directory,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run, as `ledger show` names it.")],
    silo: OneSilo = None,
    reason: Annotated[str, typer.Option(help="Why; kept in the ledger.")] = "abandoned",
    as_json: AsJson = False,
) -> None:
    """Closes a run that will not go on: what was reserved and never charged is given back.

    From then on no process can answer a further round of it.
    """
    from silodp.privacy.ledger.charging import close_everywhere
    from silodp.privacy.session import FINISHED

    if reason.strip() == FINISHED:  # a site would take it for a job whose end it has forgotten
        raise SilodpError(
            f"--reason is {reason!r}, which runs say of themselves when they end: give another, "
            "such as abandoned."
        )
    silos = [ledger.silo for ledger in _ledgers(directory, silo)]
    closed = close_everywhere(directory, silos, run, reason)
    if as_json:
        print_json({"run": run, "silos": closed})
        return
    answers(soft_wrap=True).print(
        f"Run {safe(run)} is closed in {len(closed)} ledger{'s' * (len(closed) > 1)}: what it was "
        "not charged for is left again, and no further round of it can be answered."
    )


@app.command("backup")
def backup(
    directory: Directory,
    out: Annotated[Path, typer.Option(help="Folder to copy to, on another disk.")],
    silo: OneSilo = None,
    as_json: AsJson = False,
) -> None:
    """Copies ledgers while they are in use, each as it is at one moment, and checks the copies."""
    from silodp.privacy.ledger.storage import backup as copy_ledger

    copies = []
    with _progress("Copying", len(_paths(directory, silo))) as step:
        for path in _paths(directory, silo):
            ledger = copy_ledger(path, out)
            copies.append(
                {"silo": ledger.silo, "entries": len(ledger.entries), "head": ledger.head}
            )
            step()
    if as_json:
        print_json({"silos": copies, "folder": str(out)})
        return
    answers(soft_wrap=True).print(
        f"{len(copies)} ledger{'s' * (len(copies) > 1)} copied to {safe(str(out))}, and checked."
    )


@app.command("convert")
def convert(directory: Directory, silo: OneSilo = None, as_json: AsJson = False) -> None:
    """Converts ledgers of the first format, and says what they can still promise.

    That format added runs up as if all had been planned beforehand. Its charges count in full; a
    privacy filter decides on what follows, which holds however runs are chosen.
    """
    from silodp.privacy.ledger.account import account_of
    from silodp.privacy.ledger.charging import convert as convert_ledger
    from silodp.privacy.ledger.standing import remaining
    from silodp.privacy.ledger.storage import FORMAT

    old = [one for one in _ledgers(directory, silo) if account_of(one).format != FORMAT]
    if not old:
        raise SilodpError(f"No ledger in {directory} has an older format: leave them as they are.")
    silos = []
    for ledger in old:
        convert_ledger(directory, ledger.silo)
        row = remaining(directory, ledger.silo)
        silos.append(row | {"promise": _promise_in_words(row)})
    if as_json:
        print_json({"silos": silos})
        return
    console = answers(soft_wrap=True)
    for row in silos:
        console.print(f"{safe(row['silo'])} is converted. {safe(row['promise'])}")


@app.command("summary")
def summary(
    directory: Directory,
    policies: Annotated[
        Path, typer.Option(help="The silos' policies: silos whose policy allows it are summed up.")
    ],
    as_json: AsJson = False,
) -> None:
    """Sums up what silos spent, without names of silos or runs: for a coordinator or an authority.

    Only silos whose policy declares "ledger summary" public are in it.
    """
    from silodp.privacy.policy_files import read_policies

    ledgers = _ledgers(directory, None)
    allowed = read_policies(policies, [ledger.silo for ledger in ledgers])
    show_summary(ledgers, allowed, str(policies), as_json)


def show_summary(
    ledgers: "Sequence[Ledger]", policies: "Sequence[Policy]", where: str, as_json: bool
) -> None:
    """Shows what was spent, without names, by the silos whose policies allow that."""
    from silodp.privacy.ledger.standing import standing, summed_up
    from silodp.privacy.policy import LEDGER_SUMMARY

    chosen = [
        ledger
        for ledger, policy in zip(ledgers, policies, strict=True)
        if LEDGER_SUMMARY in policy.public
    ]
    if not chosen:
        raise SilodpError(
            f"No policy in {where} allows a summary: add {LEDGER_SUMMARY!r} to its public list."
        )
    totals = summed_up([standing(ledger) for ledger in chosen])
    if as_json:
        print_json(totals)
        return
    table = Table("lifetime", "delta", "counted per", "silos", "spent", "reserved", "left")
    for row in totals["lifetimes"]:
        table.add_row(
            _number(row["lifetime_epsilon"]),
            _number(row["lifetime_delta"]),
            f"{row['unit']}, {row['relation']}",
            str(row["silos"]),
            *(_range(row[name]) for name in ("spent_share", "reserved_share", "left_share")),
        )
    answers().print(table)


@app.command("allow")
def allow(
    directory: Directory,
    silo: Annotated[str, typer.Option("--silo", help="The silo, or the source of a site.")],
    lifetime_epsilon: Annotated[
        float, typer.Option(help="Epsilon for all runs together, from now on.")
    ],
    lifetime_delta: Annotated[
        float | None, typer.Option(help="Its delta; else the current one.")
    ] = None,
) -> None:
    """Changes a lifetime allowance that several federations share; the change is an entry.

    None of them changes it by itself, unless to a stricter one.
    """
    from silodp.privacy.ledger.charging import allow as allow_from_now

    allowance = allow_from_now(directory, silo, lifetime_epsilon, lifetime_delta)
    answers().print(
        f"{safe(silo)} may spend epsilon {allowance.epsilon:g} at delta {allowance.delta:g} in its "
        "lifetime."
    )


def _paths(directory: Path, silo: str | None) -> list[Path]:
    if silo is None:
        return ledger_paths(directory)
    paths = ledger_paths(directory)
    if not exists(directory, silo):
        silos = sorted(str(_verdict(path, None, None)["silo"]) for path in paths)
        raise SilodpError(f"Silo {silo!r} has no ledger in {directory}: {meant(silo, silos)}")
    return [ledger_path(directory, silo)]


def _ledgers(directory: Path, silo: str | None) -> list[Ledger]:
    ledgers = [read_path(path, silo) for path in _paths(directory, silo)]
    return sorted(ledgers, key=lambda ledger: ledger.silo)


def _verdict(path: Path, silo: str | None, head: str | None) -> dict[str, Any]:
    """Whether the ledger is intact and can be read; if not, why."""
    from silodp.privacy.ledger.account import account_of

    verdict: dict[str, Any] = {"silo": silo, "file": path.name, "entries": None, "head": None}
    try:
        ledger = read_path(path, silo)
        verdict |= {"silo": ledger.silo, "entries": len(ledger.entries), "head": ledger.head}
        account_of(ledger)
        if head is not None:
            verdict["noted_at"] = check_head(ledger, head).seq
    except SilodpError as error:
        return {**verdict, "intact": False, "problem": str(error)}
    return {**verdict, "intact": True, "problem": None}


def _history(ledger: Ledger, step: Callable[[], None]) -> dict[str, Any]:
    """Each entry with its share of the lifetime, and what was spent and reserved by then.

    Shares are of the lifetime that was in force then.
    """
    from silodp.privacy.ledger.account import NEW, history
    from silodp.privacy.ledger.costs import cost_of
    from silodp.privacy.ledger.standing import spent_epsilon

    rows = []
    account = NEW
    for entry, account in history(ledger):
        row: dict[str, Any] = {"share": None, "spent_share": 0.0, "reserved_share": 0.0}
        if account.promises:
            filtered = account.promises[-1].lifetime
            spent = _taken(account.spent, filtered)
            row["spent_share"] = spent
            row["reserved_share"] = max(0.0, _taken(account.counted, filtered) - spent)
            if "event" in entry.body:
                row["share"] = _taken([cost_of(entry.body)], filtered)
        rows.append({**entry.as_json(), **row})
        step()
    return {
        "silo": ledger.silo,
        "relation": ledger.relation,
        "unit": ledger.unit,
        "head": ledger.head,
        "spent_epsilon": spent_epsilon(account) if account.promises else None,
        "entries": rows,
    }


def _taken(costs: "Iterable[Cost]", of: "Lifetime") -> float:
    return sum(cost.taken(of) for cost in costs) / of.budget


def _promise_in_words(row: dict[str, Any]) -> str:
    """What a converted ledger can still promise."""
    if row["lifetime_epsilon"] is None:
        return "It has no lifetime allowance yet."
    allowed = f"epsilon {row['lifetime_epsilon']:g} at delta {row['lifetime_delta']:g}"
    if row["broken"]:
        return (
            f"Its lifetime of {allowed} is promised only if all its runs were planned beforehand; "
            f"however they were chosen, it is epsilon {row['spent_epsilon']:.4g}. Nothing more "
            "fits, unless the allowance is raised."
        )
    return (
        f"Its lifetime of {allowed} holds however its runs were chosen: {row['spent_share']:.0%} "
        f"of it is spent, {row['left_share']:.0%} is left."
    )


def _lifetime(row: dict[str, Any]) -> str:
    if row["lifetime_epsilon"] is None:
        return "not set yet"
    epsilon, delta = row["lifetime_epsilon"], row["lifetime_delta"]
    return f"{epsilon:g} ({delta:g})"


def _again(run: dict[str, Any] | None) -> str:
    if run is None or run["runs"] is None:
        return ""
    return f"{_share(run['share'])}, {run['runs']} fit"


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


def _share(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0%}" if value >= 0.0995 or value == 0 else f"{value:.1%}"


def _range(ends: list[float]) -> str:
    return f"{ends[0]:.0%} to {ends[1]:.0%}"


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Shows a bar on the terminal; yields a function to call after each part."""
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
