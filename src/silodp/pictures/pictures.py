"""Pictures of results."""

import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from silodp.base.files import write_file
from silodp.base.text import in_picture
from silodp.models.metrics import get_metric
from silodp.privacy.plan import SiloPlan
from silodp.results.result import Result
from silodp.runs.planning import by_budget, spending_curve

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def new_figure(
    width: float, height: float, panels: int = 1, stacked: bool = False
) -> tuple[Figure, list[Axes]]:
    """Makes a figure (without a screen) with panels side by side, or one above the other."""
    figure, grid = new_grid(width, height, *((panels, 1) if stacked else (1, panels)))
    return figure, [axes for row in grid for axes in row]


def new_grid(
    width: float, height: float, rows: int, columns: int
) -> tuple[Figure, list[list[Axes]]]:
    """Makes a figure (without a screen) with rows of panels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).tolist()
    for axes in (axes for row in grid for axes in row):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid


def save(figure: Figure, path: Path) -> Path:
    """Writes a PNG fit for print, atomically."""
    picture = io.BytesIO()
    with warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; nobody can do more about it.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(picture, dpi=160, format="png")
    return write_file(path, picture.getvalue())


def save_both(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes NAME.png and, for print, NAME.pdf; equal figures give equal files."""
    picture = io.BytesIO()
    # TrueType fonts, as publishers ask for, and no date.
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(picture, format="pdf", metadata={"CreationDate": None})
    return [
        save(figure, folder / f"{name}.png"),
        write_file(folder / f"{name}.pdf", picture.getvalue()),
    ]


def draw_history(results: Sequence[Result], path: Path) -> Path:
    """Draws the test metric over rounds: mean and one standard deviation over seeds."""
    figure, (axes,) = new_figure(6.4, 4.2)
    for number, result in enumerate(results):
        rounds = [point["round"] for point in result.history]
        means = [point["mean"] for point in result.history]
        stds = [point["std"] for point in result.history]
        colour = COLOURS[number % len(COLOURS)]
        spent = max(result.epsilons)
        privacy = "not private" if math.isinf(spent) else f"epsilon {spent:.3g}"
        axes.plot(rounds, means, color=colour, label=f"{result.method}, {privacy}")
        low = [m - s for m, s in zip(means, stds, strict=True)]
        high = [m + s for m, s in zip(means, stds, strict=True)]
        axes.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
    title = in_picture(results[0].data)
    axes.set(xlabel="round", ylabel=get_metric(results[0].metric).label, title=title)
    axes.legend(frameon=False)
    return save(figure, path)


def draw_spending(plans: Sequence[SiloPlan], path: Path) -> Path:
    """Draws epsilon spent over rounds, one line per budget."""
    figure, (axes,) = new_figure(6.4, 4.2)
    budgets = by_budget(plans)
    # More lines than colours could not be told apart: draw every n-th budget.
    step = max(1, -(-len(budgets) // len(COLOURS)))
    for colour, (budget, same) in zip(COLOURS, list(budgets.items())[::step], strict=False):
        rounds, spent = spending_curve(same[len(same) // 2])
        label = f"budget {budget}: {len(same)} silo{'s' * (len(same) > 1)}"
        axes.plot(rounds, spent, color=colour, marker=".", label=label)
    title = f"every {step}th of {len(budgets)} budgets" if step > 1 else ""
    axes.set(xlabel="round", ylabel="epsilon spent", title=title)
    axes.set_ylim(bottom=0)
    if budgets:
        axes.legend(frameon=False)
    else:
        axes.text(0.5, 0.5, "no privacy was asked for", ha="center", transform=axes.transAxes)
    return save(figure, path)
