"""Whether a model is good enough: what it costs, how much the answer says, and what is refused."""

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import silodp
from silodp import SilodpError
from silodp.models.metrics import wilson
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.charging import close_all
from silodp.privacy.ledger.costs import read_event
from silodp.privacy.ledger.storage import exists, read_ledger
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.mechanisms.statistics import largest_from, noisy_mean_of_scores
from silodp.privacy.policy_files import read_policy
from silodp.runs import acceptance
from silodp.runs.acceptance import interval_elsewhere

pytestmark = pytest.mark.usefixtures("kept_programs")

SCHEMA = """[bounds]
x = [-4, 4]
[target]
{target}
"""
TARGETS = {"ill": 'classes = ["no", "yes"]', "days": "range = [0, 20]"}


def table_of(rows=240, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    return pd.DataFrame(
        {
            "site": np.where(np.arange(rows) % 2, "south", "north"),
            "patient": rng.integers(0, 40, rows),
            "x": x,
            "ill": np.where(x + rng.normal(0, 0.5, rows) > 0, "yes", "no"),
            "days": np.clip(8 + 3 * x + rng.normal(size=rows), 0, 20),
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Runs of two targets, with models."""
    folder = tmp_path_factory.mktemp("home")
    table_of().to_csv(folder / "table.csv", index=False)
    for target, words in TARGETS.items():
        schema = folder / f"{target}.toml"
        schema.write_text(SCHEMA.format(target=words))
        silodp.run(
            data=str(folder / "table.csv"),
            silo_column="site",
            target=target,
            ignore=["patient", *(other for other in TARGETS if other != target)],
            schema=schema,
            method="local",
            epsilon=8,
            delta=1e-3,
            rounds=3,
            batch_size=32,
            lr=0.5,
            keep_models=True,
            out=folder / target,
        )
    return folder


@pytest.fixture
def policy(tmp_path):
    """Writes the policies' file."""

    def written(**fields):
        fields = {"epsilon": 4, "delta": 1e-5, "lifetime_epsilon": 20} | fields
        path = tmp_path / "policies.toml"
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        path.write_text("\n".join(["[default]", *lines, "[silos.other]", "epsilon = 1"]))
        return path

    return written


@pytest.fixture
def ask(home, tmp_path, policy):
    """Asks about the model of silo north."""

    def asked(target="ill", table=None, policies=None, set_apart=False, run=None, **more):
        table = None if set_apart else table_of() if table is None else table
        more = {"policies": policies or policy(), "silo": "north"} | more
        return silodp.question(run or home / target, table, tmp_path / "ledgers", **more)

    return asked


def own(target="ill"):
    frame = table_of()
    return frame[frame["site"] == "north"].reset_index(drop=True)


def charges(folder, silo="north"):
    """The blocks that were charged to the ledger, and whether runs are closed."""
    if not exists(folder / "ledgers", silo):
        return []
    runs = account_of(read_ledger(folder / "ledgers", silo)).runs.values()
    return [(len(run.blocks), run.closed is not None) for run in runs]


def exact(asked):
    """The mean without noise."""
    scores = asked._scores
    return noisy_mean_of_scores(
        *(scores.values, asked.low, asked.high, asked.units, 0.0),
        HostRandom(0, b"", "none"),
        scores.subject,
    )


# --- what is asked


def test_the_mean_is_that_of_the_model(home, ask):
    model = silodp.load_model(home / "ill", silo="north")
    said = np.array(model.predict(own()).values)
    asked = ask(at_least=0.5)
    assert asked.units == 120
    assert exact(asked) == pytest.approx(np.mean(said == own()["ill"]), abs=1e-12)
    model = silodp.load_model(home / "days", silo="north")
    off = np.abs(np.array(model.predict(own()).values) - own()["days"])
    asked = ask("days", metric="mae", at_most=3.0, metric_bound=5.0)
    assert (asked.low, asked.high) == (0, 5)
    assert exact(asked) == pytest.approx(np.minimum(off, 5).mean(), rel=1e-3)
    squared = ask("days", metric="mse", at_most=9.0, metric_bound=25.0)
    assert exact(squared) == pytest.approx(np.minimum(off**2, 25).mean(), rel=1e-3)


def test_it_is_compared_with_saying_the_same_of_all(home, ask):
    model = silodp.load_model(home / "ill", silo="north")
    right = np.array(model.predict(own()).values) == own()["ill"]
    asked = ask(better_than="no")
    assert (asked.low, asked.high, asked.threshold) == (-1, 1, 0)
    assert exact(asked) == pytest.approx(np.mean(right) - np.mean(own()["ill"] == "no"))
    assert "better than that of always saying 'no'" in asked.words
    chances = model.predict(own()).probabilities[:, 1]
    is_yes = own()["ill"] == "yes"
    brier = np.mean((chances - is_yes) ** 2)
    asked = ask(better_than="0.3", metric="brier")
    assert exact(asked) == pytest.approx(np.mean((0.3 - is_yes) ** 2) - brier, abs=2e-3)
    model = silodp.load_model(home / "days", silo="north")
    off = np.abs(np.array(model.predict(own()).values) - own()["days"])
    asked = ask("days", better_than=8, metric="mae")
    gain = np.mean(np.abs(8 - own()["days"])) - off.mean()
    assert exact(asked) == pytest.approx(gain, abs=0.01)


def test_what_is_cut_off_is_said_with_the_question_and_the_answer(ask):
    """A mean of errors that were cut off is below the mean of errors: a yes must say so."""
    whole = ask("days", at_most=3.0, metric="mae")
    assert (whole.high, whole.cut) == (20, 20)  # predictions may leave the target's range
    cut = ask("days", at_most=3.0, metric="mae", metric_bound=5)
    assert "with no more than 5 of a record, is at most 3" in cut.words
    assert "with no more than 5 of a record, is " in cut.answered(cut.read(1.0))[0]
    for asked in (ask(at_least=0.5), ask(at_most=0.3, metric="brier", metric_bound=4)):
        assert (asked.high, asked.cut) == (1, None)  # nothing can be more
        assert "no more than" not in asked.words
    loss = ask(at_most=0.7, metric="log_loss", metric_bound=3)
    assert (loss.high, loss.cut) == (3, 3)


def test_a_subject_counts_once(ask, policy):
    by_subject = policy(subject="patient")
    asked = ask(at_least=0.5, policies=by_subject)
    assert asked.unit == "subject"
    assert asked.units == own()["patient"].nunique()
    by_record = ask(at_least=0.5)
    means = pd.Series(by_record._scores.values).groupby(own()["patient"]).mean()
    assert exact(asked) == pytest.approx(means.mean())
    assert "35 subjects" in asked.words or "subjects of silo 'north'" in asked.words


# --- what it costs


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.1, 1.5])
def test_epsilon_is_that_of_the_closed_form(ask, policy, tmp_path, relation, epsilon):
    """Of neighbours' sums, and of what the ledger is charged."""
    asked = ask(at_least=0.5, policies=policy(relation=relation), epsilon=epsilon)
    # What one record moves the sum by, in units of the noise.
    half = (asked.high - asked.low) / 2
    moved = half * (1 if relation == "add-remove" else 2) / (asked.noise * asked.units)
    delta = norm.cdf(moved / 2 - epsilon / moved) - math.exp(epsilon) * norm.cdf(
        -moved / 2 - epsilon / moved
    )
    assert delta == pytest.approx(asked.delta, rel=1e-6)
    assert asked.price_for(asked.difference) == pytest.approx(epsilon, rel=1e-6)
    asked.answer()
    (run,) = account_of(read_ledger(tmp_path / "ledgers", "north")).runs.values()
    (block,) = run.blocks
    charged = epsilon_of(read_event(block.cost.event), asked.delta, relation=relation)
    assert charged == pytest.approx(epsilon, rel=2e-3)
    assert block.cost.overflow == 0


@pytest.mark.parametrize("low", [0.0, -2.0])
def test_a_record_or_a_subject_moves_the_sum_by_half_the_range(low):
    rng, count, none = np.random.default_rng(0), 30, HostRandom(0, b"", "none")
    most = {"add": 0.0, "exchange": 0.0}
    for _ in range(200):
        scores = rng.choice([low, 2.0, rng.uniform(low - 1, 3)], count)
        subject = rng.integers(0, 8, count)
        for whom in (None, subject):
            gone = np.arange(count) == 0 if whom is None else whom == whom[0]

            def mean(values, of=None, count=count):
                return noisy_mean_of_scores(values, low, 2.0, count, 0.0, none, of)

            def of(where, whom=whom):
                return None if whom is None else whom[where]

            before = mean(scores, whom)
            other = np.where(gone, rng.choice([low, 2.0]), scores)
            without = mean(scores[~gone], of(~gone))
            most["add"] = max(most["add"], abs(before - without) * count)
            most["exchange"] = max(most["exchange"], abs(before - mean(other, whom)) * count)
    half = (2.0 - low) / 2
    assert most["add"] == pytest.approx(half)
    assert most["exchange"] == pytest.approx(2 * half)


def test_the_noise_is_what_is_told():
    scores = np.random.default_rng(0).uniform(0, 3, 50)
    drawn = [
        noisy_mean_of_scores(scores, 0.0, 3.0, 50, 7.0, HostRandom(seed, b"", "x"))
        for seed in range(1500)
    ]
    assert np.mean(drawn) == pytest.approx(scores.mean(), abs=3 * 0.21 / math.sqrt(1500))
    assert np.std(drawn) == pytest.approx(1.5 * 7.0 / 50, rel=0.06)


# --- how much it says


@pytest.mark.parametrize(("target", "more"), [
    ("ill", {"at_least": 0.6, "epsilon": 0.5}),
    ("days", {"at_most": 9.0, "metric": "mae", "epsilon": 0.5}),
])  # fmt: skip
def test_the_power_is_what_is_told(ask, target, more):
    """Answers to tables whose mean is just so far from the threshold, on it, and between."""
    asked = ask(target, **more)
    good = 1 if asked.direction == "at least" else -1

    def verdicts(true, runs=1500):
        values = np.full(asked.units, true)
        released = [
            noisy_mean_of_scores(
                *(values, asked.low, asked.high, asked.units, asked.noise_multiplier),
                HostRandom(seed, b"", str(true)),
            )
            for seed in range(runs)
        ]
        found = [asked.read(one) for one in released]
        covered = np.mean([one.interval[0] <= true <= one.interval[1] for one in found])
        said = [one.verdict for one in found]
        return {word: said.count(word) / runs for word in ("yes", "no", "cannot say")}, covered

    error = 3 * math.sqrt(0.05 * 0.95 / 1500)
    for side, right, wrong in ((good, "yes", "no"), (-good, "no", "yes")):
        shares, covered = verdicts(asked.threshold + side * asked.difference)
        assert abs(shares[right] - 0.95) < error
        assert shares[wrong] == 0
        assert abs(covered - 0.95) < error
        near, _ = verdicts(asked.threshold + side * asked.difference / 100)
        assert near[wrong] < 0.025 + error
        assert near["cannot say"] > 0.9


def test_intervals_for_other_records_are_wilsons_without_noise():
    for share, count in [(0.0, 11), (0.3, 40), (1.0, 7)]:
        assert interval_elsewhere(share, 0.0, count) == pytest.approx(wilson(share, count))
    share, noise, count, z = 0.7, 0.05, 60, norm.ppf(0.975)

    def off(mean):
        return (share - mean) ** 2 - z**2 * (noise**2 + mean * (1 - mean) / count)

    ends = brentq(off, 0, share), brentq(off, share, 1)
    assert interval_elsewhere(share, noise, count) == pytest.approx(ends, rel=1e-5)


def test_intervals_for_other_records_hold_as_often_as_told():
    rng, held = np.random.default_rng(0), 0
    for _ in range(2000):
        released = rng.binomial(80, 0.8) / 80 + rng.normal(0, 0.06)
        low, high = interval_elsewhere(min(max(released, 0), 1), 0.06, 80)
        held += low <= 0.8 <= high
    assert held / 2000 > 0.935


def test_what_no_answer_can_reach_is_said_beforehand(ask):
    hidden = ask(at_least=0.5, epsilon=0.01)
    assert any("hides every value" in sentence for sentence in hidden.sentences())
    sided = ask(at_least=0.9, epsilon=0.5)
    assert any("A clear yes is out of reach" in sentence for sentence in sided.sentences())
    clear = ask(at_least=0.5, epsilon=2)
    assert not any("reach" in sentence or "hides" in sentence for sentence in clear.sentences())
    assert f"epsilon {clear.price_for(0.05):.2g}" in " ".join(clear.sentences())


# --- of what the run set apart


def of_the_run(ask, **more):
    return ask(set_apart=True, **{"at_least": 0.6, "epsilon": 1.0} | more)


def test_what_the_run_set_apart_is_asked(home, ask):
    result = silodp.read_result(home / "ill")
    (own_result, _) = result.per_silo
    asked = of_the_run(ask)
    assert asked.units == own_result["test_records"]
    assert "on about 24 records" in asked.words
    assert np.mean(asked._scores.values) == pytest.approx(own_result["mean"])
    # From the threshold, whatever the number of records.
    mean, true = np.mean(asked._scores.values), len(asked._scores.values)
    released = noisy_mean_of_scores(
        *(asked._scores.values, 0.0, 1.0, asked.units, 0.0, HostRandom(0, b"", "x")),
        centre=asked.threshold,
    )
    assert released - 0.6 == pytest.approx((mean - 0.6) * true / asked.units)
    assert asked.noise == pytest.approx(0.6 * asked.noise_multiplier / asked.units)
    assert asked.price_for(asked.difference) == pytest.approx(asked.epsilon)


def test_it_is_charged_once_and_each_threshold_anew(ask, tmp_path):
    first = of_the_run(ask).answer()
    assert of_the_run(ask).answer() == first
    assert charges(tmp_path) == [(1, True)]
    assert of_the_run(ask, at_least=0.7).shares is not None


@pytest.mark.parametrize("side", [1, -1])
def test_its_power_holds_whatever_the_number_of_records(ask, side):
    """Coins choose how many records there are; each time other noise."""
    asked = of_the_run(ask, epsilon=3.0)
    count, deviation = asked._scores.expected
    everything = round(count / (1 - deviation**2 / count))
    true, rng = asked.threshold + side * asked.difference, np.random.default_rng(0)
    assert 0 < true < 1
    said, covered, runs = [], 0, 1500
    for seed in range(runs):
        values = np.full(rng.binomial(everything, count / everything), true)
        released = noisy_mean_of_scores(
            *(values, 0.0, 1.0, asked.units, asked.noise_multiplier),
            HostRandom(seed, b"", "x"),
            centre=asked.threshold,
        )
        answer = asked.read(released)
        said.append(answer.verdict)
        low, high = answer.interval
        covered += low <= true <= high
        inside = low < asked.threshold < high
        assert inside == (answer.verdict == "cannot say")
    right, wrong = ("yes", "no") if side == 1 else ("no", "yes")
    assert said.count(right) / runs > 0.945
    assert said.count(wrong) == 0
    assert covered / runs > 0.945


def test_a_record_moves_the_sum_by_its_distance_from_the_threshold():
    none, most = HostRandom(0, b"", "none"), {"add": 0.0, "exchange": 0.0}
    rng = np.random.default_rng(0)
    for _ in range(300):
        scores = rng.choice([0.0, 1.0, rng.uniform()], 9)
        other = np.append(scores[1:], rng.choice([0.0, 1.0]))
        first, without, exchanged = (
            9 * (noisy_mean_of_scores(some, 0.0, 1.0, 9, 0.0, none, centre=0.8) - 0.8)
            for some in (scores, scores[1:], other)
        )
        most["add"] = max(most["add"], abs(first - without))
        most["exchange"] = max(most["exchange"], abs(first - exchanged))
    assert most["add"] == pytest.approx(0.8) == largest_from(0.0, 1.0, 0.8)
    assert most["exchange"] == pytest.approx(1.0)  # and 1.6 is paid for


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"data": "(given from Python)"}, "does not say where the records are"),
        ({"data": "gone.csv"}, "gone.csv"),
        ({"split": "paper"}, "not set apart by coins"),
        ({"group_column": "patient"}, "were set apart by --group-column"),
    ],
)
def test_records_that_were_set_apart_otherwise_are_not_asked(home, ask, tmp_path, changed, words):
    folder = tmp_path / "run"
    shutil.copytree(home / "ill", folder)
    content = json.loads((folder / "result.json").read_text())
    content["options"] |= changed
    (folder / "result.json").write_text(json.dumps(content))
    with pytest.raises(SilodpError, match=words):
        of_the_run(ask, run=folder)
    (folder / "result.json").unlink()
    with pytest.raises(SilodpError, match="folder of the run that its model is from is not at"):
        of_the_run(ask, run=folder)


def test_people_that_were_set_apart_are_asked_by_a_table(ask, policy):
    with pytest.raises(SilodpError, match="how many people a run set apart is not known"):
        of_the_run(ask, policies=policy(subject="patient"))


# --- charged first, once


class Killed(BaseException):
    """The process ends here."""


def test_nothing_is_charged_before_the_answer(ask, tmp_path):
    asked = ask(at_least=0.5)
    assert 0 < asked.shares["takes_share"] < 0.01
    assert charges(tmp_path) == []
    asked.answer()
    assert charges(tmp_path) == [(1, True)]


@pytest.mark.parametrize("where", ["reserve", "pay", "noisy_mean_of_scores", "close"])
def test_a_process_that_is_killed_charges_once_and_answers_later(ask, tmp_path, monkeypatch, where):
    """Before it is charged, between charge and release, and between release and close."""

    def killed(*args, **more):
        raise Killed

    place = acceptance if where == "noisy_mean_of_scores" else acceptance.RunSession
    with monkeypatch.context() as patch:
        patch.setattr(place, where, killed)
        with pytest.raises(Killed):
            ask(at_least=0.5).answer()
    expected = {
        "reserve": [],
        "pay": [(0, False)],
        "noisy_mean_of_scores": [(1, False)],
        "close": [(1, False)],
    }
    assert charges(tmp_path) == expected[where]
    again = ask(at_least=0.5)
    assert (again.known is not None) == (where == "close")
    assert (again.shares is None) == (where != "reserve")
    first = again.answer()
    assert charges(tmp_path) == [(1, True)]
    assert ask(at_least=0.5).answer() == first
    assert charges(tmp_path) == [(1, True)]


def test_an_answer_is_asked_for_twice_and_charged_once(ask, tmp_path):
    asked, other = ask(at_least=0.5), ask(at_least=0.5)
    assert asked.answer() == asked.answer() == other.answer()
    assert charges(tmp_path) == [(1, True)]


def test_an_answer_is_no_run_that_could_be_made_again(home, ask, tmp_path):
    ask(at_least=0.5).answer()
    silodp.run(
        data=str(home / "table.csv"), silo_column="site", target="ill", ignore=["patient", "days"],
        schema=home / "ill.toml", method="local", epsilon=1, delta=1e-5, lifetime_epsilon=20,
        rounds=3, batch_size=32, ledger=tmp_path / "ledgers",
    )  # fmt: skip
    before = silodp.remaining(tmp_path / "ledgers", "north")
    ask(at_most=0.5, metric="brier").answer()
    after = silodp.remaining(tmp_path / "ledgers", "north")
    assert after["same_again"]["rounds"] == before["same_again"]["rounds"] == 3
    assert after["left_share"] < before["left_share"]


def test_the_noise_of_a_question_that_was_cut_short_is_the_same(ask, tmp_path, monkeypatch):
    drawn = []

    def killed(*args):
        drawn.append(noisy_mean_of_scores(*args))
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(acceptance, "noisy_mean_of_scores", killed)
        with pytest.raises(Killed):
            ask(at_least=0.5).answer()
    assert ask(at_least=0.5).answer() == ask(at_least=0.5).read(drawn[0])


def test_another_threshold_costs_nothing_and_another_table_does(ask, tmp_path):
    first = ask(at_least=0.5).answer()
    other = ask(at_least=0.99)
    assert other.shares is None
    assert other.answer().value == first.value
    assert charges(tmp_path) == [(1, True)]
    for changed in (
        ask(at_least=0.5, table=table_of(seed=1)),
        ask(at_most=0.5, metric="brier"),
        ask(at_least=0.5, epsilon=0.2),
        ask(at_least=0.5, table=table_of().iloc[2:]),
    ):
        assert changed.shares is not None
        changed.answer()
    assert charges(tmp_path) == [(1, True)] * 5


def test_a_secret_is_kept_only_until_the_answer_and_for_its_owner(ask, tmp_path, monkeypatch):
    asked = ask(at_least=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(acceptance.RunSession, "pay", lambda *args: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            asked.answer()
    (kept,) = (tmp_path / "ledgers" / "answers").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    assert len(json.loads(kept.read_text())["secret"]) == 64
    ask(at_least=0.5).answer()
    assert "secret" not in json.loads(kept.read_text())
    kept.write_text("{}")
    with pytest.raises(SilodpError, match="is not an answer of silodp: remove it"):
        ask(at_least=0.5)


def test_a_question_that_somebody_closed_is_asked_anew(ask, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(acceptance.RunSession, "pay", lambda *args: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            ask(at_least=0.5).answer()
    (run,) = account_of(read_ledger(tmp_path / "ledgers", "north")).runs
    close_all(tmp_path / "ledgers", ["north"], run, "by hand")
    again = ask(at_least=0.5)
    assert again.shares is not None
    again.answer()
    assert charges(tmp_path) == [(0, True), (1, True)]


# --- what is refused


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "Ask one thing"),
        ({"at_least": 0.5, "better_than": "no"}, "Ask one thing"),
        ({"at_least": 80}, "--at-least is 80, but each record's accuracy counts from 0 to 1"),
        ({"at_least": math.nan}, "--at-least is nan"),
        ({"at_most": 0.5}, "of accuracy higher is better: ask whether it is --at-least"),
        ({"at_least": 0.5, "metric": "auc"}, "An answer takes a mean .*--metric accuracy or"),
        ({"at_least": 0.5, "metric": "acuracy"}, "'acuracy' is unknown: use 'accuracy'"),
        ({"at_least": 0.5, "metric": "mae"}, "is not for a binary task"),
        ({"at_least": 0.5, "epsilon": math.nan}, "--epsilon is nan"),
        ({"at_least": 0.5, "epsilon": 0.0}, "--epsilon is 0.0"),
        ({"at_least": 0.5, "epsilon": 5}, "above the epsilon 4 that its policy allows"),
        ({"at_least": 0.5, "metric_bound": -1}, "--metric-bound is -1"),
        ({"better_than": "perhaps"}, "--better-than is 'perhaps': give"),
        ({"better_than": "no", "metric": "brier"}, "'no': give the probability of 'yes'"),
        ({"at_most": 0.5, "metric": "log_loss"}, "--metric-bound is missing: nothing bounds"),
        ({"better_than": "1.5", "metric": "brier"}, "give the probability of 'yes'"),
        ({"at_least": 0.5, "subject_column": "patient"}, "its ledger counts per record"),
        ({"at_least": 0.5, "silo_column": "sight"}, "no column 'sight' that names silos"),
        ({"at_least": 0.5, "charged_to": "west"}, "'west' has no row in the table"),
        ({"at_least": 0.5, "silo": "nort"}, "nort"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_no_charge(ask, tmp_path, more, words):
    with pytest.raises(SilodpError, match=words):
        ask(**more)
    assert charges(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.head(0), "has no row"),
        (lambda f: f.drop(columns="ill"), "no column 'ill'"),
        (lambda f: f.drop(columns="x"), "no column 'x'"),
        (lambda f: f.assign(ill=f["ill"].where(f.index > 4)), "3 of 120 rows have no 'ill'"),
        (lambda f: f.assign(ill="maybe"), "120 of 120 rows have no 'ill' that the model knows"),
        (lambda f: f.assign(x="much"), "'much', which is not a number"),
    ],
)
def test_tables_that_do_not_fit_are_refused(ask, tmp_path, change, words):
    with pytest.raises(SilodpError, match=words):
        ask(table=change(table_of()), at_least=0.5)
    assert charges(tmp_path) == []


def test_a_row_with_a_gap_is_answered_like_any_other(ask):
    frame = table_of()
    frame.loc[0, "x"] = np.nan
    asked = ask(table=frame, at_least=0.5)
    assert asked.units == 120
    assert np.isfinite(asked._scores.values).all()


def test_who_has_no_ledger_or_no_public_count_is_refused(home, ask, policy, tmp_path):
    with pytest.raises(SilodpError, match=r"has no ledger .* or its policy"):
        silodp.question(home / "ill", table_of(), tmp_path / "none", silo="north", at_least=0.5)
    hidden = policy(public=["feature bounds"], records=100)
    with pytest.raises(SilodpError, match="record count is not public"):
        ask(at_least=0.5, policies=hidden)
    people = policy(subject="patient")
    ask(at_least=0.5, policies=people).answer()
    with pytest.raises(SilodpError, match="counts per subject: give --subject-column"):
        silodp.question(home / "ill", table_of(), tmp_path / "ledgers", silo="north", at_least=0.5)
    with pytest.raises(SilodpError, match="protects the subjects of column 'patient'"):
        ask(at_least=0.5, policies=people, subject_column="x")


def test_a_budget_that_is_gone_refuses_before_anything_is_spent(home, ask, policy, tmp_path):
    small = policy(epsilon=0.5, lifetime_epsilon=0.5)
    ask(at_least=0.5, policies=small, epsilon=0.45).answer()
    with pytest.raises(SilodpError, match="north"):
        ask(at_least=0.5, policies=small, epsilon=0.4)
    assert charges(tmp_path) == [(1, True)]
    # A question that was paid for is answered all the same.
    assert ask(at_least=0.9, policies=small, epsilon=0.45).answer()


def test_the_ledgers_own_lifetime_will_do(home, ask, policy, tmp_path):
    ask(at_least=0.5, policies=policy(relation="replace-one", delta=1e-4)).answer()
    asked = silodp.question(
        home / "ill", table_of(), tmp_path / "ledgers", silo="north", at_least=0.5
    )
    assert (asked.relation, asked.delta, asked.unit) == ("replace-one", 1e-4, "record")
    assert asked.shares is None  # it is the same question
    assert any("privacy is not proven" in note for note in asked.notes)  # trained from a seed


def test_a_model_that_is_not_finite_is_refused(home, ask, tmp_path, policy):
    model = silodp.load_model(home / "ill", silo="north")
    broken = replace(model, params=np.asarray(model.params) * np.nan)
    with pytest.raises(SilodpError, match="its model is not finite"):
        silodp.question(broken, table_of(), tmp_path / "l", at_least=0.5, policies=policy())


def test_a_policy_of_one_silo_is_read_among_those_of_others(policy, tmp_path):
    path = policy(relation="replace-one")
    assert read_policy(path, "north").relation == "replace-one"
    assert read_policy(path, "other").epsilon == 1
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "north.toml").write_text("epsilon = 2\ndelta = 1e-4")
    (folder / "south.toml").write_text("epsilon = 3\ndelta = 1e-4")
    assert read_policy(folder, "south").epsilon == 3


# --- on the command line


def test_it_is_asked_and_answered_on_the_command_line(cli, home, policy, tmp_path, sentence):
    ledgers = tmp_path / "ledgers"
    asked = ("accept", home / "ill", home / "table.csv", "--silo", "north", "--ledger", ledgers)
    asked += ("--at-least", "0.5", "--policies", policy(), "--epsilon", "1")
    assert "this is the table that the model was trained on" in cli(*asked, answers="n\n").stderr
    declined = cli(*asked, answers="n\n")
    assert declined.exit_code == 0
    assert "Price: epsilon 1 at delta 1e-05 (add-remove, per record)" in declined.stderr
    assert "Power: the answer is right with 95 % probability" in declined.stderr
    assert "Nothing was charged." in declined.stderr
    assert charges(tmp_path) == []
    assert "nobody to answer" in cli(*asked).stderr
    accepted = cli(*asked, answers="y\n")
    assert accepted.exit_code == 0
    assert re.search(r"^ *y?\n?(Yes|No): the accuracy of|Cannot say whether", accepted.stdout)
    assert "lies between" in accepted.stdout
    again = json.loads(cli(*asked, "--yes", "--json").stdout)
    set_apart = (*asked[:2], *asked[3:])  # without the table
    assert "on about 24 records" in cli(*set_apart, "--yes").stdout
    assert again["charged_now"] is False
    assert again["interval"][0] <= again["value"] <= again["interval"][1]
    assert charges(tmp_path) == [(1, True)] * 2
    shown = re.sub(r"\s+", "", cli("ledger", "show", ledgers, "--silo", "north").stdout)
    assert "one" in shown
    assert "answer" in shown  # the column is narrow: the words may stand on two lines
    assert "--json asks no questions" in sentence(cli(*asked, "--json"))
    assert "An answer takes a mean" in sentence(cli(*asked, "--metric", "auc"))
    assert "--ledger" in cli("accept", home / "ill", home / "table.csv").stderr
