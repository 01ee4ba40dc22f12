"""The spread of records and silos, sigma and tau, estimated from noisy releases of silos.

Each silo releases the noisy mean of its labels and of their squares, by one Gaussian mechanism.
The size of the noise is known, so its part of the variances is subtracted (method of moments).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.data.federation import Federation
from silodp.data.tasks import PublicKnowledge, get_task
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.mechanisms.statistics import (
    LABEL_SENSITIVITY,
    gaussian_event,
    noisy_label_moments,
)
from silodp.privacy.policy import Policy, check_declared
from silodp.privacy.session import FINISHED, RunSession
from silodp.runs.accounts import Release, ledgers_of_release
from silodp.runs.resolve import ResolvedOptions

_WHAT = "noisy mean and square of the labels"


class Spread(NamedTuple):
    """Sigma and tau, guessed or estimated.

    Attributes:
      sigma: standard deviation of records around their silo's centre, in each coordinate.
      tau: standard deviation of the silos' centres, all coordinates together.
      tau_range: tau with two standard errors to either side; None for a guess.
      releases: what each silo released for the estimate; empty for a guess.
    """

    sigma: float
    tau: float
    tau_range: tuple[float, float] | None = None
    releases: tuple[Release, ...] = ()


def estimated_spread(
    federation: Federation,
    policies: Sequence[Policy],
    options: ResolvedOptions,
    epsilon: float,
    reporter: Reporter,
) -> Spread:
    """Estimates from every silo with a public record count, at this epsilon and its own delta.

    With a ledger this is charged, or refused, before any label is looked at.
    """
    known, task = _public_labels(federation), get_task(federation.task)
    # Without its count, a silo's mean is off by an unknown factor, which would look like tau.
    places = [place for place, policy in enumerate(policies) if policy.count_is_public]
    if len(places) < 2:
        raise SilodpError(
            f"--estimate-epsilon: {len(places)} of the silos can be asked (those with a public "
            "record count), but how far silos differ takes two: give --sigma and --tau instead."
        )
    silos, policies = [federation.silos[k] for k in places], [policies[k] for k in places]
    for silo, policy in zip(silos, policies, strict=True):
        check_declared(silo.name, policy, (known,))
        if epsilon > policy.epsilon:
            raise SilodpError(
                f"Silo {silo.name!r}: --estimate-epsilon is {epsilon:g}, above the epsilon "
                f"{policy.epsilon:g} that its policy allows: give less."
            )
    counts = [silo.public_count for silo in silos]
    releases = _releases(federation.names, places, counts, policies, epsilon, reporter)
    ledgers = ledgers_of_release(options.request, releases, policies)
    session = RunSession(ledgers, [silo.name for silo in silos], rounds=1)
    with session.closed_on_failure(can_resume=lambda: False):
        if ledgers is not None:
            reporter.stage("reserving budgets")
        session.reserve(options.entropy, progress=reporter.calibrated)
        paid = session.pay(0, 1)
        moments = [
            noisy_label_moments(
                task.in_unit_ball(silo.train.y, federation.num_classes),
                count,
                release.noise_multiplier,
                session.random(paid, options.request.first_seed, f"spread {silo.name}"),
                silo.train.subject,
            )
            for silo, count, release in zip(silos, counts, releases, strict=True)
        ]
    session.close(FINISHED)
    noise = [
        release.noise_multiplier * LABEL_SENSITIVITY / count
        for release, count in zip(releases, counts, strict=True)
    ]
    spread = method_of_moments(
        np.stack([mean for mean, _ in moments]),
        np.array([square for _, square in moments]),
        np.array(counts),
        np.array(noise),
    )
    unit = task.ball_radius
    low, high = spread.tau_range or (math.nan, math.nan)
    return Spread(
        unit * spread.sigma, unit * spread.tau, (unit * low, unit * high), tuple(releases)
    )


def method_of_moments(
    means: np.ndarray, squares: np.ndarray, counts: np.ndarray, noise: np.ndarray
) -> Spread:
    """Estimates sigma and tau from noisy moments; squares are unbiased, but for a floor at 0.

    Args:
      means: [silos, outputs], noisy means of labels.
      squares: [silos], noisy mean squared norms of labels.
      counts: [silos], records.
      noise: [silos], standard deviation of the noise on each of these numbers.
    """
    outputs = means.shape[1]
    if counts.max() < 2:
        raise SilodpError(
            "--estimate-epsilon: every silo has a single record, from which no spread within silos "
            "can be estimated: give --sigma and --tau instead."
        )
    # Weights from public numbers alone: weights that follow the records would bias the averages.
    weights = 1 / (noise**2 + 1 / counts)
    # A noisy mean's square is too large by the noise, and the mean uses one of n degrees.
    within = squares - (means**2).sum(axis=1) + outputs * noise**2
    sigma_2 = max(0.0, float(weights @ within / (weights @ (1 - 1 / counts))))
    known = outputs * noise**2 + sigma_2 / counts
    total = weights.sum()
    apart = ((means - weights @ means / total) ** 2).sum(axis=1)
    share = weights * (1 - weights / total)
    tau_2 = float((weights @ apart - share @ known) / share.sum())
    # Variance of a sum of squares of normal numbers, taken as independent and alike in each output.
    variances = known + max(0.0, tau_2)
    error = math.sqrt(2 / outputs * float(((share * variances) ** 2).sum())) / float(share.sum())
    low, tau, high = (math.sqrt(max(0.0, tau_2 + by * error)) for by in (-2, 0, 2))
    return Spread(math.sqrt(sigma_2 / outputs), tau, (low, high))


def _releases(
    names: Sequence[str],
    places: Sequence[int],
    counts: Sequence[int],
    policies: Sequence[Policy],
    epsilon: float,
    reporter: Reporter,
) -> list[Release]:
    """The release of each silo, with noise by its own delta and relation."""
    reporter.stage("calibrating noise")
    requests = [
        CalibrationRequest(
            lambda noise: gaussian_event(noise, 1),
            epsilon if math.isfinite(policy.epsilon) else math.inf,
            policy.delta,
            f"Silo {names[place]!r}",
            policy.relation,
        )
        for place, policy in zip(places, policies, strict=True)
    ]
    return [
        Release(
            names[place],
            _WHAT,
            count,
            policy.unit,
            calibration.noise_multiplier,
            calibration.epsilon,
            policy.delta,
        )
        for place, count, policy, calibration in zip(
            places,
            counts,
            policies,
            calibrate_many(requests, progress=reporter.calibrated),
            strict=True,
        )
    ]


def _public_labels(federation: Federation) -> PublicKnowledge:
    """The public bound of the labels; refuses data that declare none."""
    task = get_task(federation.task)
    if not task.label_means:
        raise SilodpError(
            f"--estimate-epsilon: means of labels say nothing of how far silos differ in a "
            f"{task.name} task: give --sigma and --tau."
        )
    if task.public not in federation.declared:
        raise SilodpError(
            f"--estimate-epsilon: noise needs a public {task.public}, and these data declare none: "
            f"declare it (a table's --schema, [target] {task.schema_key}), or give --sigma and "
            "--tau."
        )
    return task.public
