"""Checks of messages: their noise, and what one record adds, through the real engine.

Both questions are looked at in every round: of moments and of gradients, noise is what an answer
has beyond what the records add by definition (see `asking`). What a record adds shows as the
difference of two answers with the same noise, to the last grain.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from silodp.auditing.asking import Question, asked_silo, units_of
from silodp.auditing.canary import joined
from silodp.auditing.checks import Check, exactly, judged
from silodp.auditing.low_bits import evenness_check
from silodp.auditing.noise_checks import MOST_PARAMETERS, unit_noise_checks
from silodp.auditing.sensitivity import made_up_units, some_units
from silodp.data.federation import Federation, Records
from silodp.engines.job import Job
from silodp.models.unit_vectors import UnitVectors, unit_vectors_of
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.mechanisms.message_queries import MessageSchedule
from silodp.privacy.mechanisms.moments import Shares
from silodp.privacy.plan import SiloPlan

# How a message of moments may be divided, be it usual or not.
_DIVIDED = Shares(0.5, 0.3, 0.2), Shares(0.02, 0.9, 0.08)
# Units of the silo's own in all worlds, and pairs of made-up ones that are added both.
_FEW, _PAIRS = 16, 6
# Trials of each round, and numbers that may be drawn for them all.
_SAMPLES, _FEWEST_TRIALS, _NUMBERS = 3000, 8, 1.5e7
_FINE = 2.0**-17  # deviations of noise, on which hardly two numbers agree
# Numbers that may be drawn to see what units add.
_ADDED = 2e7
# What rounding in the check itself may add.
_CLAIM_SLACK, _READING = 1e-9, 1e-6


def message_checks(
    job: Job,
    federation: Federation,
    plans: Sequence[SiloPlan],
    place: int,
    seeds: Sequence[int],
    stage: Callable[[str], None],
) -> tuple[Check, ...]:
    """The checks of the silo at that place, judged together; arguments as for `direct_checks`."""
    plan, vectors = plans[place], unit_vectors_of(federation)
    found = [replace(check_messages_claim(plan), kind="claim")]
    stage("checking the noise")
    for question in asked_questions(vectors):
        for check in check_message_noise(job, federation, vectors, plans, place, seeds, question):
            kind = check.kind or "noise"
            found.append(replace(check, name=f"{question}: {check.name}", kind=kind))
    stage("checking what a record adds")
    sums = check_message_sums(job, federation, vectors, place, plan, seeds)
    found += [replace(check, kind="sums") for check in sums]
    return judged(found)


def asked_questions(vectors: UnitVectors) -> tuple[str, ...]:
    """The questions that there are for such records."""
    of_two = ("gradient of log-odds",) if vectors.two_classes else ()
    return "moments", "gradient", *of_two


def check_messages_claim(plan: SiloPlan) -> Check:
    """Whether the messages of the plan by themselves cost no more than it claims.

    They are one Gaussian mechanism, whose delta is known in closed form (B. Balle, Y. Wang,
    Improving the Gaussian mechanism for differential privacy, 2018).
    """
    assert isinstance(plan.schedule, MessageSchedule)
    noises = [plan.message_noise(number) for number in range(plan.schedule.rounds)]
    apart = moved_by(plan.relation) * math.sqrt(math.fsum(1.0 / noise**2 for noise in noises))
    at = plan.epsilon / apart
    below = special.log_ndtr(-apart / 2 - at) + plan.epsilon
    delta = float(special.ndtr(apart / 2 - at) - np.exp(below))
    return exactly(
        "the plan's noise is enough for its epsilon",
        delta <= plan.delta * (1 + 1e-3) + _CLAIM_SLACK * plan.delta,
        f"delta is {delta:.4g} at epsilon {plan.epsilon:.4g}",
        f"at most {plan.delta:g}",
    )


def check_message_noise(
    job: Job,
    federation: Federation,
    vectors: UnitVectors,
    plans: Sequence[SiloPlan],
    place: int,
    seeds: Sequence[int],
    asked: str,
) -> list[Check]:
    """The noise of every round, if all of them ask this question; of other silos likewise."""
    size, outputs = shape_of(federation, vectors)
    question = Question(_DIVIDED[0])
    if asked != "moments":
        scale = None if asked == "gradient of log-odds" else 0.5
        question = Question(None, np.full((size, outputs), 0.1), scale)
    # At least one more silo, so that what silos must not share is seen: made up, if there is none.
    silos = [(federation.silos[place].train, plans[place])]
    silos += [
        (silo.train, plan)
        for number, (silo, plan) in enumerate(zip(federation.silos, plans, strict=True))
        if number != place and plan.private
    ]
    if len(silos) < 2:
        silos.append((silos[0][0], replace(plans[place], silo=f"a copy of {plans[place].silo}")))
    rounds = plans[place].schedule.rounds
    numbers = len(question.deviations(1.0, size, outputs))
    kept = np.unique(np.linspace(0, numbers - 1, MOST_PARAMETERS).astype(int))
    trials = int(
        np.clip(_NUMBERS / (numbers * rounds * (len(silos) + 1)), _FEWEST_TRIALS, _SAMPLES / rounds)
    )

    def noise_of(records: Records, plan: SiloPlan, question: Question) -> np.ndarray:
        """Noise [trials, rounds, 1, numbers], in deviations of what is planned."""
        few = some_units(records, _FEW)
        silo = asked_silo(plan.silo, few, vectors, plan, job.secret)
        known = question.added(units_of(few, vectors), vectors)
        read = np.empty((trials, rounds, 1, len(kept)))
        for number in range(rounds):
            planned = question.deviations(plan.message_noise(number), size, outputs)
            for trial in range(trials):
                answer = silo.answer(seeds[trial], number, question)
                read[trial, number, 0] = ((answer - known) / planned)[kept]
                if plan is plans[place]:
                    grains = question.grains(plan.message_noise(number), size, outputs)
                    cells.append((answer / grains)[kept])
        return read

    cells: list[np.ndarray] = []
    own, *others = (noise_of(records, plan, question) for records, plan in silos)
    low_bits = _low_bits(np.concatenate(cells)) if job.secret else ()
    company = {
        f"another silo ({plan.silo})": noise
        for (_, plan), noise in zip(silos[1:], others, strict=True)
    }
    company["another question"] = noise_of(*silos[0], question.slightly_changed())
    return [*unit_noise_checks(own, company, _FINE), *low_bits]


def _low_bits(cells: np.ndarray) -> list[Check]:
    off = float(np.max(np.abs(cells - np.rint(cells))))
    found = (
        exactly("released sums are whole grains", off == 0, f"up to {off:.2g} grains off", "0"),
        evenness_check(np.rint(cells), 2.0**29),
    )
    return [replace(check, kind="low bits") for check in found]


def shape_of(federation: Federation, vectors: UnitVectors) -> tuple[int, int]:
    """Numbers of a record's vector, and of its outputs."""
    return math.prod(federation.input_shape) + 1, max(1, vectors.classes)


def check_message_sums(
    job: Job,
    federation: Federation,
    vectors: UnitVectors,
    place: int,
    plan: SiloPlan,
    seeds: Sequence[int],
) -> list[Check]:
    """What made-up units add to messages of the silo at that place, in units of what is paid."""
    size, outputs = shape_of(federation, vectors)
    base = some_units(federation.silos[place].train, _FEW)
    extremes = made_up_units(federation, base)
    numbers = size * (size + 1) // 2
    few = int(np.clip(_ADDED / (4 * numbers), 4, len(extremes)))
    extremes = [extremes[n] for n in np.unique(np.linspace(0, len(extremes) - 1, few).astype(int))]
    pairs = [(n, len(extremes) - 1 - n) for n in range(min(_PAIRS, len(extremes) // 2))]
    worlds = [base, *(joined(base, unit) for unit in extremes)]
    worlds += [joined(joined(base, extremes[a]), extremes[b]) for a, b in pairs]
    questions = [Question(shares) for shares in _DIVIDED]
    models = _models(extremes, vectors, size, outputs)
    questions += [Question(None, *one) for one in models]
    if vectors.two_classes:
        questions += [Question(None, model, None) for model, _ in models]
    noise = plan.message_noise(0)
    most = together = 0.0
    slack = 0.0
    for question in questions:
        deviations = question.deviations(noise, size, outputs)
        answers = []
        for world in worlds:
            silo = asked_silo(plan.silo, world, vectors, plan, job.secret)
            answers.append(silo.answer(seeds[0], 0, question) / deviations * noise)
        added = np.array(answers[1 : 1 + len(extremes)]) - answers[0]
        most = max(most, float(np.linalg.norm(added, axis=1).max()))
        # Of rounding to grains, which is paid for.
        grain = float(question.grains(noise, size, outputs).max())
        slack = max(slack, grain * math.sqrt(2 * len(deviations)))
        for place_of_pair, (a, b) in enumerate(pairs):
            both = answers[1 + len(extremes) + place_of_pair] - answers[0]
            together = max(together, float(np.linalg.norm(both - added[a] - added[b])))
    return [
        exactly(
            "one record adds at most what is paid for",
            most <= 1 + slack + _READING,
            f"{most:.7g} of it (the most of {len(extremes)} made-up {plan.unit}s)",
            "at most 1",
        ),
        exactly(
            "what a record adds does not hang on others",
            together <= 4 * slack + _READING,
            f"two add {together:.2g} more or less than both",
            "0",
        ),
    ]


def _models(
    extremes: Sequence[Records], vectors: UnitVectors, size: int, outputs: int
) -> list[tuple[np.ndarray, float]]:
    """Models, and where to cut off residuals: no model, any, one that is wrong, and scales."""
    random = np.random.default_rng(0)
    any_model = random.normal(size=(size, outputs))
    unit = units_of(extremes[0], vectors)
    wrong = -100.0 * np.outer(unit.x[0], unit.y[0])
    return [
        (np.zeros((size, outputs)), 1e-3),
        (any_model, 0.5),
        (1e4 * any_model, 1.0),
        (wrong, 1.0),
        (wrong, 1e3),
    ]
