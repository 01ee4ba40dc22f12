"""`silodp run` and `silodp demo`."""

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.base.text import count, silo_names
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
from silodp.cli.terminal import (
    answers,
    if_interrupted,
    notes,
    print_json,
    safe,
    say_written,
)
from silodp.config.options import OPTIONS
from silodp.privacy.person_words import person_in_words

if TYPE_CHECKING:
    from silodp.results.result import Result


@takes_run_options
def run(
    given: Given,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for result.json and pictures.", rich_help_panel=OUTPUT),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Also train local and FedAvg, to compare.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    save_models: SaveModels = False,
    as_json: AsJson = False,
) -> None:
    """Trains one method on one data set, privately, over one or more seeds."""
    from silodp.runs.run import run as train

    check_out(out, save_models)
    console = notes()
    options = without_useless(given, console)
    with LiveProgress(console) as progress:
        result = train(
            out=out,
            resume=resume,
            overwrite=overwrite,
            keep_models=save_models,
            baselines=baselines,
            reporter=progress,
            **options,
        )
    if out is not None:
        _draw(result, out, overwrite)
    if as_json:
        print_json(result.as_json())
        return
    baseline_results = []
    if baselines and out is not None:
        from silodp.runs.baselines import baselines_of

        baseline_results = list(baselines_of(out).values())
    print_results([*baseline_results, result])
    if out is not None:
        say_written(out)
        answers(soft_wrap=True).print(f"To look at it: silodp report {safe(shlex.quote(str(out)))}")


def check_out(out: Path | None, save_models: bool) -> None:
    """Refuses options that need --out without it; notes how to go on after an interruption."""
    if save_models and out is None:
        raise SilodpError("--save-models needs a folder to write to: give --out.")
    if out is not None:
        if_interrupted("The same command with --resume goes on from the last checkpoint.")


def _draw(result: "Result", out: Path, overwrite: bool) -> None:
    """Draws the pictures of a run; removes those of an overwritten run first."""
    from silodp.pictures.learned_picture import PICTURES, draw_learned
    from silodp.pictures.pictures import draw_history
    from silodp.results.learned import is_summed_up

    draw_history([result], out / "history.png")
    if overwrite:
        for name in PICTURES:
            (out / name).unlink(missing_ok=True)
    if is_summed_up(result):
        draw_learned(result, out)


def print_results(results: "list[Result]") -> None:
    """Prints a row per result, then what was learned, and what epsilon does not cover."""
    from silodp.models.metrics import get_metric
    from silodp.privacy.plan import NOT_PRIVATE
    from silodp.results.learned import sentences

    console = answers()
    metric = get_metric(results[0].metric)
    table = Table("method", metric.heading, "range over silos", "epsilon")
    digits = metric.digits
    for result in results:
        means = [silo["mean"] for silo in result.per_silo if silo["mean"] is not None]
        spread = f"± {result.std:.{digits}f}" if len(result.test["per_seed"]) > 1 else "(one seed)"
        table.add_row(
            safe(describe(result)),
            f"{result.mean:.{digits}f} {spread}",
            f"{min(means):.{digits}f} to {max(means):.{digits}f}" if means else "",
            epsilon_text(result),
        )
    console.print(table)
    if unmeasured := dict.fromkeys(silo for result in results for silo in result.unmeasured):
        console.print(metric.missing_in([safe(silo) for silo in unmeasured]), soft_wrap=True)
    if chosen := results[0].chosen:
        console.print(f"Method: {safe(chosen)}.", soft_wrap=True)
    if left_out := results[0].left_out:
        names = f"{count(len(left_out), 'silo')}: {safe(silo_names(left_out))}"
        console.print(f"Left out, {names}.", soft_wrap=True)
    for result in results[-1:]:
        _print_measured(result)
    for result in filter(sentences, results):
        console.print(f"What {safe(result.method)} learned:")
        for sentence in sentences(result):
            console.print(Padding(safe(sentence), (0, 0, 0, 2)))
    for reason in dict.fromkeys(reason for result in results for reason in result.unproven):
        if reason != NOT_PRIVATE or any(math.isfinite(e) for r in results for e in r.epsilons):
            console.print(f"[yellow]Epsilon is not proven:[/] {safe(reason.rstrip('.'))}.")
    for warning in dict.fromkeys(w for result in results for w in result.warnings):
        console.print(f"[yellow]Warning:[/] {safe(warning)}.")
    for result in results:
        if result.person is not None:
            console.print(person_in_words(result.person, result.privacy[0]["unit"]))
    for assumption in dict.fromkeys(a for result in results for a in result.assumptions):
        console.print(f"[dim]Assumed: {safe(assumption)}.[/]")
    _print_verdict(results[-1], results[:-1])


def _print_measured(result: "Result") -> None:
    """Prints all metrics of a run beside no skill, and who may see them."""
    from silodp.models.metrics import get_metric
    from silodp.report.measured_part import interval_of, release_words
    from silodp.report.verdict import no_skill_name

    if not result.metrics:
        return
    table = Table("metric", "value", "95 %", no_skill_name(result), "is")
    for entry in result.metrics:
        metric, test, none = get_metric(entry["metric"]), entry["test"], entry["no_skill"]
        table.add_row(
            metric.short,
            metric.plus_minus(test["mean"], test["std"]) if test["mean"] is not None else "none",
            interval_of(entry),
            metric.text(none["mean"]) if none is not None and none["mean"] is not None else "",
            entry["release"],
        )
    answers().print(table)
    console = answers(soft_wrap=True)
    if any(entry["release"] == "exact" for entry in result.metrics):
        words = "Exact metrics, the prediction without features among them, stay with the records."
        console.print(words)
    for entry in result.metrics:
        metric = get_metric(entry["metric"])
        console.print(f"{metric.short} is {safe(release_words(entry, metric))}.")


def _print_verdict(result: "Result", others: "list[Result]") -> None:
    """Prints what it comes to, as the last words."""
    from silodp.report.inputs import comparable
    from silodp.report.verdict import verdict

    said = verdict(result, [other for other in others if comparable(result, other)])
    console = answers(soft_wrap=True)
    console.print(f"[bold]{safe(said.headline)}[/]")
    for sentence in (*said.more, *said.left_behind):
        console.print(safe(sentence))


def describe(result: "Result") -> str:
    """Names the method with its options."""
    from silodp.methods import get_method
    from silodp.methods.entry import read_method_options

    words = []
    method = get_method(result.method)
    for name in method.option_names:
        value = result.options[name]
        if value != OPTIONS[name].unsaid:
            text = value if isinstance(value, str) else f"{value:g}"
            words.append(f"{_word(name)} {text}")
    if own := result.options.get("silo_lam"):
        words.append(f"silos' own {min(own.values()):g} to {max(own.values()):g}")
    own_options = read_method_options(result.options.get("method_options"))
    words += [f"{name} {value:g}" for name, value in own_options.items()]
    if result.tuning is not None:
        tuned = ", ".join(OPTIONS[name].word or name for name in result.tuning["grid"])
        return f"{result.method}, {tuned} tuned (pivot: {', '.join(words)})"
    return f"{result.method} ({', '.join(words)})" if words else result.method


def _word(name: str) -> str:
    return OPTIONS[name].word or name.replace("_", " ")


def epsilon_text(result: "Result") -> str:
    """One number, or the range over silos; marked if it is not proven."""
    spent = result.epsilons
    if all(math.isinf(epsilon) for epsilon in spent):
        return "none (not private)"
    low, high = min(spent), max(spent)
    text = f"{high:.3g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.3g} to {high:.3g}"
    # That a run is an experiment is printed below, once for all results.
    return f"{text} (not proven)" if result.unproven else text


def demo(
    out: Annotated[Path, typer.Option(help="Folder for results and picture.")] = Path("runs/demo"),
    as_json: AsJson = False,
) -> None:
    """Trains four methods on made-up silos with three different budgets: a picture and a report."""
    from silodp.pictures.demo import run_demo
    from silodp.report import write_report

    with LiveProgress(notes()) as progress:
        results, picture = run_demo(out, progress)
        folders = [out / result.method for result in reversed(results)]  # the best first
        page = write_report(folders, out / "report.html", overwrite=True)
    if as_json:
        rows = [result.as_json() for result in results]
        print_json({"results": rows, "picture": picture, "report": page})
        return
    print_results(results)
    answers(soft_wrap=True).print(f"Picture: {safe(str(picture))}\nReport: {safe(str(page))}")
