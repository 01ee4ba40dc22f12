"""`silodp audit`: checks what a silo releases, attacks it, and holds both against the claim."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from silodp.base.text import count
from silodp.cli.group import NOT_SO
from silodp.cli.options import OUTPUT, AsJson, Given, takes_run_options, without_useless
from silodp.cli.progress import LiveProgress
from silodp.cli.terminal import answers, errors, notes, print_json, safe, say_written

if TYPE_CHECKING:
    from silodp.auditing.audit import Audit
    from silodp.auditing.checks import Check


class _Progress(LiveProgress):
    """Counts runs."""

    def trained(self, done: int, total: int, metric: float) -> None:
        self._show(done, total, "runs")


@takes_run_options
def audit(
    given: Given,
    silo: Annotated[
        str | None, typer.Option(help="Silo to attack; else the one with the fewest records.")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Runs with the canary, and as many without (else as time allows)."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence of the lower bounds.", hidden=True)
    ] = 0.95,
    canary_norm: Annotated[
        float | None,
        typer.Option(help="Norm of the canary's features; else a suitable one.", hidden=True),
    ] = None,
    others: Annotated[
        int, typer.Option(help="Number of other silos that take part.", hidden=True)
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for audit.json and audit.png.", rich_help_panel=OUTPUT),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Checks what one silo releases and attacks it with made-up records; bounds epsilon from below.

    Takes the options of `silodp run`. Noise is that of a release, or with --entropy seed that of an
    experiment. Exit code 1 means that a check failed or that the claimed epsilon is broken.
    """
    from silodp.auditing.audit import audit as attack
    from silodp.base.files import check_writable, write_file
    from silodp.base.values import plain

    if out is not None:
        check_writable(out)  # before the work, not after
    console = notes()
    options = without_useless(given, console)
    with _Progress(console) as progress:
        outcome = attack(
            silo=silo,
            trials=trials,
            confidence=confidence,
            canary_norm=canary_norm,
            others=others,
            reporter=progress,
            **options,
        )
        content = plain(outcome.as_json())
        if out is not None:
            from silodp.pictures.audit_picture import draw_audit

            progress.stage("drawing")
            write_file(out / "audit.json", json.dumps(content, indent=2) + "\n")
            draw_audit(outcome, out / "audit.png")
    if as_json:
        print_json(content)
    else:
        _print(outcome)
        if out is not None:
            say_written(out)
    if not outcome.passed:
        errors().print(f"[bold red]{safe(_verdict(outcome))}[/]")
        raise typer.Exit(NOT_SO)


def _verdict(audit: "Audit") -> str:
    most = max(audit.bounds, key=lambda bound: bound.epsilon)
    if most.epsilon > audit.claimed_epsilon:
        return (
            f"The claim is broken: silo {audit.silo!r} claims epsilon {audit.claimed_epsilon:.3g}, "
            f"but it is at least {most.epsilon:.3g} (confidence {audit.confidence:g}; by: "
            f"{most.name})."
        )
    if not audit.passed:
        return (
            f"Silo {audit.silo!r} does not do what is planned: {len(audit.failed)} of "
            f"{len(audit.checks)} checks failed, the first: {audit.failed[0].name}."
        )
    return (
        f"Nothing speaks against the claim: silo {audit.silo!r} claims epsilon "
        f"{audit.claimed_epsilon:.3g}, {len(audit.checks)} checks passed, and the attacks prove "
        f"{audit.lower_bound:.3g} ({audit.curve_bound:.3g} by the plan's whole curve)."
    )


def _print(audit: "Audit") -> None:
    console = answers(soft_wrap=True)
    columns = (
        "silo",
        "method",
        "claimed",
        "lower bound",
        "by curve",
        "confidence",
        "trials",
        "seconds",
    )
    table = Table(*columns, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_row(
        safe(audit.silo),
        safe(audit.method),
        f"{audit.claimed_epsilon:.4g}",
        f"{audit.lower_bound:.4g}",
        f"{audit.curve_bound:.4g}",
        f"{audit.confidence:g}",
        f"2 x {audit.trials}",
        f"{audit.seconds:.1f}",
    )
    console.print(table)
    console.print(
        f"Neighbours: {audit.relation} of one {audit.unit}; delta {audit.delta:g}; "
        f"{count(audit.rounds, audit.round_name)}. Best attack: {safe(audit.attack)}; "
        f"it is right in {100 * audit.hit_rate:.3g}% of runs with the canary and wrong in "
        f"{100 * audit.false_alarm_rate:.3g}% without."
    )
    _print_checks(audit)
    for warning in audit.warnings:
        console.print(f"[yellow]Warning:[/] {safe(warning)}.")
    if audit.passed:
        console.print(safe(_verdict(audit)))
    console.print("[dim]An audit is not private itself: it trains on the records many times.[/]")


def _print_checks(audit: "Audit") -> None:
    """Prints a row per kind of check that passed, and a row per check that failed."""
    table = Table(
        *("check", "measured", "expected", "p-value", "verdict"),
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for kind in dict.fromkeys(check.kind for check in audit.checks):
        own = [check for check in audit.checks if check.kind == kind]
        passed = [check for check in own if check.passed]
        if passed:
            worst = min(passed, key=lambda check: check.p_value)
            name = kind if len(own) == 1 else f"{kind}: {len(passed)} of {len(own)} checks"
            table.add_row(name, *_cells(worst), "as planned")
        for check in own:
            if not check.passed:
                table.add_row(f"{kind}: {safe(check.name)}", *_cells(check), "[bold red]not so[/]")
    console = answers(soft_wrap=True)
    console.print(table)
    console.print(
        "[dim]Checks that passed: the one with the least p-value of each kind. An honest run fails "
        f"any check with a chance of {audit.false_alarm:g}.[/]"
    )


def _cells(check: "Check") -> tuple[str, str, str]:
    return safe(check.measured), safe(check.expected), f"{check.p_value:.2g}"
