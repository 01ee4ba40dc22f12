"""`silodp plan`: what a run would ask of each silo, before anything is spent."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from silodp.cli.options import OUTPUT, AsJson, Given, takes_run_options, without_useless
from silodp.cli.progress import LiveProgress
from silodp.cli.terminal import answers, notes, print_json, safe, say_written
from silodp.privacy.person_words import person_in_words


@takes_run_options
def plan(
    given: Given,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for plan.json and a picture of epsilon over rounds.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Shows what a run would ask of each silo and with how much noise. Trains nothing.

    Takes the options of `silodp run`. With --ledger, says whether the run would be refused.
    """
    from silodp.base.files import check_writable, write_file
    from silodp.base.values import plain
    from silodp.runs.accounts import ledgers_of
    from silodp.runs.planning import describe_plans
    from silodp.runs.prepare import person_guarantee
    from silodp.runs.run import plan as make_plan

    if out is not None:
        check_writable(out)  # before the work, not after
    console = notes()
    options = without_useless(given, console)
    with LiveProgress(console) as progress:
        prepared = make_plan(reporter=progress, **options)
        progress.stage("comparing accountants")
        rows = describe_plans(prepared, progress=progress.calibrated)
        spec, ledgers = prepared.specs[0], ledgers_of(prepared)
        content = plain(
            {
                "data": prepared.federations[0].name,
                "method": spec.request.method,
                "chosen": prepared.chosen,
                "rounds": spec.rounds,
                "silos": rows,
                "encoders": [own.to_plain() for own in prepared.federations[0].encoders],
                "warnings": prepared.warnings,
                "person": person_guarantee(spec.plans, spec.request.max_silos_per_subject),
                "lifetimes": None if ledgers is None else ledgers.check(),
            }
        )
        if out is not None:
            from silodp.pictures.pictures import draw_spending

            progress.stage("drawing")
            write_file(out / "plan.json", json.dumps(content, indent=2) + "\n")
            draw_spending(prepared.plans[0], out / "epsilon.png")
    if as_json:
        print_json(content)
        return
    print_plan(content)
    if out is not None:
        say_written(out)


def print_plan(content: dict[str, Any]) -> None:
    """Prints the table of a plan, and its assumptions."""
    from silodp.data.encoders.encoder import info_of_plain

    console = answers()
    rows = content["silos"]
    unit = "subjects" if rows[0]["unit"] == "subject" else "records"
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("silo", overflow="fold", min_width=10)
    for name in (unit, "rate", "steps", "noise", "epsilon", "PLD", "RDP", "RDP noise"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        by = row["epsilon_by_accountant"]
        table.add_row(
            safe(row["silo"]),
            str(row["records"]),
            f"{row['sampling_rate']:.3g}",
            str(row["steps"]),
            _number(row["noise_multiplier"], 4),
            _number(row["epsilon"], 4),
            _number(by["pld"], 4),
            _number(by["rdp"], 4),
            _number(row["noise_multiplier_rdp"], 4),
        )
    console.print(table)
    deltas = sorted({row["delta"] for row in rows})
    relations = sorted({row["relation"] for row in rows})
    console.print(
        f"Neighbours: {', '.join(relations)} of one {rows[0]['unit']}; delta "
        f"{', '.join(f'{delta:g}' for delta in deltas)}; {safe(content['method'])}, "
        f"{content['rounds']} rounds. PLD and RDP: epsilon under each accountant; RDP noise: what "
        "the paper's accountant would need."
    )
    if content.get("chosen"):
        console.print(f"Method: {safe(content['chosen'])}.")
    console.print(f"Shares of epsilon: {_shares(rows)}.")
    for encoder in content.get("encoders", ()):
        words = info_of_plain("The plan", encoder).words
        console.print(f"Features by the encoder {safe(words)}; that it is public is assumed.")
    if content.get("lifetimes"):
        console.print(_lifetimes(list(content["lifetimes"].values())))
    if content["person"]:
        console.print(person_in_words(content["person"], rows[0]["unit"]))
    for reason in dict.fromkeys(reason for row in rows for reason in row["unproven"]):
        console.print(f"[yellow]Epsilon is not proven:[/] {safe(reason.rstrip('.'))}.")
    if any(row["experiment"] for row in rows):
        console.print(
            "[yellow]An experiment:[/] its noise would come from a seed and protect nobody; give "
            "--ledger DIR or --entropy os for a release."
        )
    for warning in content["warnings"]:
        console.print(f"[yellow]Warning:[/] {safe(warning)}.")


def _lifetimes(silos: list[dict[str, Any]]) -> str:
    """What the run would take of the silos' lifetimes, and what is left of these."""

    def ends(name: str) -> str:
        low, high = (f"{100 * end(silo[name] for silo in silos):.0f}" for end in (min, max))
        return f"{low if low == high else f'{low} to {high}'} %"

    sentence = (
        f"Of its lifetime, each silo has {ends('spent_share')} spent, {ends('reserved_share')} "
        f"reserved and {ends('left_share')} left; this run would reserve {ends('takes_share')}, be "
        "charged for it block by block, and give back what it does not use."
    )
    alone = sum(silo["alone"] for silo in silos)
    if alone:
        sentence += (
            f" In {alone} of {len(silos)} silos it fits only by itself: nothing else will fit "
            "their lifetime after it."
        )
    return sentence


def _number(value: float | str | None, digits: int) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.{digits}g}"


def _shares(rows: list[dict[str, Any]]) -> str:
    """Share of epsilon by kind of query, or its range over silos."""
    by_query: dict[str, list[float]] = {}
    for query in (query for row in rows for query in row["queries"]):
        by_query.setdefault(query["query"], []).append(100 * (query["share"] or 0.0))
    texts = []
    for name, shares in by_query.items():
        low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
        texts.append(f"{name} {low if low == high else f'{low} to {high}'} %")
    return ", ".join(texts)
