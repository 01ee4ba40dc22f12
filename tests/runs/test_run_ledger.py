"""Runs that are charged to ledgers, through the real command line."""

import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent
from federations import small

import silodp
from silodp.base.progress import Reporter
from silodp.engines import checkpoint, debug, execution, simulation
from silodp.privacy.accounting.events import from_json
from silodp.privacy.ledger import charging, lifetime
from silodp.privacy.ledger.account import Allowance, account_of
from silodp.privacy.ledger.standing import remaining
from silodp.privacy.ledger.storage import backup, ledger_paths, read_path
from silodp.privacy.session import RunSession
from silodp.runs import training_run
from silodp.runs.accounts import BLOCKS, ledgers_of

pytestmark = pytest.mark.usefixtures("kept_programs")

# Charges are the same for each method of one pass: the one that compiles soonest will do.
RUN = ["run", "--method", "local", "--silos", "2", "--rounds", "6", "--epsilon", "2"]


def runs_in(folder):
    """Of each silo, its runs."""
    return [list(account_of(read_path(path)).runs.values()) for path in ledger_paths(folder)]


def states(folder):
    """Of each silo, where its runs stand: why they were closed, or that they are open."""
    return [[run.closed or run.state for run in runs] for runs in runs_in(folder)]


def allowing(epsilon):
    return ["--lifetime-epsilon", str(epsilon)]


def test_a_run_is_charged_and_the_next_is_refused(cli, sentence, tmp_path):
    ledger = tmp_path / "ledger"
    done = cli(*RUN, "--ledger", ledger, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["options"]["entropy"] == "os"
    assert states(ledger) == [["finished"], ["finished"]]
    for (run,) in runs_in(ledger):
        assert run.charged == 6
        # All rounds in blocks; nothing is asked beside them.
        assert [(b.first, b.last) for b in run.blocks] == [(0, 2), (2, 4), (4, 6)]
    # The lifetime is that of one run, which has it alone.
    assert "alone, which did not fit otherwise" in sentence(cli(*RUN, "--ledger", ledger))
    # A silo that allows more for its lifetime goes on; costs compose, they do not add up.
    assert cli(*RUN, "--ledger", ledger, "--quiet", *allowing(3.9)).exit_code == 0
    shown = json.loads(cli("ledger", "remaining", ledger, "--json").stdout)["silos"]
    for silo in shown:
        assert silo["lifetime_epsilon"] == 3.9
        # Raised after something was charged, it says nothing of what was spent by then.
        assert silo["changed"]
        assert 3.9 < silo["spent_epsilon"] < 4.5
        assert silo["runs"] == 2
        assert silo["open_runs"] == []
    error = sentence(cli(*RUN, "--ledger", ledger, *allowing(3.9)))
    assert "does not fit its lifetime allowance" in error
    assert "of its 6 rounds would still fit" in error
    assert cli("ledger", "verify", ledger).exit_code == 0


def test_refused_before_any_record_is_read(cli, sentence, tmp_path):
    table = tmp_path / "t.csv"
    rows = [f"{'ab'[i % 2]},{i % 7},{i % 5}" for i in range(120)]
    table.write_text("\n".join(["site,x,y", *rows]))
    schema = tmp_path / "s.toml"
    schema.write_text("[bounds]\nx = [0, 7]\n[target]\nrange = [0, 5]")
    given = ["--data", table, "--silo-column", "site", "--target", "y", "--schema", schema]
    given += ["--task", "regression", "--epsilon", "2", "--delta", "1e-4", "--rounds", "5"]
    given += ["--batch-size", "16", "--method", "local", "--ledger", tmp_path / "ledger"]
    assert cli("run", *given, "--quiet").exit_code == 0
    # The table is now one that cannot be read: nobody notices, because nobody reads it.
    table.write_bytes(b"\xff\xfe\x00 not a table")
    assert "lifetime allowance" in sentence(cli("run", *given))
    assert "lifetime allowance" in sentence(cli("plan", *given))
    # With more to spend, or of other records, it is not known before.
    for more in (allowing(9), ("--density", "0.9")):
        error = sentence(cli("run", *given, *more))
        assert "lifetime allowance" not in error
        assert str(table) in error


def test_every_seed_is_a_run_of_its_own(tmp_path):
    options = {"federation": small(), **QUICK}
    with pytest.raises(silodp.SilodpError, match="lifetime allowance"):
        silodp.run(**options, seeds=3, ledger=tmp_path / "ledger")
    assert not (tmp_path / "ledger").exists()
    silodp.run(**options, seeds=3, lifetime_epsilon=6, ledger=tmp_path / "ledger")
    spent = remaining(tmp_path / "ledger", "silo 0")["spent_epsilon"]
    assert 2 < spent < 6


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--sampling", "shuffle"], ["only what is proven", "shuffle"]),
        (["--epsilon", "inf"], ["only what is proven", "no privacy"]),
        (["--entropy", "seed"], ["--entropy is 'seed'", "share"]),
        (["--lifetime-epsilon", "1"], ["lifetime_epsilon is 1"]),
    ],
)
def test_what_a_ledger_does_not_take(cli, sentence, tmp_path, more, words):
    error = sentence(cli(*RUN, "--ledger", tmp_path / "ledger", *more))
    for word in words:
        assert word in error
    assert not (tmp_path / "ledger").exists()


def test_settings_of_a_sweep_share_noise_and_are_refused(tmp_path):
    with pytest.raises(silodp.SilodpError, match="share their noise"):
        silodp.sweep(federation=small(), lr=[0.1, 1], epsilon=2, delta=1e-4, ledger=tmp_path)


def test_the_ledger_counts_one_relation(cli, sentence, tmp_path):
    assert cli(*RUN, "--ledger", tmp_path, "--quiet", *allowing(9)).exit_code == 0
    more = ["--relation", "replace-one", *allowing(9)]
    assert "relation" in sentence(cli(*RUN, "--ledger", tmp_path, *more))


def test_a_damaged_ledger_stops_the_run(cli, sentence, tmp_path):
    ledger = tmp_path / "ledger"
    assert cli(*RUN, "--ledger", ledger, "--quiet", *allowing(9)).exit_code == 0
    path = ledger_paths(ledger)[0]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    sentence(cli(*RUN, "--ledger", ledger, *allowing(9)))
    assert cli("ledger", "verify", ledger).exit_code == 2


def test_a_run_that_fails_before_its_first_round_gives_everything_back(monkeypatch, tmp_path):
    def broken(*args, **kwargs):
        raise RuntimeError("no memory")

    monkeypatch.setattr("silodp.engines.execution.Simulation", broken)
    with pytest.raises(RuntimeError):
        silodp.run(federation=small(), **QUICK, ledger=tmp_path)
    assert states(tmp_path) == [["failed: RuntimeError"]] * 3
    left = remaining(tmp_path, "silo 0")
    assert (left["spent_epsilon"], left["left_share"], left["reserved_share"]) == (0, 1, 0)
    assert left["given_back_share"] > 0
    monkeypatch.undo()
    silodp.run(federation=small(), **QUICK, ledger=tmp_path)


class Failing(Reporter):
    """Breaks a run where it is told of so many rounds: whatever was trained was released."""

    def __init__(self, at=1, error=RuntimeError):
        self.at, self.error = at, error

    def trained(self, done, total, metric):
        if done >= self.at:
            raise self.error("in the middle of it")


QUICK = {"method": "local", "epsilon": 2, "delta": 1e-4, "rounds": 2, "batch_size": 16}
QUICK |= {"evaluate_every": 1}


def check_charged(folder, rounds, state="failed: RuntimeError", name="silo 0"):
    """The one silo has paid for so many rounds, and for no more."""
    ((run,),) = runs_in(folder)
    assert (run.charged, run.closed or run.state) == (rounds, state)
    left = remaining(folder, name)
    assert left["spent_epsilon"] > 0
    if run.closed and not run.alone:
        assert left["reserved_share"] == 0
        assert left["spent_share"] + left["left_share"] == pytest.approx(1)


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize("engine", ["simulation", "debug"])
def test_a_run_that_fails_while_training_has_paid_for_its_blocks(tmp_path, monkeypatch, engine):
    """In either engine: records were asked, whatever came of it, and whatever it is called."""
    stage = training_run.Watch.stage
    monkeypatch.setattr(training_run.Watch, "stage", lambda self, name: stage(self, "renamed"))
    with pytest.raises(RuntimeError, match="in the middle"):
        silodp.run(
            federation=small(sizes=(40,)),
            **(QUICK | {"rounds": 8, "lifetime_epsilon": 8}),
            engine=engine,
            ledger=tmp_path,
            reporter=Failing(at=3),
        )
    check_charged(tmp_path, 4)
    left = remaining(tmp_path, "silo 0")
    assert left["given_back_share"] == pytest.approx(left["spent_share"], rel=1e-6)


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize("engine", ["simulation", "debug"])
def test_every_round_is_charged_before_it_is_answered(tmp_path, monkeypatch, engine):
    """Looked up on the disk at the moment at which records are asked."""
    seen = []

    def charged():
        ((run,),) = runs_in(tmp_path)
        return {n for block in run.blocks for n in range(block.first, block.last)}

    advance, queries = simulation.Simulation.advance, debug._queries

    def looked(self, state, paid, *more):
        assert set(range(paid.first, paid.last)) <= charged()
        seen.append(paid.last)
        return advance(self, state, paid, *more)

    def looked_debug(*args):
        assert set(range(args[-1].first, args[-1].last)) <= charged()
        seen.append(args[-1].last)
        return queries(*args)

    monkeypatch.setattr(simulation.Simulation, "advance", looked)
    monkeypatch.setattr(debug, "_queries", looked_debug)
    silodp.run(
        federation=small(sizes=(40,)), **(QUICK | {"rounds": 7}), engine=engine, ledger=tmp_path
    )
    assert seen[-1] == 7
    check_charged(tmp_path, 7, "finished")


@pytest.mark.parametrize(
    "where", ["runs.run.metrics_of", "runs.run.check_finite", "results.result.Result.write"]
)
def test_a_run_that_fails_after_training_is_closed_too(tmp_path, monkeypatch, where):
    """All rounds were answered and count; nobody can go on with it, so that it is not left open."""

    def broken(*args, **kwargs):
        raise RuntimeError("no room")

    monkeypatch.setattr(f"silodp.{where}", broken)
    options = {"metric_share": 0.2, "metric_bound": 5.0, "out": tmp_path / "out"}
    with pytest.raises(RuntimeError, match="no room"):
        silodp.run(federation=small(sizes=(40,)), **QUICK, **options, ledger=tmp_path / "ledger")
    check_charged(tmp_path / "ledger", 2)
    ((run,),) = runs_in(tmp_path / "ledger")
    evaluated = any(block.last > 2 for block in run.blocks)
    assert evaluated == (where != "runs.run.metrics_of")  # what was not released is given back


@pytest.mark.parametrize("hears", [False, True])
def test_who_is_told_does_not_matter_to_a_charge(tmp_path, monkeypatch, hears):
    """The first answer itself fails, and nobody was told that training began."""

    def broken(*args, **kwargs):
        raise RuntimeError("in the middle of it")

    monkeypatch.setattr(simulation.Simulation, "advance", broken)
    if not hears:
        monkeypatch.setattr(training_run.Watch, "stage", lambda self, name: None)
    with pytest.raises(RuntimeError, match="in the middle"):
        silodp.run(federation=small(sizes=(40,)), **QUICK, ledger=tmp_path)
    check_charged(tmp_path, 1)


class Deaf(Reporter):
    """Breaks where it is told of a stage: before training, or as training begins."""

    def __init__(self, when):
        self.when = when

    def stage(self, name):
        if name == self.when:
            raise RuntimeError("nobody listens")


@pytest.mark.parametrize("when", ["reserving budgets", "compiling", "training"])
def test_a_reporter_that_fails_before_any_query(tmp_path, when):
    """Nothing was released: nothing is reserved, or all of it is given back."""
    with pytest.raises(RuntimeError, match="nobody listens"):
        silodp.run(
            federation=small(sizes=(40,)), **QUICK, ledger=tmp_path / "l", reporter=Deaf(when)
        )
    if when == "reserving budgets":
        assert not (tmp_path / "l").exists()
        return
    assert states(tmp_path / "l") == [["failed: RuntimeError"]]
    left = remaining(tmp_path / "l", "silo 0")
    assert (left["spent_epsilon"], left["left_share"]) == (0, 1)


def with_statistics(folder, rounds=6):
    """Options of a run that asks for statistics before it trains."""
    records = silodp.Records(np.tile([[0.5, -0.5]], (60, 1)), np.linspace(0, 1, 60))
    federation = silodp.Federation(
        "f", (silodp.Silo("s", records, records),), "regression", feature_bound=1.0
    )
    options = {"federation": federation, "epsilon": 2, "delta": 1e-4, "rounds": rounds}
    options |= {"statistics_share": 0.1, "evaluate_every": 1, "method": "local"}
    return options | {"ledger": folder / "ledger", "out": folder / "out"}


@pytest.mark.parametrize("where", ["runs.training_run.noisy_moments", "runs.training_run.execute"])
def test_statistics_are_a_block_of_their_own(tmp_path, monkeypatch, where):
    """While they are drawn, or after: what fails then has asked for them, and for no round."""

    def broken(*args, **kwargs):
        raise RuntimeError("no memory")

    monkeypatch.setattr(f"silodp.{where}", broken)
    with pytest.raises(RuntimeError, match="no memory"):
        silodp.run(**with_statistics(tmp_path))
    ((run,),) = runs_in(tmp_path / "ledger")
    assert [(b.first, b.last) for b in run.blocks] == [(-1, 0)]
    left = remaining(tmp_path / "ledger", "s")
    assert 0 < left["spent_share"] < left["given_back_share"]


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize("engine", ["simulation", "debug"])
def test_blocks_cost_what_the_plan_says_and_no_more(tmp_path, engine):
    """Statistics, rounds and metrics, each where it falls; together they are the plan's event."""
    options = with_statistics(tmp_path, rounds=9) | {"evaluate_every": 3, "engine": engine}
    options |= {"metric_share": 0.2, "metric_bound": 1.0, "lifetime_epsilon": 9}
    if engine == "debug":
        del options["out"]
    plain = {name: value for name, value in options.items() if name != "out"}
    (plan,) = silodp.plan(**plain).plans[0]
    silodp.run(**options)
    ((run,),) = runs_in(tmp_path / "ledger")
    assert run.closed == "finished"
    spans = [(b.first, b.last) for b in run.blocks]
    assert spans == [(-1, 0), (0, 3), (3, 6), (6, 9), (9, 10)]
    entries = read_path(ledger_paths(tmp_path / "ledger")[0]).entries
    events = [from_json(e.body["event"]) for e in entries if e.kind == "charge"]
    found = [str(event) for event in events]
    # Evaluated after rounds 3, 6 and 9: a metric is in the block of the round after.
    assert [text.count("Poisson") for text in found] == [0, 1, 1, 1, 0]
    opened = Allowance(9.0, 1e-4).opened()
    whole = lifetime.cost(plan.event, opened)
    parts = [lifetime.cost(event, opened) for event in events]
    assert math.fsum(parts) == pytest.approx(whole, rel=1e-9)
    assert min(parts) > 0
    assert lifetime.cost(ComposedDpEvent(events), opened) == pytest.approx(whole, rel=1e-9)
    reserved = from_json(next(e.body["event"] for e in entries if e.kind == "reserve"))
    assert lifetime.cost(reserved, opened) == pytest.approx(whole, rel=1e-12)
    assert remaining(tmp_path / "ledger", "s")["given_back_share"] == 0
    assert sum(b.cost.overflow for b in run.blocks) == pytest.approx(run.whole.overflow)


def test_a_metric_is_charged_before_it_is_noised(tmp_path, monkeypatch):
    """The final evaluation is a block, and noise is drawn after it is on the disk."""
    seen = []
    noisy = RunSession.noisy_mean

    def looked(self, paid, *more):
        ((run,),) = runs_in(tmp_path)
        seen.append(run.blocks[-1].last)
        assert (paid.first, paid.last) == (0, 3)
        return noisy(self, paid, *more)

    monkeypatch.setattr(RunSession, "noisy_mean", looked)
    silodp.run(
        federation=small(sizes=(40,)), **QUICK, metric_share=0.2, metric_bound=5.0, ledger=tmp_path
    )
    assert seen == [3]


def test_a_later_part_that_fails_takes_nothing_back(tmp_path, monkeypatch):
    """Seeds in two parts: the second is not compiled before the first is trained."""
    made = []

    def once(*args, **kwargs):
        made.append(args)
        if len(made) > 1:
            raise RuntimeError("no memory")
        return simulation.Simulation(*args, **kwargs)

    monkeypatch.setattr(execution, "Simulation", once)
    monkeypatch.setattr(execution, "MEMORY_FOR_RECORDS", 1)
    with pytest.raises(RuntimeError, match="no memory"):
        silodp.run(
            federation=small(sizes=(40,)), **QUICK, seeds=2, lifetime_epsilon=4, ledger=tmp_path
        )
    check_charged(tmp_path, 2)


@pytest.mark.usefixtures("debug_in_pieces")
@pytest.mark.parametrize("engine", ["simulation", "debug"])
def test_an_engine_cannot_ask_what_is_not_paid_for(tmp_path, monkeypatch, engine):
    """Without a ledger too, so that nobody can forget it: it has no `PaidRounds` to ask with."""
    monkeypatch.setattr(RunSession, "pay", lambda self, first, last: (first, last))
    for ledger in (None, tmp_path):
        with pytest.raises((AttributeError, silodp.SilodpError), match="no attribute 'first'"):
            silodp.run(federation=small(sizes=(40,)), **QUICK, engine=engine, ledger=ledger)
    ((run,),) = runs_in(tmp_path)
    assert run.blocks == ()


def test_a_tuned_run_is_charged_whole_before_its_first_round(tmp_path, monkeypatch):
    """No part of it has a price of its own. Under other names for its stages, as above."""
    stage = training_run.Watch.stage
    monkeypatch.setattr(training_run.Watch, "stage", lambda self, name: stage(self, "renamed"))
    options = QUICK | {"method": "mrmtl", "rounds": 3}
    with pytest.raises(RuntimeError, match="in the middle"):
        silodp.tune(
            federation=small(sizes=(40,)),
            grid={"lam": [0.1]},
            **options,
            ledger=tmp_path,
            reporter=Failing(),
        )
    ((run,),) = runs_in(tmp_path)
    (block,) = run.blocks
    assert (block.first, block.last, block.cost) == (-1, 4, run.whole)
    assert run.closed == "failed: RuntimeError"


def test_a_run_is_charged_in_few_blocks(tmp_path):
    (prepared,) = [silodp.plan(federation=small(), **(QUICK | {"rounds": 50}), ledger=tmp_path)]
    ledgers = ledgers_of(prepared)
    for one in ledgers.reservations.values():
        assert len({one.block_of(number) for number in range(50)}) == BLOCKS
        whole = [one.block_of(number) for number in (-1, 50)]
        assert whole == [(-1, 0), (50, 51)]


def test_noise_is_secret_and_never_the_same(tmp_path):
    options = {"federation": small(), **QUICK}
    runs = [silodp.run(**options, entropy="os", keep_models=True).models for _ in range(2)]
    assert abs(runs[0] - runs[1]).max() > 1e-3
    seeded = [silodp.run(**options, keep_models=True).models for _ in range(2)]
    assert abs(seeded[0] - seeded[1]).max() == 0


def test_keys_reach_no_file_and_no_message(monkeypatch, tmp_path, cli):
    """A key that is known here, looked for in all that is written and printed."""
    words = np.array([0x5EC2E7AA, 0x13579BDF], np.uint32)
    monkeypatch.setattr("silodp.engines.simulation.run_key", lambda seed, secret: words)
    done = cli(*RUN, "--ledger", tmp_path / "ledger", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0
    spelled = [words.tobytes(), words.byteswap().tobytes(), *(b"%d" % w for w in words.tolist())]
    spelled += [b"%x" % w for w in words.tolist()]
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    texts += [done.stdout.encode(), done.stderr.encode()]
    assert len(texts) > 4
    for text in texts:
        assert not any(key in text for key in spelled)


def test_two_runs_at_once_against_a_budget_for_one(tmp_path):
    """Exactly one is refused, and that one has left nothing."""
    command = [sys.executable, "-m", "silodp", *RUN, "--quiet", "--ledger", str(tmp_path / "l")]
    both = [
        subprocess.Popen(
            [*command, "--out", str(tmp_path / name)], stderr=subprocess.PIPE, text=True
        )
        for name in "ab"
    ]
    outcomes = [(process.communicate(timeout=120)[1], process.returncode) for process in both]
    codes = sorted(code for _, code in outcomes)
    assert codes == [0, 2], outcomes
    refused = next(text for text, code in outcomes if code == 2)
    assert "lifetime allowance" in refused
    assert states(tmp_path / "l") == [["finished"], ["finished"]]
    assert len(list(tmp_path.glob("?/result.json"))) == 1


# Enough rounds that a kill lands anywhere: importing, planning, charging, training, writing; and
# checkpoints often enough that there is something to go on from.
ROUNDS = 1000
LONG = [*RUN[:5], "--rounds", str(ROUNDS), "--epsilon", "1", "--lifetime-epsilon", "2.4"]
OFTEN = """
from silodp.engines import execution
execution.SECONDS_BETWEEN_CHECKPOINTS = execution.SECONDS_BETWEEN_REPORTS = 0.02
from silodp.cli import app
app()
"""


def check_charged_as_released(folder):
    """Whatever a result or a checkpoint shows was charged before, in every silo."""
    ledger = folder / "ledger"
    if not ledger.exists() or not any(ledger.glob("*.ledger")):
        assert not list(folder.glob("out*/result.json"))
        return
    accounts = [account_of(read_path(path)) for path in ledger_paths(ledger)]  # chains are whole
    for path in folder.glob("out*/checkpoint.npz"):
        found = checkpoint.load(path.parent)
        for account in accounts:
            assert account.runs[found.charge].charged >= found.round > 0
    results = len(list(folder.glob("out*/result.json")))
    for account in accounts:
        assert sum(run.charged == ROUNDS for run in account.runs.values()) >= results
        for run in account.runs.values():
            assert run.counted == (run.spent if run.closed else (run.whole,))
        (promise,) = account.promises
        taken = math.fsum(cost.taken(promise.lifetime) for cost in account.counted)
        assert taken <= promise.lifetime.budget


def started(folder, out):
    arguments = [*LONG, "--quiet", "--ledger", folder / "ledger", "--out", out]
    return subprocess.Popen(
        [sys.executable, "-c", OFTEN, *map(str, arguments)], stderr=subprocess.PIPE, text=True
    )


def kill_and_check(folder, number, wait):
    """One run, killed after so many seconds, or at so many rounds that a checkpoint shows."""
    out = folder / f"out{number}"
    process = started(folder, out)
    if wait is None:
        while process.poll() is None and not (out / "checkpoint.npz").exists():
            time.sleep(0.01)
    else:
        time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    check_charged_as_released(folder)
    return out


def go_on_or_be_refused(cli, folder, out):
    """The next run with the same folder goes on, starts anew, or is refused for the budget."""
    resumed = (out / "checkpoint.npz").exists()
    arguments = [*LONG, "--quiet", "--ledger", folder / "ledger", "--out", out, "--resume"]
    done = cli(*arguments)
    check_charged_as_released(folder)
    if done.exit_code == 0:
        assert (out / "result.json").exists()
        return "resumed" if resumed else "started anew"
    assert done.exit_code == 2, done.stderr
    assert "lifetime allowance" in done.stderr or "finished run" in done.stderr, done.stderr
    # Killed when its result was there, and its checkpoint still: it is finished.
    assert not resumed or (out / "result.json").exists()
    return "refused"


def close_what_was_left(cli, folder):
    """Runs that nobody goes on with: what they never were charged for is left again."""
    ledger = folder / "ledger"
    if not ledger.exists():
        return
    for name in {name for silo in standings(cli, ledger) for name in silo["open_runs"]}:
        before = standings(cli, ledger)
        assert cli("ledger", "close", ledger, name).exit_code == 0
        for old, new in zip(before, standings(cli, ledger), strict=True):
            assert new["spent_share"] == old["spent_share"]
            assert new["left_share"] >= old["left_share"]
    for silo in standings(cli, ledger):
        assert silo["reserved_share"] == 0
        assert silo["spent_share"] + silo["left_share"] == pytest.approx(1)


def standings(cli, ledger):
    return json.loads(cli("ledger", "remaining", ledger, "--json").stdout)["silos"]


def many_kills(cli, folder, times, seed):
    rng = random.Random(seed)
    outcomes = []
    for number in range(times):
        place = folder / str(number // 3)  # a few runs against each ledger
        place.mkdir(exist_ok=True)
        # The first as soon as there is a checkpoint, so that one goes on.
        out = kill_and_check(place, number, rng.uniform(1.0, 6.0) if number else None)
        outcomes.append(go_on_or_be_refused(cli, place, out))
        close_what_was_left(cli, place)
    return outcomes


def test_killed_runs_are_never_charged_less_than_released(cli, tmp_path):
    outcomes = many_kills(cli, tmp_path, 2, seed=0)
    assert outcomes[0] == "resumed"


@pytest.mark.slow
def test_fifty_killed_runs(cli, tmp_path):
    outcomes = many_kills(cli, tmp_path, 50, seed=1)
    assert {"resumed", "started anew"} <= set(outcomes)


def test_a_run_that_is_closed_meanwhile_stops_at_its_next_block(cli, tmp_path):
    """By another process, as `silodp ledger close` does; its checkpoint is no way on either."""
    ledger, out = tmp_path / "ledger", tmp_path / "out"

    class Close(Reporter):
        def trained(self, done, total, metric):
            if done == 3:
                ((run, *_), *_) = [account_of(read_path(p)).runs for p in ledger_paths(ledger)]
                silos = [read_path(p).silo for p in ledger_paths(ledger)]
                charging.close_everywhere(ledger, silos, run, "abandoned")

    options = {"method": "local", "silos": 2, "epsilon": 2, "rounds": 8, "evaluate_every": 1}
    with pytest.raises(silodp.SilodpError, match=r"closed \(abandoned\)"):
        silodp.run(**options, ledger=ledger, out=out, reporter=Close())
    assert states(ledger) == [["abandoned"]] * 2
    assert [run.charged for (run,) in runs_in(ledger)] == [4, 4]
    assert not (out / "result.json").exists()
    for silo in standings(cli, ledger):
        assert silo["reserved_share"] == 0


def test_an_interrupted_run_goes_on_under_its_name(tmp_path):
    """Resumed: nothing is charged twice. A checkpoint copied from a finished run is refused."""
    options = {"method": "local", "silos": 3, "epsilon": 2, "rounds": 6, "evaluate_every": 1}
    options |= {"ledger": tmp_path / "ledger", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, reporter=Failing(3, KeyboardInterrupt))
    assert states(tmp_path / "ledger") == [["charged"]] * 3
    assert [run.charged for (run,) in runs_in(tmp_path / "ledger")] == [4] * 3
    saved = (tmp_path / "out" / "checkpoint.npz").read_bytes()
    silodp.run(**options, resume=True)
    assert states(tmp_path / "ledger") == [["finished"]] * 3
    for (run,) in runs_in(tmp_path / "ledger"):
        assert [(b.first, b.last) for b in run.blocks] == [(0, 2), (2, 4), (4, 6)]
    again = tmp_path / "again"
    again.mkdir()
    (again / "checkpoint.npz").write_bytes(saved)
    with pytest.raises(silodp.SilodpError, match=r"closed \(finished\)"):
        silodp.run(**(options | {"out": again}), resume=True)


def test_an_interrupted_run_that_cannot_go_on_is_closed(tmp_path):
    options = {"method": "local", "silos": 2, "epsilon": 2, "rounds": 8, "evaluate_every": 1}
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, ledger=tmp_path, reporter=Failing(3, KeyboardInterrupt))
    assert states(tmp_path) == [["failed: KeyboardInterrupt"]] * 2
    assert [run.charged for (run,) in runs_in(tmp_path)] == [4, 4]


def test_a_ledger_that_was_put_back_from_a_copy_is_not_gone_on_with(tmp_path):
    """A checkpoint knows of rounds that an older copy of the ledger has not charged."""
    options = {"method": "local", "silos": 1, "epsilon": 2, "rounds": 8, "evaluate_every": 1}
    options |= {"ledger": tmp_path / "ledger", "out": tmp_path / "out"}
    kept = []

    class Copy(Failing):
        def trained(self, done, total, metric):
            if done == 1:
                kept.append(backup(ledger_paths(tmp_path / "ledger")[0], tmp_path / "copy"))
            super().trained(done, total, metric)

    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, reporter=Copy(5, KeyboardInterrupt))
    path = ledger_paths(tmp_path / "ledger")[0]
    for rest in ("-wal", "-shm"):
        Path(f"{path}{rest}").unlink(missing_ok=True)
    path.write_bytes((tmp_path / "copy" / path.name).read_bytes())
    with pytest.raises(silodp.SilodpError, match="has it not charged"):
        silodp.run(**options, resume=True)


@pytest.mark.parametrize(
    "other", [{"evaluate_every": 2}, {"evaluate_every": 6}, {"engine": "debug"}, {"epsilon": 1}]
)
def test_an_interrupted_run_goes_on_as_it_was_or_not_at_all(tmp_path, other):
    """Else rounds that were paid for once could be trained twice."""
    options = {"method": "local", "silos": 2, "epsilon": 2, "rounds": 6, "evaluate_every": 1}
    options |= {"ledger": tmp_path / "ledger", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, reporter=Failing(3, KeyboardInterrupt))
    with pytest.raises(silodp.SilodpError, match="other options"):
        silodp.run(**(options | other), resume=True)
    assert states(tmp_path / "ledger") == [["charged"]] * 2


def test_a_charged_run_does_not_go_on_without_its_ledger(tmp_path):
    """Else what `ledger close` gave back could be answered all the same."""
    options = {"method": "local", "silos": 2, "epsilon": 2, "rounds": 6, "evaluate_every": 1}
    options |= {"out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, ledger=tmp_path, reporter=Failing(3, KeyboardInterrupt))
    with pytest.raises(silodp.SilodpError, match="resume it with the same --ledger"):
        silodp.run(**options, entropy="os", resume=True)
    assert states(tmp_path) == [["charged"]] * 2
    silodp.run(**options, ledger=tmp_path, resume=True)
    assert states(tmp_path) == [["finished"]] * 2


def test_what_is_done_again_is_the_same(tmp_path, monkeypatch):
    """The secret is kept with the checkpoint: statistics and rounds are not drawn anew."""
    seen, keys = [], []
    moments, run_key = training_run.noisy_moments, simulation.run_key
    monkeypatch.setattr(
        training_run, "noisy_moments", lambda *a: seen.append(moments(*a)) or seen[-1]
    )
    monkeypatch.setattr(simulation, "run_key", lambda *a: keys.append(run_key(*a)) or keys[-1])
    options = with_statistics(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, reporter=Failing(3, KeyboardInterrupt))
    silodp.run(**options, resume=True)
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(keys[0], keys[-1])


def test_ledgers_of_others_in_the_folder_do_not_matter(cli, tmp_path):
    assert cli(*RUN, "--ledger", tmp_path, "--quiet").exit_code == 0
    options = {"federation": small(), **QUICK}
    silodp.run(**options, ledger=tmp_path)
    table = tmp_path / "t.csv"
    table.write_text(
        "\n".join(["site,x,y", *(f"{'ab'[i % 2]},{i % 7},{i % 5}" for i in range(120))])
    )
    schema = tmp_path / "s.toml"
    schema.write_text("[bounds]\nx = [0, 7]\n[target]\nrange = [0, 5]")
    given = ["--data", table, "--silo-column", "site", "--target", "y", "--schema", schema]
    given += ["--task", "regression", "--epsilon", "2", "--delta", "1e-4", "--rounds", "5"]
    given += ["--batch-size", "16", "--method", "local"]
    done = cli("run", *given, "--ledger", tmp_path, "--quiet")
    assert done.exit_code == 0, done.stderr


def test_a_refused_run_overwrites_nothing(cli, sentence, tmp_path):
    call = [*RUN, "--ledger", tmp_path / "ledger", "--out", tmp_path / "out"]
    assert cli(*call, "--quiet").exit_code == 0
    before = (tmp_path / "out" / "result.json").read_bytes()
    sentence(cli(*call, "--overwrite"))
    assert (tmp_path / "out" / "result.json").read_bytes() == before
