"""What tuning hyperparameters asks of a silo: "Implementing Hyperparameter Tuning under
Silo-Specific Sample-Level DP" of the paper.

Every round the silo trains a pivot model and sends its update, as in any run. Besides, it keeps a
list of models, one for each trial, which hear the same broadcasts and send nothing. The number of
trials is random. At the end the silo scores its trials, and releases the best one alone.

Given what was sent, trials are independent runs of one mechanism: a point of the grid is drawn, a
model is trained, a score is worked out. So the theorem of Papernot and Steinke prices the best of
them, and what the pivot sends is paid for besides.

Scores come from records that are set apart and never trained on. A record is in one part or the
other: it pays for the training, or for the scores, and not for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from silodp.base.errors import SilodpError
from silodp.privacy.accounting.events import EitherDpEvent
from silodp.privacy.trials import Trials

MOST_TRIALS = 20_000

Score = Literal["noisy", "public"]
"""A trial's score: with noise, or from records that are declared public."""


@dataclass(frozen=True)
class Tuning:
    """What is tried; the same for all silos, and public.

    Attributes:
      trials: the distribution of each silo's own number of trials.
      grid: names of hyperparameters, each with the values that may be drawn.
      score: where trials' scores come from.
      pivot_noise: noise of the pivot's training, in units of that of a trial: the mean over silos
        cancels much of it.
      pivot: whether silos send anything: else there is no pivot to pay for.
    """

    trials: Trials
    grid: tuple[tuple[str, tuple[float, ...]], ...]
    score: Score
    pivot_noise: float
    pivot: bool


def most_trials(silo: str, tuning: Tuning, chance: float) -> int:
    """More trials than this have so small a chance that delta pays for it."""
    most = tuning.trials.most(chance, MOST_TRIALS)
    if most is None:
        raise SilodpError(
            f"Silo {silo!r} might draw more than {MOST_TRIALS} trials (mean "
            f"{tuning.trials.mean:g}, eta {tuning.trials.shape:g}), which nobody would wait for: "
            "give fewer --trials, or a larger --eta."
        )
    return most


def tuned_event(
    tuning: Tuning, pivot: Sequence[DpEvent], trial: Sequence[DpEvent], score_noise: float
) -> DpEvent:
    """The pivot's run, and the best of the trials; of records set apart, the scores (0: free)."""
    sent = list(pivot) if tuning.pivot else []
    training = ComposedDpEvent([*sent, _best_of(tuning, ComposedDpEvent(list(trial)))])
    if score_noise == 0:
        return training
    return EitherDpEvent([training, score_event(tuning, score_noise)])


def score_event(tuning: Tuning, noise_multiplier: float) -> DpEvent:
    """What the trials' scores cost a record that they come from."""
    return _best_of(tuning, GaussianDpEvent(noise_multiplier))


def _best_of(tuning: Tuning, trial: DpEvent) -> DpEvent:
    return RepeatAndSelectDpEvent(trial, tuning.trials.mean, tuning.trials.shape)
