"""`silodp data`: which data sets there are, how to get them, whether a user's table is sound."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from silodp.datasets import SOURCES, DataOptions, resolve
from silodp.datasets.files import (
    DataFile,
    candidates,
    download,
    download_path,
    find_file,
    sha256_of,
)
from silodp.datasets.source import DataSource
from silodp.errors import SilodpError, one_of
from silodp.federation import Federation, Records

app = typer.Typer(help="Data sets: list them, get them, check your own.", no_args_is_help=True)

DataDir = Annotated[
    Path | None, typer.Option(help="Folder with data files, looked into before the usual places.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command("list")
def list_sources(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Lists the data sets, and where their files lie."""
    rows = [
        {
            "name": source.name,
            "summary": source.summary,
            "citation": source.citation,
            "licence": source.licence,
            "preprocessings": list(source.preprocessings),
            "files": {
                file.name: str(_found(source, file, data_dir) or "") or None
                for file in source.files
            },
        }
        for source in SOURCES.values()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("name", "what")
    table.add_column("files", overflow="fold")  # a path that is cut short is of no use
    for row in rows:
        places = [_place_text(row["name"], name, place) for name, place in row["files"].items()]
        table.add_row(row["name"], row["summary"], escape("\n".join(places)) or "needs none")
    Console().print(table)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="Name of a data set; see `silodp data list`.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder to put it in; else the user's cache.")
    ] = None,
) -> None:
    """Downloads the files of a data set and checks them."""
    if name not in SOURCES:
        raise SilodpError(f"Data set {name!r} is unknown: use {one_of(name, SOURCES)}.")
    source = SOURCES[name]
    console = Console(highlight=False, soft_wrap=True)
    if not source.files:
        console.print(f"{name} needs no file.")
    for file in source.files:
        destination = download_path(name, file.name, data_dir)
        there = _there(source, file, data_dir)
        if there is not None and sha256_of(there) == file.sha256:
            console.print(
                f"{file.name} is already at {there}, and its checksum is right.", markup=False
            )
            continue
        if there is not None and there != destination:
            raise SilodpError(
                f"{there} has a wrong checksum, and would be found before a new download: remove "
                "it first."
            )
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
        ) as progress:
            bar = progress.add_task(file.name, total=None)
            download(
                file,
                destination,
                lambda done, total, bar=bar, progress=progress: progress.update(
                    bar, completed=done, total=total
                ),
            )
        console.print(
            f"{file.name} is now at {destination}, and its checksum is right.", markup=False
        )


@app.command("check")
def check(
    path_or_name: Annotated[
        str, typer.Argument(help="A CSV or Parquet file, a folder of them, or a data set's name.")
    ],
    silo_column: Annotated[
        str | None, typer.Option(help="Column that names a row's silo (one file).")
    ] = None,
    subject_column: Annotated[
        str | None, typer.Option(help="Column that names the person a row is about.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    task: Annotated[
        str | None, typer.Option(help="regression, binary or multiclass; else inferred.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="TOML file that declares levels, bounds and the target.")
    ] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Drop rows with missing values.")
    ] = False,
    preprocess: Annotated[
        str | None, typer.Option(help="paper, bounds or none, as the data set allows.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Loads a data set as a run would, and shows what a run would see."""
    options = DataOptions(
        silo_column=silo_column,
        subject_column=subject_column,
        target=target,
        task=task,  # type: ignore[arg-type]  # an unknown task is refused by the source
        schema=schema,
        drop_missing=drop_missing or None,
        preprocess=preprocess,
        data_dir=data_dir,
    )
    federation = resolve(path_or_name, options).load(0, options)
    if as_json:
        typer.echo(json.dumps(describe(federation), indent=2))
    else:
        _print_federation(Console(), federation)


def describe(federation: Federation) -> dict[str, Any]:
    """A federation in plain values: what is in it, silo by silo."""
    return {
        "name": federation.name,
        "task": federation.task,
        "classes": federation.num_classes,
        "metric": federation.metric,
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
        "declared": list(federation.declared),
        "uncovered": list(federation.uncovered),
    }


def _label_summary(federation: Federation, records: Records) -> dict[str, float]:
    """Training labels: their range and mean, or how many there are of each class."""
    if federation.task == "regression":
        y = records.y.astype(np.float64)
        return {"min": float(y.min()), "mean": float(y.mean()), "max": float(y.max())}
    labels, counts = np.unique(records.y, return_counts=True)
    return {f"{label:g}": int(count) for label, count in zip(labels, counts, strict=True)}


def _print_federation(console: Console, federation: Federation) -> None:
    shape = " x ".join(map(str, federation.input_shape))
    classes = f" with {federation.num_classes} classes" if federation.num_classes else ""
    console.print(
        f"{federation.name}: {len(federation.silos)} silos, {federation.task}{classes}, "
        f"{shape} features, {federation.train_counts.sum()} training and "
        f"{federation.test_counts.sum()} test records",
        markup=False,
        highlight=False,
    )
    subjects = ["training subjects"] if federation.by_subject else []
    table = Table("silo", "train", "test", *subjects, "training labels")
    for silo in federation.silos:
        labels = ", ".join(
            f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}"
            for name, value in _label_summary(federation, silo.train).items()
        )
        counts = [len(silo.train), len(silo.test)]
        if federation.by_subject:
            counts.append(silo.train.units)
        table.add_row(escape(silo.name), *map(str, counts), labels)
    console.print(table)
    if federation.declared:
        console.print(f"Taken as public: {', '.join(federation.declared)}.")
    if not federation.uncovered:
        console.print("Nothing was learned from the records beforehand.")
    for note in federation.uncovered:
        console.print(f"Not covered by epsilon: {note}", markup=False)


def _found(source: DataSource, file: DataFile, data_dir: Path | None) -> Path | None:
    try:
        return find_file(source.name, file.name, data_dir)
    except SilodpError:
        return None


def _there(source: DataSource, file: DataFile, data_dir: Path | None) -> Path | None:
    """Where the file lies now: in the folder asked for, or (none asked for) anywhere."""
    if data_dir is None:
        return _found(source, file, None)
    folder = data_dir.expanduser()
    places = candidates(source.name, file.name, folder)
    return next((place for place in places if place.is_file()), None)


def _place_text(dataset: str, filename: str, place: str | None) -> str:
    return f"{filename}: {place or f'not here yet (silodp data get {dataset})'}"
