"""`silodp accept`: is this model good enough for a silo, answered once at a small price."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from silodp.base.errors import SilodpError
from silodp.cli.options import AsJson, Yes
from silodp.cli.predict import (
    ModelFolder,
    SchemaOfTable,
    SheetOfTable,
    SiloOfModel,
    form_of,
    read_new,
)
from silodp.cli.terminal import answers, notes, print_json, safe
from silodp.config.options import OPTIONS

if TYPE_CHECKING:
    from silodp.runs.acceptance import Answer, Question


def accept(
    model: ModelFolder,
    ledger: Annotated[Path, typer.Option(help="Folder of the silo's ledger, which is charged.")],
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE",
            help="Test records with the target (CSV, ...); else those that the run set apart.",
        ),
    ] = None,
    silo: SiloOfModel = None,
    at_least: Annotated[
        float | None,
        typer.Option(help="Ask whether the metric is this or more, such as 0.8 of accuracy."),
    ] = None,
    at_most: Annotated[
        float | None,
        typer.Option(help="Ask whether an error is this or less, in the target's own unit."),
    ] = None,
    better_than: Annotated[
        str | None,
        typer.Option(
            help="Ask whether it is better than saying the same of every record: a class, a "
            "number, or a probability of the second class. Public, not counted in the records."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="A mean over records; else the model's own.")
    ] = None,
    metric_bound: Annotated[
        float | None,
        typer.Option(
            help="The most that a record's error counts, in the metric's own unit; else what it "
            "can, or the target's declared range."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The price (default: 0.1), at the silo's delta.")
    ] = None,
    policies: Annotated[
        Path | None,
        typer.Option(help="The silo's policy, as for run; else its ledger's lifetime."),
    ] = None,
    silo_column: Annotated[
        str | None,
        typer.Option(help="Column that names each row's silo; others' rows are left out."),
    ] = None,
    subject_column: Annotated[
        str | None,
        typer.Option(help=OPTIONS["subject_column"].help),
    ] = None,
    charged_to: Annotated[
        str | None,
        typer.Option(help="Whose records and ledger, if not those of the model's silo."),
    ] = None,
    schema: SchemaOfTable = None,
    sheet: SheetOfTable = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Answers whether a model is good enough on a silo's own test records, at a small price.

    Says beforehand what the answer costs and how much it will say, and asks whether to charge it.
    The same question is not charged twice.
    """
    from silodp.results.model_export.personal_model import load_model
    from silodp.runs.asking import USUAL_EPSILON, column_of_silos, is_table_of_run, question

    if as_json and not yes:
        raise SilodpError("--json asks no questions: give --yes as well, which charges the price.")
    loaded = load_model(model, silo=silo)
    frame = None
    if table is not None:
        names = [subject_column, column_of_silos(loaded, silo_column)]
        texts = loaded.text_columns | {name for name in names if name is not None}
        frame = read_new(table, form_of(schema, sheet), texts, loaded.image_columns)
    asked = question(
        loaded,
        frame,
        ledger,
        at_least=at_least,
        at_most=at_most,
        better_than=better_than,
        metric=metric,
        metric_bound=metric_bound,
        epsilon=USUAL_EPSILON if epsilon is None else epsilon,
        silo_column=silo_column,
        charged_to=charged_to,
        policies=policies,
        subject_column=subject_column,
    )
    console = notes(soft_wrap=True)
    for sentence in asked.sentences():
        console.print(safe(sentence))
    if table is not None and is_table_of_run(loaded, table):
        console.print(
            "[yellow]Note:[/] this is the table that the model was trained on: it looks better "
            "here than it is. Leave the table out, and the records that were set apart are asked."
        )
    costs = asked.shares is not None
    if costs and not yes and not typer.confirm("Charge this price, and answer?", err=True):
        notes().print("Nothing was charged.")
        return
    answer = asked.answer()
    if as_json:
        print_json(_as_json(asked, answer))
        return
    for number, sentence in enumerate(asked.answered(answer)):
        text = safe(sentence)
        answers(soft_wrap=True).print(text if number else f"[bold]{text}[/]")


def _as_json(asked: "Question", answer: "Answer") -> dict[str, Any]:
    return {
        **asked.described(),
        "noise": asked.noise,
        "right_from": asked.difference,
        "charged_now": asked.shares is not None,
        **answer._asdict(),
    }
