"""What a silo will be asked in a run, and the noise that makes it fit the silo's policy.

Sampler, clip, noise and privacy event all come out of one frozen `SiloPlan`, so that what a run
costs and what it does cannot drift apart.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from dp_accounting import ComposedDpEvent, DpEvent, get_sigma_gaussian
from dp_accounting.dp_event import SelfComposedDpEvent

from silodp.base.errors import SilodpError
from silodp.config.choices import Accountant, Relation, Sampling, SelectMechanism
from silodp.data.federation import ExpectedCounts
from silodp.data.problems import Fault
from silodp.models.model import MOST_SCORED
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.mechanisms.message_queries import MessageSchedule
from silodp.privacy.mechanisms.moments import message_event
from silodp.privacy.mechanisms.queries import PREPARATION, Schedule
from silodp.privacy.mechanisms.sampling import (
    OVERFLOW_SHARE,
    Draw,
    capacity_for,
    charged_rate,
    draw_of,
    overflow_chance,
)
from silodp.privacy.mechanisms.selection import selection_event
from silodp.privacy.mechanisms.statistics import gaussian_event
from silodp.privacy.mechanisms.training import training_event
from silodp.privacy.policy import Policy, check_delta
from silodp.privacy.tuning import Tuning, most_trials, score_event, tuned_event

# Of epsilon: scores then diverge less than training everywhere, and training gets the rest.
SCORE_SHARE = 0.9
NOT_PRIVATE = "no privacy was asked for"
UNPROVEN_SHUFFLE = (
    "sampling is 'shuffle' but is charged as if it were Poisson: no accountant here proves it"
)

# What checkpoints and the states of sites call the fields that have another name by now.
_STORED_NAMES = {
    "public_count": "records",
    "true_count": "held",
    "max_count": "most",
    "expected_batch": "batch",
    "batch_capacity": "slots",
}


@dataclass(frozen=True)
class TrainingSettings:
    """How silos train; the same for all, and public.

    Attributes:
      batch_size: expected records in a step.
      clip: largest norm of a record's gradient.
      epochs: steps of a pass, counted in passes over the records.
      sampling: "poisson" (proven), or "shuffle" as in the authors' code.
      small_silos: what to do with a silo that has fewer records than a batch: "refuse", or
        "full-batch" (each step takes all its records).
    """

    batch_size: int
    clip: float
    epochs: int = 1
    sampling: Sampling = "poisson"
    small_silos: str = "refuse"

    def __post_init__(self):
        for field in ("batch_size", "epochs"):
            value = getattr(self, field)
            if value < 1:
                raise SilodpError(f"{field} is {value}: give a whole number of at least 1.")
        if not self.clip > 0:
            raise SilodpError(f"clip is {self.clip}: give a number above 0.")


@dataclass(frozen=True)
class SideQueries:
    """What silos are asked besides training. Shares are of each silo's own epsilon.

    Attributes:
      select_share: what one selection takes, if the method asks for any.
      select_mechanism: how it is made.
      statistics_share: for the mean and variance that features are standardised with; 0: none.
      metric_share: for all releases of the test metric together; 0: none.
      evaluated: rounds after which the metric is released.
    """

    select_share: float = 0.03
    select_mechanism: SelectMechanism = "exponential"
    statistics_share: float = 0.0
    metric_share: float = 0.0
    evaluated: tuple[int, ...] = ()


@dataclass(frozen=True)
class SiloPlan:
    """One silo's part in one run.

    Attributes:
      silo: its name.
      unit: what epsilon protects and counts are of: a "record" or a "subject".
      relation: which silos are neighbours.
      public_count: n_k as far as it is public; batch, steps and rate follow from it.
      true_count: how many are really there (of a run of several seeds, where most are). Secret: all
        that it sets is how large arrays are.
      max_count: how many may be there, which is public.
      expected_batch: b_k, and what noisy sums are divided by.
      clip: largest norm of what one record (or subject) adds to a sum.
      epochs: epochs of one training pass.
      steps: steps of one training pass.
      schedule: what the method asks.
      side: the queries besides those of the method.
      draw: how batches are drawn.
      batch_capacity: slots that a drawn batch needs.
      sampling_rate: the rate that the accountant charges for.
      noise_multiplier: noise on the clipped sum, in units of the clip; 0 without privacy.
      select_epsilon: epsilon of one selection; 0 if the method makes none.
      statistics_noise: noise multiplier of the mean and variance; 0 if none, or not private.
      metric_noise: noise multiplier of one release of the test metric; likewise.
      tuning: what is tried besides, if hyperparameters are tuned.
      score_noise: noise multiplier of one trial's score; 0 if its records are public.
      most_trials: more are not made; that they would be is part of `overflow`.
      epsilon: spent, never above the policy; infinite without privacy.
      delta: delta of the policy.
      overflow: the chance that any draw of the run does not fit (its slots, or `most_trials`).
      accountant: the accountant that proves epsilon.
      unproven: reasons why epsilon is not proven for what a release does; empty if it is.
      release: whether noise is secret and exact (see `lattice`). If not, the run is an experiment:
        it shows what a release would be worth, and protects nobody.
    """

    silo: str
    unit: str
    relation: Relation
    public_count: int
    true_count: int
    max_count: int
    expected_batch: int
    clip: float
    epochs: int
    steps: int
    schedule: Schedule
    side: SideQueries
    draw: Draw
    batch_capacity: int
    sampling_rate: float
    noise_multiplier: float
    select_epsilon: float
    statistics_noise: float
    metric_noise: float
    epsilon: float
    delta: float
    overflow: float
    accountant: str
    unproven: tuple[str, ...] = ()
    release: bool = False
    tuning: Tuning | None = None
    score_noise: float = 0.0
    most_trials: int = 0

    @property
    def private(self) -> bool:
        """Whether the run is private for this silo."""
        return math.isfinite(self.epsilon)

    @property
    def delta_for_queries(self) -> float:
        """What is left of delta once draws that do not fit are paid for."""
        cut = self.draw == "gaps" or self.tuning is not None
        return self.delta * (1 - OVERFLOW_SHARE if cut else 1)

    @property
    def total_steps(self) -> int:
        """Steps of all training passes of the run; of a method of messages, these."""
        return self.steps * self.schedule.train * self.schedule.rounds

    @property
    def event(self) -> DpEvent:
        """All that the run asks of the silo."""
        return self.event_of(PREPARATION, self.schedule.rounds + 1)

    def stored_text(self) -> str:
        """All fields, under the names that stored fingerprints know."""
        values = ((_STORED_NAMES.get(f.name, f.name), getattr(self, f.name)) for f in fields(self))
        return f"SiloPlan({', '.join(f'{name}={value!r}' for name, value in values)})"

    def statement(self) -> dict[str, Any]:
        """What is promised to the silo, in plain values: as results, plans and ledgers show it."""
        return {
            "silo": self.silo,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "relation": self.relation,
            "noise_multiplier": self.noise_multiplier,
            "sampling_rate": self.sampling_rate,
            "steps": self.total_steps,
            "accountant": self.accountant,
            "experiment": self.private and not self.release,
            "proven": self.private and self.release and not self.unproven,
            "unproven": list(self.unproven) if self.private else [NOT_PRIVATE],
        }

    def event_of(self, first: int, last: int) -> DpEvent:
        """The event of rounds first..last (the last one not included)."""
        return ComposedDpEvent(list(self.queries(first, last).values()))

    def queries(self, first: int = PREPARATION, last: int | None = None) -> dict[str, DpEvent]:
        """By name, what each kind of query costs over rounds first..last (by default, all).

        Statistics belong to the preparation. A metric belongs to the round after those that it
        evaluates: of the whole run, to the final evaluation. What is tuned has a price from the
        first round on, and none by the block.
        """
        rounds = self.schedule.rounds
        last = rounds + 1 if last is None else last
        trained = max(first, 0), min(last, rounds)
        events = self._of_method(*trained, self.noise_multiplier)
        if self.tuning is not None:
            if first > 0:
                raise ValueError("A tuned run has no price by the block.")
            pivot = self._of_method(*trained, self.tuning.pivot_noise * self.noise_multiplier)
            # Trials are scored at the end.
            score = self.score_noise if last > rounds else 0.0
            events = {
                "tuning": tuned_event(self.tuning, [*pivot.values()], [*events.values()], score)
            }
        if self.side.statistics_share and first <= PREPARATION < last:
            events["statistics"] = gaussian_event(self.statistics_noise, 1)
        if evaluations := sum(first <= at < last for at in self.side.evaluated):
            events["metric"] = gaussian_event(self.metric_noise, evaluations)
        return events

    def message_noise(self, number: int) -> float:
        """Noise multiplier of the message of that round."""
        assert isinstance(self.schedule, MessageSchedule), "a method of training passes"
        return self.schedule.noise_of(number, self.noise_multiplier)

    def _of_method(self, first: int, last: int, noise_multiplier: float) -> dict[str, DpEvent]:
        """The events of one run of the method over these rounds, by kind of query."""
        if isinstance(self.schedule, MessageSchedule):
            noises = [self.schedule.noise_of(n, noise_multiplier) for n in range(first, last)]
            together = ComposedDpEvent([message_event(noise) for noise in noises])
            return {"messages": together} if noises else {}
        steps = self.steps * self.schedule.train * max(0, last - first)
        events: dict[str, DpEvent] = {}
        if steps:
            events["training"] = training_event(noise_multiplier, self.sampling_rate, steps)
        if (selections := min(last, self.schedule.select_rounds) - first) > 0:
            one = selection_event(self.select_epsilon, self.side.select_mechanism)
            events["selection"] = SelfComposedDpEvent(one, selections)
        return events


def make_plans(
    silos: Sequence[str],
    true_counts: Sequence[int],
    policies: Sequence[Policy],
    schedule: Schedule,
    settings: TrainingSettings,
    accountant: Accountant = "best",
    *,
    expected: Sequence[ExpectedCounts | None] | None = None,
    side: SideQueries | None = None,
    tuning: Tuning | None = None,
    heavy: bool = False,
    unproven: tuple[str, ...] = (),
    release: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[SiloPlan, ...]:
    """The plan of each silo: the method's schedule, with noise calibrated to the silo's policy.

    Args:
      silos: names of the silos.
      true_counts: how many records (or subjects) each has.
      policies: the policy of each.
      schedule: what the method asks of every silo.
      settings: how silos train.
      accountant: "best", "pld" or "rdp".
      expected: what is public of each count where it is a secret; None: the count itself.
      side: the queries besides those of the method.
      tuning: what is tried, if hyperparameters are tuned.
      heavy: whether the model is heavy (see `Model.heavy`).
      unproven: further reasons why epsilon is not proven, such as preprocessing by statistics.
      release: whether the run is a release, and no experiment.
      progress: called with (done, total) while noise is calibrated.
    """
    if settings.sampling == "shuffle":
        unproven = (UNPROVEN_SHUFFLE, *unproven)
    side = side or SideQueries()
    expected_counts = [
        ExpectedCounts(int(n), 1, int(n)) if own is None else own
        for n, own in zip(true_counts, expected or [None] * len(true_counts), strict=True)
    ]
    drafts = [
        _draft(silo, int(n), own, policy, schedule, settings, side, tuning, heavy, unproven)
        for silo, n, own, policy in zip(silos, true_counts, expected_counts, policies, strict=True)
    ]
    if tuning is not None and tuning.score == "noisy":
        drafts = _with_score_noise(drafts, tuning, accountant)
    requests = [
        CalibrationRequest(
            partial(_event_with, draft),
            policy.epsilon,
            draft.delta_for_queries,
            label=f"Silo {draft.silo!r}",
            relation=policy.relation,
        )
        for draft, policy in zip(drafts, policies, strict=True)
    ]
    calibrations = calibrate_many(requests, accountant, progress=progress)
    return tuple(
        replace(
            draft,
            noise_multiplier=c.noise_multiplier,
            epsilon=c.epsilon,
            accountant=c.accountant,
            release=release,
        )
        for draft, c in zip(drafts, calibrations, strict=True)
    )


def _with_score_noise(
    drafts: Sequence[SiloPlan], tuning: Tuning, accountant: Accountant
) -> list[SiloPlan]:
    """The drafts with noise on scores that takes nearly all of epsilon.

    The records that scores come from are not trained on, so that no other query is about them.
    """
    requests = [
        CalibrationRequest(
            partial(score_event, tuning),
            SCORE_SHARE * draft.epsilon,
            draft.delta_for_queries,
            label=f"Silo {draft.silo!r}",
            relation=draft.relation,
        )
        for draft in drafts
    ]
    found = calibrate_many(requests, accountant)
    return [
        replace(draft, score_noise=c.noise_multiplier)
        for draft, c in zip(drafts, found, strict=True)
    ]


def _event_with(draft: SiloPlan, noise_multiplier: float) -> DpEvent:
    return replace(draft, noise_multiplier=noise_multiplier).event


def _draft(
    silo: str,
    true_count: int,
    expected: ExpectedCounts,
    policy: Policy,
    schedule: Schedule,
    settings: TrainingSettings,
    side: SideQueries,
    tuning: Tuning | None,
    heavy: bool,
    unproven: tuple[str, ...],
) -> SiloPlan:
    """A plan whose training noise is yet to be calibrated."""
    n = policy.counted(expected.train)
    max_count = policy.max_count or expected.max_count
    check_delta(silo, policy, n)
    if true_count > max_count:
        raise SilodpError(
            f"Silo {silo!r}: its policy gives records = {n} as a stand-in for their number, which "
            "is less than half of it: give a number nearer to it."
        )
    if n < 1:
        raise SilodpError(
            f"Silo {silo!r} has no training {policy.unit}s: leave it out, or give it some."
        )
    if schedule.select_rounds and max_count > MOST_SCORED:
        raise SilodpError(
            f"Silo {silo!r} may have {max_count} {policy.unit}s, more than the {MOST_SCORED} over "
            "which a selection's score can be summed: use a method without selection."
        )
    if tuning is not None and max_count > MOST_SCORED:
        raise SilodpError(
            f"Silo {silo!r} may have {max_count} {policy.unit}s, more than the {MOST_SCORED} over "
            "which a trial's score can be summed: tune on a part of them (--density)."
        )
    in_messages = isinstance(schedule, MessageSchedule)
    if not in_messages and n < settings.batch_size and settings.small_silos == "refuse":
        raise Fault(
            f"Silo {silo!r}",
            f"has {n} training {policy.unit}s, fewer than the batch size {settings.batch_size}",
            f"give --batch-size {n} or less, or --small-silos full-batch",
            silo=silo,
            rows=n,
        )
    # A message is of all records.
    expected_batch = n if in_messages else min(n, settings.batch_size)
    steps = 1 if in_messages else settings.epochs * (n // expected_batch)
    total = steps * schedule.train * schedule.rounds
    if tuning is not None:
        # In expectation over a random number of trials; and that number is one draw more.
        total = total * math.ceil(1 + tuning.trials.mean) + 1
    # Where the count is not public, slots sized by it could overflow: every record has its place.
    draw = "every"
    if policy.count_is_public and not in_messages:
        draw = draw_of(settings.sampling, n, expected_batch, heavy)
    # A ledger sets aside for it by the lifetime's epsilon, so slots are sized for that.
    chance = overflow_chance(max(policy.epsilon, policy.lifetime[0]), policy.delta, total)
    overflow = 0.0 if tuning is None else chance
    if draw == "gaps":
        batch_capacity = capacity_for(n, expected_batch, chance, max_count)
        overflow = chance * total
    else:
        # At least one: a program has no place for none, and one that is empty is never drawn.
        batch_capacity = max(1, true_count) if draw == "every" else expected_batch
    draft = SiloPlan(
        silo=silo,
        unit=policy.unit,
        relation=policy.relation,
        public_count=n,
        true_count=true_count,
        max_count=max_count,
        expected_batch=expected_batch,
        clip=settings.clip,
        epochs=settings.epochs,
        steps=steps,
        schedule=schedule,
        side=side,
        draw=draw,
        batch_capacity=batch_capacity,
        sampling_rate=charged_rate(draw, n, expected_batch),
        noise_multiplier=math.nan,
        select_epsilon=side.select_share * policy.epsilon if schedule.select_rounds else 0.0,
        statistics_noise=0.0,
        metric_noise=0.0,
        epsilon=policy.epsilon,
        delta=policy.delta,
        overflow=overflow,
        accountant="",
        unproven=unproven,
        tuning=tuning,
        most_trials=0 if tuning is None else most_trials(silo, tuning, chance),
    )
    return replace(
        draft,
        statistics_noise=_gaussian_noise(draft, side.statistics_share, 1),
        metric_noise=_gaussian_noise(draft, side.metric_share, len(side.evaluated)),
    )


def _gaussian_noise(draft: SiloPlan, share: float, times: int) -> float:
    """Noise with which so many Gaussian releases by themselves cost this share of epsilon."""
    if not share or not times or math.isinf(draft.epsilon):
        return 0.0
    alone = get_sigma_gaussian(share * draft.epsilon, draft.delta_for_queries)
    return alone * math.sqrt(times) * moved_by(draft.relation)
