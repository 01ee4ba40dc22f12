"""`silodp data check` and `silodp data show`: what is in a data set, or in a user's own table."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from silodp.base.errors import SilodpError
from silodp.base.text import as_file_name, shown, silo_names
from silodp.cli import completion
from silodp.cli.options import AsJson, Overwrite, takes_checked_options, takes_data_options
from silodp.cli.problems_table import show_problems
from silodp.cli.progress import LiveProgress
from silodp.cli.terminal import answers, notes, print_json, safe
from silodp.config.choices import DATA_SETS
from silodp.config.options import DATA_OPTIONS, RunRequest

if TYPE_CHECKING:
    from rich.console import Console

    from silodp.config.data_options import DataOptions
    from silodp.data.federation import Federation, Records
    from silodp.data.source import DataSource, InPaper

NameOrPath = Annotated[
    str,
    typer.Argument(
        help="A data set's name, a table (CSV, Excel, Parquet, ...), or a folder of tables or "
        "images.",
        autocompletion=completion.data_sets,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the split, as in a run.")]

SHOWS_RECORDS = (
    "The pictures show records and labels as they are: epsilon does not cover them, they are for "
    "the eyes of those who may see the records."
)


@takes_checked_options
def check(
    given: dict[str, Any],
    name_or_path: NameOrPath,
    seed: Seed = 0,
    write_schema: Annotated[
        Path | None,
        typer.Option(help="File for a proposed schema of your own table, to read and edit."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Makes every check of a plan and a run, and shows all problems, or what a run would see.

    Exits with 2 if there is a problem. What --write-schema takes from the records is marked there:
    epsilon does not cover it.
    """
    from silodp.base.progress import Reporter
    from silodp.data.problems import Problems
    from silodp.runs.prepare import check_all

    if write_schema is not None:
        _write_schema(name_or_path, given, write_schema, overwrite)
        given = {**given, "schema": write_schema}
    request = RunRequest(
        **given, data=name_or_path, first_seed=seed, method="local", epsilon=math.inf
    )
    problems = Problems()
    loaded = None
    with problems.noted(), _stage("loading data"):
        loaded = check_all(request, Reporter(), problems)
    said = loaded.said if loaded is not None else ()
    if len(problems):
        if as_json:
            print_json({"problems": problems.rows(), "read": list(said)})
        else:
            show_problems(problems, said)
            if _may_have_schema(name_or_path, given):
                if _wants_schema():
                    _write_schema(name_or_path, given, Path("schema.toml"), False)
                else:
                    notes(soft_wrap=True).print(
                        "--write-schema schema.toml proposes a schema, which has rules for most "
                        "of it."
                    )
        raise typer.Exit(2)
    assert loaded is not None
    if as_json:
        print_json({**describe(loaded.federations[0]), "read": list(said), "problems": []})
        return
    for sentence in said:
        answers(soft_wrap=True).print(f"Read: {safe(sentence)}")
    _print_federation(answers(), loaded.federations[0])
    if loaded.federations[0].uncovered:
        answers().print(
            "So no ledger takes a run on it (--ledger); a run without one is an experiment."
        )


def _may_have_schema(name_or_path: str, given: dict[str, Any]) -> bool:
    """Whether a schema could be proposed to somebody who has none yet."""
    return name_or_path not in DATA_SETS and "schema" not in given and "target" in given


def _wants_schema() -> bool:
    """Offers a schema to a person at a terminal."""
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if not interactive or Path("schema.toml").exists():
        return False
    return typer.confirm("Write a proposed schema to schema.toml, to read and edit?")


def _write_schema(name_or_path: str, given: dict[str, Any], out: Path, overwrite: bool) -> None:
    from silodp.base.files import write_file
    from silodp.data.tables.propose import proposed_schema

    path = Path(name_or_path).expanduser()
    if name_or_path in DATA_SETS or not path.exists():
        raise SilodpError(
            f"--write-schema is for your own table, and {name_or_path!r} is none: give its path."
        )
    if out.exists() and not overwrite:
        raise SilodpError(f"{out} is there already: choose another file, or give --overwrite.")
    with _stage("reading"):
        own = {name: value for name, value in given.items() if name in DATA_OPTIONS}
        text = proposed_schema(path, _options(own))
    write_file(out, text)
    notes(soft_wrap=True).print(
        f"Written to {safe(str(out))}: read it, and replace what is marked as taken from the "
        "records by what is public."
    )


@takes_data_options
def show(
    given: dict[str, Any],
    name_or_path: NameOrPath,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; else runs/data/NAME.")
    ] = None,
    no_pictures: Annotated[bool, typer.Option("--no-pictures", help="Draw nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Shows what is known of a data set, what is in each silo, and pictures of it.

    If its files are not here yet, shows what is known without them.
    """
    from silodp.base.files import check_writable
    from silodp.data.registry import resolve

    folder = _folder(name_or_path) if out is None else out
    if not no_pictures:
        check_writable(folder)  # before the work, not after
    options = _options(given)
    with _stage("reading"):
        source = resolve(name_or_path, options)
    console = answers(soft_wrap=True)
    if not as_json:
        _print_about(console, source)
    try:
        with _stage("loading data"):
            federation = source.load(seed, options)
    except SilodpError:
        if as_json:
            print_json(_about(source))
        raise
    if not as_json:
        _print_federation(answers(), federation)
        if source.in_paper is not None:
            console.print(_beside_paper(source.in_paper, federation))
    pictures = [] if no_pictures else _draw(federation, folder)
    if as_json:
        content = {
            **_about(source),
            **describe(federation),
            "records": {
                "train": int(federation.train_counts.sum()),
                "test": int(federation.test_counts.sum()),
            },
            "pictures": [str(picture) for picture in pictures],
        }
        print_json(content)
    else:
        for picture in pictures:
            console.print(f"Picture: {safe(str(picture))}")
    if pictures and name_or_path not in DATA_SETS:
        (notes(soft_wrap=True) if as_json else console).print(SHOWS_RECORDS)


def _options(given: dict[str, Any]) -> "DataOptions":
    """Checks the data options as a run does."""
    from silodp.runs.prepare import data_options

    return data_options(RunRequest(**given))


@contextmanager
def _stage(stage: str) -> Iterator[None]:
    """Shows on a terminal what is being done."""
    with LiveProgress(notes()) as progress:
        progress.stage(stage)
        yield


def _folder(name_or_path: str) -> Path:
    """Default folder of the pictures, named after the data."""
    if name_or_path in DATA_SETS:
        return Path("runs/data") / name_or_path
    return Path("runs/data") / as_file_name(Path(os.path.abspath(name_or_path)).stem)


def _draw(federation: "Federation", folder: Path) -> list[Path]:
    from silodp.pictures.data_pictures import draw_contact_sheet, draw_heterogeneity, holds_images

    with _stage("drawing"):
        pictures = [draw_heterogeneity(federation, folder / "heterogeneity.png")]
        if holds_images(federation):
            pictures.append(draw_contact_sheet(federation, folder / "contact_sheet.png"))
    return pictures


# --- a source, before it is loaded


def _about(source: "DataSource") -> dict[str, Any]:
    return {
        "name": source.name,
        "summary": source.summary,
        "citation": source.citation,
        "licence": source.licence,
        "origins": _origins(source),
        "by_hand": source.by_hand or None,
        "preprocessings": list(source.preprocessings),
        "defaults": asdict(source.defaults),
        "in_paper": asdict(source.in_paper) if source.in_paper else None,
    }


def _origins(source: "DataSource") -> list[str]:
    """The addresses that files are downloaded from, each once."""
    from silodp.data.files import Archive

    origins = (file.origin for file in source.files if file.origin is not None)
    return list(dict.fromkeys(o.url if isinstance(o, Archive) else o for o in origins))


def _print_about(console: "Console", source: "DataSource") -> None:
    defaults = source.defaults
    lines = {
        source.name: source.summary,
        "Citation": source.citation,
        "Licence": source.licence,
        "From": ", ".join(_origins(source)),
        "To get it": source.by_hand or (f"silodp data get {source.name}" if source.files else ""),
        "Default training": (
            f"model {defaults.model}, {defaults.rounds} rounds, batch size {defaults.batch_size}, "
            f"clip {defaults.clip:g}, learning rate {defaults.lr:g}, delta {defaults.delta:g}, "
            f"preprocessing {defaults.preprocess}, silos smaller than a batch: "
            f"{defaults.small_silos}"
        ),
    }
    for title, text in lines.items():
        if text:
            console.print(f"[bold]{safe(title)}:[/] {safe(text)}")


def _beside_paper(paper: "InPaper", federation: "Federation") -> str:
    counts, records = federation.train_counts, "training records"
    if paper.before_split:
        counts, records = counts + federation.test_counts, "records for training and testing"
    paper_shape, own_shape = (
        " x ".join(map(str, s)) for s in (paper.features, federation.input_shape)
    )
    return (
        f"Paper: {paper.silos} silos, {_extent(paper.least, paper.most)} {records}, {paper_shape} "
        f"features; here: {len(counts)} silos, {_extent(counts.min(), counts.max())} {records}, "
        f"{own_shape} features."
    )


def _extent(least: int, most: int) -> str:
    return f"{least} to {most}" if least < most else f"{least}"


# --- a federation


def describe(federation: "Federation") -> dict[str, Any]:
    """Describes a federation in plain values, silo by silo."""
    from silodp.data.tasks import get_task

    task = get_task(federation.task)
    return {
        "name": federation.name,
        "task": federation.task,
        "classes": task.count_classes(federation.num_classes),
        "class_names": list(federation.class_names),
        "metric": task.metric,
        "features": list(federation.input_shape),
        "silos": [
            {
                "name": silo.name,
                "train": len(silo.train),
                "test": len(silo.test),
                **({"subjects": silo.train.units} if federation.by_subject else {}),
                "labels": _label_summary(federation, silo.train),
            }
            for silo in federation.silos
        ],
        "left_out": list(federation.left_out),
        "declared": list(federation.declared),
        "uncovered": list(federation.uncovered),
    }


def _label_summary(federation: "Federation", records: "Records") -> dict[str, float]:
    """Range and mean of training labels, or the number of each class."""
    import numpy as np

    from silodp.data.tasks import get_task

    if not get_task(federation.task).of_classes:
        if not len(records):
            return {}
        y = get_task(federation.task).numbers(records.y).astype(np.float64)
        return {"min": float(y.min()), "mean": float(y.mean()), "max": float(y.max())}
    labels, counts = np.unique(records.y, return_counts=True)
    return {
        federation.class_name(label): int(count)
        for label, count in zip(labels.tolist(), counts, strict=True)
    }


def _print_federation(console: "Console", federation: "Federation") -> None:
    from silodp.data.tasks import get_task

    shape = " x ".join(map(str, federation.input_shape))
    task = get_task(federation.task)
    several = task.count_classes(federation.num_classes) if federation.num_classes else 0
    classes = f" with {several} classes" if several else ""
    console.print(
        f"{safe(federation.name)}: {len(federation.silos)} silos, "
        f"{federation.task}{classes}, {shape} features, {federation.train_counts.sum()} training "
        f"and {federation.test_counts.sum()} test records"
    )
    subjects = ["training subjects"] if federation.by_subject else []
    table = Table("silo", "train", "test", *subjects, "training labels")
    for silo in federation.silos:
        labels = ", ".join(
            f"{shown(name)}: {value:.3g}" if isinstance(value, float) else f"{shown(name)}: {value}"
            for name, value in _label_summary(federation, silo.train).items()
        )
        counts = [len(silo.train), len(silo.test)]
        if federation.by_subject:
            counts.append(silo.train.units)
        table.add_row(safe(silo.name), *map(str, counts), safe(labels))
    console.print(table)
    if federation.left_out:
        console.print(f"Left out: {safe(silo_names(federation.left_out))}.")
    if federation.declared:
        console.print(f"Taken as public: {safe(', '.join(federation.declared))}.")
    if not federation.uncovered:
        console.print("Nothing was learned from the records beforehand.")
    for note in federation.uncovered:
        console.print(f"Not covered by epsilon: {safe(note)}")
