"""`silodp theory`: the paper's analysis of mean estimation in numbers, beside a simulation."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.cli.options import AsJson
from silodp.cli.progress import LiveProgress
from silodp.cli.terminal import answers, notes, print_json, say_written

_ROWS = {
    "sigma_dp": "sigma_DP",
    "local_variance": "sigma_loc^2",
    "lambda_star": "lambda*",
    "error_star": "error at lambda*",
    "error_local": "error, local",
    "error_fedavg": "error, FedAvg",
    "gap_local": "gap to local",
    "gap_fedavg": "gap to FedAvg",
    "privacy_gap_local": "privacy cost, local",
    "privacy_gap_star": "privacy cost, lambda*",
    "privacy_gap_fedavg": "privacy cost, FedAvg",
}
_ONE, _LIST = "<number>", "<numbers>"
# Most silos with a row of their own in the table.
_MOST_ROWS = 30


def theory(
    silos: Annotated[
        str | None,
        typer.Option(
            metavar=_ONE, help="K: number of silos; else as many as values are listed, or 20."
        ),
    ] = None,
    records: Annotated[
        str, typer.Option(metavar=_LIST, help="n: records of a silo; one number, or one per silo.")
    ] = "200",
    sigma: Annotated[
        str,
        typer.Option(
            metavar=_LIST,
            help="Spread of records within a silo; one, or one per silo.",
        ),
    ] = "0.4",
    tau: Annotated[
        str, typer.Option(metavar=_ONE, help="Spread of the silos' centres: heterogeneity.")
    ] = "0.08",
    epsilon: Annotated[
        str, typer.Option(metavar=_LIST, help="Budget; one, or one per silo; inf: not private.")
    ] = "0.25",
    delta: Annotated[str, typer.Option(metavar=_ONE, help="Delta of all silos.")] = "1e-5",
    clip: Annotated[
        str, typer.Option(metavar=_ONE, help="c: records are clipped to [-c, c].")
    ] = "1",
    trials: Annotated[
        int, typer.Option(help="Trials of the simulation; 0 for the closed forms alone.")
    ] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for theory.json and theory.png.")] = None,
    as_json: AsJson = False,
) -> None:
    """Shows the best lambda for mean estimation, and what it gains, by formula and by simulation.

    Lists such as --records 50,200,800 --epsilon 0.25,1,4 give each silo its own numbers.
    """
    from silodp.base.files import check_writable, write_file
    from silodp.base.values import plain
    from silodp.theory.comparison import compare, simulation_of
    from silodp.theory.setting import make_setting

    check_trials(trials, seed, least=0)
    setting = make_setting(
        None if silos is None else _number("silos", silos),
        _numbers("records", records),
        _numbers("sigma", sigma),
        _number("tau", tau),
        _numbers("epsilon", epsilon),
        _number("delta", delta),
        _number("clip", clip),
    )
    if out is not None:
        check_writable(out)  # before the work, not after
    with LiveProgress(notes()) as progress:
        progress.stage("simulating")
        simulation = simulation_of(setting, trials, seed) if trials else None
        content = plain(compare(setting, simulation))
        if out is not None:
            from silodp.pictures.theory_picture import draw_theory

            progress.stage("drawing")
            draw_theory(setting, simulation, out / "theory.png")
            write_file(out / "theory.json", json.dumps(content, indent=2) + "\n")
    if as_json:
        print_json(content)
        return
    _print(content)
    if out is not None:
        say_written(out)


def check_trials(trials: int, seed: int, least: int) -> None:
    """Refuses numbers of trials without a standard error, and negative seeds."""
    if trials < 0 or trials == 1 or trials < least:
        also = "" if least else ", or 0 for the closed forms alone"
        raise SilodpError(f"--trials is {trials}: give 2 or more{also}.")
    if seed < 0:
        raise SilodpError(f"--seed is {seed}: give 0 or more.")


def _number(name: str, text: str) -> float:
    # Read here and not by typer: errors are one sentence, and lists are possible.
    try:
        return float(text)
    except ValueError:
        raise SilodpError(f"--{name} is {text!r}, which is not a number: give one.") from None


def _numbers(name: str, text: str) -> list[float]:
    return [_number(name, part) for part in text.split(",")]


def _print(content: dict[str, Any]) -> None:
    console = answers()
    console.print(_overview(content))
    if "per_silo" in content:
        console.print(_by_silo(content["per_silo"]))
    console.print(_reading(content), soft_wrap=True)


def _table(first: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column(first, no_wrap=True)
    return table


def _overview(content: dict[str, Any]) -> Table:
    simulated = content.get("simulated", {})
    views = (
        ("private", content, simulated),
        ("not private", content["without_privacy"], simulated.get("without_privacy", {})),
    )
    table = _table("mean over silos" if "per_silo" in content else "")
    for name, _, measured in views:
        table.add_column(name, justify="right", no_wrap=True)
        if measured:
            table.add_column("simulated", justify="right", no_wrap=True)
    for key, label in _ROWS.items():
        cells = []
        for _, closed, measured in views:
            cells.append(_cell(closed.get(key)))
            cells += [_cell(measured.get(key))] if measured else []
        table.add_row(label, *cells)
    return table


def _cell(value: Any, digits: int = 4) -> str:
    """A number short enough that the table fits a terminal of 80 columns."""
    if isinstance(value, dict):
        mean = value["mean"]
        return f"{mean:.3g} ±{100 * value['standard_error'] / abs(mean):.0f}%" if mean else "0"
    if isinstance(value, list):
        return f"{min(value):.2g} to {max(value):.2g}"
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int) else f"{value:.{digits}g}"


def _by_silo(rows: list[dict[str, Any]]) -> Table:
    """Table with a row per silo: how it differs from others, and what is best for it."""
    differ = [
        name for name in ("records", "sigma", "epsilon") if len({row[name] for row in rows}) > 1
    ]
    columns = {name: name for name in differ} | {"lambda_star": "lambda_k*", "error_star": "error"}
    columns |= {"simulated_star": "simulated"} if "simulated_star" in rows[0] else {}
    columns |= {"gap_local": "to local", "gap_fedavg": "to FedAvg"}
    table = _table("silo")
    for name in columns.values():
        table.add_column(name, justify="right", no_wrap=True)
    for number, row in enumerate(rows[:_MOST_ROWS]):
        printed = row | ({"lambda_star": "FedAvg"} if row["lambda_star"] == "inf" else {})
        cells = [_cell(printed[name], 3) for name in columns]
        table.add_row(str(number + 1), *cells)
    if len(rows) > _MOST_ROWS:
        table.caption = f"and {len(rows) - _MOST_ROWS} more: see --json"
    return table


def _reading(content: dict[str, Any]) -> str:
    """Says what the numbers mean, in a sentence or two."""
    star, plain_star = content["lambda_star"], content["without_privacy"]["lambda_star"]
    gaps = {"local training": content["gap_local"], "FedAvg": content["gap_fedavg"]}
    nearest = min(gaps, key=lambda name: gaps[name])
    better = gaps[nearest] / (content["error_star"] + gaps[nearest])
    moved = "" if math.isclose(star, plain_star) else f" (without privacy at {plain_star:.3g})"
    text = (
        f"The best lambda lies at {star:.3g}{moved}, where the error is {100 * better:.1f} % below "
        f"that of {nearest}, the better end."
    )
    if "per_silo" in content:
        own = 1 - content["error_silo_lambdas"] / content["error_star"]
        text += f" With a lambda of its own for each silo it is {100 * own:.1f} % lower still."
    if _clipping_shows(content):
        text += (
            " Simulated errors differ from the closed forms, which take no account of clipping: "
            "--clip cuts off much here."
        )
    return text


def _clipping_shows(content: dict[str, Any]) -> bool:
    """Whether a simulated error is farther from the closed form than chance would have it."""
    measured = content.get("simulated", {}).get("without_privacy", {})
    for name in ("error_star", "error_local", "error_fedavg") if measured else ():
        apart = abs(measured[name]["mean"] - content["without_privacy"][name])
        if apart > 5 * measured[name]["standard_error"]:
            return True
    return False
