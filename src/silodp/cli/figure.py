"""`silodp figure`: recomputes and redraws figures of the paper."""

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from silodp.base.errors import DataMissingError, SilodpError, meant, one_of
from silodp.cli import completion
from silodp.cli.options import AsJson, Overwrite
from silodp.cli.progress import LiveProgress, SweepProgress
from silodp.cli.sweep import GOES_ON, OnRay, Reuse, tables_in
from silodp.cli.terminal import (
    answers,
    errors,
    if_interrupted,
    notes,
    print_json,
    safe,
    say_written,
)
from silodp.cli.theory import check_trials
from silodp.figures.definition import SCALES, load, names

if TYPE_CHECKING:
    import pandas as pd

    from silodp.figures.figure7 import Panel
    from silodp.figures.make import FigureOutput

_COST_OF_TUNING = "7"
_ACCOUNTANTS = ("rdp", "best")
_MOST_COLUMNS = 10
_WITHOUT = "without"
_APART = ("panel", "mask_ratio", "epsilon", "finetune_fraction")  # columns that tell drawings apart


def figure(
    name: Annotated[
        str,
        typer.Argument(
            help="2 to 7, one of the appendix, list, or all.", autocompletion=completion.figures
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            help="quick (seconds to minutes), hour (what two cores do in about an hour) or paper "
            "(all of its grid: minutes on School and Vehicle; images want a cluster, see --ray).",
            autocompletion=completion.scales,
        ),
    ] = "quick",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for pictures, numbers and tables (runs/figureNAME-SCALE)."),
    ] = None,
    overwrite: Overwrite = False,
    ray: OnRay = None,
    reuse: Reuse = None,
    trials: Annotated[int, typer.Option(help="Repetitions of each simulation (7).")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the simulations (7).")] = 0,
    closed_form: Annotated[
        bool, typer.Option("--closed-form", help="Curves by formula, not by simulation (7).")
    ] = False,
    accountant: Annotated[
        str,
        typer.Option(
            help="rdp, as in the paper, or best: the tightest that is proven (7).",
            autocompletion=lambda: list(_ACCOUNTANTS),
        ),
    ] = "rdp",
    as_json: AsJson = False,
) -> None:
    """Draws figures of the paper: trains what they show, and writes PNG, PDF and CSV.

    After an interruption the same command goes on. `silodp figure list` lists the figures.
    """
    figures = sorted({*names(), _COST_OF_TUNING}, key=_in_order)
    if name == "list":
        rows = [_about(one) for one in figures]
        if as_json:
            print_json(rows)
        else:
            _print_list(rows)
        return
    if name not in (*figures, "all"):
        raise SilodpError(
            f"Figure {name!r} is unknown: {meant(name, (*figures, 'list', 'all'), most=20)}"
        )
    if scale not in SCALES:
        raise SilodpError(f"--scale is {scale!r}: choose {one_of(scale, SCALES)}.")
    check_trials(trials, seed, least=2)
    if accountant not in _ACCOUNTANTS:
        raise SilodpError(f"--accountant is {accountant!r}: choose rdp or best.")
    from silodp.base.files import check_writable
    from silodp.sweeps.table import TABLE_FILE

    if_interrupted(GOES_ON)
    chosen = figures if name == "all" else [name]
    tables = tables_in(reuse)
    numbers: dict[str, list[dict[str, Any]]] = {}
    missing: dict[str, str] = {}
    for one in chosen:
        folder = Path("runs") if out is None else out
        if out is None or name == "all":
            folder /= f"figure{one}" + ("" if one == _COST_OF_TUNING else f"-{scale}")
        check_writable(folder)  # before the work, not after
        if one == _COST_OF_TUNING:
            numbers[one] = _figure7(folder, trials, closed_form, seed, accountant, as_json)
        else:
            output = _train(one, scale, folder, overwrite, ray, tables, as_json)
            missing |= {f"figure {one}, {panel}": why for panel, why in output.missing.items()}
            if output.files:
                numbers[one] = output.numbers.to_dict(orient="records")
            # Figures have runs in common: each is trained once.
            tables += sorted(path.parent for path in folder.glob(f"*/{TABLE_FILE}"))
    if not numbers:
        raise DataMissingError(" ".join(dict.fromkeys(missing.values())))
    if as_json:
        print_json(numbers if name == "all" else numbers[name])
    if missing:
        console = errors()
        console.print("[yellow]Not drawn, because data are missing:[/]")
        for panel, remedy in missing.items():
            console.print(f"  {safe(panel)}: {safe(remedy)}")


def _in_order(name: str) -> tuple[bool, str]:
    return not name.isdigit(), name


def _about(name: str) -> dict[str, Any]:
    """A row of the list of figures."""
    if name == _COST_OF_TUNING:
        title, paper = "What it costs in privacy to tune lambda", "Figure 7"
        return {"figure": name, "title": title, "data": ["drawn"], "paper": paper}
    definition = load(name)
    data = list(dict.fromkeys(str(panel.sweep["data"]) for panel in definition.panels))
    return {"figure": name, "title": definition.title, "data": data, "paper": definition.paper}


def _print_list(rows: list[dict[str, Any]]) -> None:
    table = Table("figure", "what it shows", "data", "of the paper", box=box.SIMPLE_HEAD)
    for row in rows:
        cells = (row["figure"], row["title"], ", ".join(row["data"]), row["paper"] or "ours")
        table.add_row(*map(safe, cells))
    answers().print(table)


def _train(
    name: str,
    scale: str,
    folder: Path,
    overwrite: bool,
    ray: str | None,
    reuse: list[Path],
    as_json: bool,
) -> "FigureOutput":
    """Trains and draws one figure; prints its numbers unless `as_json`."""
    from silodp.figures.make import make_figure

    definition = load(name)
    with SweepProgress(notes()) as progress:
        progress.begin(f"figure {name}")
        output = make_figure(
            definition,
            scale,
            folder,
            overwrite=overwrite,
            ray=ray,
            reuse=reuse,
            reporter=progress,
        )
    if output.files and not as_json:
        answers().print(_means(definition.title, output.numbers))
        answers(soft_wrap=True).print(
            f"{safe(definition.caption)}\n{output.runs} runs, {output.seconds:.0f} s of training. "
            "Epsilon does not include the cost of choosing the best settings.\nWritten to "
            f"{', '.join(safe(str(file)) for file in output.files)}"
        )
    return output


def _figure7(
    out: Path,
    trials: int,
    closed_form: bool,
    seed: int,
    accountant: str,
    as_json: bool,
) -> list[dict[str, Any]]:
    """Draws figure 7, which trains nothing, and prints as `_train` does; returns its numbers."""
    from silodp.figures.figure7 import make_panels, write_csv
    from silodp.figures.figure7_picture import draw_figure7

    with LiveProgress(notes()) as progress:
        panels = make_panels(trials, closed_form, seed, accountant, progress)  # type: ignore[arg-type]
        progress.stage("drawing")
        numbers = write_csv(panels, out / "figure7.csv")
        draw_figure7(panels, out)
    if not as_json:
        answers().print(_summary(panels))
        answers(soft_wrap=True).print(_reading(panels))
        say_written(out)
    with numbers.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _summary(panels: "list[Panel]") -> Table:
    """Table of each curve's best error in thousandths, its lambda, and whether tuning paid."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("1000 x error", no_wrap=True)
    table.add_column("noise", justify="right", no_wrap=True)
    for panel in panels:
        table.add_column(f"({panel.letter}) tau {panel.tau:g}", justify="right", no_wrap=True)
    noise = f"{panels[0].private.curve.sigma_dp:.1f}"
    for end in ("local", "FedAvg"):
        table.add_row(f"untuned {end}", noise, *(_thousandths(p.private.ends[end]) for p in panels))
    table.add_row("untuned, best lambda", noise, *(_at(*panel.private.best) for panel in panels))
    table.add_row("lambda estimated", noise, *(_at(*panel.estimated.best) for panel in panels))
    for number, curve in enumerate(panels[0].tuned):
        cells = []
        for panel in panels:
            tuned = panel.tuned[number]
            cells.append(f"{'pays: ' if panel.pays(tuned) else ''}{_at(*tuned.best)}")
        table.add_row(curve.curve.name, f"{curve.curve.sigma_dp:.1f}", *cells)
    return table


def _thousandths(error: float) -> str:
    return f"{1000 * error:.3g}"


def _at(lam: float, error: float) -> str:
    return f"{_thousandths(error)} at {lam:.2g}"


def _reading(panels: "list[Panel]") -> str:
    paying = [
        f"{sum(panel.pays(tuned) for tuned in panel.tuned)} of {len(panel.tuned)} in "
        f"({panel.letter})"
        for panel in panels
    ]
    return (
        'The lowest point of each curve, and its lambda. Tuning "pays" where that is below the '
        f"better of local training and FedAvg without tuning: {', '.join(paying)}. Estimating "
        "lambda from what is released anyway costs no privacy."
    )


def _means(title: str, numbers: "pd.DataFrame") -> Table:
    """Table of the means drawn: a row per curve, a column per x (if many, a selection)."""
    apart = [name for name in _APART if _varies(numbers, name)]
    if bool((numbers["x"] == numbers["epsilon"]).to_numpy().all()):
        apart = [name for name in apart if name != "epsilon"]
    places = sorted(numbers["x"].dropna().unique().tolist())
    step = max(1, -(-len(places) // _MOST_COLUMNS))
    chosen = places[::-1][::step][::-1]
    # Methods without the option on the x axis (such as lambda) have one mean.
    whole = [_WITHOUT] if bool(numbers["x"].isna().to_numpy().any()) else []
    heads = [*whole, *(f"{x:g}" for x in chosen)]
    table = Table(*apart, "curve", *heads, title=title, box=box.SIMPLE_HEAD)
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    for x, mean, *key in zip(*(numbers[n] for n in ("x", "mean", *apart, "curve")), strict=True):
        means = rows.setdefault(tuple(map(_plain, key)), {})
        means[_WITHOUT if math.isnan(x) else f"{x:g}"] = mean
    for key, means in rows.items():
        cells = [f"{means[head]:.4g}" if head in means else "" for head in heads]
        table.add_row(*(safe(part) for part in key), *cells)
    return table


def _varies(numbers: "pd.DataFrame", name: str) -> bool:
    return name in numbers.columns and len(numbers[name].unique()) > 1


def _plain(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:g}"
    return str(value)
