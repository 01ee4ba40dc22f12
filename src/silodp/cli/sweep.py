"""`silodp sweep`: a grid of runs from one file, into one table."""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.cli.options import AsJson, Overwrite
from silodp.cli.progress import SweepProgress
from silodp.cli.terminal import answers, if_interrupted, notes, print_json, safe

if TYPE_CHECKING:
    import pandas as pd

GOES_ON = "What is finished is kept: the same command goes on from there."

OnRay = Annotated[
    str | None,
    typer.Option(
        "--ray", help="Ray cluster that does the work: host:port, ray://host:port or auto."
    ),
]
Reuse = Annotated[
    list[Path] | None,
    typer.Option(help="Folder of finished sweeps or figures: their runs are not trained again."),
]


def tables_in(reuse: list[Path] | None) -> list[Path]:
    """All tables in these folders and below."""
    from silodp.sweeps.known import tables_below

    return [table for folder in reuse or [] for table in tables_below(folder)]


def sweep(
    file: Annotated[Path, typer.Argument(help="TOML file: options, each a value or a list.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the table (runs/ and the file's name).")
    ] = None,
    overwrite: Overwrite = False,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write the table as results.parquet, too.")
    ] = False,
    ray: OnRay = None,
    reuse: Reuse = None,
    as_json: AsJson = False,
) -> None:
    """Runs a grid over any options into one table; after any interruption the same command goes on.

    The file holds run options (see silodp run --help), each a value or a list of values, and
    tables named grid with more of them for some of the runs. All combinations are run. The answer
    is the best setting of each method.
    """
    from silodp.sweeps import read_sweep, run_sweep
    from silodp.sweeps.best import best_by_method

    if parquet and find_spec("pyarrow") is None:
        raise SilodpError(
            "--parquet needs pyarrow: install it with `pip install 'silodp[parquet]'`, or leave it "
            "out: results.csv holds the same."
        )
    request = read_sweep(file)
    folder = Path("runs") / file.stem if out is None else out
    if_interrupted(GOES_ON)
    with SweepProgress(notes()) as progress:
        progress.begin(file.stem)
        table = run_sweep(
            request,
            folder,
            overwrite=overwrite,
            ray=ray,
            reuse=tables_in(reuse),
            reporter=progress,
        )
    best = best_by_method(table)
    if parquet:
        table.to_parquet(folder / "results.parquet", index=False)
    if as_json:
        print_json(best)
        return
    print_best(best, table)
    answers(soft_wrap=True).print(f"{request.runs} runs in {safe(str(folder))}")


def print_best(best: list[dict[str, Any]], table: "pd.DataFrame") -> None:
    """Prints each method's best setting by the other options, and what epsilon leaves out."""
    from silodp.models.metrics import get_metric
    from silodp.sweeps.best import TUNED, TUNING_NOTE
    from silodp.sweeps.settings import options_of

    options = options_of(table)
    varies = {name for name in options if len(table[name].unique()) > 1}
    apart = [name for name in options if name in varies and name not in (*TUNED, "method")]
    tuned = [name for name in options if name in varies and name in TUNED]
    for name in dict.fromkeys(row["metric"] for row in best):
        metric = get_metric(name)
        best_table = Table(*apart, "method", metric.heading, "best of", *tuned, box=box.SIMPLE_HEAD)
        for row in (row for row in best if row["metric"] == name):
            diverged = f", {row['diverged']} diverged" if row["diverged"] else ""
            best_table.add_row(
                *(_text(row[name]) for name in apart),
                safe(row["method"]),
                _mean(row, metric.digits),
                f"{row['tried']}{diverged}",
                *(_text(row[name]) for name in tuned),
            )
        answers().print(best_table)
    console = answers(soft_wrap=True)
    console.print("± is one standard error over seeds.")
    if any(row["tried"] > 1 for row in best):
        console.print(f"[yellow]Note:[/] {TUNING_NOTE}.")
    if any(not row["proven"] and row["epsilon_spent"] < math.inf for row in best):
        console.print(
            "[yellow]Epsilon is not proven[/] for some of them: noise comes from a seed (an "
            "experiment), or for reasons that silodp run gives."
        )


def _mean(row: dict[str, Any], digits: int) -> str:
    if math.isnan(row["mean"]):
        return "diverged"
    error = row["standard_error"]
    spread = "(one seed)" if math.isnan(error) else f"± {error:.{digits}f}"
    return f"{row['mean']:.{digits}f} {spread}"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:g}"
    return safe(str(value))
