"""One call of `run`, `sweep` or `tune`: charged before it starts, kept while it goes on, timed."""

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter, Reporters
from silodp.data.federation import Federation, Records, Silo
from silodp.data.preparation import by_moments, preparation_of
from silodp.engines.devices import prepare_jax
from silodp.engines.execution import EVERYTHING_SHOWN, Shown, execute, fingerprint
from silodp.engines.job import Job, Setting
from silodp.engines.programs import Programs
from silodp.privacy.ledger.account import RunClosedError
from silodp.privacy.mechanisms.queries import PREPARATION
from silodp.privacy.mechanisms.statistics import noisy_moments
from silodp.privacy.plan import SiloPlan
from silodp.privacy.session import FINISHED, PaidRounds, RunSession
from silodp.runs.accounts import ledgers_of
from silodp.runs.prepare import Prepared
from silodp.runs.run_folder import RunFolder


class Watch(Reporters):
    """Passes events on; knows what took how long.

    Attributes:
      seconds: what took how long.
      shown: what may be known of the run while it goes on, if its metric has no price.
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
        """What was done since the start, or since what was done before, is called so."""
        self.seconds[name] = self.total - sum(self.seconds.values())


class TrainingRun:
    """What was trained, and what is to be closed once the results are kept.

    Attributes:
      seeds: of the runs.
      settings: that were trained.
      secret: what their noise came from, if not from the seeds.
      federations: the records that they were trained on, one federation a seed.
      execution: what came of them.
      seconds: what took how long.
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
        """Trains; what settings are trained may depend on the secret that noise comes from."""
        ledgers, self._place = ledgers_of(prepared), place
        watch.done("calibrate")
        watch.promised([plan.statement() for plan in prepared.plans[0]])

        prepare_jax()
        spec, self.federations = prepared.specs[0], prepared.federations
        request, shown = spec.request, watch.shown
        if request.metric_share:  # what is shown before it gets its noise would have no price
            shown = shown._replace(metric=False)
        self.seeds = list(range(request.first_seed, request.first_seed + request.seeds))
        how = {"evaluate_every": spec.evaluate_every, "engine": request.engine}
        at = None
        if place is not None:
            at = place.begin(
                fingerprint(job, self.seeds, self.federations, settings_of(b""), **how)
            )
            if at is not None and at.charge and ledgers is None:
                # Its rounds are answered once they are charged, and not if it was closed there.
                raise SilodpError(
                    f"{place.folder} holds an interrupted run that is charged to ledgers (as "
                    f"{at.charge!r}): resume it with the same --ledger, or start anew with "
                    "--overwrite."
                )
        names, rounds = self.federations[0].names, job.rounds
        self.session = RunSession(ledgers, names, rounds, at.charge if at else "")
        with self.closed_on_failure():
            if at:
                # Rounds that are done again after an interruption are the same: no further release.
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
                    standardised(federation, prepared.plans[0], seed, self.session, paid)
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
        """What fails within closes the run, unless there is a checkpoint to go on from."""
        place = self._place
        return self.session.closed_on_failure(lambda: place is not None and place.can_resume)

    def close(self) -> None:
        """The results are where they belong: the ledgers are told, the checkpoint goes."""
        with contextlib.suppress(RunClosedError):  # by somebody else, after its last block
            self.session.close(FINISHED)
        if self._place is not None:
            self._place.clear()


def standardised(
    federation: Federation,
    plans: Sequence[SiloPlan],
    seed: int,
    session: RunSession,
    paid: PaidRounds,
) -> Federation:
    """The federation with features standardised by noisy statistics of each silo."""
    bound = federation.feature_bound
    assert bound is not None
    federation = federation.decoded()

    def of_silo(silo: Silo, plan: SiloPlan) -> Silo:
        random = session.random(paid, seed, f"statistics {silo.name}")
        mean, deviation = noisy_moments(
            silo.train.x,
            bound,
            plan.public_count,
            plan.statistics_noise,
            random,
            silo.train.subject,
        )

        scaling = by_moments(mean, deviation)

        def scaled(records: Records) -> Records:
            return replace(records, x=scaling.apply(records.x))

        return replace(
            silo,
            train=scaled(silo.train),
            test=scaled(silo.test),
            preparation=replace(preparation_of(federation, silo), noisy=scaling),
        )

    silos = tuple(of_silo(*pair) for pair in zip(federation.silos, plans, strict=True))
    return replace(federation, silos=silos, feature_bound=None)
