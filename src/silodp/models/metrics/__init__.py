"""Metrics by name, each in the file of that name; see `metric.py` for what each says of itself."""

from collections.abc import Sequence
from importlib import import_module
from typing import get_args

from silodp.base.errors import SilodpError, meant, one_of
from silodp.config.choices import MetricName, TaskName
from silodp.data.tasks import get_task
from silodp.models.metrics.metric import MeanMetric, Metric, wilson

__all__ = [
    "METRICS",
    "MeanMetric",
    "Metric",
    "get_metric",
    "mean_metric",
    "metric_for",
    "metrics_for",
    "wilson",
]

METRICS: dict[MetricName, Metric] = {
    name: import_module(f"{__name__}.{name}").METRIC for name in get_args(MetricName)
}


def get_metric(name: str) -> Metric:
    """The metric of that name."""
    for own_name, metric in METRICS.items():
        if name == own_name:
            return metric
    raise SilodpError(f"Metric {name!r} is unknown: {meant(name, METRICS, most=20)}")


def metric_for(task: TaskName, name: str | None = None) -> Metric:
    """The metric of that name, if it is one for the task; else the task's own."""
    fitting = [other.name for other in METRICS.values() if task in other.tasks]
    if name is not None and name not in METRICS:
        raise SilodpError(
            f"Metric {name!r} is unknown: use {one_of(name, fitting)}, which are for a {task} task."
        )
    metric = get_metric(get_task(task).metric if name is None else name)
    if task not in metric.tasks:
        raise SilodpError(
            f"--metric {metric.name}: {metric.words} is not for a {task} task: choose "
            f"{' or '.join(fitting)}."
        )
    return metric


def metrics_for(
    task: TaskName, name: str | None, names: str | None, has_probabilities: bool = True
) -> tuple[Metric, ...]:
    """What a run measures, without repetition: first the metric that it goes by.

    Args:
      task: the task.
      name: the metric to go by; else the first of `names`, or the task's own.
      names: others, separated by commas; else those that the task is usually given.
      has_probabilities: whether the model gives probabilities.
    """
    own = get_task(task)
    given = None if names is None else [one.strip() for one in names.split(",") if one.strip()]
    if given is not None:
        _check_names(task, given)
    first = metric_for(task, name or (given or [None])[0])
    usual = [metric_for(task, one) for one in own.metrics]
    others = usual if given is None else [metric_for(task, one) for one in given]
    for metric in (first, *others) if given is not None else (first,):
        if metric.of_probabilities and not has_probabilities:
            raise SilodpError(
                f"--metrics {metric.name}: {metric.words} is about probabilities, and the model "
                "gives none: leave it out, or train another --model."
            )
    fitting = [one for one in others if has_probabilities or not one.of_probabilities]
    return tuple(dict.fromkeys([first, *fitting]))


def _check_names(task: TaskName, given: Sequence[str]) -> None:
    """Refuses names that are no metrics of the task, all of them at once."""
    fitting = [metric.name for metric in METRICS.values() if task in metric.tasks]
    if not given:
        raise SilodpError(
            f"--metrics names none: give some of {', '.join(fitting)}, or leave it out."
        )
    if wrong := [name for name in given if name not in fitting]:
        which = "is no metric" if len(wrong) == 1 else "are no metrics"
        raise SilodpError(
            f"--metrics: {', '.join(map(repr, wrong))} {which} of a {task} task: use "
            f"{one_of(wrong[0], fitting)}."
        )


def mean_metric(metric: Metric, what: str) -> MeanMetric:
    """The metric, if what a record can add to it is bounded; `what` needs that, says the error."""
    if isinstance(metric, MeanMetric):
        return metric
    others = [
        other.name
        for other in METRICS.values()
        if isinstance(other, MeanMetric) and set(metric.tasks) & set(other.tasks)
    ]
    raise SilodpError(
        f"{what} takes a mean over test records, each of which has a bounded share in it, and "
        f"{metric.name} is none: choose --metric {' or '.join(others)}."
    )
