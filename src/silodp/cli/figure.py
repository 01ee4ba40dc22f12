"""`silodp figure`: figures of the paper, computed and drawn anew."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from silodp.cli.run import LiveProgress
from silodp.cli.terminal import safe
from silodp.cli.theory import check_trials
from silodp.engines.checkpoint import check_writable
from silodp.errors import SilodpError, one_of

if TYPE_CHECKING:
    from silodp.figures.figure7 import Panel


def figure(
    name: Annotated[str, typer.Argument(help="Which one: 7.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the picture and its numbers (runs/figure7).")
    ] = None,
    trials: Annotated[int, typer.Option(help="Repetitions of each simulation.")] = 500,
    seed: Annotated[int, typer.Option(help="Of the simulations.")] = 0,
    closed_form: Annotated[
        bool, typer.Option("--closed-form", help="Curves by formula, not by simulation.")
    ] = False,
    accountant: Annotated[
        str, typer.Option(help="rdp, as in the paper, or best: the tightest that is proven.")
    ] = "rdp",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
) -> None:
    """Draws a figure of the paper. 7: what it costs in privacy to tune lambda."""
    if name not in _FIGURES:
        raise SilodpError(f"Figure {name!r} is unknown: give {one_of(name, _FIGURES)}.")
    check_trials(trials, seed, least=2)
    if accountant not in ("rdp", "best"):
        raise SilodpError(f"--accountant is {accountant!r}: choose rdp or best.")
    folder = Path(f"runs/figure{name}") if out is None else out
    check_writable(folder)  # before the work, not after
    with LiveProgress(Console(stderr=True, quiet=quiet)) as progress:
        table, reading = _FIGURES[name](folder, trials, closed_form, seed, accountant, progress)
    if not quiet:
        Console(highlight=False).print(table)
        words = Console(highlight=False, soft_wrap=True)
        words.print(reading)
        words.print(f"Written to {safe(str(folder))}")


def _figure7(
    out: Path,
    trials: int,
    closed_form: bool,
    seed: int,
    accountant: str,
    progress: LiveProgress,
) -> tuple[Table, str]:
    from silodp.figures.figure7 import make_panels, write_csv
    from silodp.figures.figure7_picture import draw_figure7

    panels = make_panels(trials, closed_form, seed, accountant, progress)  # type: ignore[arg-type]
    progress.stage("drawing")
    write_csv(panels, out / "figure7.csv")
    draw_figure7(panels, out)
    return _summary(panels), _reading(panels)


def _summary(panels: "list[Panel]") -> Table:
    """The best error of each curve, in thousandths, at which lambda, and whether tuning paid."""
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


_FIGURES = {"7": _figure7}
