"""What a budget buys in few messages: predicted from public numbers alone, before a run.

    advice = silodp.advise_messages(records=[40, 80, 400], parameters=7, epsilon=1, delta=1e-4)
    print(advice.sentences[0])

Predicted is which part of what a linear model of the features could tell the models of `fewround`
will have: 0 is the constant prediction, 1 the best model of each silo. It follows from how many
silos and records there are, how many features, and the budgets, but for what nobody knows
beforehand. So it is a range, between two assumptions (docs/fewround.md):

    alike     silos do not differ; features go together (axes vary as 1, 1/2, 1/3...), and fill
              their bounds
    differing half of what features tell differs between silos; features have nothing to do with
              each other, and any value within their bounds is as likely
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Unpack

import numpy as np
from dp_accounting import get_sigma_gaussian

from silodp.advice.advise import NOT_ADVISED
from silodp.advice.advised_silos import (
    Advised,
    check_count,
    named_counts,
    silos_of_counts,
    silos_of_data,
)
from silodp.base.errors import SilodpError
from silodp.base.notebook_progress import usual_reporter
from silodp.base.progress import Reporter
from silodp.base.text import count
from silodp.base.values import plain
from silodp.config.declared import LARGEST
from silodp.config.run_arguments import RunArguments
from silodp.data.federation import Federation
from silodp.data.tasks import get_task
from silodp.methods.fewround.constants import CONSTANTS, MESSAGE_SHARES
from silodp.methods.fewround.expected import Truth, after_messages
from silodp.models.unit_vectors import UnitVectors, unit_vectors_of
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.policy import Policy, check_delta, concerns
from silodp.runs.prepare import Data
from silodp.runs.requests import requests_of

METHOD, USUAL_MESSAGES = "fewround", 3
TIMES = (0.25, 0.5, 1.0, 2.0, 4.0)  # budgets that are predicted, as multiples of each silo's own
# Of labels from -1 to 1: their variance, that of their mean, and the part that features tell.
_VARIANCE, _OF_MEAN, _TOLD = 0.12, 0.1, 0.5
_OF_TWO_CLASSES = 0.9  # that variance where labels are -1 and 1
_DIFFERING = 0.5  # the part of what features tell that differs between silos, if they differ a lot
_UNIFORM = 1 / 3  # mean square of a number that may be anything from -1 to 1
NOTES = (
    "a range, from silos that differ a lot (half of what features tell), with features that have "
    "nothing to do with each other and fill their bounds evenly, to silos that are alike, with "
    "features that go together and lie at their bounds",
    "assumed besides: features tell half of what labels vary by, and labels vary by "
    f"{100 * math.sqrt(_VARIANCE) / 2:.0f} % of their range; with features that use little of "
    "their bounds, and with few silos, it is less",
)


class Range(NamedTuple):
    """Ends of what is predicted: parts of what features could tell, from 0 to 1."""

    low: float
    high: float


@dataclass(frozen=True)
class MessageAdvice:
    """What budgets buy in few messages.

    Attributes:
      data: name of the data; None where only record counts were given.
      features: how many there are.
      messages: of each silo.
      silos: [{"silo", "records", "epsilon", "delta", "low", "high"}]: at the silo's own budget.
      overall: [{"messages", "times", "epsilon", "low", "high"}]: means over silos, by records, for
        each number of messages and multiple of all budgets; `epsilon` is the largest then.
      sentences: the answer in words.
      warnings: sentences on what is allowed but unwise.

    Examples:
      >>> advice = silodp.advise_messages(records=[90] * 100, parameters=7, epsilon=1, delta=1e-4)
      >>> advice.at(3).low > advice.at(1).low, advice.at(3).high > 0.8
      (True, True)
    """

    data: str | None
    features: int
    messages: int
    silos: list[dict[str, Any]]
    overall: list[dict[str, Any]]
    sentences: list[str]
    warnings: list[str]

    def at(self, messages: int, times: float = 1.0) -> Range:
        """The mean over silos for so many messages, at so many times the budget."""
        for row in self.overall:
            if row["messages"] == messages and row["times"] == times:
                return Range(row["low"], row["high"])
        raise KeyError(messages, times)

    def as_json(self) -> dict[str, Any]:
        """The content of `advice.json`."""
        return plain(asdict(self) | {"notes": list(NOTES)})


def advise_messages(
    *,
    records: str | Sequence[int] | Mapping[str, int] | None = None,
    federation: Data | None = None,
    sigma: float | None = None,
    tau: float | None = None,
    parameters: int | None = None,
    reporter: Reporter | None = None,
    **options: Unpack[RunArguments],
) -> MessageAdvice:
    """Predicts what budgets buy in few messages. Trains nothing, and looks at no record.

    Args:
      records: record counts of the silos, in place of data: "120,80", "north=120,south=80", a list
        or a dictionary.
      federation: records of the caller's own, in place of `data`; only their number is used.
      sigma: guessed standard deviation of labels within a silo, in units of the label as a run
        takes it (a declared range is 1); else 17 % of the range.
      tau: guessed standard deviation of silos: its square is what one model for all loses. It
        narrows the range.
      parameters: weights of a model: features and a constant; needed for bare record counts.
      reporter: hears about progress.
      **options: options of `RunRequest`: data, its options, budgets, messages.

    Examples:
      >>> advice = silodp.advise_messages(records=[50, 200], parameters=4, epsilon=1, delta=1e-4)
      >>> [silo["low"] <= silo["high"] for silo in advice.silos]
      [True, True]
    """
    if (method := options.get("method", METHOD)) != METHOD:
        raise SilodpError(
            f"--method is {method}: what a budget buys in messages is predicted for {METHOD} alone."
        )
    given: dict[str, Any] = {"messages": USUAL_MESSAGES, **options, "method": METHOD}
    for name, value in (("--sigma", sigma), ("--tau", tau)):
        if value is not None and not 0 <= float(value) < LARGEST:
            raise SilodpError(f"{name} is {value!r}: give a number from 0 to below {LARGEST:g}.")
    requests = requests_of(given, uses=NOT_ADVISED, own_data=federation is not None)
    if len(requests) > 1:
        raise SilodpError("Advice is for one setting: give one number in place of a list.")
    request = requests[0]
    if request.messages not in MESSAGE_SHARES:
        raise SilodpError(f"--messages is {request.messages}: give 1, 2, 3 or 5.")
    if sum((records is not None, federation is not None, "data" in options)) != 1:
        raise SilodpError(
            "Advice is for given silos: give either --data NAME, or --records with each silo's "
            "record count (120,80,400)."
        )
    if parameters is not None:
        check_count("--parameters", parameters)
    if records is None:
        advised = silos_of_data(request, federation, parameters, reporter or usual_reporter())
    elif parameters is None or parameters < 2:
        raise SilodpError(
            "--parameters is missing or below 2: beside --records, say how many weights a model "
            "has, those of its features and a constant."
        )
    else:
        advised = silos_of_counts(request, named_counts(records), parameters)
    for name, policy, n in zip(advised.names, advised.policies, advised.records, strict=True):
        check_delta(name, policy, n)
    return _advice(advised, request.messages, _ends(advised, sigma, tau))


def _ends(advised: Advised, sigma: float | None, tau: float | None) -> tuple[Truth, Truth]:
    """What is assumed at the low and at the high end of the range."""
    vectors, apart = _axes(advised.federation, advised.parameters)
    variance = _OF_TWO_CLASSES if vectors.two_classes else _VARIANCE
    if sigma is not None:
        variance = max((sigma / vectors.half) ** 2, 1e-6)
    told = _TOLD * variance
    differing = (_DIFFERING * told, 0.0)
    if tau is not None:
        differing = (min((tau / vectors.half) ** 2, told),) * 2
    constant = 1.0 / vectors.length**2
    together = 1.0 / np.arange(1, len(apart) + 1)
    together *= (1.0 - constant) / together.sum()
    ends = []
    for values, own in zip((apart, together), differing, strict=True):
        mean = np.full(len(values), max(told - own, 1e-9) / values.sum())
        every = np.append(values, constant)
        usual = np.append(mean, _OF_MEAN / constant)
        ends.append(Truth(every, usual, own / float(every.sum()), variance - told))
    return ends[0], ends[1]


def _axes(federation: Federation | None, parameters: int) -> tuple[UnitVectors, np.ndarray]:
    """How records become vectors, and how they vary if features are evenly spread."""
    if federation is None:
        size = parameters - 1
        vectors = UnitVectors(math.sqrt(size + 1.0), 0.5, 0.5)
        return vectors, np.full(size, _UNIFORM / vectors.length**2)
    if get_task(federation.task).as_vectors not in ("numbers", "signs"):
        raise SilodpError(
            "--messages: what budgets buy is predicted for a number and for two classes, and "
            f"{federation.name} has another target: try it on records that are not secret."
        )
    vectors, size = unit_vectors_of(federation), math.prod(federation.input_shape)
    bound = federation.feature_bound or 1.0
    values = np.full(size, _UNIFORM * bound**2)
    preparation = federation.silos[0].preparation
    if preparation is not None and len(preparation.encoder.is_number) == size:
        encoder = preparation.encoder
        column = np.asarray(encoder.column_of_feature)
        levels = 1.0 / np.bincount(column)[column]
        values = np.where(np.asarray(encoder.is_number), values, levels)
    # No record is longer than its vector says: of unit norm, all features together are 1.
    most = vectors.length**2 - 1.0
    values *= min(1.0, most / max(values.sum(), 1e-12))
    return vectors, values / vectors.length**2


def _advice(advised: Advised, messages: int, ends: tuple[Truth, Truth]) -> MessageAdvice:
    records = np.array(advised.records, float)
    shares = records / records.sum()
    by_times = {times: _noise(advised.policies, times) for times in TIMES}
    parts = {
        (number, times): [_parts(truth, records, noise, number) for truth in ends]
        for number in MESSAGE_SHARES
        for times, noise in by_times.items()
    }
    largest = max(policy.epsilon for policy in advised.policies)
    overall = [
        {
            "messages": number,
            "times": times,
            "epsilon": times * largest,
            **Range(*sorted(float(shares @ part) for part in both))._asdict(),
        }
        for (number, times), both in parts.items()
    ]
    silos = [
        {
            "silo": name,
            "records": n,
            "epsilon": policy.epsilon,
            "delta": policy.delta,
            **Range(*sorted(float(part[place]) for part in parts[messages, 1.0]))._asdict(),
        }
        for place, (name, n, policy) in enumerate(
            zip(advised.names, advised.records, advised.policies, strict=True)
        )
    ]
    warnings = concerns(advised.names, advised.policies, advised.records)
    features = len(ends[0].values) - 1
    found = MessageAdvice(advised.data, features, messages, silos, overall, [], [*warnings])
    return replace(found, sentences=_sentences(found))


def _parts(truth: Truth, records: np.ndarray, noise: np.ndarray, messages: int) -> np.ndarray:
    """What part of what features tell each silo's model has: [silos]."""
    errors = after_messages(truth, records, noise, MESSAGE_SHARES[messages], CONSTANTS.parts).own
    told = truth.residual * _TOLD / (1.0 - _TOLD)
    return np.clip(1.0 - errors / told, 0.0, 1.0)


def _noise(policies: Sequence[Policy], times: float) -> np.ndarray:
    """Noise multipliers of all messages together, at so many times each silo's epsilon."""
    known: dict[tuple[float, float], float] = {}

    def one(policy: Policy) -> float:
        if math.isinf(policy.epsilon):
            return 1e-6
        budget = (times * policy.epsilon, policy.delta)
        if budget not in known:
            known[budget] = float(get_sigma_gaussian(*budget))
        return known[budget] * moved_by(policy.relation)

    return np.array([one(policy) for policy in policies])


def in_percent(ends: Range) -> str:
    """A range of parts in words."""
    low, high = (min(99, round(100 * end)) for end in ends)
    if high == 0:
        return "nothing"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _sentences(advice: MessageAdvice) -> list[str]:
    spent = [silo["epsilon"] for silo in advice.silos]
    low, high = (f"{end(spent):.3g}" for end in (min, max))
    budget = low if low == high else f"{low} to {high}"
    messages, silos = count(advice.messages, "message"), count(len(advice.silos), "silo")
    now = advice.at(advice.messages)
    whose = f"over {silos} with {count(advice.features, 'feature')}"
    if now.high <= 0.005:
        first = (
            f"Epsilon {budget} in {messages} is predicted to buy no more than a constant "
            f"prediction {whose}."
        )
    else:
        first = (
            f"Epsilon {budget} in {messages} is predicted to buy {in_percent(now)} of what a "
            f"linear model of these features could tell, {whose}"
            f"{': it may be no more than a constant prediction' if now.low <= 0.005 else ''}."
        )
    lines = [first]
    if all(math.isfinite(epsilon) for epsilon in spent):
        half, twice = (in_percent(advice.at(advice.messages, times)) for times in (0.5, 2.0))
        if now.high > 0.005 or advice.at(advice.messages, 2.0).high > 0.005:
            lines.append(f"Twice the budget would buy {twice}, half of it {half}.")
    others = [
        f"{number}: {in_percent(advice.at(number))}"
        for number in MESSAGE_SHARES
        if number != advice.messages
    ]
    lines.append(f"At the same budget, by the number of messages: {'; '.join(others)}.")
    lines.append("Nothing was spent: only public numbers were used.")
    return lines
