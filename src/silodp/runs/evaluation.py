"""What a run's models are worth on test records: several metrics, beside no skill, with intervals.

All of it is worked out on the host once training is over, and is exact: at a site it stays there,
and in a simulation it is marked so. A metric that is released with noise has been paid for, and
nothing exact is written beside it: the difference would give the records away.

Intervals (95 %) are about test records: how far off the metric might be for other records of the
same kind. Shares have Wilson's; other metrics are resampled within each silo. They are those of one
seed's test records: seeds share records, so that several do not make them narrower.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import get_sigma_gaussian

from silodp.data.federation import Federation
from silodp.data.tasks import Task
from silodp.engines.layout import pad_rows
from silodp.models.metrics import MeanMetric, Metric, wilson
from silodp.models.model import Model
from silodp.privacy.accounting.steps import moved_by
from silodp.results.result import summary
from silodp.runs.prepare import Prepared
from silodp.runs.resolve import RunSpec
from silodp.runs.run_results import over_silos, summary_of_known

RESAMPLES = 200
FEWEST_RESAMPLED = 5  # test records: of fewer, resamples say nothing
# So many resamples may be without the metric (without a record of one class, say): where more are,
# the others vary less than other records would.
_MOST_LACKING = 0.05
NOISY_SHARE = 0.1  # of epsilon, for which the price of a noisy metric is told
# Noise above this part of what there is without skill hides what a model has learned.
_MOST_NOISE = 0.1
_ENDS = (0.025, 0.975)
_ROWS = 1024  # of a model that has to be compiled, at a time
_AT_ONCE = 2_000_000  # numbers in an array of resamples


def evaluated(
    prepared: Prepared,
    number: int,
    federations: Sequence[Federation],
    models: Any,
    own: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """The metrics of a setting, as `Result.metrics` has them.

    Args:
      prepared: the run's specs and data.
      number: the number of the setting.
      federations: the records that models were trained and tested on, one per seed.
      models: the silos' models: a pytree with leading axes [seeds, silos].
      own: the values of the first metric as the run has them, [seeds, silos]; noisy ones if the
        run paid for noise.
    """
    if prepared.specs[number].request.metric_share:
        return _released(prepared, number, federations, own)
    return exact_metrics(prepared, number, federations, models, own)


def exact_metrics(
    prepared: Prepared,
    number: int,
    federations: Sequence[Federation],
    models: Any,
    own: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """All metrics without noise, which stay where the records are; arguments as above."""
    spec = prepared.specs[number]
    outputs = _outputs(spec.model, models, federations)
    if not all(np.isfinite(one).all() for of_seed in outputs for one in of_seed):
        return []  # a model that diverged has no value, which is refused or said elsewhere
    resampled = _resamples(federations, spec.request.first_seed)
    found = []
    for place, metric in enumerate(prepared.metrics):
        entry = _Measured(metric, spec.model.deciding, outputs, federations, resampled).entry(
            own if place == 0 else None
        )
        found.append(_with_noise(entry, metric, spec, federations[0]))
    return found


class _Measured:
    """One metric of all silos and seeds: of the models, and without skill."""

    def __init__(
        self,
        metric: Metric,
        task: Task,
        outputs: Sequence[Sequence[np.ndarray]],
        federations: Sequence[Federation],
        resampled: np.ndarray,
    ):
        self._metric, self._federations, self._outputs = metric, federations, outputs
        shape = len(federations), len(federations[0].silos)
        self._known = metric.where_known(federations)
        # [seeds, silos]; and of resamples [seeds, silos, RESAMPLES].
        self._values, self._none = np.full((2, *shape), np.nan)
        self._tried, self._tried_none = np.full((2, *shape, RESAMPLES), np.nan)
        self._counts = np.zeros(shape)  # of records that it is a share of
        self._has_none, self._is_share = True, False
        everybody = np.concatenate([silo.train.y for one in federations for silo in one.silos])
        for s, federation in enumerate(federations):
            for k, silo in enumerate(federation.silos):
                if not self._known[s, k]:
                    continue
                y, said = silo.test.y, outputs[s][k]
                known = silo.train.y if len(silo.train) else everybody
                constant = metric.no_skill(task, known, federation.num_classes)
                ones = np.ones((1, len(y)))
                self._values[s, k] = metric.value(task, said, y, ones)[0]
                counted = metric.counted(task, said, y)
                self._is_share = counted is not None
                self._counts[s, k] = 0 if counted is None else counted.sum()
                places = list(_weights(resampled[s, k], len(y)))
                self._tried[s, k] = _joined(metric.value(task, said, y, w) for w in places)
                if constant is None:
                    self._has_none = False
                    continue
                flat = np.broadcast_to(constant, said.shape).astype(np.float64)
                self._none[s, k] = metric.value(task, flat, y, ones)[0]
                self._tried_none[s, k] = _joined(metric.value(task, flat, y, w) for w in places)

    def entry(self, own: np.ndarray | None) -> dict[str, Any]:
        """What the result says of it; `own` are the values as the run has them [seeds, silos]."""
        values = self._values if own is None else np.where(self._known, own, np.nan)
        overall = self._over_silos(values)
        seeds = ~np.isnan(overall)  # in which any silo has it
        tried = self._over_silos_tried(self._tried, self._values)
        count = self._count_overall() if self._is_share else 0.0
        return {
            "metric": self._metric.name,
            "release": "exact",
            "share": None,
            "test": self._told(overall, seeds)
            | {
                "interval": self._interval(
                    overall[seeds], tried[seeds], count, self._tests(), self._lacking()
                )
            },
            "no_skill": self._no_skill(overall, seeds) if self._has_none else None,
            "per_silo": [
                {"silo": silo.name, **self._of_silo(k, values[:, k])}
                for k, silo in enumerate(self._federations[0].silos)
            ],
        }

    def _told(self, per_seed: np.ndarray, seeds: np.ndarray) -> dict[str, Any]:
        return _rounded(summary_of_known(np.where(seeds, per_seed, 0.0), seeds))

    def _no_skill(self, overall: np.ndarray, seeds: np.ndarray) -> dict[str, Any]:
        """Without skill, and what models gain over it, in the seeds that have the metric."""
        none = self._over_silos(self._none)
        mean = low = high = None
        if seeds.any():
            gains = self._metric.gains(overall[seeds], none[seeds])
            mean = float(gains.mean())
            if self._tests() >= FEWEST_RESAMPLED and self._lacking() <= _MOST_LACKING:
                tried = self._over_silos_tried(self._tried, self._values)[seeds]
                tried_none = self._over_silos_tried(self._tried_none, self._none)[seeds]
                pairs = zip(tried, tried_none, strict=True)
                spread = np.stack([self._metric.gains(own, other) for own, other in pairs])
                low, high = (mean + np.quantile(_deviations(spread), _ENDS)).tolist()
        gain = {"mean": mean, "low": low, "high": high}
        return self._told(none, seeds) | {"gain": _rounded(gain)}

    def _of_silo(self, k: int, values: np.ndarray) -> dict[str, Any]:
        known = self._known[:, k]
        if not known.any():
            return {"mean": None, "std": None, "interval": None, "no_skill": None}
        tried = _filled(self._tried[known, k], self._values[known, k])
        lacking = float(np.isnan(self._tried[known, k]).mean())
        records = np.mean([len(one.silos[k].test) for one in self._federations])
        of = summary(values[known])
        none = float(self._none[known, k].mean())
        return _rounded(
            {
                "mean": of["mean"],
                "std": of["std"],
                "interval": self._interval(
                    values[known],
                    tried,
                    float(self._counts[known, k].mean()),
                    float(records),
                    lacking,
                ),
                "no_skill": none if self._has_none else None,
            }
        )

    def _interval(
        self, values: np.ndarray, tried: np.ndarray, count: float, records: float, lacking: float
    ) -> list[float] | None:
        """The interval of a mean over seeds, of which `tried` are resamples; None of too few.

        A share `lacking` of the resamples has no such metric.
        """
        if not len(values):
            return None
        mean = float(values.mean())
        if count > 0:
            return _rounded(list(wilson(min(max(mean, 0.0), 1.0), count)))
        if self._is_share or records < FEWEST_RESAMPLED or not math.isfinite(mean):
            return None
        if lacking > _MOST_LACKING:
            return None
        ends = mean + np.quantile(_deviations(tried), _ENDS)
        return _rounded(np.clip(ends, *self._metric.limits).tolist())

    def _lacking(self) -> float:
        """The share of resamples, of silos that have the metric, that have none."""
        return float(np.isnan(self._tried[self._known]).mean()) if self._known.any() else 1.0

    def _tests(self) -> float:
        """Test records of the silos that have the metric, in one seed."""
        counts = np.stack([one.test_counts for one in self._federations])
        return float(np.mean((counts * self._known).sum(axis=1)))

    def _count_overall(self) -> float:
        """Of how many records a single share would be as sure as the mean over silos.

        Silos weigh by their test records, and not by those that their own share is of: a silo with
        two positives among a hundred records makes a mean of recalls as unsure as it weighs.
        """
        tests = np.stack([one.public_test_counts for one in self._federations]) * self._known
        weights = tests / np.maximum(1, tests.sum(axis=1, keepdims=True))
        variance = (weights**2 / np.maximum(1, self._counts)).sum(axis=1)
        known = variance[variance > 0]  # of seeds in which any silo has it
        return float(np.mean(1 / known)) if len(known) else 0.0

    def _over_silos(self, values: np.ndarray) -> np.ndarray:
        """[seeds, silos] -> [seeds]."""
        return over_silos(np.where(self._known, values, 0.0), self._federations, self._known)

    def _over_silos_tried(self, tried: np.ndarray, values: np.ndarray) -> np.ndarray:
        """[seeds, silos, resamples] -> [seeds, resamples]."""
        filled = np.where(self._known[..., None], _filled(tried, values), 0.0)
        by_resample = np.moveaxis(filled, -1, 0)
        return over_silos(by_resample, self._federations, self._known).T


def _deviations(tried: np.ndarray) -> np.ndarray:
    """Resamples of each seed [seeds, RESAMPLES] -> how far they move a mean over seeds.

    From their own mean: that of resamples may lie beside the value (of R², below it). Seeds share
    records, so that the mean over them is taken to be as uncertain as one.
    """
    off = tried - tried.mean(axis=-1, keepdims=True)
    return math.sqrt(len(tried)) * off.mean(axis=0)


def _filled(tried: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Resamples; one without the metric (of one class alone, say) counts as no deviation."""
    return np.where(np.isnan(tried), values[..., None], tried)


def _outputs(
    model: Model, models: Any, federations: Sequence[Federation]
) -> list[list[np.ndarray]]:
    """The outputs of each silo's model for its own test records: by seed, by silo."""
    prepare = jax.jit(lambda x: model.prepare(x)["x"])  # one program; its norms are left out
    found = []
    for s, federation in enumerate(federations):
        counts = federation.test_counts
        if model.linear:
            together = np.concatenate([silo.test.x for silo in federation.silos])
            rows = max(1, len(together))  # a program has no place for none
            features = np.asarray(prepare(pad_rows(together, rows)), np.float64)[: len(together)]
            weights = np.asarray(models, np.float64)[s]
            parts = np.split(features, np.cumsum(counts)[:-1])
            found.append([part @ own for part, own in zip(parts, weights, strict=True)])
            continue
        rows = int(min(_ROWS, max(1, counts.max())))
        found.append(
            [
                _in_rows(model, jax.tree.map(lambda a, at=(s, k): a[at], models), silo.test.x, rows)
                for k, silo in enumerate(federation.silos)
            ]
        )
    return found


def _in_rows(model: Model, params: Any, x: np.ndarray, rows: int) -> np.ndarray:
    """Outputs for x, so many rows at a time: one program for silos of all sizes."""
    parts = [x[start : start + rows] for start in range(0, max(1, len(x)), rows)]
    said = []
    for part in parts:
        padded = np.zeros((rows, *x.shape[1:]), x.dtype)
        padded[: len(part)] = part
        outputs = model.predict(params, jnp.asarray(padded))
        said.append(np.asarray(outputs, np.float64)[: len(part)])
    return np.concatenate(said)


def _resamples(federations: Sequence[Federation], first_seed: int) -> np.ndarray:
    """A generator's seed for each [seeds, silos]: resamples are the same whatever is trained."""
    seeds, silos = len(federations), len(federations[0].silos)
    sequences = np.random.SeedSequence([first_seed, seeds]).spawn(seeds * silos)
    return np.array(sequences, object).reshape(seeds, silos)


def _weights(sequence: np.random.SeedSequence, records: int) -> Iterator[np.ndarray]:
    """How often each record is drawn in each resample, [some of RESAMPLES, records] at a time."""
    random = np.random.default_rng(sequence)
    at_once = max(1, min(RESAMPLES, _AT_ONCE // records))
    for start in range(0, RESAMPLES, at_once):
        size = min(at_once, RESAMPLES - start)
        yield random.multinomial(records, np.full(records, 1 / records), size=size)


def _joined(parts: Any) -> np.ndarray:
    return np.concatenate(list(parts))


# --- what a metric costs, if it is to be seen by others


def _released(
    prepared: Prepared, number: int, federations: Sequence[Federation], own: np.ndarray | None
) -> list[dict[str, Any]]:
    """The noisy metric with its price; the others are not there at any price that was paid."""
    spec, names = prepared.specs[number], federations[0].names
    first, *others = prepared.metrics
    assert own is not None, "a noisy metric is given by the session that paid for it"
    overall = over_silos(own, federations, np.ones(own.shape, bool))
    share = spec.request.metric_share
    entry = {
        "metric": first.name,
        "release": "noisy",
        "share": share,
        "test": _rounded(summary(overall)) | {"interval": None},
        "no_skill": None,
        "private": None,
        "per_silo": [
            {
                "silo": name,
                **_rounded({n: summary(own[:, k])[n] for n in ("mean", "std")}),
                "interval": None,
                "no_skill": None,
            }
            for k, name in enumerate(names)
        ],
    }
    none = {"mean": None, "std": None, "per_seed": [None] * len(federations), "interval": None}
    return [
        _with_noise(entry, first, spec, federations[0]),
        *(
            {
                "metric": metric.name,
                "release": "none",
                "share": None,
                "test": none,
                "no_skill": None,
                "private": None,
                "per_silo": [],
            }
            for metric in others
        ),
    ]


def _with_noise(
    entry: dict[str, Any], metric: Metric, spec: RunSpec, federation: Federation
) -> dict[str, Any]:
    """The entry with what noise does to it: what it has, or would have for a tenth of epsilon.

    `private` is about the silo in the middle, by test records, and says why where there is no
    noise to be had; each silo has its own. None where no privacy is asked for.
    """
    protected = [plan for plan in spec.plans if plan.private]
    if not protected:
        return entry | {"private": None}
    share = entry["share"] or NOISY_SHARE
    about: dict[str, Any] = {"share": share, "noise": None, "test_records": None, "useful": False}
    if (reason := _why_never(metric, spec, federation)) is not None:
        return entry | {"private": about | {"reason": reason}}
    assert isinstance(metric, MeanMetric)
    none = entry["no_skill"] or entry["test"]
    # Without a test record there is nothing that noise could be compared with.
    least = 0.0 if none["mean"] is None else _MOST_NOISE * abs(none["mean"])
    if not metric.by_ratio:
        least = _MOST_NOISE
    own: list[dict[str, Any] | None] = []
    for plan, policy, silo in zip(spec.plans, spec.policies, federation.silos, strict=True):
        count = silo.public_test_count
        if not (plan.private and policy.count_is_public and count):
            own.append(None)
            continue
        alone = plan.metric_noise
        if entry["release"] == "exact":
            alone = _sigma(share * plan.epsilon, plan.delta_for_queries) * moved_by(plan.relation)
        noise = metric.largest(spec.request.metric_bound) * alone / count
        own.append(
            {
                "noise": float(f"{noise:.3g}"),
                "test_records": int(count),
                "useful": bool(noise <= least),
            }
        )
    per_silo = [silo | {"private": one} for silo, one in zip(entry["per_silo"], own, strict=True)]
    known = sorted((one for one in own if one is not None), key=lambda one: one["test_records"])
    if not known:
        return entry | {"private": about | {"reason": _SECRET_COUNTS}, "per_silo": per_silo}
    about |= {**known[len(known) // 2], "reason": None}
    return entry | {"private": about, "per_silo": per_silo}


_SECRET_COUNTS = "no silo has a public number of test records"
_sigma = cache(get_sigma_gaussian)  # silos often share their budgets


def _why_never(metric: Metric, spec: RunSpec, federation: Federation) -> str | None:
    """Why the metric cannot be had with noise, at whatever size; None if it can."""
    if not isinstance(metric, MeanMetric):
        return "it is no mean over records"
    if federation.by_subject:
        return "a subject may have several test records"
    if not any(policy.count_is_public for policy in spec.policies):
        return _SECRET_COUNTS
    return None


def _rounded(value: Any) -> Any:
    """Numbers at any depth, to 7 digits."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
