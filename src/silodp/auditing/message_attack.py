"""Attacks on messages: a whole run with the canary and without, all answers seen.

The adversary knows everything but whether the canary is there. It may ask the questions of its
choice, as a dishonest coordinator could, or let the method ask:

- steady: moments first; then gradients at a model that is as wrong for the canary as can be, so
  that its residual is as long as it may be. Where it may be its opposite: without a model, so that
  the residuals of both are, and point in opposite directions.
- turning: in every other message at a model at which it is turned round, or both are alike. Noise
  that is used twice then cancels out, and the canary does not.
- as asked: what the method asks, each model following from what was released before.

What each message says is measured along what the canary adds to it, in deviations of the noise
that is planned. The likelihood ratio of all messages together is then the strongest test there is.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from silodp.auditing.asking import AskedSilo, Question, Units, numbers_of, units_of
from silodp.auditing.canary import Worlds, joined
from silodp.auditing.many_canaries import Guessed
from silodp.base import signals as interrupts
from silodp.data.federation import Federation, Records, Silo
from silodp.data.tasks import get_task
from silodp.engines.job import Job
from silodp.engines.messages import stacked
from silodp.methods.base import Start
from silodp.models.unit_vectors import UnitVectors, unit_vectors_of
from silodp.privacy.mechanisms.message_queries import MessageQueries
from silodp.privacy.mechanisms.moments import Shares
from silodp.privacy.plan import SiloPlan

STRATEGIES = ("steady", "turning", "as asked")

# Of features without a bound: far beyond what a record's vector may be long.
_LONG = 1e3
# How wrong the model is for the canary, and where residuals are cut off.
_WRONG, _CUT = 30.0, 0.5
_DIVIDED = Shares(0.5, 0.4, 0.1)
# Canaries of one run, and runs.
_CANARIES, _FEWEST_RUNS, _MOST_RUNS = 32, 100, 2000
_SECONDS = 6.0
# Stands for what is not finite.
_HUGE = 1e300

Scores = dict[str, np.ndarray]


def make_message_worlds(
    federation: Federation, place: int, plan: SiloPlan, norm: float | None
) -> Worlds:
    """The canary takes the place of the silo's last unit: as long as a vector may be, and a label
    at the end of its range. It is then left out, or exchanged for one of the opposite label.
    """
    silo = federation.silos[place]
    last = plan.true_count - 1
    unit_of = np.arange(len(silo.train)) if silo.train.subject is None else silo.train.subject
    others = silo.train.take(np.flatnonzero(unit_of != last))
    times = 1 if silo.train.subject is None else int(np.bincount(silo.train.subject).max())
    signs = np.where(np.indices(federation.input_shape).sum(axis=0) % 2, -1.0, 1.0)
    x = (federation.feature_bound or _LONG) * signs
    if norm is not None:
        x *= norm / np.linalg.norm(x)
    labels = get_task(federation.task).extreme_labels(federation.num_classes)

    def unit(label: Any) -> Records:
        subject = None if others.subject is None else np.zeros(times, np.int32)
        y = np.broadcast_to(np.asarray(label, others.y.dtype), (times, *others.y.shape[1:])).copy()
        return Records(np.repeat(x[None], times, 0).astype(np.float32), y, subject)

    def world(train: Records) -> Federation:
        changed = replace(silo, train=train)
        silos = (*federation.silos[:place], changed, *federation.silos[place + 1 :])
        return replace(federation, silos=silos)

    canary = unit(labels[0])
    present = world(joined(others, canary))
    if plan.relation == "replace-one":
        absent, absent_plan = world(joined(others, unit(labels[-1]))), plan
    else:  # nothing that is public changes
        absent, absent_plan = world(others), replace(plan, true_count=last)
    return Worlds(present, absent, plan, absent_plan, canary, others, None)


class _Known(NamedTuple):
    """What the adversary knows: records of all silos, and of the audited one in both worlds."""

    vectors: UnitVectors
    silos: list[Units]  # without what differs
    present: Units
    absent: Units


def attack_messages(
    job: Job,
    worlds: Worlds,
    plans: Sequence[SiloPlan],
    place: int,
    trials: int,
    first_seed: int,
    progress: Callable[[int], None],
) -> tuple[Scores, Scores]:
    """By name, each statistic of the trials with the canary, and of those without.

    Args:
      job: what is audited.
      worlds: the two worlds.
      plans: the plan of each silo.
      place: the audited silo's place.
      trials: in each world.
      first_seed: of the first; no seed is used twice: the worlds must not share their noise.
      progress: called with the number of trials that are done.
    """
    vectors = unit_vectors_of(worlds.present)
    known = _Known(
        vectors,
        [units_of(silo.train, vectors) for silo in worlds.present.silos],
        units_of(worlds.canary, vectors),
        _absent_unit(worlds, place, vectors),
    )
    known.silos[place] = units_of(worlds.others, vectors)
    names = worlds.present.names
    found = []
    for number, (world, own) in enumerate(
        ((worlds.present, worlds.present_plan), (worlds.absent, worlds.absent_plan))
    ):
        changed = (*plans[:place], own, *plans[place + 1 :])
        silos = [
            AskedSilo(silo, vectors, plan, job.secret)
            for silo, plan in zip(world.silos, changed, strict=True)
        ]
        run = _Run(job, silos, known, place)
        scores: dict[str, list[float]] = {}
        for trial in range(trials):
            seed = first_seed + number * trials + trial
            for strategy in STRATEGIES:
                for name, value in run.statistics(strategy, seed, names).items():
                    scores.setdefault(f"{strategy}: {name}", []).append(value)
            progress(number * trials + trial + 1)
            if interrupts.requested():
                raise KeyboardInterrupt
        found.append({name: _finite(np.array(values)) for name, values in scores.items()})
    present, absent = found
    return present, absent


def _absent_unit(worlds: Worlds, place: int, vectors: UnitVectors) -> Units:
    """What stands in the canary's place in the other world: its opposite, or nobody."""
    train = worlds.absent.silos[place].train
    return units_of(train.take(np.arange(len(worlds.others), len(train))), vectors)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, _HUGE)


class _Run:
    """Runs of one world, of which the adversary sees all answers."""

    def __init__(self, job: Job, silos: Sequence[AskedSilo], known: _Known, place: int):
        self._silos, self._known, self._place = silos, known, place
        self._method, self._weights = job.build({}), np.asarray(job.weights)
        params = jax.eval_shape(job.model.init, jax.random.key(0))
        start = Start(params, jnp.zeros(2, jnp.uint32), 0, len(silos))
        self._first = self._method.init(start)
        self._size = known.present.x.shape[1]
        self._outputs = known.present.y.shape[1]
        self._asked: dict[str, list[tuple[Question, list[_Expected]]]] = {}

    def statistics(self, strategy: str, seed: int, names: Sequence[str]) -> dict[str, float]:
        """What one run shows."""
        if strategy == "as asked":
            readings = self._as_asked(seed)
        else:
            readings = [
                [
                    of_silo.read(silo.answer(seed, number, question))
                    for silo, of_silo in zip(self._silos, expected, strict=True)
                ]
                for number, (question, expected) in enumerate(self._questions(strategy))
            ]
        own = np.array([of_round[self._place].along for of_round in readings])
        found = {
            "likelihood ratio": sum(of_round[self._place].ratio for of_round in readings),
            "sum over messages": float(own.sum()),
            "largest message": float(own.max()),
            "sum of squares": float(own @ own),
        }
        if len(own) > 2:
            steps = np.abs(np.diff(own[1:]))
            found["largest change from message to message"] = float(steps.max())
        for other, name in enumerate(names):
            if other != self._place:
                apart = own - np.array([of_round[other].along for of_round in readings])
                found[f"sum of differences to {name}"] = float(apart.sum())
                found[f"least difference to {name}"] = float(np.abs(apart).min())
        return found

    def _questions(self, strategy: str) -> list[tuple[Question, list["_Expected"]]]:
        """What is asked in each round, and what each silo's answer should be."""
        if strategy not in self._asked:
            canary, rounds = self._known.present, self._silos[0].plan.schedule.rounds
            wrong = _wrong_model(canary, self._known.vectors.classes > 0)
            models = (wrong, -wrong) if not len(self._known.absent.x) else (0.0 * wrong, wrong)
            questions = [Question(_DIVIDED)]
            for number in range(1, rounds):
                turned = strategy == "turning" and number % 2 == 0
                questions.append(Question(None, models[turned], _CUT))
            self._asked[strategy] = [
                (
                    question,
                    [self._expected(question, number, n) for n in range(len(self._silos))],
                )
                for number, question in enumerate(questions)
            ]
        return self._asked[strategy]

    def _expected(self, question: Question, number: int, place: int) -> "_Expected":
        known, silo = self._known, self._silos[place]
        with_it = question.added(known.present, known.vectors)
        without = question.added(known.absent, known.vectors)
        return _Expected(
            question.added(known.silos[place], known.vectors),
            with_it,
            without,
            # Where both worlds are alike: along the canary, so that noise can be compared.
            with_it - without if np.any(with_it != without) else with_it,
            question.deviations(silo.plan.message_noise(number), self._size, self._outputs),
        )

    def _as_asked(self, seed: int) -> list[list["_Reading"]]:
        """A run of the method itself."""
        method, (server, first) = self._method, self._first
        states = [first] * len(self._silos)
        readings, rounds = [], self._silos[0].plan.schedule.rounds
        for number in range(rounds):
            broadcast, messages, of_round = method.broadcast(server), [], []
            for place, silo in enumerate(self._silos):
                heard = _Heard()

                def use(queries: MessageQueries, heard=heard, place=place, broadcast=broadcast):
                    return method.local(states[place], broadcast, heard.listening(queries))

                states[place], message = silo.with_queries(seed, number, use)
                messages.append(message)
                expected = self._expected(heard.question, number, place)
                of_round.append(expected.read(heard.answer))
            readings.append(of_round)
            if number + 1 < rounds:  # nothing is asked after the last
                weights: Any = self._weights
                server = method.merge(server, stacked(messages), weights)
        return readings


class _Reading(NamedTuple):
    """What an answer says of the canary.

    Attributes:
      along: along what it adds, in deviations of the noise.
      ratio: the log-likelihood ratio of both worlds.
    """

    along: float
    ratio: float


class _Expected(NamedTuple):
    """What an answer should be, but for noise: of others, of what differs, and how to read it."""

    others: np.ndarray
    present: np.ndarray
    absent: np.ndarray
    apart: np.ndarray
    deviations: np.ndarray

    def read(self, answer: np.ndarray) -> _Reading:
        """What this answer says."""
        with np.errstate(all="ignore"):
            rest = (answer - self.others) / self.deviations
            along = self.apart / self.deviations
            length = float(np.linalg.norm(along))
            middle = (self.present + self.absent) / 2 / self.deviations
            differs = (self.present - self.absent) / self.deviations
            return _Reading(
                float(rest @ along) / length if length else 0.0, float((rest - middle) @ differs)
            )


class _Heard:
    """Queries whose question and answer are kept."""

    def __init__(self):
        self.question = Question(None)
        self.answer = np.zeros(0)

    def listening(self, queries: MessageQueries) -> MessageQueries:
        """The queries, listened to."""

        def moments(shares: Shares):
            found = queries.moments(shares)
            self.question, self.answer = Question(shares), numbers_of(found)
            return found

        def gradient(model: np.ndarray, scale: float):
            found = queries.gradient(model, scale)
            self.question, self.answer = Question(None, model, float(scale)), found[0].ravel()
            return found

        def odds_gradient(model: np.ndarray):
            found = queries.odds_gradient(model)
            self.question, self.answer = Question(None, model, None), found[0].ravel()
            return found

        return queries._replace(moments=moments, gradient=gradient, odds_gradient=odds_gradient)


def _wrong_model(canary: Units, classes: bool) -> np.ndarray:
    """A model that is as wrong for the canary as can be."""
    x, y = canary.x[0], canary.y[0]
    length = float(x @ x)
    if classes:
        return np.outer(_WRONG * x / length, np.roll(y, 1) - y)
    return np.outer(-_WRONG * x / length, y)


def guess_message_canaries(job: Job, plan: SiloPlan, seeds: range, most_runs: int) -> Guessed:
    """Runs with many canaries, each along an axis of its own, whose coins are drawn anew in each.

    Moments, then gradients without a model, so that every canary's residual is as long as it may
    be. The score of a canary is its likelihood ratio by the numbers of its axis.
    """
    canaries = min(plan.true_count, _CANARIES)
    vectors = UnitVectors(1.0, 0.0, 1.0)
    replaced = plan.relation == "replace-one"
    x = _LONG * np.eye(canaries)
    rounds = plan.schedule.rounds
    questions = [Question(_DIVIDED)]
    questions += [Question(None, np.zeros((canaries + 1, 1)), _CUT)] * (rounds - 1)
    gram = np.arange(canaries)
    cross = (canaries + 1) * (canaries + 2) // 2 + gram
    places = [np.concatenate([gram, cross]), *[gram] * (rounds - 1)]
    deviations = [
        question.deviations(plan.message_noise(number), canaries + 1, 1)
        for number, question in enumerate(questions)
    ]
    # Each adds 1 to these numbers, or -1 where labels and residuals are turned.
    turned = -1.0 if replaced else 0.0
    opposite = [
        np.concatenate([np.full(canaries, 1.0 if replaced else 0.0), np.full(canaries, turned)]),
        *[np.full(canaries, turned)] * (rounds - 1),
    ]
    coins = np.random.default_rng(seeds[0])
    scores, inside = [], []
    started = time.perf_counter()
    for run in range(min(_MOST_RUNS, most_runs)):
        if run >= _FEWEST_RUNS and time.perf_counter() - started > _SECONDS:
            break
        own = coins.random(canaries) < 0.5
        y = np.where(own, 1.0, -1.0)
        kept = np.full(canaries, True) if replaced else own
        records = Records(x[kept], y[kept])
        silo = AskedSilo(
            Silo(plan.silo, records, records.take(np.arange(0))),
            vectors,
            replace(plan, true_count=len(records), max_count=max(plan.max_count, canaries)),
            job.secret,
        )
        score = np.zeros(canaries)
        for number, question in enumerate(questions):
            part, other = places[number], opposite[number]
            noise = deviations[number][part]
            answer = silo.answer(seeds[run], number, question)[part]
            ratio = (answer - (1.0 + other) / 2) * (1.0 - other) / noise**2
            score += ratio.reshape(-1, canaries).sum(axis=0)
        scores.append(score)
        inside.append(own)
    return Guessed(np.nan_to_num(np.array(scores), nan=1e9), np.array(inside))
