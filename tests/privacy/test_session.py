"""One silo in one run: every order of what may happen, with a crash before and after each write."""

import ast
import contextlib
import copy
import functools
from pathlib import Path

import pytest
from ledgers import AMPLE, DELTA, account, gaussian

import silodp
from silodp.base.errors import SilodpError
from silodp.privacy.ledger import charging
from silodp.privacy.ledger.account import Allowance, RunClosedError, account_of
from silodp.privacy.ledger.chain import next_entry
from silodp.privacy.ledger.storage import FORMAT, Ledger, OpenLedger
from silodp.privacy.mechanisms.randomness import HostRandom
from silodp.privacy.session import PaidRounds, RunLedgers, RunSession, SiloSession, free_rounds

ROUNDS = 3
SECRET = b"\1" * 32


class Crash(BaseException):
    """The process dies here."""


def ledgers_for(silos, folder, blocks=2, rounds=ROUNDS, noise=50.0):
    what = gaussian(noise, rounds, blocks=blocks)
    return RunLedgers(folder, dict.fromkeys(silos, what), dict.fromkeys(silos, AMPLE))


# --- every order of transitions


class Disk:
    """Ledgers in memory, in place of files: as fast as the walk needs. Commits may be made to fail.

    Attributes:
      entries: of each silo.
      fail: before which commit (from 0) the process dies, or after which; None: at none.
    """

    def __init__(self):
        self.entries, self.fail, self._commits = {}, None, 0

    def restore(self, entries, fail=None):
        self.entries, self.fail, self._commits = dict(entries), fail, 0

    def read(self, directory, silo):
        if silo not in self.entries:
            raise SilodpError("It has no ledger.")
        return Ledger(silo, "add-remove", "record", self.entries[silo])

    def exists(self, directory, silo):
        return silo in self.entries

    def create(self, directory, silo, relation, unit):
        body = {"silo": silo, "format": FORMAT, "relation": relation, "unit": unit}
        self.entries[silo] = (next_entry(None, "opened", "", body),)

    @contextlib.contextmanager
    def locked(self, directory, silos):
        if not set(silos) <= set(self.entries):
            raise SilodpError("It has no ledger.")
        yield {silo: DiskLedger(self, silo) for silo in sorted(silos)}

    def commit(self, silo, entries):
        number, self._commits = self._commits, self._commits + 1
        if self.fail == ("before", number):
            raise Crash
        if self.fail == ("refused", number):
            raise SilodpError("No room on the disk.")
        self.entries[silo] = entries
        if self.fail == ("after", number):
            raise Crash


class DiskLedger:
    def __init__(self, disk, silo):
        self.content, self._disk, self._silo = disk.read(None, silo), disk, silo
        self._entries = self.content.entries

    def append(self, kind, run, body):
        self._entries = (*self._entries, next_entry(self._entries[-1], kind, run, body))

    @property
    def head(self):
        return self._entries[-1].hash

    def commit(self):
        self._disk.commit(self._silo, self._entries)


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    for name, made in {
        "read_ledger": disk.read,
        "exists": disk.exists,
        "create": disk.create,
        "locked": disk.locked,
    }.items():
        monkeypatch.setattr(charging, name, made)
    # A walk reads the same few ledgers again and again.
    understood = functools.lru_cache(maxsize=None)(
        lambda silo, entries: account_of(Ledger(silo, "add-remove", "record", entries))
    )

    @functools.wraps(account_of)
    def known(ledger):
        return understood(ledger.silo, Entries(ledger.entries))

    monkeypatch.setattr(charging, "account_of", known)
    return disk


class Entries(tuple):
    """Compared by what they say, not by when it was said."""

    def __hash__(self):
        return hash(said_by(self))

    def __eq__(self, other):
        return said_by(self) == said_by(other)


def said_by(entries):
    return tuple((e.kind, e.run, e.body.get("first"), e.body.get("last")) for e in entries)


class State:
    """Where everything stands: disk, process (None: dead), and the rounds handed out so far."""

    def __init__(self, entries, session, handed):
        self.entries, self.session, self.handed = entries, session, handed

    @property
    def key(self):
        disk = tuple((silo, said_by(own)) for silo, own in sorted(self.entries.items()))
        alive = self.session and tuple((s.state, tuple(s.charged)) for s in self.session.silos)
        return disk, alive, self.handed


SPANS = [(a, b) for a in range(-1, ROUNDS + 1) for b in range(a + 1, ROUNDS + 2)]
FEW = [(-1, 0), (0, 1), (1, 2), (2, 3), (0, ROUNDS + 1)]


class Walk:
    """All that can happen next, from any state; what is promised is checked after each step."""

    def __init__(self, disk, silos, blocks, spans):
        self.disk, self.silos, self.spans = disk, silos, spans
        self.ledgers = ledgers_for(silos, Path("nowhere"), blocks)
        self.steps = 0

    def fresh(self):
        return RunSession(self.ledgers, [], ROUNDS, "run")

    def actions(self, state):
        if state.session is None:
            yield "start", lambda s: None
            return
        yield "reserve", lambda s: s.reserve(secret=SECRET)
        # A checkpoint holds a round that was answered, the last one or one before.
        for done in {0, *(number + 1 for number in state.handed if number >= 0)}:
            yield f"resume {done}", lambda s, done=done: s.resume(SECRET, done)
        for first, last in self.spans:
            yield f"pay {first} {last}", lambda s, a=first, b=last: s.pay(a, b)
        yield "close", lambda s: s.close("finished")
        yield "die", lambda s: self._die()
        yield "fail", self._fail
        for silos in {tuple(self.silos), *((silo,) for silo in self.silos)}:
            yield (
                f"closed by another: {silos}",
                lambda s, silos=silos: charging.close_everywhere(
                    Path("nowhere"), silos, "run", "abandoned"
                ),
            )

    @staticmethod
    def _die():
        raise Crash

    @staticmethod
    def _fail(session):
        with session.closed_on_failure(can_resume=lambda: False):
            raise SilodpError("It failed.")

    def after(self, state):
        """Each state that can follow."""
        for name, action in self.actions(state):
            failures = [None]
            if not name.startswith(("die", "start", "closed by")):
                writes = range(len(self.silos))
                failures += [(how, n) for n in writes for how in ("before", "after", "refused")]
            for fail in failures:
                yield self.step(state, name, action, fail)

    def step(self, state, name, action, fail):
        self.steps += 1
        self.disk.restore(state.entries, fail)
        session = self.fresh() if name == "start" else copy.deepcopy(state.session)
        handed, outcome = state.handed, None
        try:
            outcome = action(session)
        except Crash:
            session = None
        except (SilodpError, RuntimeError) as error:
            outcome = error
        if isinstance(outcome, PaidRounds):
            handed = handed | frozenset(range(outcome.first, outcome.last))
            assert session is not None
        new = State(dict(self.disk.entries), session, handed)
        try:
            self.check(state, name, outcome, new)
        except AssertionError as error:
            raise AssertionError(
                f"after {name} (failing: {fail}), from {state.key} to {new.key}: {error}"
            ) from error
        return new

    def check(self, state, name, outcome, new):
        for silo in self.silos:
            before, after = state.entries.get(silo, ()), new.entries.get(silo, ())
            assert after[: len(before)] == before, "entries are only added"
            runs = (
                charging.account_of(Ledger(silo, "add-remove", "record", after)).runs
                if after
                else {}
            )
            run = runs.get("run")
            charged = {n for b in (run.blocks if run else ()) for n in range(b.first, b.last)}
            assert new.handed <= charged, "what was handed out is charged"
            if run is not None:
                assert sum(b.last - b.first for b in run.blocks) == len(charged), "charged once"
                if run.closed is not None:
                    assert run.counted == run.spent
            if new.session is not None:
                (own,) = (s for s in new.session.silos if s.silo == silo)
                believed = {n for a, b in own.charged for n in range(a, b)}
                assert believed <= charged, "a session believes no more than is charged"
                assert own.state in ("new", "closed") or run is not None
        old = state.session
        if old is not None and any(s.state in ("new", "closed") for s in old.silos):
            assert not isinstance(outcome, PaidRounds), "nothing is paid outside a run"
        if isinstance(outcome, PaidRounds):
            assert f"pay {outcome.first} {outcome.last}" == name
        if name == "close" and not isinstance(outcome, Exception) and new.session is not None:
            assert all(s.state == "closed" for s in new.session.silos)


@pytest.mark.parametrize(
    ("silos", "blocks", "spans", "depth"),
    [("a", 1, SPANS, 9), ("a", 2, SPANS, 7), ("a", 3, SPANS, 6), ("ab", 2, FEW, 6)],
)
def test_every_order_with_a_crash_at_every_write(disk, monkeypatch, silos, blocks, spans, depth):
    """A state is met once: what follows it does not depend on how it was reached."""
    # Whether it is looked for a close by others hangs on the clock, and the walk must not.
    monkeypatch.setattr("silodp.privacy.session.SECONDS_BETWEEN_LOOKS", float("inf"))
    walk = Walk(disk, silos, blocks, spans)
    level = [State({}, None, frozenset())]
    met = {level[0].key}
    for _ in range(depth):
        following = []
        for state in level:
            for new in walk.after(state):
                if new.key not in met:
                    met.add(new.key)
                    following.append(new)
        level = following
    closed = sum(all("close" in str(own) for _, own in disk) for disk, _, _ in met)
    handed = {rounds for _, _, rounds in met}
    assert frozenset(range(-1, ROUNDS + 1)) in handed  # a whole run was walked through
    assert closed > 0
    assert walk.steps > 1000


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("at", range(10))
def test_a_crash_at_every_write_of_real_files(tmp_path, monkeypatch, at, how):
    """The same with SQLite: two silos, five writes to each; then another process goes on."""
    commit, count = OpenLedger.commit, iter(range(100))

    def dying(self):
        number = next(count)
        if (number, how) == (at, "before"):
            raise Crash
        commit(self)
        if (number, how) == (at, "after"):
            raise Crash

    monkeypatch.setattr(OpenLedger, "commit", dying)
    ledgers = ledgers_for("ab", tmp_path)
    session, answered = RunSession(ledgers, [], ROUNDS, "run"), []

    def run_through():
        session.reserve(secret=SECRET)
        for first, last in ((-1, 0), (0, 1), (1, 3)):
            session.pay(first, last)
            answered.append((first, last))
        session.close("finished")

    with pytest.raises(Crash):
        run_through()
    monkeypatch.setattr(OpenLedger, "commit", commit)
    runs = [account(tmp_path, silo).runs.get("run") for silo in "ab"]
    for first, last in answered:
        for run in runs:
            assert all(any(b.first <= n < b.last for b in run.blocks) for n in range(first, last))
    again, done = RunSession(ledgers, [], ROUNDS, "run"), answered[-1][1] if answered else 0
    if None in runs or any(run.closed for run in runs):
        with pytest.raises(SilodpError, match=r"nothing reserved|is closed"):
            again.resume(SECRET, done)
        return
    again.resume(SECRET, done)
    again.pay(0, ROUNDS + 1)
    again.close("finished")
    for silo in "ab":
        run = account(tmp_path, silo).runs["run"]
        assert run.charged == ROUNDS
        assert run.closed == "finished"


# --- what a session does


def test_rounds_are_paid_by_sessions_only():
    for made_by in (None, object(), RunSession(None, ["a"], 3)):
        with pytest.raises(RuntimeError, match="paid for by a session"):
            PaidRounds(0, 1, made_by)
    with pytest.raises(TypeError):
        PaidRounds()
    assert (free_rounds(0, 3).first, free_rounds(0, 3).last) == (0, 3)


@pytest.mark.parametrize("with_ledgers", [False, True])
def test_noise_needs_rounds_that_are_paid_for(tmp_path, with_ledgers):
    session = RunSession(ledgers_for("a", tmp_path) if with_ledgers else None, ["a"], 3)
    with pytest.raises(RuntimeError, match="no secret before it is reserved"):
        _ = session.secret
    with pytest.raises(RuntimeError, match="new cannot pay"):
        session.pay(0, 1)
    session.reserve("os")
    assert len(session.secret) >= 16
    paid = session.pay(0, 1)
    assert isinstance(session.random(paid, 0, "test"), HostRandom)
    for other in (None, (0, 1), session, object()):
        with pytest.raises(RuntimeError, match="paid for"):
            session.random(other, 0, "test")
    session.close("finished")
    with pytest.raises(RuntimeError, match="closed cannot pay"):
        session.pay(0, 1)
    with pytest.raises((RuntimeError, RunClosedError)):
        session.close("finished")


@pytest.mark.parametrize(("first", "last"), [(-2, 0), (0, 0), (2, 1), (0, 5), (4, 5)])
def test_only_rounds_of_the_run_are_paid(first, last):
    session = RunSession(None, ["a"], 3)
    session.reserve("seed")
    with pytest.raises(RuntimeError, match="none of the run's 3"):
        session.pay(first, last)


def test_rounds_that_were_missed_are_not_paid_by_later_ones(tmp_path):
    """A span over a gap is no way to answer what lies in it."""
    session = RunSession(ledgers_for("a", tmp_path, blocks=5, rounds=5), [], 5, "run")
    session.reserve()
    session.pay(3, 4)
    for first, last in ((1, 2), (1, 4), (1, 6), (-1, 0)):
        with pytest.raises((RuntimeError, SilodpError)):
            session.pay(first, last)
    blocks = account(tmp_path, "a").runs["run"].blocks
    assert [(b.first, b.last) for b in blocks] == [(3, 4)]
    session.pay(3, 6)
    assert account(tmp_path, "a").runs["run"].charged == 2


def test_whole_blocks_are_charged_before_they_are_answered(tmp_path):
    session = RunSession(ledgers_for("a", tmp_path, blocks=2, rounds=6), [], 6, "run")
    session.reserve()
    found = []
    for first in range(6):
        session.pay(first, first + 1)
        found.append(account(tmp_path, "a").runs["run"].charged)
    assert found == [3, 3, 3, 6, 6, 6]
    assert session.silos[0].charged == [(0, 6)]
    session.pay(-1 + 7, 7)
    session.close("finished")
    blocks = account(tmp_path, "a").runs["run"].blocks
    assert [(b.first, b.last) for b in blocks] == [(0, 3), (3, 6), (6, 7)]


def test_what_can_only_be_charged_whole_is(tmp_path):
    session = RunSession(ledgers_for("a", tmp_path, blocks=1, rounds=6), [], 6, "run")
    session.reserve()
    session.pay(2, 3)
    (block,) = account(tmp_path, "a").runs["run"].blocks
    assert (block.first, block.last) == (-1, 7)
    before = account(tmp_path, "a").spent
    session.pay(-1, 7)
    assert account(tmp_path, "a").spent == before


def test_blocks_are_set_but_for_what_is_charged_whole(tmp_path):
    assert ledgers_for("a", tmp_path, 4).in_blocks(9).reservations["a"].blocks == 9
    assert ledgers_for("a", tmp_path, 1).in_blocks(9).reservations["a"].blocks == 1


def test_a_ledger_is_believed_and_not_what_the_checkpoint_says(tmp_path):
    ledgers = ledgers_for("a", tmp_path, blocks=6, rounds=6)
    first = RunSession(ledgers, [], 6, "run")
    first.reserve(secret=SECRET)
    first.pay(0, 2)
    for done in (3, 6):
        with pytest.raises(SilodpError, match="its ledger has it not charged"):
            RunSession(ledgers, [], 6, "run").resume(SECRET, done)
    again = RunSession(ledgers, [], 6, "run")
    again.resume(SECRET, 1)
    assert again.silos[0].charged == [(0, 1), (1, 2)] or again.silos[0].charged == [(0, 2)]
    assert again.secret == SECRET
    again.pay(1, 3)
    assert account(tmp_path, "a").runs["run"].charged == 3


def test_a_run_that_another_closed_goes_on_nowhere(tmp_path):
    ledgers = ledgers_for("ab", tmp_path, blocks=6, rounds=6)
    session = RunSession(ledgers, [], 6, "run")
    session.reserve()
    session.pay(0, 1)
    charging.close_everywhere(tmp_path, ["b"], "run", "abandoned")
    with pytest.raises(RunClosedError, match="abandoned"):
        session.pay(1, 2)
    assert [account(tmp_path, silo).runs["run"].charged for silo in "ab"] == [1, 1]
    with pytest.raises(RunClosedError, match="abandoned"):
        RunSession(ledgers, [], 6, "run").resume(b"", 0)


@pytest.mark.parametrize("error", [SilodpError("it failed"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("can_resume", [False, True])
def test_a_run_that_fails_is_closed_unless_it_can_go_on(tmp_path, error, can_resume):
    session = RunSession(ledgers_for("ab", tmp_path, 3), [], 3, "run")
    session.reserve()
    session.pay(0, 1)
    with pytest.raises(type(error)), session.closed_on_failure(lambda: can_resume):
        raise error
    for silo in "ab":
        run = account(tmp_path, silo).runs["run"]
        assert run.closed == (None if can_resume else f"failed: {type(error).__name__}")
        assert run.charged == 1


def test_where_one_silo_closed_it_the_others_get_back_what_they_set_aside(tmp_path):
    session = RunSession(ledgers_for("abc", tmp_path, 3), [], 3, "run")
    session.reserve()
    session.pay(0, 1)
    charging.close_everywhere(tmp_path, ["b"], "run", "abandoned")
    with pytest.raises(RunClosedError), session.closed_on_failure(lambda: True):
        session.pay(1, 2)
    for silo in "abc":
        run = account(tmp_path, silo).runs["run"]
        assert run.closed is not None
        assert run.charged == 1


def test_without_ledgers_the_order_is_the_same(tmp_path):
    session = RunSession(None, ["a", "b"], 4)
    with pytest.raises(RuntimeError):
        session.close("finished")
    session.reserve("seed")
    assert session.secret == b""
    with pytest.raises(RuntimeError):
        session.reserve("seed")
    session.pay(0, 2)
    assert [silo.charged for silo in session.silos] == [[(0, 2)], [(0, 2)]]
    again = RunSession(None, ["a", "b"], 4)
    again.resume(b"", 2)
    assert all(silo.covers(-1, 2) and not silo.covers(2, 3) for silo in again.silos)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (["reserved", "closed"], True),
        (["reserved", (0, 1), (1, 4), "closed"], True),
        (["reserved", (-1, 0), (2, 4)], True),
        (["closed"], False),
        ([(0, 1)], False),
        (["reserved", "reserved"], False),
        (["reserved", (0, 2), (1, 3)], False),
        (["reserved", (2, 3), (0, 1)], False),
        (["reserved", (0, 5)], False),
        (["reserved", (1, 1)], False),
        (["reserved", "closed", (0, 1)], False),
        (["reserved", "closed", "closed"], False),
        (["reserved", "charged"], False),
        (["reserved", (0, 1), "reserved"], False),
    ],
)
def test_transitions(path, allowed):
    silo = SiloSession("a", 3)

    def walk():
        for to in path:
            silo.to("charged", to) if isinstance(to, tuple) else silo.to(to)

    if allowed:
        walk()
    else:
        with pytest.raises(RuntimeError, match="cannot become"):
            walk()


def test_a_lifetime_of_a_source_is_shared_by_those_who_use_it(tmp_path):
    what = ledgers_for("a", tmp_path).to_source("table").marked(site="a")
    assert list(what.reservations) == ["table"]
    assert what.strictest
    session = RunSession(what, ["a"], ROUNDS, "run")
    session.reserve()
    assert account(tmp_path, "table").runs["run"].about == {"site": "a"}
    loose = what._replace(allowances={"table": Allowance(90.0, DELTA)})
    RunSession(loose, ["a"], ROUNDS, "next").reserve()
    assert account(tmp_path, "table").allowance == AMPLE


# --- that there is no other way


SOURCE = Path(silodp.__file__).parent
MODULES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(SOURCE.rglob("*.py"))
}


@functools.cache
def mentioned(module):
    """All names in a module but for those that it defines."""
    names, defined = set(), set()
    for node in ast.walk(MODULES[module]):
        match node:
            case ast.Name():
                names.add(node.id)
            case ast.Attribute():
                names.add(node.attr)
            case ast.ImportFrom():
                names |= {alias.name for alias in node.names}
            case ast.Import():
                names |= {alias.name.rpartition(".")[2] for alias in node.names}
            case ast.FunctionDef() | ast.ClassDef():
                defined.add(node.name)
    return names - defined


def using(*names):
    """Modules that mention one of the names, beside the one that defines it."""
    return {module for module in MODULES if mentioned(module) & set(names)}


def calls_of(name):
    """(module, call) of each call of the name."""
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func
                if name == getattr(called, "id", getattr(called, "attr", None)):
                    yield module, node


SESSION = "privacy/session.py"


def test_only_a_session_writes_of_runs_to_ledgers():
    writes = ("reserve_all", "charge_all", "close_all", "close_everywhere", "allow", "convert")
    found = {
        (module, alias.name)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "silodp.privacy.ledger.charging"
        for alias in node.names
        if alias.name in (*writes, "*") or alias.name.startswith("_")
    }
    theirs = {("cli/ledger.py", name) for name in ("close_everywhere", "allow", "convert")}
    assert found == theirs | {
        (SESSION, name) for name in ("reserve_all", "charge_all", "close_all", "close_everywhere")
    }
    assert using("reserve_all", "charge_all", "close_all") == {SESSION}  # nor by another way


def test_only_charging_writes_to_ledgers():
    """Whoever imports the module as a whole, or what writes, would be seen here."""
    assert using("charging", "OpenLedger", "locked") <= {"privacy/ledger/charging.py"}


def test_only_a_session_makes_paid_rounds():
    assert {module for module, _ in calls_of("PaidRounds")} == {SESSION}
    assert using("_SESSION") == {SESSION}
    assert {module.rpartition("/")[0] for module in using("free_rounds")} == {"auditing"}


def test_only_a_session_draws_noise_on_the_host():
    # How often a trial is made is drawn as the plan says, before any record is looked at.
    assert {module for module, _ in calls_of("HostRandom")} == {SESSION, "tuning/search.py"}
    secrets = {module for module, _ in calls_of("new_secret")}
    assert {m for m in secrets if not m.startswith("auditing/")} == {
        SESSION,
        "sites/job_at_site.py",
        "runs/acceptance.py",  # kept before anything is charged, and then given to the session
    }


@pytest.mark.parametrize("name", ["noisy_metric", "noisy_moments", "noisy_label_moments"])
def test_what_is_noisy_has_its_noise_from_a_session(name):
    """One argument is `session.random(...)`, or a variable that is that and nothing else."""
    found = list(calls_of(name))
    assert found
    for module, call in found:
        tree = MODULES[module]
        drawn = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and from_session(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        others = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and not from_session(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        assert any(
            from_session(one)
            or (isinstance(one, ast.Name) and one.id in drawn and one.id not in others)
            for one in arguments
        ), f"{module}: {ast.unparse(call)}"


def from_session(value):
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "random"
        and ast.unparse(value.func.value).endswith(("session", "self"))
    )


def test_replace_one_is_a_factor_of_two_in_one_place():
    """Elsewhere the relation is passed on, or decides something else than how far a sum moves."""
    found = set()
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.If | ast.IfExp) and names_relation(node.test):
                branches = [node.body, node.orelse]
                parts = [p for b in branches for p in (b if isinstance(b, list) else [b])]
                numbers = {
                    float(c.value)
                    for part in parts
                    for c in ast.walk(part)
                    if isinstance(c, ast.Constant) and type(c.value) in (int, float)
                }
                if numbers & {2.0, 0.5, 4.0, 0.25}:
                    found.add(module)
    assert found == {"privacy/accounting/steps.py"}


def names_relation(test):
    return any(
        isinstance(node, ast.Constant) and node.value in ("replace-one", "add-remove")
        for node in ast.walk(test)
    )
