"""Tuning within policies: what each silo tries, chooses, releases and is charged."""

import json
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent, SelfComposedDpEvent
from federations import small
from sessions import free_session

import silodp
from silodp.base.progress import Reporter
from silodp.data.tasks import get_task
from silodp.engines import checkpoint, execution
from silodp.methods import get_method
from silodp.models.metrics import get_metric
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.accounting.events import EitherDpEvent, from_json, steps_of
from silodp.privacy.ledger.storage import ledger_paths, read_path
from silodp.privacy.mechanisms.queries import Schedule
from silodp.privacy.mechanisms.training import training_event
from silodp.privacy.plan import TrainingSettings, make_plans
from silodp.privacy.policy import Policy
from silodp.privacy.trials import Trials
from silodp.privacy.tuning import Tuning
from silodp.tuning.search import are_finite, best_tries, settings_of, trials_of, tries_of
from silodp.tuning.set_apart import set_apart

pytestmark = pytest.mark.usefixtures("kept_programs")

TUNING = Tuning(Trials(4, 0.0), (("lam", (0.1, 1.0, 10.0)),), "noisy", 2.0, pivot=True)
FEDERATION = small(sizes=(40, 70, 55))
OPTIONS = {"epsilon": 3.0, "delta": 1e-3, "rounds": 3, "batch_size": 16, "lr": 0.1}
GRID = {"lam": [0.1, 1.0, 10.0]}
# Full batches: their price has a closed form, and is found at once.
CALL = ["tune", "--data", "synthetic", "--silos", "3", "--rounds", "4", "--epsilon", "3"]
CALL += ["--batch-size", "5000", "--small-silos", "full-batch"]


def plan(tuning=TUNING, relation="add-remove", **policy):
    policies = [Policy(**{"epsilon": 3.0, "delta": 1e-3, "relation": relation} | policy)]
    settings = TrainingSettings(16, 1.0)
    (made,) = make_plans(["a"], [64], policies, Schedule(5), settings, tuning=tuning)
    return made


# What it costs


def test_the_event_is_the_papers_protocol():
    """The pivot's run is sent, and of the trials the best; records set apart pay for scores."""
    made = plan()
    run = partial(training_event, rate=made.sampling_rate, steps=20)
    z = made.noise_multiplier
    expected = EitherDpEvent(
        [
            ComposedDpEvent([run(2 * z), RepeatAndSelectDpEvent(run(z), 4, 0.0)]),
            RepeatAndSelectDpEvent(GaussianDpEvent(made.score_noise), 4, 0.0),
        ]
    )
    assert 2.99 < epsilon_of(expected, 1e-3) <= 3 < epsilon_of(expected, 1e-3, "rdp")
    assert made.epsilon == pytest.approx(epsilon_of(expected, made.delta_for_queries))
    assert steps_of(made.event) == steps_of(made.event_of(-1, 6)) == steps_of(expected)
    # Either part alone stays within the budget, and neither has much to spare.
    train, score = expected.events
    assert epsilon_of(train, 1e-3) == pytest.approx(3, rel=1e-3)
    assert epsilon_of(score, made.delta_for_queries) == pytest.approx(0.9 * 3, rel=1e-3)


def test_public_scores_cost_nothing_and_methods_that_send_nothing_have_no_pivot():
    public = plan(replace(TUNING, score="public"))
    assert public.score_noise == 0
    assert "Either" not in repr(public.event)
    assert public.noise_multiplier == pytest.approx(plan().noise_multiplier, rel=2e-3)
    alone = plan(replace(TUNING, score="public", pivot=False))
    best = RepeatAndSelectDpEvent(
        training_event(alone.noise_multiplier, alone.sampling_rate, 20), 4, 0.0
    )
    assert epsilon_of(best, 1e-3) == pytest.approx(3, rel=1e-3)
    assert alone.noise_multiplier < public.noise_multiplier


def test_no_privacy_asks_for_no_noise():
    made = plan(epsilon=math.inf)
    assert made.noise_multiplier == made.score_noise == 0


def test_draws_that_do_not_fit_are_counted_over_all_trials():
    many = Policy(epsilon=3.0, delta=1e-6)
    plans = partial(make_plans, ["a"], [4000], [many], Schedule(1), TrainingSettings(40, 1.0))
    (once,), (tuned,) = (plans("pld", tuning=tuning, heavy=True) for tuning in (None, TUNING))
    assert once.draw == tuned.draw == "gaps"
    assert tuned.batch_capacity >= once.batch_capacity
    # The same share of delta pays for all of them: 1 + 4 runs, and the number of trials.
    assert tuned.overflow == pytest.approx(once.overflow, rel=0.01)
    # Where batches always fit, the number of trials may still be cut, and is paid for.
    made = plan()
    assert made.draw == "every"
    assert made.delta_for_queries < made.delta
    beyond = 1 - TUNING.trials.probabilities(made.most_trials).sum()
    assert max(beyond, 0) <= made.overflow < 1e-6 * made.delta


def test_replace_one_has_a_price_for_sampled_trials():
    """Also where their number is Poisson, by the Rényi curve of replace-one."""
    for tuning in (TUNING, replace(TUNING, trials=Trials(4, math.inf))):
        exchanged = plan(tuning, relation="replace-one").noise_multiplier
        assert exchanged > 1.5 * plan(tuning).noise_multiplier


# What a silo does


def test_each_silo_draws_its_own_trials():
    plans = [replace(plan(), silo=f"silo {n}") for n in range(300)]
    counts = np.array([trials_of(own, 0, b"") for own in plans])
    numbers = counts.sum(axis=1)
    assert numbers.min() == 1  # at least one, by this distribution
    assert len(set(numbers.tolist())) > 8
    assert numbers.mean() == pytest.approx(4, abs=4 * numbers.std() / math.sqrt(300))
    share = counts.sum(axis=0) / numbers.sum()
    assert share == pytest.approx(np.full(3, 1 / 3), abs=0.06)
    again = [trials_of(own, 0, b"secret") for own in plans]
    assert not np.array_equal(counts, again)


def test_settings_are_the_pivot_and_each_try_with_noise_as_charged():
    """And with numbers of their own, from which batches and noise come."""
    plans = (plan(), replace(plan(), silo="b", noise_multiplier=5.0))
    values = vars(silodp.RunRequest(lam=0.6, lr=0.1, server_lr=1.0))
    spec = SimpleNamespace(values=values, plans=plans, method=get_method("mrmtl"))
    prepared = SimpleNamespace(specs=[spec], plans=[plans])
    drawn = np.array([[[2, 0, 1], [1, 0, 0]]])
    pivot, *tries = settings_of(prepared, drawn)
    assert (pivot.options["lam"], pivot.trial) == (0.6, 0)
    assert [p.noise_multiplier for p in pivot.plans] == [2 * p.noise_multiplier for p in plans]
    assert [(one.options["lam"], one.trial) for one in tries] == [(0.1, 1), (0.1, 2), (10.0, 3)]
    assert all(one.plans == plans for one in tries)


def searched(metrics, drawn, noise, metric="mse", bound=1.0, count=50):
    """The best tries of one seed, given the metric [settings, silos] on records set apart."""
    silos = drawn.shape[1]
    names = tuple(f"s{k}" for k in range(silos))
    counts = {"test": range(count), "public_test_count": count, "max_test_count": count}
    own = [SimpleNamespace(name=name, **counts) for name in names]
    federation = SimpleNamespace(names=names, silos=own)
    training = SimpleNamespace(
        execution=SimpleNamespace(metrics=np.array([[metrics]])),
        settings=[None] * len(metrics),
        seeds=[0],
        secret=b"",
        session=free_session(1, names),
    )
    prepared = SimpleNamespace(federations=[federation], metric=get_metric(metric))
    job = SimpleNamespace(metric_bound=bound, rounds=1)
    return best_tries(prepared, job, training, drawn, [noise] * silos)[0].tolist()


def test_a_silo_chooses_the_best_of_its_own_tries_only():
    drawn = np.array([[[2, 0], [1, 1], [0, 0], [0, 1]]])  # [seed, silos, points]
    assert tries_of(drawn) == [(0, 0), (0, 1), (1, 0)]
    pivot = [0.0] * 4  # best of all, but no try
    tries = [[0.5, 0.5, 0.1, 0.1], [0.4, 0.1, 0.1, 0.1], [0.1, 0.3, 0.1, 0.2]]
    assert searched([pivot, *tries], drawn, 0.0) == [1, 2, -1, 2]
    # Of accuracies, the highest.
    assert searched([pivot, *tries], drawn, 0.0, metric="accuracy") == [0, 0, -1, 2]


def test_models_that_are_not_finite_are_the_worst():
    drawn = np.array([[[2], [1]]])
    metrics = [[0.0, 0.0], [math.nan, math.nan], [0.9, 0.1]]
    assert searched(metrics, drawn, 0.0) == [1, 0]
    models = {"w": np.array([[[1.0, 2.0], [1.0, np.inf]]]), "b": np.array([[[0.0], [0.0]]])}
    assert are_finite(models).tolist() == [[True, False]]


def test_a_score_record_moves_the_score_by_no_more_than_its_bound():
    outputs, y = jnp.array([0.5, math.nan, math.inf, 1e30, 0.0]), jnp.zeros(5)
    task, mse = get_task("regression"), get_metric("mse")
    assert mse.bounded_share(task, outputs, y, 1.0).tolist() == [0.25, 1, 1, 1, 0]
    assert math.isnan(mse.share(task, outputs, y)[1])


def test_scores_have_the_planned_noise():
    """With scores apart by one standard deviation of their difference, the better wins at 84 %."""
    silos, count, noise = 3000, 50, 2.0
    deviation = noise * 1.0 / count
    drawn = np.ones((1, silos, 2), int)
    metrics = [[0.0] * silos, [0.5] * silos, [0.5 + math.sqrt(2) * deviation] * silos]
    found = searched(metrics, drawn, noise, count=count)
    assert np.mean(np.array(found) == 0) == pytest.approx(0.8413, abs=4 * 0.3654 / silos**0.5)


def test_records_are_trained_on_or_scored_with_and_never_both():
    parted = set_apart(FEDERATION, 0.2)
    for silo, own in zip(FEDERATION.silos, parted.silos, strict=True):
        assert len(own.test) == pytest.approx(0.2 * len(silo.train), abs=1)
        both = np.concatenate([own.train.y, own.test.y])
        assert np.array_equal(np.sort(both), np.sort(silo.train.y))
    # One record more leaves all others where they are.
    first = FEDERATION.silos[0]
    fewer = replace(first, train=first.train.take(np.arange(len(first.train) - 1)))
    (without,) = set_apart(replace(FEDERATION, silos=(fewer,)), 0.2).silos
    moved = set(parted.silos[0].train.y) ^ set(without.train.y)
    moved |= set(parted.silos[0].test.y) ^ set(without.test.y)
    assert moved == {first.train.y[-1]}


# The whole, as users run it


@pytest.fixture(scope="module")
def charged(cli, tmp_path_factory):
    """A tuned run through the command line, with ledgers."""
    folder = tmp_path_factory.mktemp("tuned")
    done = cli(
        *CALL, *("--try", "lam=0.1,1,10", "--trials", "4", "--ledger", folder / "ledger"), "--json",
        *("--out", folder / "out", "--save-models", "--quiet"),
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_ledger_shows_the_tuned_cost(cli, sentence, charged):
    folder, result = charged
    for path, told in zip(ledger_paths(folder / "ledger"), result["privacy"], strict=True):
        entries = {e.kind: e.body for e in read_path(path).entries}
        # As a whole, before its first round: no part of it has a price.
        assert (entries["charge"]["first"], entries["charge"]["event"]) == (
            -1,
            entries["reserve"]["event"],
        )
        event: DpEvent = from_json(entries["charge"]["event"])
        text = repr(event)
        assert text.count("RepeatAndSelect") == 2
        assert "EitherDpEvent" in text
        spent = epsilon_of(event, told["delta"])
        assert 2.9 < spent <= told["epsilon"] * (1 + 1e-9) <= 3
        assert entries["reserve"]["about"]["queries"] == ["tuning"]
    refused = sentence(cli(*CALL, "--try", "lam=1", "--ledger", folder / "ledger"))
    assert "lifetime allowance" in refused


def test_only_the_best_is_released(charged):
    folder, result = charged
    assert {p.name for p in (folder / "out").iterdir()} == {
        "result.json", "models.npz", "models", "tuning.png",
    }  # fmt: skip
    with np.load(folder / "out" / "models.npz") as models:
        assert models["model"].shape[:2] == (1, 3)  # one model a silo
    tuning = result["tuning"]
    assert "secret" in tuning["note"]
    assert "trials_of_silos" not in json.dumps(result)
    assert result["seconds"] == {}  # how long it took says how many there were
    assert all(silo["per_seed"][0]["lam"] in (0.1, 1, 10) for silo in tuning["chosen"])
    assert result == json.loads((folder / "out" / "result.json").read_text())


def test_costs_are_those_of_the_events(charged):
    _, result = charged
    (cost,) = result["tuning"]["costs"]
    noise, spent, delta = cost["noise"], cost["epsilon_at_untuned_noise"], cost["delta"]
    run = partial(training_event, rate=1.0, steps=4)
    assert epsilon_of(run(noise["untuned"]), delta) == pytest.approx(spent["untuned"], rel=1e-3)
    # Naive search: as many runs as the grid has points, all of them released.
    naive = epsilon_of(SelfComposedDpEvent(run(noise["untuned"]), 3), delta)
    assert naive == pytest.approx(spent["naive"], rel=1e-3)
    assert noise["naive"] == pytest.approx(math.sqrt(3) * noise["untuned"], rel=1e-3)
    tuned = [
        run(2 * noise["untuned"]),
        RepeatAndSelectDpEvent(run(noise["untuned"]), 4, 0.0),
    ]
    assert epsilon_of(ComposedDpEvent(tuned), delta) == pytest.approx(spent["tuned"], rel=1e-3)
    assert spent["untuned"] <= 3 < spent["tuned"]


@pytest.mark.slow
def test_the_table_says_what_each_way_costs(cli):
    done = cli(*CALL, "--try", "lam=0.1,1", "--compare", "--eta", "inf", "--seeds", "2")
    assert done.exit_code == 0, done.stderr
    for words in ("naive search, 2 runs", "tuned, 2 trials on average", "untuned", "Chosen: "):
        assert words in done.stdout
    assert "has in truth spent" in done.stdout
    assert "(--compare)" not in done.stdout


def test_methods_that_send_nothing_show_nothing_of_a_pivot():
    """Local training has none that was paid for: a trial that diverged is not replaced by it."""
    asked = OPTIONS | {"federation": FEDERATION, "method": "local", "batch_size": 1000}
    asked |= {"small_silos": "full-batch", "grid": {"lr": [0.1]}, "trials": 1}
    found = silodp.tune(**asked)
    assert "pivot_test" not in found.tuning
    assert found.tuning["pivot_noise"] is None
    assert all(silo["per_seed"] == [{"lr": 0.1}] for silo in found.tuning["chosen"])
    with pytest.raises(silodp.SilodpError, match="not finite any more"):
        silodp.tune(**asked | {"grid": {"lr": [1e30]}, "rounds": 20})


class StopAt(Reporter):
    def __init__(self, rounds):
        self.rounds = rounds

    def trained(self, done, total, metric):
        assert math.isnan(metric)  # of trials, nothing is shown
        assert total == 100  # nor how many parts they are trained in
        if done >= self.rounds:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    """In parts, with secret noise and trials: what was drawn before is what goes on."""
    monkeypatch.setattr(execution, "MOST_TRIALS", 3)
    monkeypatch.setattr("silodp.privacy.session.new_secret", lambda _: b"a secret")
    asked = OPTIONS | {"federation": FEDERATION, "grid": GRID, "eta": 5.0, "entropy": "os"}
    asked |= {"keep_models": True, "out": tmp_path, "trials": 3}
    asked |= {"batch_size": 1000, "small_silos": "full-batch"}
    with pytest.raises(KeyboardInterrupt):
        silodp.tune(**asked, reporter=StopAt(40))  # in the second part
    saved = checkpoint.load(tmp_path)
    assert (saved.chunk, len(saved.models)) == (1, 1)
    assert saved.round > 0
    whole = silodp.tune(**asked | {"out": None})
    monkeypatch.setattr("silodp.privacy.session.new_secret", lambda _: b"another")
    resumed = silodp.tune(**asked, resume=True)
    assert resumed.test == whole.test
    assert resumed.tuning == whole.tuning
    np.testing.assert_array_equal(resumed.models, whole.models)
    assert {p.name for p in tmp_path.iterdir()} == {"result.json", "models.npz", "models"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "There is nothing to try"),
        (["--try", "lam"], "give a name and numbers"),
        (["--try", "lam=a"], "give a name and numbers"),
        (["--try", "lam=1", "--try", "lam=2"], "given twice"),
        (["--try", "lam=-1"], "--lam is -1.0"),
        (["--try", "lam=nan"], "--lam is nan"),
        (["--try", "lam=1,inf"], "--lam is infinite, with which method 'mrmtl' would not learn"),
        (["--try", "clip=1,2"], "not a silo's own to choose"),
        (["--try", "finetune_fraction=0.5"], "not a silo's own to choose"),
        (["--try", "lr=0.1", "--method", "fedavg"], "no model of their own"),
        (["--try", "lr=0.1", "--method", "ebmtl"], "no model of their own"),
        (["--try", "lr=0.1", "--method", "local", "--eta", "inf"], "may try nothing"),
        (["--try", "lam=1", "--trials", "0.5"], "mean number of trials is 0.5"),
        (["--try", "lam=1", "--eta", "-1"], "eta is -1.0"),
        (["--try", "lam=1", "--trials", "5000"], "might draw more than 20000 trials"),
        (["--try", "lam=1,1"], "has a value twice"),
        (["--try", "lam=1", "--score", "loud"], "choose one of noisy, public"),
        (["--try", "lam=1", "--score", "public"], "does not declare the score records public"),
        (["--try", "lam=1", "--score-fraction", "0.6"], "--score-fraction is 0.6"),
        (["--try", "lam=1", "--score", "public", "--ledger", "l", "--seeds", "2"], "one part"),
        (["--try", "lam=1", "--pivot-noise", "0"], "--pivot-noise is 0.0"),
        (["--try", "lam=1", "--metric-share", "0.1"], "--metric-share: tuning does not pay"),
        (["--try", "lam=1", "--engine", "debug"], "does not tune"),
        (["--try", "lam=1", "--compare", "--ledger", "nowhere"], "no ledger is charged for"),
        (["--try", "lam=1", "--delta", "0.01"], "delta is 0.01, at least"),
        (["--try", "lam=1", "--records-per-subject", "2"], "single records only"),
    ],
)  # fmt: skip
def test_what_is_refused(cli, sentence, tmp_path, options, words):
    assert words in sentence(cli(*CALL, *options, "--out", tmp_path / "out", "--quiet"))
    assert not (tmp_path / "out").exists()


def test_silos_need_public_counts(tmp_path):
    asked = OPTIONS | {"grid": GRID, "small_silos": "full-batch"}
    policies = tmp_path / "policies.toml"
    policies.write_text("[default]\npublic = []\nrecords = 50\n")
    with pytest.raises(silodp.SilodpError, match="record count is not public"):
        silodp.tune(**asked, federation=FEDERATION, policies=policies, weights="uniform")
