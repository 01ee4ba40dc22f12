"""Whether a model is good enough for a silo, answered once at a small price.

The question is about a mean over test records to which each adds a bounded score: is it at least
(or at most) T, or better than what one and the same prediction gives? What is released is that mean
with noise, once, by the Gaussian mechanism; the answer, its intervals and its words follow from
the release and from public numbers, and cost nothing more.

What is promised. Scores lie from `low` to `high`. A record's score is a whole number of steps that
follows from the record and the model alone (`models.model.score_steps`); taken from the middle, it
adds (high - low) / 2 at most to the sum, or a subject's records together, by their mean. So the sum
is moved by that much where a record is added or taken away, and by twice as much where one is
exchanged: by what the accountant takes for granted of a Gaussian event under either relation. The
noise is that of all sums on the host (`mechanisms.statistics`), and the divisor is public. The
model counts as known: epsilon of an answer is about the records of the table, that of the model is
on its card, and both are charged to the ledger where they are the same silo's.

Where coins set the records apart, their true number is a secret, and what is divided by is the one
that is expected. Scores are then taken from T: a record that is not there counts as one that lies
on it, so that the sum is above 0 just where the mean is above T. A record moves it by the larger of
T - low and high - T at most.

Power. With s the noise's standard deviation on the mean, the answer is yes if T lies below the
95 % interval of the noise, no if above, and "cannot say" within. It is then wrong with a chance of
2.5 % at most, wherever the true mean lies; and it is right with one of 95 % or more where that is
at least (1.96 + 1.64) s away from T. Both are known beforehand, from public numbers.

The order is that of a run, by the same session: reserved, charged, released, closed. The secret of
the noise is kept in the ledgers' folder until the answer is, so that a question that was cut short
is answered later at the price that was paid, and one that was answered is not charged twice: nor
for another threshold, since the noisy mean answers for all. A table that differs in anything is
another question, with a secret of its own.
"""

import json
import math
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from dp_accounting import get_epsilon_gaussian
from scipy.special import ndtri

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.text import percent
from silodp.base.values import plain
from silodp.config.choices import MetricName, Relation
from silodp.models.metrics import METRICS, Metric
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.ledger.charging import run_of
from silodp.privacy.mechanisms.randomness import new_secret
from silodp.privacy.mechanisms.statistics import largest_from, noisy_mean_of_scores
from silodp.privacy.session import FINISHED, RunLedgers, RunSession

Verdict = Literal["yes", "no", "cannot say"]

FORMAT = 1
# Two-sided, of an interval of 95 %; and one-sided, of an answer that is right in 95 % of cases.
_INTERVAL, _RIGHT = float(ndtri(0.975)), float(ndtri(0.95))
# Where the number of records is a secret of coins: it is within so many deviations with 99.5 %, and
# what noise then does, with 95.5 %.
_COUNT, _NOISE, _SURE = float(ndtri(0.9975)), float(ndtri(0.9775)), float(ndtri(0.955))
# Parts of a score's range for which the price is told besides.
_DIFFERENCES = (0.1, 0.05, 0.02)


@dataclass(frozen=True)
class Scores:
    """What each record counts, in the metric's unit.

    Attributes:
      low: the least that a record can count.
      high: the most.
      values: [records].
      subject: [records], whom each is about; None where records are protected.
      expected: how many records are expected, and how far off that is (the standard deviation),
        where coins have chosen them and their true number is a secret.
    """

    low: float
    high: float
    values: np.ndarray
    subject: np.ndarray | None
    expected: tuple[int, float] | None = None

    @property
    def units(self) -> int:
        """The number of records, or of subjects, as far as it is public."""
        if self.expected is not None:
            return self.expected[0]
        return len(self.values) if self.subject is None else len(np.unique(self.subject))


class Answer(NamedTuple):
    """What was released of a question, and what follows from it.

    Attributes:
      verdict: "yes", "no" or "cannot say".
      value: the metric on the records asked, with noise, and within what it can be; or its gain
        over one and the same prediction.
      interval: where it lies without noise, with 95 % probability.
      elsewhere: where it would lie for other records of the same kind, likewise: noise and chance
        in which records there are, together.
    """

    verdict: Verdict
    value: float
    interval: tuple[float, float]
    elsewhere: tuple[float, float]


@dataclass(frozen=True)
class Question:
    """A question with its price and its power; nothing is spent before `answer`.

    Attributes:
      silo: whose ledger is charged, and whose records are asked.
      model: the silo whose model it is.
      metric: its name.
      direction: whether the metric, or its gain, is to be at least or at most the threshold.
      threshold: in the metric's own unit, such as that of the target; 0 of a gain.
      other: the prediction to be better than, the same for all records, if that is the question.
      low: the least that a record can count.
      high: the most.
      cut: where what a record counts is cut off, if it might be more; what is asked about, and
        answered, is then the mean of what is left.
      units: how many records (or subjects) are asked, which is public.
      unit: "record" or "subject".
      relation: which tables are neighbours.
      epsilon: the price, at `delta`.
      delta: as the policy has it, or the ledger's lifetime.
      noise_multiplier: of the Gaussian mechanism that is charged.
      shares: what it takes of the lifetime ("takes_share") and what is left before
        ("left_share"); None where it was charged before.
      known: the answer, if the question was answered before: it costs nothing more.
      notes: what else a person should know.
    """

    silo: str
    model: str
    metric: MetricName
    direction: Literal["at least", "at most"]
    threshold: float
    other: str | None
    low: float
    high: float
    cut: float | None
    units: int
    unit: str
    relation: Relation
    epsilon: float
    delta: float
    noise_multiplier: float
    shares: dict[str, float] | None
    known: Answer | None
    notes: tuple[str, ...]
    _scores: Scores
    _ledgers: RunLedgers
    _place: Path

    # --- power

    @cached_property
    def noise(self) -> float:
        """The standard deviation of the noise on the metric."""
        return self._most * self.noise_multiplier / self.units

    @property
    def _centre(self) -> float | None:
        """Where scores are taken from: from the threshold, their true number does not matter."""
        return None if self._scores.expected is None else self.threshold

    @property
    def _most(self) -> float:
        """The most that a record adds to the sum."""
        return largest_from(self.low, self.high, self._centre)

    @property
    def _off(self) -> float:
        """By what part the true number of records may be off the one that is divided by."""
        expected = self._scores.expected
        return 0.0 if expected is None else min(0.9, _COUNT * expected[1] / expected[0])

    @property
    def _quantile(self) -> float:
        """How many deviations of noise an interval reaches to either side."""
        return _INTERVAL if self._scores.expected is None else _NOISE

    @property
    def _deviations(self) -> float:
        """How many deviations of noise a true value has to be away from the threshold."""
        right = _RIGHT if self._scores.expected is None else _SURE
        return (self._quantile + right) / (1 - self._off)

    @property
    def difference(self) -> float:
        """How far from the threshold the answer is right in 95 % of cases."""
        return self._deviations * self.noise

    @property
    def by_chance(self) -> float:
        """How far other records of the same kind may lie off besides (95 %), at the threshold."""
        below, above = self.threshold - self.low, self.high - self.threshold
        return _INTERVAL * math.sqrt(below * above / self.units)

    def price_for(self, difference: float) -> float:
        """The epsilon at which the answer is right in 95 % of cases so far from the threshold."""
        noise = difference / self._deviations
        sigma = noise * self.units / self._most / moved_by(self.relation)
        return float(get_epsilon_gaussian(sigma, self.delta))

    # --- the answer

    def answer(self) -> Answer:
        """Charges the price, then answers; a question that was charged before is only answered."""
        # Whatever was known when it was asked: it may have been answered since.
        before = kept_of(self._place, self._ledgers.directory, self.silo)
        if before is not None and before.released is not None:
            self._close_if_open(before.run)
            return self.read(before.released)
        run, secret = secrets.token_hex(8), new_secret("os")
        if before is None:
            # Before anything is reserved: whoever finds it charged has the secret as well.
            self._keep({"run": run, "secret": secret.hex()})
        else:
            run, secret = before.run, before.secret
        session = RunSession(self._ledgers, (), 1, run)
        if run_of(self._ledgers.directory, self.silo, run) is not None:
            session.resume(secret, 0)
        else:
            try:
                session.reserve("os", secret=secret)
            except SilodpError:
                self._place.unlink(missing_ok=True)  # refused: it is as if it was never asked
                raise
        paid = session.pay(0, 1)
        released = noisy_mean_of_scores(
            self._scores.values,
            self.low,
            self.high,
            self.units,
            self.noise_multiplier,
            session.random(paid, 0, "answer"),
            self._scores.subject,
            self._centre,
        )
        answer = self.read(released)
        self._keep({"run": run, "released": released})
        session.close(FINISHED)
        return answer

    def read(self, released: float) -> Answer:
        """The answer that a released mean gives."""
        reach = self._quantile * self.noise
        low, high = released - reach, released + reach
        verdict: Verdict = "cannot say"
        if low > self.threshold:
            verdict = "yes" if self.direction == "at least" else "no"
        elif high < self.threshold:
            verdict = "no" if self.direction == "at least" else "yes"

        def inside(value: float) -> float:
            return min(max(value, self.low), self.high)

        def where(value: float, side: int) -> float:
            """The end of an interval, where the mean is of fewer records or of more."""
            if self._scores.expected is None:
                return inside(value + side * reach)
            away = value + side * reach - self.threshold
            ends = [away / (1 + off) for off in (-self._off, self._off)]
            return inside(self.threshold + side * max(side * end for end in ends))

        width, least = self.high - self.low, 1 - self._off
        share = (inside(released) - self.low) / width
        ends = interval_elsewhere(
            share, self.noise / width / least, max(1, math.floor(self.units * least))
        )
        return Answer(
            verdict,
            inside(released),
            (where(released, -1), where(released, 1)),
            (self.low + width * ends[0], self.low + width * ends[1]),
        )

    def _keep(self, content: dict[str, Any]) -> None:
        text = json.dumps({"format": FORMAT, "question": plain(self.described())} | content)
        write_file(self._place, text + "\n", sync="folder")

    def _close_if_open(self, run: str) -> None:
        """Closes a question that was answered, and cut short before it was closed."""
        standing = run_of(self._ledgers.directory, self.silo, run)
        if standing is not None and standing.closed is None:
            session = RunSession(self._ledgers, (), 1, run)
            session.resume(b"", 0)
            session.close(FINISHED)

    # --- in words

    def described(self) -> dict[str, Any]:
        """The question in plain values; nothing of it comes from a record."""
        names = ("silo", "model", "metric", "direction", "threshold", "other", "low", "high", "cut")
        names += ("units", "unit", "relation", "epsilon", "delta", "noise_multiplier")
        return {name: getattr(self, name) for name in names}

    @property
    def own_metric(self) -> Metric:
        """The metric itself."""
        return METRICS[self.metric]

    def text(self, value: float) -> str:
        """A value of the metric, or of its gain, as people read it."""
        return self.size(value) if self.other is not None else self.own_metric.finite_text(value)

    def size(self, value: float) -> str:
        """A difference of two values."""
        if self.own_metric.by_ratio:
            return f"{value:.3g}"
        sign = "-" if value < 0 else ""
        return sign + self.own_metric.size(value)

    @property
    def words(self) -> str:
        """What is asked."""
        return f"whether {self._said('is', self.direction, 'better than')}"

    def _said(self, verb: str, direction: str, compared: str) -> str:
        of = f"the {self.own_metric.words} of the model of silo {self.model!r}"
        if self.cut is not None:
            of += f", with no more than {self.own_metric.text(self.cut)} of a record,"
        about = "" if self._scores.expected is None else "about "
        whom = f"on {about}{self.units} {self.unit}s of silo {self.silo!r}"
        if self.other is not None:
            return f"{of} {verb} {compared} that of always saying {self.other!r}, {whom}"
        return f"{of} {verb} {direction} {self.text(self.threshold)} {whom}"

    def sentences(self) -> list[str]:
        """What is asked, at which price, and how much the answer will say."""
        said = [f"Asked: {self.words}."]
        if self.shares is not None:
            said.append(
                f"Price: epsilon {self.epsilon:g} at delta {self.delta:g} ({self.relation}, per "
                f"{self.unit}); it takes {_share(self.shares['takes_share'])} of the lifetime, of "
                f"which {percent(self.shares['left_share'])} is left."
            )
        else:
            said.append("It was charged before, and costs nothing more.")
        said += [
            f"Power: the answer is right with 95 % probability if the true value is at least "
            f"{self.size(self.difference)} away from {self.text(self.threshold)}; nearer to it, it "
            "may be that nothing can be said. It is wrong with 2.5 % at most, however near.",
            *self._out_of_reach(),
            f"Prices: {self._prices()}.",
            f"Each {self.unit} counts from {self.text(self.low)} to {self.text(self.high)}. Chance "
            f"in which {self.unit}s there are is no part of this: for others of the same kind it "
            f"is up to ± {self.size(self.by_chance)} more (95 %).",
        ]
        return said + list(self.notes)

    def _prices(self) -> str:
        width = self.high - self.low
        parts = [f"{self.size(width * part)} away: epsilon {self.price_for(width * part):.2g}"
                 for part in _DIFFERENCES]  # fmt: skip
        return "; ".join(parts)

    def _out_of_reach(self) -> list[str]:
        """Which answers would need a value that there is not."""
        above = self.threshold + self.difference > self.high
        below = self.threshold - self.difference < self.low
        if above and below:
            return [
                f"With {self.units} {self.unit}s at this price, noise of ± "
                f"{self.size(self._quantile * self.noise)} hides every value: give more records "
                "or a larger epsilon."
            ]
        if above or below:
            side = "yes" if above == (self.direction == "at least") else "no"
            return [f"A clear {side} is out of reach: there is no value that far away."]
        return []

    def answered(self, answer: Answer) -> list[str]:
        """The answer in sentences."""
        opposite = "below" if self.direction == "at least" else "above"
        verdict = {
            "yes": f"Yes: {self._said('is', self.direction, 'better than')}.",
            "no": f"No: {self._said('is', opposite, 'worse than')}.",
            "cannot say": f"Cannot say {self.words}.",
        }[answer.verdict]
        what = self.own_metric.noun
        if self.other is not None:
            what = f"gain over always saying {self.other!r}"
        low, high = answer.interval
        far_low, far_high = answer.elsewhere
        return [
            verdict,
            f"The {what} on these {self.unit}s lies between {self.text(low)} and {self.text(high)} "
            f"with 95 % probability ({self.text(answer.value)}, with noise of ± "
            f"{self.size(self._quantile * self.noise)}); for other {self.unit}s of the same kind, "
            f"between {self.text(far_low)} and {self.text(far_high)}.",
        ]

    def __repr__(self) -> str:
        return f"<Question: {self.words}; epsilon {self.epsilon:g}>"


class Kept(NamedTuple):
    """What is kept of a question: the run in the ledger, and its secret or what was released."""

    run: str
    secret: bytes
    released: float | None


def kept_of(place: Path, directory: Path, silo: str) -> Kept | None:
    """What is kept there of a question; None if nothing can come of it any more."""
    if not place.exists():
        return None
    remedy = "remove it, and the question is charged anew"
    content = read_json(place, remedy=remedy)
    try:
        run, released = str(content["run"]), content.get("released")
        secret = bytes.fromhex(content.get("secret", ""))
        if content["format"] != FORMAT or (released is None) != bool(secret):
            raise ValueError
        kept = Kept(run, secret, None if released is None else float(released))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SilodpError(f"{place} is not an answer of silodp: {remedy}.") from None
    standing = run_of(directory, silo, run)
    closed = standing is not None and standing.closed is not None
    return None if closed and kept.released is None else kept  # closed before it was answered


def interval_elsewhere(share: float, noise: float, count: int) -> tuple[float, float]:
    """The interval (95 %) of a mean of scores from 0 to 1, of which one sample is known with noise.

    Scores of mean m have a variance of m (1 - m) at most. So the ends are where (share - m)^2 is
    1.96^2 times noise^2 + m (1 - m) / count: without noise, E. B. Wilson's interval.
    """
    square = _INTERVAL**2 / count
    middle = share + square / 2
    of_noise = (_INTERVAL * noise) ** 2
    root = math.sqrt(middle**2 - (1 + square) * (share**2 - of_noise))
    return max(0.0, (middle - root) / (1 + square)), min(1.0, (middle + root) / (1 + square))


def _share(share: float) -> str:
    return "less than 0.1 %" if 0 < share < 0.001 else percent(share)
