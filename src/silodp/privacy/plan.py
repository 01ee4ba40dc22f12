"""What a silo will be asked in a run, and the noise that makes it fit the silo's policy.

Sampler, clip, noise and privacy event all come out of one frozen `SiloPlan`, so that what a run
costs and what it does cannot drift apart.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from silodp.errors import SilodpError
from silodp.privacy.accounting import Accountant
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.policy import Policy
from silodp.privacy.queries import Schedule, training_event
from silodp.privacy.sampling import (
    OVERFLOW_SHARE,
    Draw,
    Sampling,
    charged_rate,
    draw_of,
    overflow_chance,
    slots_for,
)

UNPROVEN_SHUFFLE = (
    "sampling is 'shuffle' but is charged as if it were Poisson: no accountant here proves it"
)


@dataclass(frozen=True)
class TrainingSettings:
    """How silos train; the same for all, and public.

    Attributes:
      rounds: of communication.
      batch_size: expected records in a step.
      clip: largest norm of a record's gradient.
      epochs: steps of a pass, counted in passes over the records.
      sampling: "poisson" (proven), or "shuffle" as in the authors' code.
      small_silos: what to do with a silo that has fewer records than a batch: "refuse", or
        "full-batch" (each step takes all its records).
    """

    rounds: int
    batch_size: int
    clip: float
    epochs: int = 1
    sampling: Sampling = "poisson"
    small_silos: str = "refuse"

    def __post_init__(self):
        for field in ("rounds", "batch_size", "epochs"):
            value = getattr(self, field)
            if value < 1:
                raise SilodpError(f"{field} is {value}: give a whole number of at least 1.")
        if not self.clip > 0:
            raise SilodpError(f"clip is {self.clip}: give a number above 0.")


@dataclass(frozen=True)
class SiloPlan:
    """One silo's part in one run.

    Attributes:
      silo: its name.
      records: n_k.
      batch: b_k, the expected batch, and what noisy sums are divided by.
      epochs: of one training pass.
      steps: of one training pass.
      total_steps: over all passes of the run.
      draw: how batches are drawn.
      slots: places that a drawn batch needs.
      sampling_rate: that the accountant charges for.
      noise_multiplier: noise on the clipped sum, in units of the clip; 0 without privacy.
      epsilon: spent, never above the policy; infinite without privacy.
      delta: of the policy.
      accountant: that says so.
      unproven: reasons why epsilon is not proven for what the run does; empty if it is.
    """

    silo: str
    records: int
    batch: int
    epochs: int
    steps: int
    total_steps: int
    draw: Draw
    slots: int
    sampling_rate: float
    noise_multiplier: float
    epsilon: float
    delta: float
    accountant: Accountant
    unproven: tuple[str, ...] = ()

    @property
    def private(self) -> bool:
        """Whether the run is private for this silo."""
        return math.isfinite(self.epsilon)


def make_plans(
    silos: Sequence[str],
    records: Sequence[int],
    policies: Sequence[Policy],
    schedule: Schedule,
    settings: TrainingSettings,
    accountant: Accountant,
    *,
    heavy: bool = False,
    unproven: tuple[str, ...] = (),
    progress: Callable[[int, int], None] | None = None,
) -> tuple[SiloPlan, ...]:
    """The plan of each silo: the method's schedule, with noise calibrated to the silo's policy.

    Args:
      silos: names.
      records: n_k of each. Public here: it sets batch, steps and rate.
      policies: of each.
      schedule: what the method asks of every silo.
      settings: how silos train.
      accountant: "pld" or "rdp".
      heavy: whether the model is one whose steps are dear (see `Model.heavy`).
      unproven: further reasons why epsilon is not proven, such as preprocessing by statistics.
      progress: called with (done, total) while noise is calibrated.
    """
    if settings.sampling == "shuffle":
        unproven = (UNPROVEN_SHUFFLE, *unproven)
    drafts = [
        _draft(silo, int(n), policy, schedule, settings, accountant, heavy, unproven)
        for silo, n, policy in zip(silos, records, policies, strict=True)
    ]
    requests = [
        CalibrationRequest(
            partial(training_event, rate=draft.sampling_rate, steps=draft.total_steps),
            policy.epsilon,
            _delta_for_steps(draft),
            label=f"Silo {draft.silo!r}",
        )
        for draft, policy in zip(drafts, policies, strict=True)
    ]
    calibrations = calibrate_many(requests, accountant, progress=progress)
    return tuple(
        replace(draft, noise_multiplier=c.noise_multiplier, epsilon=c.epsilon)
        for draft, c in zip(drafts, calibrations, strict=True)
    )


def _draft(
    silo: str,
    n: int,
    policy: Policy,
    schedule: Schedule,
    settings: TrainingSettings,
    accountant: Accountant,
    heavy: bool,
    unproven: tuple[str, ...],
) -> SiloPlan:
    """A plan whose noise is yet to be calibrated."""
    if n < settings.batch_size and settings.small_silos == "refuse":
        raise SilodpError(
            f"Silo {silo!r} has {n} training records, fewer than the batch size "
            f"{settings.batch_size}: give --batch-size {n} or less, or --small-silos full-batch."
        )
    batch = min(n, settings.batch_size)
    steps = settings.epochs * (n // batch)
    total = steps * schedule.training_passes
    draw = draw_of(settings.sampling, n, batch, heavy)
    if draw == "gaps":
        slots = slots_for(n, batch, overflow_chance(policy.epsilon, policy.delta, total))
    else:
        slots = n if draw == "every" else batch
    return SiloPlan(
        silo=silo,
        records=n,
        batch=batch,
        epochs=settings.epochs,
        steps=steps,
        total_steps=total,
        draw=draw,
        slots=slots,
        sampling_rate=charged_rate(draw, n, batch),
        noise_multiplier=math.nan,
        epsilon=policy.epsilon,
        delta=policy.delta,
        accountant=accountant,
        unproven=unproven,
    )


def _delta_for_steps(draft: SiloPlan) -> float:
    """What is left of delta once draws that do not fit their slots are paid for."""
    return draft.delta * (1 - OVERFLOW_SHARE if draft.draw == "gaps" else 1)
