"""From what a user asks for to results: load, plan, charge, train, sum up.

import silodp
result = silodp.run(data="school", method="mrmtl", lam=1, epsilon=6, delta=1e-3, seeds=5)
print(result.mean, result.std)
"""

import math
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from silodp.accounts import Account, account_of, refuse_early
from silodp.engines.checkpoint import Checkpoint, Place
from silodp.engines.devices import prepare_jax
from silodp.engines.execution import Execution, Reporter, execute, fingerprint
from silodp.engines.job import Job, Setting
from silodp.errors import SilodpError
from silodp.federation import Federation, Records, Silo
from silodp.models import Model
from silodp.options import RunOptions
from silodp.prepare import Data, Prepared, grid, person_guarantee, prepare
from silodp.privacy.plan import SiloPlan
from silodp.privacy.policy import RECORD_COUNT, Policy
from silodp.privacy.randomness import host_random, new_secret
from silodp.privacy.statistics import noisy_metric, noisy_moments
from silodp.result import Result, summary

COUNTS_ARE_PUBLIC = (
    "each silo's number of training records is public: it sets its weight, sampling rate and steps"
)
TEST_IS_NOT_COVERED = (
    "epsilon protects training records as they were set apart from test records; metrics on test "
    "records are computed without noise"
)
ONE_RUN_EACH = "epsilon is that of one run; whoever releases the runs of several seeds spends more"
NOISE_FROM_A_SEED = "whoever knows the seed knows the noise: an experiment, not a release"


def run(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    keep_models: bool = False,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    **options: Any,
) -> Result:
    """Trains one method with one setting over one or more seeds.

    Args:
      federation: records of the caller's own, in place of `data`: a Federation, or a function from
        a seed to one.
      custom_model: a model of the caller's own (see `silodp.custom_model`), in place of `model`.
      keep_models: whether the result holds the personal models, and `out` gets `models.npz`.
      out: folder for `result.json`, and for a checkpoint while the run goes on.
      resume: go on from the folder's checkpoint, if there is one.
      overwrite: replace what is in the folder.
      reporter: told about progress.
      **options: fields of `RunOptions`.
    """
    place = _place(out, resume, overwrite)
    training = _Training(federation, custom_model, keep_models, place, reporter, options)
    (result,) = training.results
    if any(math.isnan(silo["mean"]) for silo in result.per_silo):
        worst = next(silo["silo"] for silo in result.per_silo if math.isnan(silo["mean"]))
        raise SilodpError(
            f"Silo {worst!r}: the model is not finite any more after training: lower --lr (it is "
            f"{result.options['lr']}) or --lam, or use --regulariser proximal; --engine debug says "
            "in which round it happened."
        )
    if place is not None:
        # In this order: whenever the process is killed, the work is in one of the two.
        result.write(place.folder)
    training.close()
    return result


def sweep(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    keep_models: bool = False,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    **options: Any,
) -> list[Result]:
    """As `run`, with lists for any of `prepare.SWEPT` (lam, lr, epsilon...): the grid.

    All of it is trained in as few compiled programs as memory allows. Returns one result for each
    point of the grid, the last-named list moving fastest (in the order of SWEPT). A setting that
    diverged has a NaN metric. `out` holds a checkpoint while it goes on, and no results.
    """
    place = _place(out, resume, overwrite)
    training = _Training(federation, custom_model, keep_models, place, reporter, options)
    training.close()
    return training.results


def plan(
    *,
    federation: Data | None = None,
    custom_model: Model | None = None,
    reporter: Reporter | None = None,
    **options: Any,
) -> Prepared:
    """What a run with these options would ask of each silo, and with how much noise.

    Trains nothing. With a ledger, refuses as the run would be refused. Arguments as for `run`.
    """
    reporter = reporter or Reporter()
    asked = grid(options)
    if federation is None:
        refuse_early(asked[0])
    prepared = prepare(asked, federation, custom_model, reporter)
    account = account_of(prepared)
    if account is not None:
        account.check()
    return prepared


def _place(out: Path | str | None, resume: bool, overwrite: bool) -> Place | None:
    return None if out is None else Place(Path(out), resume, overwrite)


class _Training:
    """One call of `run` or `sweep`: its results, and what is to be closed once they are kept."""

    def __init__(
        self,
        federation: Data | None,
        custom_model: Model | None,
        keep_models: bool,
        place: Place | None,
        reporter: Reporter | None,
        options: dict[str, Any],
    ):
        watch = _Watch(reporter or Reporter())
        asked = grid(options)
        # An interrupted run is charged already.
        if federation is None and not (place and place.interrupted):
            refuse_early(asked[0])
        prepared = prepare(asked, federation, custom_model, watch)
        self._account, self._place = account_of(prepared), place
        watch.hide_metric = prepared.asked[0].metric_share > 0
        watch.done("calibrate")

        prepare_jax()
        first = prepared.asked[0]
        job = job_of(prepared)
        settings = [
            Setting(one.lr or 0.0, plans, job.method.traced_values(one), of_silos)
            for one, plans, of_silos in zip(
                prepared.asked, prepared.plans, prepared.of_silos, strict=True
            )
        ]
        seeds = list(range(first.first_seed, first.first_seed + first.seeds))
        federations = prepared.federations
        how = {"evaluate_every": first.evaluate_every or 1, "engine": first.engine}
        at = place.begin(fingerprint(job, seeds, federations, settings, **how)) if place else None
        # Rounds that are done again after an interruption are the same: no further release.
        secret = at.secret if at else new_secret(first.entropy or "seed")
        job = replace(job, secret=secret)
        with _charged(self._account, at, watch) as self._charge:
            if place is not None:
                place.open()
                place.charge, place.secret = self._charge, secret
            if first.statistics_share:
                watch.asked = True
                federations = [
                    _standardised(federation, prepared.plans[0], seed, secret)
                    for seed, federation in zip(seeds, federations, strict=True)
                ]
            execution = execute(
                job,
                seeds,
                federations,
                settings,
                **how,
                keep_models=keep_models,
                place=place,
                at=at,
                reporter=watch,
            )
        seconds = watch.seconds | execution.seconds | {"total": watch.total}
        self.results = [
            _result(prepared, execution, number, seeds, secret, seconds)
            for number in range(len(settings))
        ]

    def close(self) -> None:
        """The results are where they belong: the ledgers are told, the checkpoint goes."""
        if self._account is not None:
            self._account.finish(self._charge)
        if self._place is not None:
            self._place.clear()


class _Watch(Reporter):
    """Passes reports on; knows what took how long, and whether records were asked anything."""

    def __init__(self, inner: Reporter):
        self._inner, self._started = inner, time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.asked = self.hide_metric = False

    @property
    def total(self) -> float:
        return time.perf_counter() - self._started

    def done(self, name: str) -> None:
        """What was done since the start, or since what was done before, is called so."""
        self.seconds[name] = self.total - sum(self.seconds.values())

    def stage(self, name: str) -> None:
        if name == "calibrating noise":
            self.done("load")
        self.asked = self.asked or name == "training"
        self._inner.stage(name)

    def calibrated(self, done: int, total: int) -> None:
        self._inner.calibrated(done, total)

    def trained(self, done: int, total: int, metric: float) -> None:
        self._inner.trained(done, total, math.nan if self.hide_metric else metric)


@contextmanager
def _charged(account: Account | None, at: Checkpoint | None, watch: _Watch):
    """Charges the run before anything is done with records; voids it if nothing was."""
    if account is None:
        yield ""
        return
    charge = account.open(at, watch)
    try:
        yield charge
    except Exception as error:
        if at is None and not watch.asked:
            account.void(charge, f"failed before any query: {type(error).__name__}")
        raise


def job_of(prepared: Prepared) -> Job:
    """What the engine is asked to do."""
    asked, federation = prepared.asked[0], prepared.federations[0]
    counts = federation.unit_counts.astype(float)
    weights = counts if asked.weights == "records" else np.ones_like(counts)
    return Job(
        model=prepared.model,
        method=prepared.method,
        rounds=asked.rounds or 0,
        clip=asked.clip or 0.0,
        weights=weights / weights.sum(),
        fixed=prepared.method.fixed_values(asked),
        subjects=federation.by_subject,
        regulariser=asked.regulariser or prepared.method.regulariser,
        optimiser=asked.optimiser,
        select_mechanism=asked.select_mechanism,
        select_score=asked.select_score or "loss",
        select_bound=asked.select_bound,
        metric_bound=asked.metric_bound if asked.metric_share else math.inf,
    )


def _standardised(
    federation: Federation, plans: Sequence[SiloPlan], seed: int, secret: bytes
) -> Federation:
    """The federation with features standardised by noisy statistics of each silo."""
    bound = federation.feature_bound
    assert bound is not None
    federation = federation.decoded()

    def of_silo(silo: Silo, plan: SiloPlan) -> Silo:
        random = host_random(seed, secret, f"statistics {silo.name}")
        mean, deviation = noisy_moments(
            silo.train.x, bound, plan.records, plan.statistics_noise, random, silo.train.subject
        )

        def scaled(records: Records) -> Records:
            return replace(records, x=(records.x - mean) / deviation)

        return Silo(silo.name, scaled(silo.train), scaled(silo.test))

    silos = tuple(of_silo(*pair) for pair in zip(federation.silos, plans, strict=True))
    return replace(federation, silos=silos, feature_bound=None)


def _metrics(
    prepared: Prepared, execution: Execution, number: int, seeds: Sequence[int], secret: bytes
) -> np.ndarray:
    """The metric of one setting [evaluations, seeds, silos], with noise if it was asked for."""
    exact = execution.metrics[:, :, number]
    asked, federation = prepared.asked[number], prepared.federations[0]
    if not asked.metric_share:
        return exact
    largest = asked.metric_bound if federation.metric == "mse" else 1.0
    noisy = np.empty_like(exact)
    for s, seed in enumerate(seeds):
        for k, plan in enumerate(prepared.plans[number]):
            random = host_random(seed, secret, f"metric {plan.silo}")
            count = len(prepared.federations[s].silos[k].test)
            noisy[:, s, k] = noisy_metric(exact[:, s, k], largest, count, plan.metric_noise, random)
    return noisy


def _described(prepared: Prepared, number: int) -> dict[str, Any]:
    """The options as a result shows them: without those that say nothing."""
    shown = {n: value for n, value in asdict(prepared.asked[number]).items() if value is not None}
    if of_silos := prepared.of_silos[number].get("lam"):  # the numbers: a file may change
        shown["silo_lam"] = dict(zip(prepared.federations[0].names, of_silos, strict=True))
    return shown


def _result(
    prepared: Prepared,
    execution: Execution,
    number: int,
    seeds: Sequence[int],
    secret: bytes,
    seconds: dict[str, float],
) -> Result:
    asked, federation = prepared.asked[number], prepared.federations[0]
    plans, policies = prepared.plans[number], prepared.policies[number]
    counts = np.stack([one.test_counts for one in prepared.federations])  # [seeds, silos]
    by_silo = _metrics(prepared, execution, number, seeds, secret)
    overall = (by_silo * (counts / counts.sum(axis=1, keepdims=True))).sum(axis=-1)
    return Result(
        data=federation.name,
        method=asked.method,
        options=_described(prepared, number),
        metric=federation.metric,
        test=summary(overall[-1]),
        per_silo=[
            {
                "silo": silo.name,
                "records": silo.train.units if policy.count_is_public else None,
                "test_records": len(silo.test) if _shown(policy) else None,
                **summary(by_silo[-1, :, place]),
            }
            for place, (silo, policy) in enumerate(zip(federation.silos, policies, strict=True))
        ],
        privacy=[plan.statement() for plan in plans],
        assumptions=_assumptions(asked, federation, policies),
        warnings=prepared.warnings,
        person=person_guarantee(plans, asked.max_silos_per_subject),
        history=[
            {"round": rounds, **summary(values)}
            for rounds, values in zip(execution.rounds, overall, strict=True)
        ],
        seconds=seconds,
        models=None if execution.models is None else execution.models[number],
    )


def _shown(policy: Policy) -> bool:
    """Whether a count of records may be shown; by subject only that of subjects is public."""
    return policy.count_is_public and (policy.unit == "record" or RECORD_COUNT in policy.public)


def _assumptions(
    asked: RunOptions, federation: Federation, policies: Sequence[Policy]
) -> list[str]:
    """What the privacy statement takes for granted, in words."""
    assumed = []
    if any(policy.count_is_public for policy in policies):
        assumed.append(COUNTS_ARE_PUBLIC)
    if not asked.metric_share:
        assumed.append(TEST_IS_NOT_COVERED)
    if federation.declared:
        assumed.append(f"public, because declared: {', '.join(federation.declared)}")
    if any(math.isfinite(policy.epsilon) for policy in policies):
        assumed += [ONE_RUN_EACH] if asked.seeds > 1 else []
        assumed += [NOISE_FROM_A_SEED] if asked.entropy == "seed" else []
    return assumed
