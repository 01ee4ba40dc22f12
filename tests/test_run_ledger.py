"""Runs that are charged to ledgers, through the real command line."""

import json
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from federations import small

import silodp
from silodp import training_run
from silodp.engines import execution, simulation
from silodp.privacy.ledger import ledger_paths, read_path
from silodp.privacy.spending import account_of, remaining
from silodp.reporting import Reporter

# Charges are the same for each method of one pass: the one that compiles soonest will do.
RUN = ["run", "--method", "local", "--silos", "2", "--rounds", "6", "--epsilon", "2"]


def charged(folder):
    """Of each silo, the charged runs and where they stand."""
    ledgers = [read_path(path) for path in ledger_paths(folder)]
    return [{name: run.state for name, run in account_of(one).runs.items()} for one in ledgers]


def lifetime(epsilon):
    return ["--lifetime-epsilon", str(epsilon)]


def test_a_run_is_charged_and_the_next_is_refused(cli, sentence, tmp_path):
    ledger = tmp_path / "ledger"
    done = cli(*RUN, "--ledger", ledger, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["options"]["entropy"] == "os"
    (first, second) = charged(ledger)
    assert list(first.values()) == list(second.values()) == ["finished"]
    error = sentence(cli(*RUN, "--ledger", ledger))
    assert "does not fit its lifetime allowance" in error
    assert "of its 6 rounds would still fit" in error
    # A silo that allows more for its lifetime goes on; costs compose, they do not add up.
    assert cli(*RUN, "--ledger", ledger, "--quiet", *lifetime(3.5)).exit_code == 0
    shown = json.loads(cli("ledger", "remaining", ledger, "--json").stdout)["silos"]
    for silo in shown:
        assert 2 < silo["spent_epsilon"] < 3.5 == silo["lifetime_epsilon"]
        assert silo["runs"] == 2
    assert cli("ledger", "verify", ledger).exit_code == 0


def test_refused_before_any_record_is_read(cli, sentence, tmp_path):
    table = tmp_path / "t.csv"
    rows = [f"{'ab'[i % 2]},{i % 7},{i % 5}" for i in range(120)]
    table.write_text("\n".join(["site,x,y", *rows]))
    schema = tmp_path / "s.toml"
    schema.write_text("[bounds]\nx = [0, 7]\n[target]\nrange = [0, 5]")
    given = ["--data", table, "--silo-column", "site", "--target", "y", "--schema", schema]
    given += ["--task", "regression", "--epsilon", "2", "--delta", "1e-4", "--rounds", "5"]
    given += ["--batch-size", "16", "--ledger", tmp_path / "ledger"]
    assert cli("run", *given, "--quiet").exit_code == 0
    # The table is now one that cannot be read: nobody notices, because nobody reads it.
    table.write_bytes(b"\xff\xfe\x00 not a table")
    assert "would still fit" in sentence(cli("run", *given))
    assert "would still fit" in sentence(cli("plan", *given))
    # With more to spend, or of other records, it is not known before.
    for more in (lifetime(9), ("--density", "0.9")):
        error = sentence(cli("run", *given, *more))
        assert "would still fit" not in error
        assert str(table) in error


def test_every_seed_is_a_run_of_its_own(tmp_path):
    options = {"federation": small(), "epsilon": 2, "delta": 1e-4, "rounds": 2, "batch_size": 16}
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
        silodp.sweep(federation=small(), lam=[0.1, 1], epsilon=2, delta=1e-4, ledger=tmp_path)


def test_the_ledger_counts_one_relation(cli, sentence, tmp_path):
    assert cli(*RUN, "--ledger", tmp_path, "--quiet", *lifetime(9)).exit_code == 0
    more = ["--relation", "replace-one", *lifetime(9)]
    assert "relation" in sentence(cli(*RUN, "--ledger", tmp_path, *more))


def test_a_damaged_ledger_stops_the_run(cli, sentence, tmp_path):
    ledger = tmp_path / "ledger"
    assert cli(*RUN, "--ledger", ledger, "--quiet", *lifetime(9)).exit_code == 0
    path = ledger_paths(ledger)[0]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    sentence(cli(*RUN, "--ledger", ledger, *lifetime(9)))
    assert cli("ledger", "verify", ledger).exit_code == 2


def test_a_run_that_fails_before_training_is_void(monkeypatch, tmp_path):
    def broken(*args, **kwargs):
        raise RuntimeError("no memory")

    monkeypatch.setattr("silodp.engines.execution.Simulation", broken)
    with pytest.raises(RuntimeError):
        silodp.run(
            federation=small(), epsilon=2, delta=1e-4, rounds=2, batch_size=16, ledger=tmp_path
        )
    assert [list(silo.values()) for silo in charged(tmp_path)] == [["void"]] * 3
    assert remaining(tmp_path, "silo 0")["spent_epsilon"] == 0


class Failing(Reporter):
    """Breaks a run where it is told of the first rounds: whatever was trained was released."""

    def trained(self, done, total, metric):
        raise RuntimeError("in the middle of it")


QUICK = {"method": "local", "epsilon": 2, "delta": 1e-4, "rounds": 2, "batch_size": 16}
QUICK |= {"evaluate_every": 1}


def check_still_charged(ledger, silo="silo 0"):
    assert [list(one.values()) for one in charged(ledger)] == [["open"]]
    assert remaining(ledger, silo)["spent_epsilon"] > 1.9


@pytest.mark.parametrize("engine", ["simulation", "debug"])
def test_a_run_that_fails_while_training_stays_charged(tmp_path, monkeypatch, engine):
    """In either engine: records were asked, whatever came of it, and whatever it is called."""
    stage = training_run.Watch.stage
    monkeypatch.setattr(training_run.Watch, "stage", lambda self, name: stage(self, "renamed"))
    with pytest.raises(RuntimeError, match="in the middle"):
        silodp.run(
            federation=small(sizes=(40,)),
            **QUICK,
            engine=engine,
            ledger=tmp_path,
            reporter=Failing(),
        )
    check_still_charged(tmp_path)


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
    check_still_charged(tmp_path)


class Deaf(Reporter):
    """Breaks where it is told of a stage: before training, or as training begins."""

    def __init__(self, when):
        self.when = when

    def stage(self, name):
        if name == self.when:
            raise RuntimeError("nobody listens")


@pytest.mark.parametrize(
    ("when", "left"), [("charging ledgers", None), ("compiling", "void"), ("training", "void")]
)
def test_a_reporter_that_fails_before_any_query(tmp_path, when, left):
    """Nothing was released: nothing is charged, or what was is void."""
    with pytest.raises(RuntimeError, match="nobody listens"):
        silodp.run(
            federation=small(sizes=(40,)), **QUICK, ledger=tmp_path / "l", reporter=Deaf(when)
        )
    if left is None:
        assert not (tmp_path / "l").exists()
        return
    assert [list(one.values()) for one in charged(tmp_path / "l")] == [[left]]
    assert remaining(tmp_path / "l", "silo 0")["spent_epsilon"] == 0


def with_statistics(folder):
    """Options of a run that asks for statistics before it trains."""
    records = silodp.Records(np.tile([[0.5, -0.5]], (60, 1)), np.linspace(0, 1, 60))
    federation = silodp.Federation(
        "f", (silodp.Silo("s", records, records),), "regression", feature_bound=1.0
    )
    options = {"federation": federation, "epsilon": 2, "delta": 1e-4, "rounds": 6}
    options |= {"statistics_share": 0.1, "evaluate_every": 1, "method": "local"}
    return options | {"ledger": folder / "ledger", "out": folder / "out"}


@pytest.mark.parametrize("where", ["training_run.noisy_moments", "training_run.execute"])
def test_statistics_are_a_query_too(tmp_path, monkeypatch, where):
    """While they are drawn, or after: what fails then has asked records something."""

    def broken(*args, **kwargs):
        raise RuntimeError("no memory")

    monkeypatch.setattr(f"silodp.{where}", broken)
    with pytest.raises(RuntimeError, match="no memory"):
        silodp.run(**with_statistics(tmp_path))
    check_still_charged(tmp_path / "ledger", "s")


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
    check_still_charged(tmp_path)


def test_an_engine_that_does_not_say_that_it_asks_is_refused(tmp_path, monkeypatch):
    """With or without a ledger, so that nobody can forget it."""
    whole = training_run.execute

    def silent(*args, before_query, **how):
        return whole(*args, before_query=lambda: None, **how)

    monkeypatch.setattr(training_run, "execute", silent)
    for ledger in (None, tmp_path):
        with pytest.raises(RuntimeError, match="did not say"):
            silodp.run(federation=small(sizes=(40,)), **QUICK, ledger=ledger)
    check_still_charged(tmp_path)


def test_a_tuned_run_that_fails_while_training_stays_charged(tmp_path, monkeypatch):
    """Under other names for its stages, as above."""
    stage = training_run.Watch.stage
    monkeypatch.setattr(training_run.Watch, "stage", lambda self, name: stage(self, "renamed"))
    options = QUICK | {"method": "mrmtl", "rounds": 1}
    with pytest.raises(RuntimeError, match="in the middle"):
        silodp.tune(
            federation=small(sizes=(40,)),
            grid={"lam": [0.1]},
            **options,
            ledger=tmp_path,
            reporter=Failing(),
        )
    check_still_charged(tmp_path)


def test_noise_is_secret_and_never_the_same(tmp_path):
    options = {"federation": small(), "epsilon": 2, "delta": 1e-4, "rounds": 2, "batch_size": 16}
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
    assert [len(silo) for silo in charged(tmp_path / "l")] == [1, 1]
    assert len(list(tmp_path.glob("?/result.json"))) == 1


# Enough rounds that a kill lands anywhere: importing, planning, charging, training, writing.
LONG = [*RUN[:5], "--rounds", "3000", "--epsilon", "1", "--lifetime-epsilon", "1.6"]


def kill_and_check(folder, number, wait):
    """One run, killed after so many seconds; the ledger must never have less than was released."""
    ledger, out = folder / "ledger", folder / f"out{number}"
    arguments = [*LONG, "--quiet", "--ledger", ledger, "--out", out]
    process = subprocess.Popen(
        [sys.executable, "-m", "silodp", *map(str, arguments)], stderr=subprocess.PIPE, text=True
    )
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    released = len(list(folder.glob("out*/result.json"))) + len(
        list(folder.glob("out*/checkpoint.npz"))
    )
    for path in ledger_paths(ledger) if ledger.exists() else []:
        account = account_of(read_path(path))  # verifies the chain
        assert len(account.live) >= released
    return out


def continue_or_be_refused(cli, folder, out):
    """The next run with the same folder goes on, starts anew, or is refused for the budget."""
    arguments = [*LONG, "--quiet", "--ledger", folder / "ledger", "--out", out, "--resume"]
    done = cli(*arguments)
    if done.exit_code == 0:
        assert (out / "result.json").exists()
        return "went on"
    assert done.exit_code == 2, done.stderr
    assert "lifetime allowance" in done.stderr or "finished run" in done.stderr, done.stderr
    return "refused"


def many_kills(cli, folder, times, seed):
    rng = random.Random(seed)
    outcomes = []
    for number in range(times):
        place = folder / str(number // 3)  # a few runs against each ledger
        place.mkdir(exist_ok=True)
        # The first while Python starts, before anything can be charged: so that one goes on.
        out = kill_and_check(place, number, rng.uniform(1.0, 9.0) if number else 0.3)
        outcomes.append(continue_or_be_refused(cli, place, out))
    return outcomes


def test_killed_runs_are_never_charged_less_than_released(cli, tmp_path):
    outcomes = many_kills(cli, tmp_path, 2, seed=0)
    assert "went on" in outcomes


@pytest.mark.slow
def test_fifty_killed_runs(cli, tmp_path):
    outcomes = many_kills(cli, tmp_path, 50, seed=1)
    assert {"went on", "refused"} <= set(outcomes)


def test_an_interrupted_run_goes_on_under_its_charge(tmp_path, monkeypatch):
    """Resumed: no second charge. A checkpoint copied from a finished run is refused."""
    options = {"method": "local", "silos": 3, "epsilon": 2, "rounds": 6, "evaluate_every": 1}
    options |= {"ledger": tmp_path / "ledger", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, reporter=Stop())
    saved = (tmp_path / "out" / "checkpoint.npz").read_bytes()
    silodp.run(**options, resume=True)
    states = charged(tmp_path / "ledger")
    assert [list(silo.values()) for silo in states] == [["finished"]] * 3
    again = tmp_path / "again"
    again.mkdir()
    (again / "checkpoint.npz").write_bytes(saved)
    with pytest.raises(silodp.SilodpError, match="finished"):
        silodp.run(**(options | {"out": again}), resume=True)


class Stop(execution.Reporter):
    """Interrupts a run after a few rounds."""

    def trained(self, done, total, metric):
        if done >= 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "other", [{"evaluate_every": 2}, {"evaluate_every": 6}, {"engine": "debug"}, {"epsilon": 1}]
)
def test_an_interrupted_run_goes_on_as_it_was_or_not_at_all(tmp_path, other):
    """Else rounds that were paid for once could be trained twice."""
    options = {"method": "local", "silos": 2, "epsilon": 2, "rounds": 6, "evaluate_every": 1}
    options |= {"ledger": tmp_path / "ledger", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        silodp.run(**options, reporter=Stop())
    with pytest.raises(silodp.SilodpError, match="other options"):
        silodp.run(**(options | other), resume=True)
    assert [list(silo.values()) for silo in charged(tmp_path / "ledger")] == [["open"]] * 2


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
        silodp.run(**options, reporter=Stop())
    silodp.run(**options, resume=True)
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(keys[0], keys[-1])


def test_ledgers_of_others_in_the_folder_do_not_matter(cli, tmp_path):
    assert cli(*RUN, "--ledger", tmp_path, "--quiet").exit_code == 0
    options = {"federation": small(), "epsilon": 2, "delta": 1e-4, "rounds": 2, "batch_size": 16}
    silodp.run(**options, ledger=tmp_path)
    table = tmp_path / "t.csv"
    table.write_text(
        "\n".join(["site,x,y", *(f"{'ab'[i % 2]},{i % 7},{i % 5}" for i in range(120))])
    )
    schema = tmp_path / "s.toml"
    schema.write_text("[bounds]\nx = [0, 7]\n[target]\nrange = [0, 5]")
    given = ["--data", table, "--silo-column", "site", "--target", "y", "--schema", schema]
    given += ["--task", "regression", "--epsilon", "2", "--delta", "1e-4", "--rounds", "5"]
    done = cli("run", *given, "--batch-size", "16", "--ledger", tmp_path, "--quiet")
    assert done.exit_code == 0, done.stderr


def test_a_refused_run_overwrites_nothing(cli, sentence, tmp_path):
    call = [*RUN, "--ledger", tmp_path / "ledger", "--out", tmp_path / "out"]
    assert cli(*call, "--quiet").exit_code == 0
    before = (tmp_path / "out" / "result.json").read_bytes()
    sentence(cli(*call, "--overwrite"))
    assert (tmp_path / "out" / "result.json").read_bytes() == before
