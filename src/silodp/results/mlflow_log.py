"""A result as a run of MLflow, for those who keep their experiments there."""

import math
from typing import Any

from silodp.base.errors import SilodpError
from silodp.base.text import folder_names
from silodp.results.model_export.in_memory import card_of_silo
from silodp.results.model_export.markdown_card import escaped, markdown_card
from silodp.results.result import Result
from silodp.results.views import EXPERIMENT

_MOST_LETTERS = 500  # of a parameter, in all versions of MLflow


def log_to_mlflow(result: Result, run_name: str | None = None) -> str:
    """Logs a result to MLflow, and returns the run's id.

    It goes to the run that is active, or else to a new one: options as parameters; the test metric
    by round, and epsilon, as metrics; the silos' table, the privacy statement, the whole result and
    (if it holds models) the models' cards as artifacts. Exact metrics on test records are not
    covered by epsilon: log to a server that may see them.

    Args:
      result: of a run, or of a sweep.
      run_name: the name of a new run; by default the method and the data.

    Examples:
      >>> result = silodp.run(data="synthetic", silos=2, method="fedavg", epsilon=3, rounds=2)
      >>> silodp.log_to_mlflow(result, run_name="first try")  # doctest: +SKIP
      '4ab0c6f41f7a4b5c9f0e7b9d7d2f3c11'
    """
    try:
        import mlflow  # pyright: ignore[reportMissingImports]  (optional, so not at the top)
    except ImportError:
        raise SilodpError(
            "Logging to MLflow needs the package mlflow: install it with `pip install mlflow`."
        ) from None
    active = mlflow.active_run()
    if active is not None and run_name is not None:
        raise SilodpError(
            f"run_name is {run_name!r}, but a run of MLflow is active: leave it out, or end that "
            "run (mlflow.end_run())."
        )
    if active is not None:
        _log(mlflow, result)
        return active.info.run_id
    with mlflow.start_run(run_name=run_name or f"{result.method} on {result.data}") as own:
        _log(mlflow, result)
        return own.info.run_id


def _log(mlflow: Any, result: Result) -> None:
    shown = {name: str(value)[:_MOST_LETTERS] for name, value in result.options.items()}
    mlflow.log_params(shown | {"data": str(result.data)[:_MOST_LETTERS]})
    mlflow.set_tags(
        {
            "silodp.proven": str(result.proven).lower(),
            "silodp.experiment": str(result.experiment).lower(),
        }
    )
    for point in result.history:
        _log_number(mlflow, f"test_{result.metric}", point["mean"], point["round"])
        _log_number(mlflow, f"test_{result.metric}_std", point["std"], point["round"])
    _log_number(mlflow, "epsilon_max", max(result.epsilons))
    _log_number(mlflow, "epsilon_min", min(result.epsilons))
    mlflow.log_text(result.to_frame().to_csv(), "silos.csv")
    mlflow.log_text(_privacy(result), "privacy.md")
    mlflow.log_dict(result.as_json(), "result.json")
    if result.models is not None:
        names = folder_names([silo["silo"] for silo in result.per_silo])
        for place, name in enumerate(names):
            mlflow.log_text(markdown_card(card_of_silo(result, place)), f"cards/{name}.md")


def _log_number(mlflow: Any, name: str, value: float | None, step: int | None = None) -> None:
    """A server may refuse what is no number, and infinity."""
    if value is not None and math.isfinite(value):
        mlflow.log_metric(name, float(value), step=step)


def _privacy(result: Result) -> str:
    """The privacy statement of all silos, in Markdown."""
    rows = ["| silo | epsilon | delta | for | proven |", "|---|---|---|---|---|"]
    for silo in result.privacy:
        cells = (silo["silo"], f"{silo['epsilon']:.4g}", f"{silo['delta']:.3g}", silo["unit"])
        rows.append(f"| {' | '.join(map(escaped, cells))} | {'yes' if silo['proven'] else 'no'} |")
    said = [EXPERIMENT] if result.experiment else []
    said += [f"Not proven: {escaped(reason)}" for reason in result.unproven]
    said += [f"Taken for granted: {escaped(one)}" for one in result.assumptions]
    return "\n".join(["# Privacy", "", *rows, "", *(f"- {one}" for one in said)]) + "\n"
