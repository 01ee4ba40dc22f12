"""`silodp tune`: hyperparameters tuned within each silo's policy."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.cli.options import (
    OUTPUT,
    AsJson,
    Given,
    Overwrite,
    Resume,
    SaveModels,
    takes_run_options,
    without_useless,
)
from silodp.cli.progress import LiveProgress
from silodp.cli.run import check_out, print_results
from silodp.cli.terminal import answers, notes, print_json, say_written

if TYPE_CHECKING:
    from silodp.results.result import Result


@takes_run_options
def tune(
    given: Given,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="What to try: lam=0.1,1,10; may be given again, for lr."),
    ] = None,
    trials: Annotated[
        float | None, typer.Option(help="Mean number of a silo's trials; else the grid's points.")
    ] = None,
    eta: Annotated[
        float,
        typer.Option(help="Shape of the number of trials, above -1; inf: Poisson.", hidden=True),
    ] = 0.0,
    score: Annotated[
        str,
        typer.Option(help="Scores of trials: noisy, or public where policies allow.", hidden=True),
    ] = "noisy",
    score_fraction: Annotated[
        float,
        typer.Option(help="Part of a silo's records that trials are scored with.", hidden=True),
    ] = 0.2,
    pivot_noise: Annotated[
        float, typer.Option(help="Noise of what is sent, as a multiple of a trial's.", hidden=True)
    ] = 2.0,
    compare: Annotated[
        bool, typer.Option("--compare", help="Train an untuned run and a naive search as well.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for result.json and a picture.", rich_help_panel=OUTPUT),
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    save_models: SaveModels = False,
    as_json: AsJson = False,
) -> None:
    """Tunes hyperparameters privately: each silo tries some by itself, and releases the best.

    Takes the options of `silodp run`; those that --try names are the pivot's, whose updates are
    what silos send. The number of a silo's trials is random, which makes choosing cheap.
    """
    from silodp.tuning import tune as tune_silos
    from silodp.tuning.tune import METHOD, USES

    check_out(out, save_models)
    console = notes()
    grid = read_grid(tries or [])
    options = without_useless(given, console, METHOD, USES)
    with LiveProgress(console) as progress:
        result = tune_silos(
            grid=grid,
            trials=trials,
            eta=eta,
            score=score,  # type: ignore[arg-type]
            score_fraction=score_fraction,
            pivot_noise=pivot_noise,
            compare=compare,
            keep_models=save_models,
            out=out,
            resume=resume,
            overwrite=overwrite,
            reporter=progress,
            **options,
        )
    if out is not None:
        from silodp.pictures.tuning_picture import draw_tuning

        draw_tuning(result, out / "tuning.png")
    if as_json:
        print_json(result.as_json())
        return
    _print(result)
    if out is not None:
        say_written(out)


def read_grid(tries: list[str]) -> dict[str, list[float]]:
    """Reads `lam=0.1,1` as {"lam": [0.1, 1.0]}."""
    grid: dict[str, list[float]] = {}
    for text in tries:
        name, _, values = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError:
            raise SilodpError(
                f"--try {text!r}: give a name and numbers, as in lam=0.1,1,10."
            ) from None
        if name in grid:
            raise SilodpError(f"--try {name} is given twice: give all its values at once.")
        grid[name] = numbers
    return grid


def _print(result: "Result") -> None:
    tuning = result.tuning
    assert tuning is not None
    print_results([result])
    console = answers()
    if tuning["costs"]:  # without privacy there are none
        console.print(_costs(result))
    for cost in tuning["costs"]:
        console.print(_reading(cost), soft_wrap=True)
    console.print(f"Chosen: {_choices(tuning)}.", soft_wrap=True)


def _costs(result: "Result") -> Table:
    """Table of the ways to choose hyperparameters, at equal epsilon and at equal noise."""
    from silodp.models.metrics import get_metric

    tuning = result.tuning
    assert tuning is not None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("budget", no_wrap=True)
    table.add_column("way", no_wrap=True)
    for name in ("noise", "epsilon at untuned noise", f"test {result.metric}"):
        table.add_column(name, justify="right")
    trained = {way: test["mean"] for way, test in tuning.get("compared", {}).items()}
    trained["tuned"] = result.mean
    digits = get_metric(result.metric).digits
    for cost in tuning["costs"]:
        for way, words in _WAYS.items():
            metric = f"{trained[way]:.{digits}f}" if way in trained else "(--compare)"
            table.add_row(
                f"epsilon {cost['epsilon']:g}" if way == "untuned" else "",
                words.format(points=cost["points"], trials=tuning["trials"]),
                f"{cost['noise'][way]:.4g}",
                f"{cost['epsilon_at_untuned_noise'][way]:.3g}",
                metric,
            )
    return table


_WAYS = {
    "untuned": "untuned, the pivot's values",
    "tuned": "tuned, {trials:g} trials on average",
    "naive": "naive search, {points} runs",
}


def _reading(cost: dict[str, Any]) -> str:
    noise = cost["noise"]
    return (
        f"At epsilon {cost['epsilon']:g} (a silo of {cost['records']} records), tuning takes "
        f"{noise['tuned'] / noise['untuned']:.2g} times the noise of an untuned run, and naive "
        f"search {noise['naive'] / noise['untuned']:.2g} times. Whoever reports a naive search's "
        f"best run at the epsilon of one run has in truth spent "
        f"{cost['epsilon_at_untuned_noise']['naive']:.3g}."
    )


def _choices(tuning: dict[str, Any]) -> str:
    """Lists what silos chose, most often first."""
    counts = Counter(
        "the pivot's" if point is None else ", ".join(f"{n} {v:g}" for n, v in point.items())
        for silo in tuning["chosen"]
        for point in silo["per_seed"]
    )
    seeds = len(tuning["chosen"][0]["per_seed"])
    times = "silos" if seeds == 1 else f"silos in {seeds} seeds"
    return "; ".join(f"{words} ({n} {times})" for words, n in counts.most_common(8))
