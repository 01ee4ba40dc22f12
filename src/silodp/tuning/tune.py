"""Private tuning, silo by silo: the pivot protocol of the paper's appendix, in full.

    each silo draws its own number of trials, and for each a point of the grid
    every round: it trains the pivot's model and sends that update, and nothing else;
                 its trials hear the same broadcast, and are trained besides
    at the end:  it scores its trials on records set apart, and releases the best one alone

import silodp
result = silodp.tune(grid={"lam": [0.1, 1, 10]}, data="school", method="mrmtl", epsilon=6)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack, get_args

import jax
import jax.numpy as jnp
import numpy as np

from silodp.base.errors import SilodpError, one_of
from silodp.base.notebook_progress import usual_reporter
from silodp.base.progress import Reporter
from silodp.base.progress_file import kept_progress
from silodp.config.declared import flag
from silodp.config.options import RunRequest
from silodp.config.run_arguments import RunArguments
from silodp.engines.execution import Shown
from silodp.engines.job import Job, Setting
from silodp.methods import MethodEntry, get_method
from silodp.models.metrics import mean_metric, metrics_for
from silodp.models.model import Model
from silodp.privacy.policy import RECORD_COUNT, SCORE_RECORDS, Policy, check_delta
from silodp.privacy.trials import Trials
from silodp.privacy.tuning import Score, Tuning
from silodp.results.result import Result, summary
from silodp.runs.evaluation import evaluated as all_metrics
from silodp.runs.method_choice import must_be_finite
from silodp.runs.prepare import Data, Loaded, Prepared, load, policies_of, prepare_loaded
from silodp.runs.requests import requests_of
from silodp.runs.resolve import resolve
from silodp.runs.run import job_of
from silodp.runs.run_folder import RunFolder, run_folder
from silodp.runs.run_results import check_finite, result_of
from silodp.runs.training_run import TrainingRun, Watch
from silodp.tuning.compared import compared
from silodp.tuning.costs import costs_of
from silodp.tuning.search import (
    TUNING,
    are_finite,
    best_tries,
    evaluated,
    overall_of,
    picked,
    points_of,
    settings_of,
    trials_of,
    tries_of,
)
from silodp.tuning.set_apart import set_apart

Grid = Mapping[str, Sequence[float]]

METHOD = "mrmtl"  # unless another is named: the usual one has nothing that silos could try alone
USES = ("metric_bound",)  # bounds scores, which are noisy whatever test metrics are

_PARTED = (
    "a silo's training records are split into those that are trained on and those that trials are "
    "scored with; epsilon covers both"
)
_SCORED_IN_PUBLIC = (
    "the records that trials are scored with are public, because declared: epsilon does not cover "
    "them"
)
_SECRET_COUNTS = "how many trials a silo made is its secret, and not shown"


def tune(
    *,
    grid: Grid,
    trials: float | None = None,
    eta: float = 0.0,
    score: Score = "noisy",
    score_fraction: float = 0.2,
    pivot_noise: float = 2.0,
    compare: bool = False,
    federation: Data | None = None,
    custom_model: Model | None = None,
    keep_models: bool = False,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    **options: Unpack[RunArguments],
) -> Result:
    """Finds each silo's best model out of a random number of trials, all within its policy.

    Args:
      grid: hyperparameters, each with the values to try: lr, and those that a silo may have values
        of its own of (lam, finetune_fraction).
      trials: mean number of trials of a silo; by default as many as the grid has points.
      eta: shape of the truncated negative binomial distribution of that number, above -1; infinity
        is the Poisson distribution.
      score: "noisy", or "public" if the policies declare the score records public.
      score_fraction: part of each silo's training records that trials are scored with.
      pivot_noise: noise of the pivot's training, in units of that of a trial.
      compare: whether to train the alternatives at the same epsilon too: an untuned run, and a
        naive grid search.
      federation: as for `run`, and so are the others.
      **options: see `RunRequest`; those that the grid names are the pivot's.

    Examples:
      >>> result = silodp.tune(
      ...     grid={"lam": [0.1, 1]}, trials=2, data="synthetic", silos=2, epsilon=3, rounds=2,
      ...     batch_size=1000, small_silos="full-batch",
      ... )
      >>> result.method, result.tuning["grid"]
      ('mrmtl', {'lam': [0.1, 1.0]})
    """
    place = run_folder(out, resume, overwrite)
    request, *others = requests_of(
        {"method": METHOD} | dict(options),
        uses=USES,
        own_data=federation is not None,
        own_model=custom_model is not None,
    )
    if others:
        raise SilodpError("Tuning is for one setting: put the values to try into the grid.")
    tuning = _tuning(request, grid, trials, eta, score, pivot_noise)
    _check(request, tuning, score_fraction, compare)
    about = {"data": request.data, "method": request.method, "tuned": True}
    # Nothing of trials is shown: not their metrics, not their number, and not the time that they
    # take, which would reveal it.
    shown = Shown(metric=False, rounds=False)
    with kept_progress(
        place and place.folder, reporter or usual_reporter(), about, timed=False
    ) as listener:
        watch = Watch(listener, shown)
        return _tuned(
            request,
            tuning,
            score_fraction,
            compare,
            federation,
            custom_model,
            keep_models,
            place,
            watch,
        )


def _tuned(
    request: RunRequest,
    tuning: Tuning,
    score_fraction: float,
    compare: bool,
    federation: Data | None,
    custom_model: Model | None,
    keep_models: bool,
    place: RunFolder | None,
    watch: Watch,
) -> Result:
    """Loads, trains, chooses, and writes the result."""
    loaded = load(request, federation, watch)
    watch.done("load")
    apart = _apart(loaded, score_fraction)
    request = _completed(request, loaded, custom_model, tuning)
    prepared = prepare_loaded([request], apart, custom_model, watch, tuning)
    seeds = range(request.first_seed, request.first_seed + request.seeds)
    bound = mean_metric(prepared.metric, TUNING).largest(request.metric_bound)
    job = replace(job_of(prepared), pivot=True, metric_bound=bound)
    _check_own_models(request, job)

    def drawn(secret: bytes) -> np.ndarray:
        """How often each silo tries each point: [seeds, silos, points]."""
        plans = prepared.plans[0]
        return np.array([[trials_of(plan, seed, secret) for plan in plans] for seed in seeds])

    def settings(secret: bytes) -> list[Setting]:
        return settings_of(prepared, drawn(secret))

    training = TrainingRun(prepared, job, settings, place, watch, keep_models=True)
    with training.closed_on_failure():
        watch.stage("choosing")
        own = drawn(training.secret)
        noise = [plan.score_noise for plan in prepared.plans[0]]
        chosen = 1 + best_tries(prepared, job, training, own, noise)
        trained = training.execution.models
        assert trained is not None
        models = picked(trained, chosen)
        about: dict[str, Any] = {}
        if tuning.pivot:
            # The pivot's model is released, so a silo may fall back on it. (Without a pivot, the
            # first setting is trained for nothing.)
            chosen = np.where(are_finite(models), chosen, 0)
            models = picked(trained, chosen)
            pivot = overall_of(prepared, job, trained[0], loaded.federations)
            about["pivot_test"] = summary(pivot)
        by_silo = evaluated(job, models, loaded.federations)
        watch.stage("comparing costs")
        about |= _described(prepared, tuning, own, chosen, bool(training.secret))
        about["score_fraction"] = score_fraction
        about["costs"] = costs_of(prepared, loaded.federations[0].public_counts, own.shape[-1])
        if compare:
            about["compared"] = compared(request, loaded, apart, custom_model, tuning, bound, watch)
        result = result_of(
            prepared,
            loaded.federations,
            0,
            [job.rounds],
            by_silo[None],
            training.seconds,
            models if keep_models else None,
            measured=all_metrics(prepared, 0, loaded.federations, models, by_silo),
        )
        result = replace(
            result,
            tuning=about,
            assumptions=_assumed(prepared, tuning) + result.assumptions,
            # The time that it took reveals the number of trials.
            seconds={} if training.secret else result.seconds,
        )
        check_finite(result)
        if place is not None:
            result.write(place.folder)
    training.close()
    return result


def _tuning(
    request: RunRequest,
    grid: Grid,
    trials: float | None,
    eta: float,
    score: Score,
    pivot_noise: float,
) -> Tuning:
    method = get_method(request.method)
    checked = _checked(grid, request, method)
    points = math.prod(len(values) for _, values in checked)
    number = Trials(points if trials is None else trials, eta)
    return Tuning(number, checked, score, pivot_noise, method.sends)


def _checked(
    grid: Grid, request: RunRequest, method: MethodEntry
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """The grid, with each value checked as its option would be."""
    tunable = ("lr", *method.of_silo)
    if not grid:
        raise SilodpError("There is nothing to try: give a grid, such as --try lam=0.1,1,10.")
    for name, values in grid.items():
        if name not in tunable:
            raise SilodpError(
                f"--try {name}: method {request.method!r} cannot be tuned by it, because it is not "
                f"a silo's own to choose: use {one_of(name, tunable)}."
            )
        if isinstance(values, str) or not len(list(values)):
            raise SilodpError(f"--try {name}: give one or more numbers, as in {name}=0.1,1.")
        if len(set(values)) < len(list(values)):
            raise SilodpError(f"--try {name} has a value twice: give each value once.")
        for value in values:
            replace(request, **{name: value})
            if math.isinf(value) and name not in method.infinite:
                raise must_be_finite(flag(name), request.method)
    return tuple((name, tuple(float(v) for v in values)) for name, values in grid.items())


def _check(request: RunRequest, tuning: Tuning, score_fraction: float, compare: bool) -> None:
    if tuning.score not in get_args(Score):
        raise SilodpError(f"--score is {tuning.score!r}: choose one of noisy, public.")
    if not 0 < score_fraction <= 0.5:
        raise SilodpError(
            f"--score-fraction is {score_fraction}: give a number above 0, at most 0.5."
        )
    if tuning.score == "public" and request.ledger and (request.seeds > 1 or request.first_seed):
        raise SilodpError(
            "--score public: every seed has a training set of its own, and so other score records, "
            "but a silo has declared one part of its records public: with a ledger, leave out "
            "--seeds and --first-seed."
        )
    if not 0 < tuning.pivot_noise < math.inf:
        raise SilodpError(f"--pivot-noise is {tuning.pivot_noise}: give a number above 0.")
    for name in ("statistics_share", "metric_share"):
        if getattr(request, name):
            raise SilodpError(f"{flag(name)}: tuning does not pay for it yet: leave it out.")
    if request.silo_lam is not None:
        raise SilodpError("--silo-lam: silos find their own lambda by tuning: leave it out.")
    if request.engine == "debug":
        raise SilodpError("--engine debug does not tune: leave it out.")
    if compare and request.ledger is not None:
        raise SilodpError(
            "--compare trains further runs on the same records, which no ledger is charged for: "
            "leave out the one or the other."
        )
    if tuning.trials.poisson and not tuning.pivot:
        raise SilodpError(
            "--eta inf: by the Poisson distribution a silo may try nothing, and would then have no "
            f"model, because {request.method!r} has no pivot: give an eta such as 0."
        )


def _apart(loaded: Loaded, score_fraction: float) -> Loaded:
    """The data with score records set apart; refuses data that cannot be tuned on."""
    if loaded.federations[0].by_subject:
        raise SilodpError(
            "Tuning protects single records only: leave out --subject-column (people with several "
            "records are not covered)."
        )
    federations = [set_apart(one, score_fraction) for one in loaded.federations]
    return loaded._replace(federations=federations)


def _completed(
    request: RunRequest, loaded: Loaded, model: Model | None, tuning: Tuning
) -> RunRequest:
    """The request, evaluated at its end only; refuses what policies do not allow."""
    first = loaded.federations[0]
    rounds = request.rounds or loaded.defaults.rounds
    request = replace(request, rounds=rounds, evaluate_every=rounds)
    options = resolve(request, loaded.defaults, model, first.task)
    mean_metric(metrics_for(first.task, request.metric, request.metrics)[0], TUNING)
    policies = policies_of(options, first.names, first.by_subject, first.left_out)
    _check_policies(first.names, policies, first.public_counts.tolist(), tuning)
    return request


def _check_policies(
    names: Sequence[str], policies: Sequence[Policy], records: Sequence[int], tuning: Tuning
) -> None:
    for silo, policy, n in zip(names, policies, records, strict=True):
        check_delta(silo, policy, n)
        if not policy.count_is_public:
            raise SilodpError(
                f"Silo {silo!r}: its {RECORD_COUNT} is not public, but scores are means over a "
                f"part of the records: tuning needs {RECORD_COUNT!r} in public."
            )
        if tuning.score == "public" and SCORE_RECORDS not in policy.public:
            raise SilodpError(
                f"Silo {silo!r}: its policy does not declare the {SCORE_RECORDS} public: add "
                f"{SCORE_RECORDS!r} to public, or use --score noisy."
            )


def _check_own_models(request: RunRequest, job: Job) -> None:
    """Refuses methods whose silos keep no model: they use the server's, whatever they try."""
    zeros = dict.fromkeys(job.method.options, jnp.float32(0))
    key = jnp.zeros(2, jnp.uint32)
    _, silo = jax.eval_shape(lambda key: job.first_states(job.build(zeros), key, 0), key)
    keeps = any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(silo))
    if not keeps or not job.method.in_trials:
        raise SilodpError(
            f"Method {request.method!r} gives silos no model of their own, so that what one tries "
            "by itself changes nothing for it: tune a method with personal models, such as mrmtl."
        )


def _assumed(prepared: Prepared, tuning: Tuning) -> list[str]:
    if not any(plan.private for plan in prepared.plans[0]):
        return []
    return [_PARTED if tuning.score == "noisy" else _SCORED_IN_PUBLIC]


def _described(
    prepared: Prepared, tuning: Tuning, drawn: np.ndarray, chosen: np.ndarray, secret: bool
) -> dict[str, Any]:
    """The grid, trials and choices, as the result shows them."""
    points = points_of(tuning)
    found = [None, *(points[one.point] for one in tries_of(drawn))]  # None: the pivot's model
    about: dict[str, Any] = {
        "grid": {name: list(values) for name, values in tuning.grid},
        "trials": tuning.trials.mean,
        "eta": tuning.trials.shape,
        "gamma": None if tuning.trials.poisson else tuning.trials.gamma,
        "score": tuning.score,
        "score_noise": [plan.score_noise for plan in prepared.plans[0]],
        "score_records": prepared.federations[0].public_test_counts.tolist(),
        "pivot_noise": tuning.pivot_noise if tuning.pivot else None,
        "chosen": [
            {"silo": name, "per_seed": [found[number] for number in chosen[:, k]]}
            for k, name in enumerate(prepared.federations[0].names)
        ],
    }
    # The theorem needs their number to be secret; with noise from a seed, nothing is secret.
    if secret:
        return about | {"note": _SECRET_COUNTS}
    return about | {
        "trials_of_silos": drawn.sum(axis=2).T.tolist(),
        "settings": len(tries_of(drawn)),
    }
