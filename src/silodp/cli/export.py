"""`silodp export`: a silo's own model, for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from silodp.cli.options import Overwrite
from silodp.cli.predict import ModelFolder, SiloOfModel, check_out
from silodp.cli.terminal import say_written


def export(
    model: ModelFolder,
    out: Annotated[Path, typer.Option(help="ONNX file to write.")],
    silo: SiloOfModel = None,
    overwrite: Overwrite = False,
) -> None:
    """Writes a silo's own model as ONNX, scaling included (needs the extra `onnx`)."""
    from silodp.base.files import write_file
    from silodp.results.model_export.onnx_file import onnx_content
    from silodp.results.model_export.personal_model import load_model

    check_out(out, (model,), overwrite)
    write_file(out, onnx_content(load_model(model, silo=silo)))
    say_written(out)
