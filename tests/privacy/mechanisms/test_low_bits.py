"""What the low bits of a release tell: nothing. The attack that showed otherwise, and its like.

A site answers rounds of one full-batch step to a coordinator that broadcasts zeros. The adversary
knows everything but whether one record is there, reads each released sum in whole grains, and
compares the two worlds by the likelihood of every cell. Against float32 noise that is rounded to a
grid, whose cells hold whole numbers of floats, that tells the worlds apart nearly always.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import silodp
from silodp.engines.job import Setting
from silodp.engines.layout import silo_lattice
from silodp.engines.one_silo import OneSilo
from silodp.privacy.mechanisms import lattice, release_draws
from silodp.privacy.mechanisms.keystream import Keystream
from silodp.privacy.mechanisms.rounded_gaussian import rounded_gaussian
from silodp.privacy.session import free_rounds
from silodp.runs.run import job_of

pytestmark = pytest.mark.as_shipped

PARAMETERS, RECORDS, ROUNDS, RUNS = 21, 40, 300, 16
SECRET = bytes(range(32))


def worlds():
    """With the canary as the last record, and without it (its features and residual are 0)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(RECORDS, PARAMETERS - 1)) / 5
    y = rng.normal(size=RECORDS)
    absent = x.copy(), y.copy()
    absent[0][-1], absent[1][-1] = 0.0, 0.0
    return (x, y), absent


def prepared_for(x, y):
    records = silodp.Records(x, y)
    federation = silodp.Federation("one", (silodp.Silo("s", records, records),), "regression")
    options = {"method": "local", "rounds": ROUNDS, "batch_size": RECORDS, "lr": 1.0, "clip": 1.0}
    return silodp.plan(
        federation=federation, epsilon=1, delta=1e-5, entropy="os", **options
    ), federation


class Answers:
    """Released sums of a silo, in grains, that starts every round from zeros."""

    def __init__(self, world, secret=SECRET):
        prepared, federation = prepared_for(*world)
        self.plan = prepared.plans[0][0]
        job = replace(job_of(prepared), secret=secret)
        self.lattice = silo_lattice(self.plan)
        spec = prepared.specs[0]
        setting = Setting(1.0, spec.plans, spec.method.traced_values(spec.values))
        self._silo = OneSilo(job, federation, setting, 0, seed=0)
        self._zero = self._silo.first_state(jnp.zeros(2, jnp.uint32))
        self._told = jax.tree.map(jnp.zeros_like, self._silo.method.broadcast(
            job.first_states(self._silo.method, jnp.zeros(2, jnp.uint32), 0)[0]
        ))  # fmt: skip

    def move(self, by):
        self._zero = jax.tree.map(lambda leaf: leaf + np.float32(by), self._zero)

    def of_rounds(self, numbers):
        sums = []
        for number in numbers:
            state, _ = self._silo.local(self._zero, self._told, free_rounds(number, number + 1))
            model = np.concatenate(
                [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(state)]
            )
            sums.append(-model * self.plan.expected_batch / self.lattice.grain)
        return np.array(sums)


def auc(present, absent):
    return stats.mannwhitneyu(present, absent).statistic / (len(present) * len(absent))


def old_noise(words, deviation, more):
    """Noise as it was: float32, by the inverse CDF of 23 bits, two draws, then rounded."""
    halves = [(words >> np.uint64(shift)) & np.uint64(2**23 - 1) for shift in (9, 41)]
    uniform = [(h.astype(np.float32) + 0.5) * np.float32(2.0**-22) - 1.0 for h in halves]
    normal = [np.float32(np.sqrt(2)) * np.asarray(jax.lax.erf_inv(jnp.asarray(u))) for u in uniform]
    return old_rounding(normal[0] + normal[1], deviation).astype(np.int64)


def old_rounding(total, deviation):
    return np.rint(total * np.float32(np.sqrt(0.5)) * np.float32(deviation))


def width_of(cells, deviation):
    """What the old noise makes of each cell: the floats that fall into it, each as wide as it is.

    A cell holds 13 floats, or 14, and never 13.4: its width is off by per cents, in a pattern that
    anyone can work out.
    """
    cells = np.abs(cells)

    def first_above(cell):
        """The bits of the least float that is rounded to more: they order positive floats."""
        low, high = np.zeros(cell.shape, np.int32), np.full(cell.shape, 0x41800000, np.int32)
        for _ in range(31):
            middle = low + (high - low) // 2
            more = old_rounding(middle.view(np.float32), deviation) > cell
            low, high = np.where(more, low, middle + 1), np.where(more, middle, high)
        return high.astype(np.int32)

    last, before = first_above(cells), first_above(cells - 1)
    spacing = np.spacing(before.view(np.float32)).astype(np.float64)
    return np.maximum(last - before, 1) * spacing


def score(released, with_canary, without, deviation):
    """Log-likelihood ratio by the widths of cells alone: of real Gaussian noise it says nothing."""
    ratio = np.log(width_of(released - with_canary, deviation))
    ratio -= np.log(width_of(released - without, deviation))
    return ratio.sum(axis=(-2, -1))


def test_another_question_never_gets_the_same_noise():
    """A silo that is asked a round again, from another model, must not answer with its noise."""
    answers = Answers(worlds()[0])
    first, again = answers.of_rounds([5, 5])
    np.testing.assert_array_equal(first, again)
    answers.move(2.0**-40)  # so little that gradients are the same, but for a grain or two
    assert np.abs(answers.of_rounds([5])[0] - first).min() > 100


@pytest.fixture
def coarse(monkeypatch):
    """A lattice as coarse as it was: single precision then holds all of what is released."""
    monkeypatch.setattr(lattice, "_BITS", 24)


def sums_without_noise():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_draws, "rounded_gaussian", lambda words, *_: np.zeros(len(words)))
        return [np.rint(Answers(world).of_rounds([0])[0]) for world in worlds()]


def attacked(runs):
    """The adversary's score of so many runs in each world, through a silo as a site runs it."""
    present, absent = sums_without_noise()
    assert (present != absent).any()
    scores = []
    for number, world in enumerate(worlds()):
        answers = Answers(world, bytes([number, *SECRET[1:]]))
        # Each round has noise of its own: one silo's next rounds are as good as another run.
        released = np.rint(answers.of_rounds(range(runs * ROUNDS)))
        by_run = released.reshape(runs, ROUNDS, PARAMETERS)
        scores.append(score(by_run, present, absent, answers.lattice.deviation))
    return auc(*scores)


def test_the_attack_finds_the_old_noise(coarse, monkeypatch):
    monkeypatch.setattr(release_draws, "rounded_gaussian", old_noise)
    assert attacked(RUNS) > 0.9


def test_the_attack_finds_nothing_in_a_release(coarse):
    """The same on the noise that is used: nothing but chance (a deviation of 0.10)."""
    assert abs(attacked(RUNS) - 0.5) < 0.35


@pytest.mark.parametrize("old", [False, True])
def test_nothing_is_found_in_one_step_of_a_large_model_either(old):
    """The noise by itself; a record moves all parameters alike."""
    deviation, runs, parameters = 400_000.0, 40, 10_000
    shift = 5000 / np.sqrt(parameters)
    moved = np.rint(np.random.default_rng(0).normal(size=parameters) * shift)
    scores = []
    for world in (0, 1):
        found = []
        for run in range(runs):
            stream = Keystream(bytes([world, run % 256, *SECRET[2:]]), bytes(12))
            draw = old_noise if old else rounded_gaussian
            noise = draw(stream.words(parameters), deviation, lambda _, n, s=stream: s.read(n))
            released = (noise + (moved if world == 0 else 0))[None]
            found.append(score(released, moved, np.zeros(parameters), deviation))
        scores.append(np.array(found))
    found = auc(*scores)
    if old:
        assert found > 0.9
    else:  # the deviation of the AUC of as many scores of one kind
        assert abs(found - 0.5) < 4 * np.sqrt((2 * runs + 1) / (12 * runs**2))
