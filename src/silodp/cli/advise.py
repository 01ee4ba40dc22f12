"""`silodp advise`: who gains from federating, before anything is spent."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.cli.options import OUTPUT, AsJson, Given, takes_budget_options, without_useless
from silodp.cli.progress import LiveProgress
from silodp.cli.terminal import answers, notes, print_json, safe, say_written

if TYPE_CHECKING:
    from silodp.advice.advise import Advice
    from silodp.advice.messages import MessageAdvice

_TITLES = {"local": "local", "fedavg": "FedAvg", "mrmtl": "MR-MTL"}
# More silos than this are shown in bands.
_MOST_ROWS = 20
_TOP = 5


@takes_budget_options
def advise(
    given: Given,
    records: Annotated[
        str | None,
        typer.Option(help="Instead of --data: 120,80,400 or north=120,south=80."),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Guess: standard deviation within a silo, such as the label's."),
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(help="Guess: standard deviation between silos; one model loses tau^2."),
    ] = None,
    estimate_epsilon: Annotated[
        float | None,
        typer.Option(help="Epsilon that each silo spends on an estimate, not guesses."),
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="Parameters of a model; else the data's model's, or 1.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the advice and a picture.", rich_help_panel=OUTPUT),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predicts which silos gain from federating, and by how much. Trains nothing.

    With guesses (--sigma, --tau) it costs nothing; an estimate is charged to --ledger. With
    --messages it says instead what budgets buy in few messages (fewround), at no cost.
    """
    from silodp.advice.advise import NOT_ADVISED
    from silodp.advice.advise import advise as predict_gains
    from silodp.base.files import check_writable, write_file

    if out is not None:
        check_writable(out)  # before the work, not after
    console = notes()
    if given.get("messages") is not None:
        if estimate_epsilon is not None:
            raise SilodpError(
                "--estimate-epsilon: with --messages nothing is estimated from records: leave the "
                "one or the other out."
            )
        _advise_messages(given, records, sigma, tau, parameters, out, as_json)
        return
    options = without_useless(given, console, uses=NOT_ADVISED)
    with LiveProgress(console) as progress:
        advice = predict_gains(
            records=records,
            sigma=sigma,
            tau=tau,
            estimate_epsilon=estimate_epsilon,
            parameters=parameters,
            reporter=progress,
            **options,
        )
        content = advice.as_json()
        if out is not None:
            from silodp.pictures.advice_picture import draw_advice

            progress.stage("drawing")
            write_file(out / "advice.json", json.dumps(content, indent=2) + "\n")
            write_file(out / "silo_lam.toml", advice.silo_lam())
            draw_advice(advice, out / "advice.png")
    if as_json:
        print_json(content)
        return
    _print(advice, given.get("ledger"))
    if out is not None:
        say_written(out)


def _advise_messages(
    given: Given,
    records: str | None,
    sigma: float | None,
    tau: float | None,
    parameters: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Says what budgets buy in few messages."""
    from silodp.advice.advise import NOT_ADVISED
    from silodp.advice.messages import METHOD, NOTES, advise_messages
    from silodp.base.files import write_file

    console = notes()
    options = without_useless(given, console, method=METHOD, uses=NOT_ADVISED)
    with LiveProgress(console) as progress:
        advice = advise_messages(
            records=records,
            sigma=sigma,
            tau=tau,
            parameters=parameters,
            reporter=progress,
            **options,
        )
        content = advice.as_json()
        if out is not None:
            from silodp.pictures.messages_picture import draw_message_advice

            progress.stage("drawing")
            write_file(out / "advice.json", json.dumps(content, indent=2) + "\n")
            draw_message_advice(advice, out / "advice.png")
    if as_json:
        print_json(content)
        return
    _print_messages(advice, NOTES)
    if out is not None:
        say_written(out)


def _print_messages(advice: "MessageAdvice", said: Sequence[str]) -> None:
    from silodp.advice.messages import Range, in_percent

    console = answers()
    for line in advice.sentences:
        console.print(safe(line))
    numbers = sorted({row["messages"] for row in advice.overall})
    table = _table("epsilon", *(f"{n} message{'s' * (n != 1)}" for n in numbers))
    for times in sorted({row["times"] for row in advice.overall}):
        rows = [row for row in advice.overall if row["times"] == times]
        cells = (in_percent(advice.at(number, times)) for number in numbers)
        table.add_row(f"{rows[0]['epsilon']:.3g}", *cells)
    console.print(table)
    shown = sorted(advice.silos, key=lambda row: -row["low"] - row["high"])
    of_all = ""
    if len(shown) > _MOST_ROWS:
        shown = [*shown[:_TOP], *shown[-_TOP:]]
        of_all = f", the {_TOP} best and the {_TOP} worst off of {len(advice.silos)}"
    table = _table("silo", "records", "epsilon", "predicted")
    for row in shown:
        part = in_percent(Range(row["low"], row["high"]))
        table.add_row(safe(row["silo"]), str(row["records"]), f"{row['epsilon']:.3g}", part)
    console.print(f"Each silo{of_all}:")
    console.print(table)
    for warning in advice.warnings:
        console.print(f"[yellow]Warning:[/] {safe(warning)}.")
    for note in said:
        console.print(f"[dim]Note: {note}.[/]")


def _print(advice: "Advice", ledger: Path | None) -> None:
    from silodp.advice.advise import NOTES

    console = answers()
    if len(advice.silos) <= _MOST_ROWS:
        console.print(_silo_table(advice.silos))
    else:
        console.print(_band_table(advice.silos))
        gaining = sorted(advice.silos, key=lambda row: -row["gain_over_local"])
        console.print(f"The silos that gain most, of {len(advice.silos)} (--out writes all):")
        console.print(_silo_table(gaining[:_TOP]))
    console.print(_method_table(advice))
    for line in (
        _summary(advice),
        _lambdas(advice),
        *(_if_tau(advice, other) for other in advice.sensitivity),
        _spent(advice, ledger),
    ):
        console.print(line)
    for warning in advice.warnings:
        console.print(f"[yellow]Warning:[/] {safe(warning)}.")
    for note in NOTES:
        console.print(f"[dim]Note: {note}.[/]")


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column(first, overflow="fold", min_width=10)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _silo_table(rows: Sequence[dict[str, Any]]) -> Table:
    from silodp.advice.advise import percent

    table = _table("silo", "records", "epsilon", *_TITLES.values(), "lambda", "gain")
    table.add_column("verdict", min_width=12)
    for row in rows:
        table.add_row(
            safe(row["silo"]),
            str(row["records"]),
            f"{row['epsilon']:.3g}",
            *(f"{row[method]:.3g}" for method in _TITLES),
            f"{row['lam']:.3g}",
            f"{percent(row['gain_over_best'])} %",
            row["verdict"],
        )
    return table


def _band_table(rows: Sequence[dict[str, Any]]) -> Table:
    from silodp.advice.advise import bands, joining, percent

    table = _table("records", "silos", "epsilon", *_TITLES.values(), "lambda", "gain")
    table.add_column("joining", no_wrap=True)
    for band in bands(rows):
        table.add_row(
            _span([row["records"] for row in band]),
            str(len(band)),
            _span([row["epsilon"] for row in band]),
            *(f"{fmean(row[method] for row in band):.3g}" for method in _TITLES),
            f"{median(row['lam'] for row in band):.3g}",
            f"{percent(fmean(row['gain_over_best'] for row in band))} %",
            f"{joining(band)}: {_span([percent(row['gain_over_local']) for row in band])} %",
        )
    return table


def _method_table(advice: "Advice") -> Table:
    table = _table("method", "mean error, by records", "by silos")
    overall = advice.overall
    for method in overall["ranking"]:
        table.add_row(
            _TITLES[method],
            f"{overall['by_records'][method]:.3g}",
            f"{overall['by_silos'][method]:.3g}",
        )
    return table


def _summary(advice: "Advice") -> str:
    if len(advice.silos) == 1:
        return "There is one silo, and nobody to learn from."
    ahead = {
        "local": "each for itself will do",
        "fedavg": "FedAvg will do",
        "mrmtl": "MR-MTL is ahead of both ends",
    }[advice.overall["choice"]]
    return f"{advice.joining} of {len(advice.silos)} silos gain by joining; on average, {ahead}."


def _lambdas(advice: "Advice") -> str:
    from silodp.advice.advise import percent

    overall = advice.overall
    lam = overall["lam"]
    lam_text = "infinite (FedAvg)" if math.isinf(lam) else f"{lam:.2g}"
    return (
        f"One lambda for all: {lam_text}, where a search may begin; silos' own (silo_lam.toml) "
        f"would lower the error by a further {percent(overall['own_lam_adds'])} %."
    )


def _if_tau(advice: "Advice", other: dict[str, Any]) -> str:
    return (
        f"Should tau be {other['tau']:.3g}: {_TITLES[other['choice']]} is the choice, lambda "
        f"{other['lam']:.2g}, {other['joining']} join; {other['changed']} of "
        f"{len(advice.silos)} silos would choose otherwise."
    )


def _spent(advice: "Advice", ledger: Path | None) -> str:
    spread = advice.spread
    model = f"parameters {advice.parameters}, clip {advice.clip:g}"
    values = f"sigma {spread.sigma:.3g}, tau {spread.tau:.3g}"
    if spread.tau_range is None:
        return f"Guessed: {values} ({model}). Nothing was spent."
    low, high = spread.tau_range
    where = f"charged to the ledgers in {safe(str(ledger))}" if ledger else "charged to no ledger"
    return (
        f"Estimated: {values} ({low:.2g} to {high:.2g}; {model}). This cost each of "
        f"{len(spread.releases)} silos epsilon {_span([r.epsilon for r in spread.releases])} at "
        f"delta {_span([r.delta for r in spread.releases])}, {where}."
    )


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"
