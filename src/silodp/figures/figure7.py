"""Figure 7 of the paper: what it costs in privacy to tune lambda, under mean estimation.

Silos that choose their lambda by trying about ten values, privately, need more noise for the same
epsilon. Each panel shows the error against lambda under that noise and under the noise of a silo
that tries none. Beside them stands an estimate of lambda that costs nothing.
"""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, RepeatAndSelectDpEvent

from silodp.base.files import write_file
from silodp.base.progress import Reporter
from silodp.config.choices import Accountant
from silodp.privacy.calibration import CalibrationRequest, calibrate_many
from silodp.privacy.trials import Trials
from silodp.theory.closed_forms import error, local_variance
from silodp.theory.estimate import estimate_lambdas
from silodp.theory.simulation import (
    Simulation,
    errors_of_silos,
    errors_of_trials,
    mean_and_standard_error,
    simulate,
)

SILOS, RECORDS, SIGMA, CLIP = 20, 200, 0.4, 1.0
EPSILON, DELTA = 0.25, 1e-5
TAUS = (0.03, 0.08, 0.2)
MEAN_TRIALS = 10
SHAPES = (-0.5, 0.0, 0.5, 1.0, 2.0, 5.0, math.inf)
LAMBDAS = np.array([0.0, *np.logspace(-3, 2, 41), math.inf])


@dataclass(frozen=True)
class Curve:
    """A way to choose lambda: the noise that it needs, and the values it tries (None: none)."""

    name: str
    sigma_dp: float
    trials: Trials | None = None


@dataclass(frozen=True)
class Errors:
    """Mean squared errors of one curve in one panel, by lambda; exact without `standard_error`."""

    curve: Curve
    lams: np.ndarray
    mean: np.ndarray
    standard_error: np.ndarray | None

    @property
    def best(self) -> tuple[float, float]:
        """The best of the lambdas, and its error."""
        place = int(self.mean.argmin())
        return float(self.lams[place]), float(self.mean[place])

    @property
    def ends(self) -> dict[str, float]:
        """The errors of local training and of FedAvg."""
        return {"local": float(self.mean[0]), "FedAvg": float(self.mean[-1])}


@dataclass(frozen=True)
class Panel:
    """The curves at one heterogeneity.

    Attributes:
      letter: letter of the panel, as in the paper.
      tau: standard deviation of the silos' centres.
      without: errors without privacy.
      private: errors without tuning, at the noise of one release.
      tuned: errors at the noise of tuning, one for each distribution of the number of trials.
      estimated: the error at the noise of one release, with lambda estimated from the released
        means: one point, at the median of the estimates.
    """

    letter: str
    tau: float
    without: Errors
    private: Errors
    tuned: tuple[Errors, ...]
    estimated: Errors

    @property
    def curves(self) -> tuple[Errors, ...]:
        """All curves over lambda."""
        return self.without, self.private, *self.tuned

    @property
    def best_end(self) -> tuple[str, float]:
        """The better of local training and FedAvg without tuning, and its error."""
        ends = self.private.ends
        name = min(ends, key=lambda end: ends[end])
        return name, ends[name]

    def pays(self, tuned: Errors) -> bool:
        """Whether the best lambda, at the noise of tuning, beats both ends without tuning."""
        return tuned.best[1] < self.best_end[1]


def make_panels(
    trials: int = 500,
    closed_form: bool = False,
    seed: int = 0,
    accountant: Accountant = "rdp",
    reporter: Reporter | None = None,
) -> list[Panel]:
    """Computes the figure's numbers. The estimate has no closed form, and is simulated."""
    reporter = reporter or Reporter()
    reporter.stage("calibrating noise")
    private, tuned = calibrated_curves(accountant, reporter.calibrated)
    panels = []
    for letter, tau in zip("abc", TAUS, strict=True):
        reporter.stage(f"simulating panel {letter}")
        random = np.random.default_rng([seed, len(panels)])
        simulation = simulate(SILOS, RECORDS, SIGMA, tau, clip=CLIP, trials=trials, random=random)
        without, untuned, *others = (
            _exact(curve, tau) if closed_form else _simulated(curve, simulation)
            for curve in (Curve("non-private", 0.0), private, *tuned)
        )
        estimated = _estimate(private, simulation)
        panels.append(Panel(letter, tau, without, untuned, tuple(others), estimated))
    return panels


def calibrated_curves(
    accountant: Accountant, progress: Callable[[int, int], None]
) -> tuple[Curve, list[Curve]]:
    """Calibrates the private curves, untuned and tuned, to one epsilon ("rdp": the paper's)."""
    draws = [Trials(MEAN_TRIALS, shape) for shape in SHAPES]

    def tuned_event(draw: Trials) -> Callable[[float], DpEvent]:
        return lambda noise: RepeatAndSelectDpEvent(GaussianDpEvent(noise), draw.mean, draw.shape)

    events = [GaussianDpEvent, *map(tuned_event, draws)]
    requests = [CalibrationRequest(event, EPSILON, DELTA) for event in events]
    answers = calibrate_many(requests, accountant, progress=progress)
    private, *tuned = (CLIP * answer.noise_multiplier for answer in answers)
    return Curve("private", private), [
        Curve(_name(draw), noise, draw) for draw, noise in zip(draws, tuned, strict=True)
    ]


def _name(draw: Trials) -> str:
    if draw.poisson:
        return f"tuned, Poisson mu {draw.mean:g}"
    return f"tuned, TNB eta {draw.shape:g}"


def _exact(curve: Curve, tau: float) -> Errors:
    variance = local_variance(RECORDS, SIGMA, curve.sigma_dp)
    return Errors(curve, LAMBDAS, np.asarray(error(LAMBDAS, variance, tau, SILOS)), None)


def _simulated(curve: Curve, simulation: Simulation) -> Errors:
    means = simulation.means(curve.sigma_dp)
    by_trial = errors_of_trials(LAMBDAS, means, simulation.centres)
    return Errors(curve, LAMBDAS, *mean_and_standard_error(by_trial))


def _estimate(private: Curve, simulation: Simulation) -> Errors:
    means = simulation.means(private.sigma_dp)
    # Silos know the noise that others add, but not how their records spread: sigma 0.
    lams = estimate_lambdas(means, local_variance(RECORDS, 0.0, private.sigma_dp))
    by_trial = errors_of_silos(lams, means, simulation.centres).mean(axis=-1)
    mean, standard_error = mean_and_standard_error(by_trial)
    return Errors(
        Curve("private, lambda estimated", private.sigma_dp),
        np.array([np.median(lams)]),
        np.array([mean]),
        np.array([standard_error]),
    )


def write_csv(panels: list[Panel], path: Path) -> Path:
    """Writes one row per point; cells without a number (eta without tuning) are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["panel", "tau", "curve", "eta", "gamma", "lambda", "error", "standard_error", "sigma_dp"]
    )
    for panel in panels:
        for errors in (*panel.curves, panel.estimated):
            draw = errors.curve.trials
            eta = "" if draw is None else draw.shape
            gamma = "" if draw is None or draw.poisson else draw.gamma
            spreads = [""] * len(errors.lams)
            if errors.standard_error is not None:
                spreads = errors.standard_error.tolist()
            for lam, mean, spread in zip(errors.lams, errors.mean, spreads, strict=True):
                point = [float(lam), float(mean), spread, errors.curve.sigma_dp]
                writer.writerow([panel.letter, panel.tau, errors.curve.name, eta, gamma, *point])
    return write_file(path, text.getvalue())
