"""`silodp predict`: applies a silo's own model to new records."""

import csv
import io
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.cli.options import AsJson, Overwrite
from silodp.cli.problems_table import show_problems
from silodp.cli.terminal import notes, print_json, safe

if TYPE_CHECKING:
    import pandas as pd

    from silodp.data.tables.files import FileForm
    from silodp.results.model_export.personal_model import PersonalModel, Predictions, Score

ModelFolder = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", help="A run's folder (with --silo), a silo's folder in it, or a card."
    ),
]
SiloOfModel = Annotated[
    str | None, typer.Option("--silo", help="Whose model, if MODEL is the folder of a run.")
]
SchemaOfTable = Annotated[
    Path | None,
    typer.Option(
        help='Schema whose section "file" says how the table is written; else it is found.'
    ),
]
FeaturesOfModel = Annotated[
    str | None,
    typer.Option(help="File of ONNX that made the model's features, where it had one."),
]
SheetOfTable = Annotated[str | None, typer.Option(help="Sheet of a workbook that holds the table.")]


def predict(
    model: ModelFolder,
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TABLE]",
            help="New records: CSV, Excel, Parquet, ...; for a model of images, one, or a folder.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="One new record, for a model of texts; no TABLE.")
    ] = None,
    silo: SiloOfModel = None,
    features: FeaturesOfModel = None,
    schema: SchemaOfTable = None,
    sheet: SheetOfTable = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; else standard output.")
    ] = None,
    append: Annotated[
        bool,
        typer.Option("--append", help="Write the table's own columns as well, and every row."),
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Predicts with a silo's own model, as `silodp run --save-models` writes it.

    If the table has the target column, also says how good the predictions are.
    """
    from silodp.data.problems import Problems
    from silodp.data.tables.files import is_table, read_table
    from silodp.results.model_export.personal_model import load_model, unused_columns

    if (table is None) == (text is None):
        raise SilodpError("Give one of both: a TABLE with new records, or --text.")
    if out is not None:
        check_out(out, (model,) if table is None else (table, model), overwrite)
    if append and as_json:
        raise SilodpError("--append writes CSV: leave out --json.")
    loaded = load_model(model, silo=silo, encoders=[features] if features else ())
    form = form_of(schema, sheet)
    pictures = table is not None and loaded.only_encoded == "image" and not is_table(table)
    if table is None:
        frame = _one_text(loaded, text or "")
    elif pictures:
        frame = _images(loaded, table)
    else:
        frame = read_new(table, form, loaded.text_columns, loaded.image_columns)
    problems = Problems()
    try:
        predictions = loaded.predict(frame)
        score = loaded.score(frame, predictions)
    except SilodpError as error:
        problems.add(error)
        if len(problems) == 1 or as_json:
            where = f"{table}: " if table is not None else ""
            raise SilodpError(f"{where}{error}") from None
        show_problems(problems)
        raise typer.Exit(2) from None
    stored = frame if pictures else None  # a row says which image it is about
    if append and table is not None and not pictures:
        stored = read_table(table, frame.columns, fewest=1, form=form)
    content = _csv(loaded, predictions, stored)
    if out is not None:
        write_file(out, content)
    elif not as_json:
        typer.echo(content, nl=False)
    unused = unused_columns(loaded, list(frame.columns))
    if as_json:
        print_json(_as_json(loaded, predictions, score, unused))
        return
    _say(loaded, predictions, score, unused, out)


def form_of(schema: Path | None, sheet: str | None) -> "FileForm":
    """How a table of new records is written, as far as it is declared."""
    from silodp.data.tables.files import FileForm
    from silodp.data.tables.schema import Schema, read_schema

    declared = Schema() if schema is None else read_schema(schema)
    return FileForm(declared.dialect, sheet or declared.sheet)


def _one_text(model: "PersonalModel", text: str) -> "pd.DataFrame":
    """One text, as a table; of other columns nothing is known."""
    import pandas as pd

    columns = model.text_features
    if len(columns) != 1:
        raise SilodpError(
            f"--text: the model of silo {model.about.silo!r} takes "
            f"{'several texts' if columns else 'no text'}: give a table with its columns."
        )
    return pd.DataFrame({column: [text if column in columns else None] for column in model.columns})


def _images(model: "PersonalModel", place: Path) -> "pd.DataFrame":
    """An image, or all images of a folder, as a table of their names."""
    import pandas as pd

    from silodp.data.images.images import is_image_name, list_folder
    from silodp.data.tables.encoded import image_paths_in

    if place.is_dir():
        folder, names = place, [f.name for f in list_folder(place, place).files if is_image_name(f)]
    elif place.exists():
        folder, names = place.parent, [place.name]
    else:
        raise SilodpError(f"{place} does not exist: give an image, or a folder of images.")
    if not names:
        raise SilodpError(f"{place} holds no images: give an image, or a folder of images.")
    frame = pd.DataFrame({model.columns[0]: names}, dtype=object)
    return image_paths_in(frame, model.columns, folder)


def read_new(
    table: Path, form: "FileForm", as_text: Collection[str], of_images: Collection[str] = ()
) -> "pd.DataFrame":
    """A table of new records, and prints what was found of how it is written."""
    from silodp.data.tables.encoded import image_paths_in
    from silodp.data.tables.files import Reading, read_table

    reading = Reading()
    frame = read_table(table, as_text, fewest=1, form=form, reading=reading)
    for sentence in reading.said:
        notes(soft_wrap=True).print(f"Read: {safe(sentence)}")
    return image_paths_in(frame, of_images, table.parent)


def check_out(out: Path, given: tuple[Path, ...], overwrite: bool) -> None:
    """Refuses, before the work, an --out that would lose a file by accident."""
    if any(out.exists() and one.exists() and out.samefile(one) for one in given):
        raise SilodpError(f"{out} is an input of this command: choose another --out.")
    if out.is_dir():
        raise SilodpError(f"{out} is a folder: give --out the name of a file.")
    if out.exists() and not overwrite:
        raise SilodpError(f"{out} is there already: choose another --out, or give --overwrite.")


def _csv(
    model: "PersonalModel", predictions: "Predictions", stored: "pd.DataFrame | None" = None
) -> str:
    """CSV text of predictions; rows are counted from 1, below the header of the table.

    With the table as it is `stored`, its rows with the predictions beside them.
    """
    from silodp.base.text import in_cell, shown
    from silodp.data.tasks import get_task

    target = model.about.preparation.target
    classes = target.classes
    header = ["prediction"]
    if predictions.probabilities is not None:
        names = get_task(target.task).probability_names(target)
        header += [shown(f"probability of {name}", None) for name in names]
    elif classes:
        header.append("margin")
    rows = []
    for row, value in enumerate(predictions.values):
        cell = in_cell(value or "") if value is None or isinstance(value, str) else f"{value:.9g}"
        more: Any = ()
        if predictions.probabilities is not None:
            more = predictions.probabilities[row]
        elif classes:
            more = (float(predictions.outputs[row]),)
        rows.append([cell, *(f"{number:.9g}" for number in more)])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if stored is None:
        writer.writerow(["row", *header])
        writer.writerows([row, *cells] for row, cells in enumerate(rows, start=1))
        return text.getvalue()
    # A column of the table may have such a name already.
    new = [name if name not in stored.columns else f"{name} (predicted)" for name in header]
    writer.writerow([*stored.columns, *new])
    for own, cells in zip(stored.fillna("").itertuples(index=False, name=None), rows, strict=True):
        writer.writerow([*own, *cells])
    return text.getvalue()


def _as_json(
    model: "PersonalModel",
    predictions: "Predictions",
    score: "Score | None",
    unused: list[str],
) -> dict[str, Any]:
    classes, target = model.about.preparation.target.classes, model.about.preparation.target
    probabilities = predictions.probabilities
    return {
        "silo": model.about.silo,
        "target": target.name,
        "classes": list(classes),
        "rows": list(range(1, len(predictions.values) + 1)),
        "predictions": predictions.values,
        "probabilities": None if probabilities is None else probabilities.tolist(),
        "outputs": predictions.outputs.tolist(),
        "rows_with_missing_values": int((~predictions.whole).sum()),
        "columns_not_used": unused,
        "test": None
        if score is None
        else {
            "metric": score.metric,
            "value": score.value,
            "records": score.records,
            "root_mean_squared_error": score.error,
        },
    }


def _say(
    model: "PersonalModel",
    predictions: "Predictions",
    score: "Score | None",
    unused: list[str],
    out: Path | None,
) -> None:
    """Prints what a person wants to know beside the predictions."""
    from silodp.models.metrics import get_metric

    console, target = notes(soft_wrap=True), model.about.preparation.target.name
    written = "" if out is None else f" written to {safe(str(out))}"
    console.print(
        f"{len(predictions.values)} predictions of {safe(repr(target))} by the model of silo "
        f"{safe(repr(model.about.silo))}{written}"
    )
    if lacking := int((~predictions.whole).sum()):
        console.print(
            f"[yellow]Note:[/] {lacking} rows lack values for which training had no rule: there, "
            "numbers count as the middle, and categories as none of the levels."
        )
    if model.about.threshold:
        from scipy.special import expit

        high, chance = model.about.preparation.target.classes[-1], expit(model.about.threshold)
        console.print(f"{safe(repr(high))} is predicted from a probability of {chance:.3g} on.")
    if unused:
        shown = ", ".join(map(repr, unused[:5])) + (" and others" if len(unused) > 5 else "")
        console.print(f"[yellow]Note:[/] columns that the model does not use: {safe(shown)}.")
    if score is not None:
        of = "" if score.records == len(predictions.values) else f" of {len(predictions.values)}"
        own = "" if score.error is None else f": about {score.error:.4g} off, in the target's units"
        metric = get_metric(score.metric).short
        console.print(f"{metric} {score.value:.6g} on {score.records}{of} records{own}")
