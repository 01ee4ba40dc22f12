"""From a DataFrame to each silo's own model, in one call.

import silodp
result = silodp.fit(stays, silo="hospital", target="days", epsilon=2)
result.predict(new_stays)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.config.options import DATA_OPTIONS
from silodp.config.run_arguments import RunArguments
from silodp.data.tables.frame import source_and_options
from silodp.models.model import Model
from silodp.results.result import Result
from silodp.runs.run import run


def fit(
    frame: Any,
    *,
    silo: str,
    target: str,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    levels: Mapping[str, Sequence] | None = None,
    other: Mapping[str, str] | None = None,
    missing: Mapping[str, Any] | None = None,
    target_range: tuple[float, float] | None = None,
    classes: Sequence | None = None,
    encoders: Mapping[str, Any] | None = None,
    custom_model: Model | None = None,
    baselines: bool = False,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    **options: Unpack[RunArguments],  # pyright: ignore[reportGeneralTypeIssues]  (target, again)
) -> Result:
    """Trains a model for each silo of a DataFrame, and keeps the models in the result.

    What a run does with a file is done with the frame: the same checks, splits and statements. The
    keywords from `bounds` to `encoders` are public knowledge, as in a schema.

    Args:
      frame: a DataFrame of pandas, or with a method `to_pandas` (Polars, Arrow).
      silo: the column that names each row's silo.
      target: the column to predict.
      bounds: by column, the lowest and the highest number that there may be.
      levels: by column, the categories that there may be.
      other: by column, the level that takes what is not listed.
      missing: by column, what a missing value counts as.
      target_range: the lowest and the highest target that there may be.
      classes: the classes that there may be; of two, the second is +1.
      encoders: by column of texts or paths of images, the public encoder that makes features of
        it: a name (as for `features`), a file of ONNX, or what `silodp.encoder` makes.
      custom_model: as for `run`.
      baselines: as for `run`.
      out: as for `run`.
      resume: as for `run`.
      overwrite: as for `run`.
      reporter: as for `run`.
      **options: see `RunRequest`; `epsilon` (or `policies`) must be given.

    Examples:
      >>> import pandas as pd
      >>> stays = pd.DataFrame({"ward": ["a", "b"] * 40, "age": range(80), "days": range(80)})
      >>> result = silodp.fit(
      ...     stays, silo="ward", target="days", epsilon=3, method="fedavg", rounds=2,
      ...     bounds={"age": (0, 110)}, target_range=(0, 90),
      ... )
      >>> len(result.predict(stays)), result.model("a").columns
      (80, ('age',))
    """
    if "data" in options:
        raise SilodpError("--data names data, but a frame was given: leave it out.")
    declared = {
        "bounds": bounds,
        "levels": levels,
        "other": other,
        "missing": missing,
        "target_range": target_range,
        "classes": classes,
        "encoders": encoders,
    }
    of_data = {name: value for name, value in options.items() if name in DATA_OPTIONS}
    source, _ = source_and_options(frame, silo, target, of_data | declared)
    return run(
        federation=source,
        custom_model=custom_model,
        keep_models=True,
        baselines=baselines,
        out=out,
        resume=resume,
        overwrite=overwrite,
        reporter=reporter,
        **options | {"silo_column": silo, "target": target},
    )
