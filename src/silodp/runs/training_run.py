"""The training of `run`, `sweep` or `tune`: charged first, checkpointed and timed."""

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter, Reporters
from silodp.data.federation import Federation, Records, Silo
from silodp.data.preparation import Preparation, by_moments, preparation_of
from silodp.engines.devices import prepare_jax
from silodp.engines.execution import EVERYTHING_SHOWN, Shown, execute, fingerprint
from silodp.engines.job import Job, Setting
from silodp.engines.programs import Programs
from silodp.privacy.ledger.account import RunClosedError
from silodp.privacy.mechanisms.queries import PREPARATION
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.mechanisms.statistics import noisy_moments, noisy_present_means
from silodp.privacy.plan import SiloPlan
from silodp.privacy.session import FINISHED, PaidRounds, RunSession
from silodp.runs.accounts import ledgers_of
from silodp.runs.prepare import Prepared
from silodp.runs.run_folder import RunFolder


class Watch(Reporters):
    """Passes events on, and measures time.

    Attributes:
      seconds: how long each part took, by name.
      shown: what may be shown of the run while it goes on, if its metric has no price.
    """

    def __init__(self, listener: Reporter, shown: Shown = EVERYTHING_SHOWN):
        super().__init__(listener)
        self._started = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self.shown = shown

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    def done(self, name: str) -> None:
        """Ends a part with that name, which began where the part before it ended."""
        self.seconds[name] = self.total - sum(self.seconds.values())


class TrainingRun:
    """A finished training, and the session to close once the results are kept.

    Attributes:
      seeds: the seeds of the runs.
      settings: the settings that were trained.
      secret: the source of their noise, if not the seeds.
      federations: the records that they were trained on, one federation per seed.
      execution: models and metrics.
      seconds: how long each part took, by name.
    """

    def __init__(
        self,
        prepared: Prepared,
        job: Job,
        settings_of: Callable[[bytes], list[Setting]],
        place: RunFolder | None,
        watch: Watch,
        keep_models: bool = False,
        programs: Programs | None = None,
    ):
        """Trains; `settings_of` gives the settings, which may depend on the noise's secret."""
        ledgers, self._place = ledgers_of(prepared), place
        watch.done("calibrate")
        watch.promised([plan.statement() for plan in prepared.plans[0]])

        prepare_jax()
        spec, self.federations = prepared.specs[0], prepared.federations
        request, shown = spec.request, watch.shown
        if request.metric_share:  # shown without its noise, the metric would not be paid for
            shown = shown._replace(metric=False)
        self.seeds = list(range(request.first_seed, request.first_seed + request.seeds))
        how = {"evaluate_every": spec.evaluate_every, "engine": request.engine}
        at = None
        if place is not None:
            at = place.begin(
                fingerprint(job, self.seeds, self.federations, settings_of(b""), **how)
            )
            if at is not None and at.charge and ledgers is None:
                # Its ledgers may have closed it, and without them nothing would charge its rounds.
                raise SilodpError(
                    f"{place.folder} holds an interrupted run that is charged to ledgers (as "
                    f"{at.charge!r}): resume it with the same --ledger, or start again with "
                    "--overwrite."
                )
        names, rounds = self.federations[0].names, job.rounds
        self.session = RunSession(ledgers, names, rounds, at.charge if at else "")
        with self.closed_on_failure():
            if at:
                # Rounds repeated after an interruption are the same ones: no further release.
                self.session.resume(at.secret, rounds if at.chunk else at.round)
            else:
                if ledgers is not None:
                    watch.stage("reserving budgets")
                    self.session.replaces("" if place is None else place.replaced)
                self.session.reserve(spec.entropy, progress=watch.calibrated)
            self.secret = self.session.secret
            self.settings = settings_of(self.secret)
            if place is not None:
                place.open()
                place.charge, place.secret = self.session.name, self.secret
            if request.statistics_share:
                paid = self.session.pay(PREPARATION, 0)
                self.federations = [
                    with_statistics(federation, prepared.plans[0], seed, self.session, paid)
                    for seed, federation in zip(self.seeds, self.federations, strict=True)
                ]
            self.execution = execute(
                replace(job, secret=self.secret),
                self.seeds,
                self.federations,
                self.settings,
                **how,
                keep_models=keep_models,
                place=place,
                at=at,
                session=self.session,
                reporter=watch,
                shown=shown,
                programs=programs,
            )
        self.seconds = watch.seconds | self.execution.seconds | {"total": watch.total}

    def closed_on_failure(self) -> AbstractContextManager[None]:
        """Closes the run if the block fails, unless there is a checkpoint to go on from."""
        place = self._place
        return self.session.closed_on_failure(lambda: place is not None and place.can_resume)

    def close(self) -> None:
        """Closes the run in the ledgers and removes the checkpoint: the results are kept."""
        with contextlib.suppress(RunClosedError):  # somebody closed it after its last block
            self.session.close(FINISHED)
        if self._place is not None:
            self._place.clear()


def with_statistics(
    federation: Federation,
    plans: Sequence[SiloPlan],
    seed: int,
    session: RunSession,
    paid: PaidRounds,
) -> Federation:
    """The federation prepared by the one noisy statistic that each silo releases.

    Where a rule says that missing values count as noisy means, these; else features are
    standardised. Either is one Gaussian release, the `statistics` of the silo's plan.
    """
    bound = federation.feature_bound
    assert bound is not None
    federation = federation.decoded()
    waits = federation.waits_for_means
    prepare = _filled if waits else _standardised

    def of_silo(silo: Silo, plan: SiloPlan) -> Silo:
        random = session.random(paid, seed, f"statistics {silo.name}")
        return prepare(silo, preparation_of(federation, silo), plan, bound, random)

    silos = tuple(of_silo(*pair) for pair in zip(federation.silos, plans, strict=True))
    return replace(federation, silos=silos, feature_bound=bound if waits else None)


def _standardised(
    silo: Silo, preparation: Preparation, plan: SiloPlan, bound: float, random: HostRandom
) -> Silo:
    """The silo with features standardised by its noisy moments."""
    train = silo.train
    moments = noisy_moments(
        train.x, bound, plan.public_count, plan.statistics_noise, random, train.subject
    )
    scaling = by_moments(*moments)

    def scaled(records: Records) -> Records:
        return replace(records, x=scaling.apply(records.x))

    return replace(
        silo,
        train=scaled(silo.train),
        test=scaled(silo.test),
        preparation=replace(preparation, noisy=scaling),
    )


def _filled(
    silo: Silo, preparation: Preparation, plan: SiloPlan, bound: float, random: HostRandom
) -> Silo:
    """The silo with missing values replaced by its noisy means, which its preparation keeps."""
    train, waits = silo.train, np.flatnonzero(preparation.encoder.waits)
    assert train.absent is not None
    means = noisy_present_means(
        train.x[:, waits],
        train.absent[:, waits],
        bound,
        plan.statistics_noise,
        random,
        train.subject,
    )
    preparation = preparation.filled_with(means)
    return replace(
        silo,
        train=preparation.filled(silo.train),
        test=preparation.filled(silo.test),
        preparation=preparation,
    )
