"""The noise that meets a budget, and the answers that are kept on disk."""

import json
import math
import threading

import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    ZCDpEvent,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.privacy import calibration
from silodp.privacy.accounting.accountant import LEAST_NOISE, epsilon_of
from silodp.privacy.accounting.events import BoundedRangeDpEvent, PureDpEvent
from silodp.privacy.calibration import Calibration, CalibrationRequest, calibrate_many

# The folder is the same for every example of a test, but these do not use it.
few = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
accountants = pytest.mark.parametrize("accountant", ["pld", "rdp"])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path))
    return tmp_path


def sampled(rate, noise, count):
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)


def request(
    rate=32 / 88, count=400, epsilon=6.0, delta=1e-3, label="", relation="add-remove", fixed=None
):
    def event_of(noise):
        training = sampled(rate, noise, count)
        return training if fixed is None else ComposedDpEvent([fixed, training])

    return CalibrationRequest(event_of, epsilon, delta, label, relation)


def selections(epsilon, count):
    return SelfComposedDpEvent(BoundedRangeDpEvent(epsilon), count)


def one(request, accountant="pld", **options) -> Calibration:
    return calibrate_many([request], accountant, **options)[0]


def assert_meets(answer, request, accountant):
    event = request.event_of(answer.noise_multiplier)
    cost = epsilon_of(event, request.delta, accountant, request.relation)
    assert answer.epsilon == cost
    assert accountant in (answer.accountant, "best")
    assert 0.998 * request.epsilon < cost <= request.epsilon


@pytest.fixture
def broken_evaluator(monkeypatch):
    def broken(*_):
        raise AssertionError("an answer that is kept was computed again")

    return lambda: monkeypatch.setattr(calibration, "epsilon_of", broken)


# Noise


@pytest.mark.parametrize(
    ("accountant", "rate", "count", "epsilon", "delta", "noise"),
    [
        ("pld", 32 / 88, 400, 6.0, 1e-3, 4.418),
        ("rdp", 32 / 88, 400, 6.0, 1e-3, 4.830),
        ("pld", 64 / 1400, 8400, 0.5, 1e-7, 37.73),
        ("rdp", 64 / 1400, 8400, 0.5, 1e-7, 40.248),
    ],
)
def test_known_noise(accountant, rate, count, epsilon, delta, noise):
    asked = request(rate, count, epsilon, delta)
    answer = one(asked, accountant)
    assert answer.noise_multiplier == pytest.approx(noise, rel=5e-4)
    assert_meets(answer, asked, accountant)


@accountants
@few
@given(
    rate=st.floats(0.01, 1),
    count=st.integers(1, 3000),
    epsilon=st.floats(0.1, 20),
    delta=st.sampled_from([1e-7, 1e-5, 1e-3]),
)
def test_never_above_the_budget_and_close_below(accountant, rate, count, epsilon, delta):
    asked = request(rate, count, epsilon, delta)
    answer = one(asked, accountant, cache=False)
    if answer.noise_multiplier == LEAST_NOISE:
        assert answer.epsilon <= epsilon
    else:
        assert_meets(answer, asked, accountant)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "fixed",
    [selections(0.18, 20), selections(0.03, 400), SelfComposedDpEvent(PureDpEvent(0.3), 5)],
    ids=str,
)
def test_the_least_noise_of_any_accountant_is_given(fixed, relation):
    asked = request(epsilon=3.0, relation=relation, fixed=fixed)
    best = one(asked, "best")
    assert_meets(best, asked, "best")
    answers = {name: one(asked, name) for name in ("pld", "rdp")}
    for name, answer in answers.items():
        assert_meets(answer, asked, name)
    least = min(answers.values(), key=lambda answer: answer.noise_multiplier)
    assert best.accountant == least.accountant
    assert best.noise_multiplier == pytest.approx(least.noise_multiplier, rel=1e-3)


def test_either_accountant_may_be_the_best():
    # Few selections beside much training, and many that take nearly all of the budget.
    few_ones = request(epsilon=6.0, fixed=selections(0.18, 20))
    many = request(epsilon=1.4, delta=1e-7, fixed=selections(0.025, 400))
    answers = calibrate_many([few_ones, many])
    assert [answer.accountant for answer in answers] == ["pld", "rdp"]


@pytest.mark.parametrize(
    ("event_of", "accountant"),
    [
        (lambda noise: RepeatAndSelectDpEvent(sampled(0.1, noise, 100), 5, math.inf), "rdp"),
        (lambda noise: ComposedDpEvent([ZCDpEvent(0.01), sampled(0.1, noise, 100)]), "rdp"),
        (
            lambda noise: SelfComposedDpEvent(
                TruncatedSubsampledGaussianDpEvent(100, 0.1, 18, noise), 100
            ),
            "pld",
        ),
    ],
    ids=["tuning", "zCDP", "cut samples"],
)
def test_what_only_one_accountant_knows(event_of, accountant):
    asked = CalibrationRequest(event_of, 2.0, 1e-5)
    answer = one(asked, "best")
    assert answer.accountant == accountant
    assert_meets(answer, asked, accountant)
    with pytest.raises(SilodpError, match=f"take accountant '{accountant}'"):
        one(asked, "pld" if accountant == "rdp" else "rdp")


@pytest.mark.parametrize("share", [1.01, 1.1, 2.0])
@pytest.mark.parametrize("kind", [GaussianDpEvent, selections])
def test_a_fixed_part_near_the_budget_takes_few_evaluations(kind, share, monkeypatch):
    fixed = kind(1.5) if kind is GaussianDpEvent else selections(0.05, 200)
    asked = request(0.3, 100, epsilon_of(fixed, 1e-5) * share, 1e-5, fixed=fixed)
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return epsilon_of(*arguments)

    monkeypatch.setattr(calibration, "epsilon_of", counted)
    assert_meets(one(asked, "best"), asked, "best")
    assert len(calls) <= 12


@accountants
def test_many_silos_of_like_size_take_few_evaluations(accountant, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return epsilon_of(*arguments)

    monkeypatch.setattr(calibration, "epsilon_of", counted)
    asked = [request(32 / n, 200 * (n // 32)) for n in range(64, 80)]
    for answer, one_asked in zip(calibrate_many(asked, accountant), asked, strict=True):
        assert_meets(answer, one_asked, accountant)
    assert len(calls) < 2.5 * len(asked)


def test_answers_come_in_the_order_of_the_requests():
    asked = [request(epsilon=e) for e in (6.0, math.inf, 1.0, 3.0, 6.0)]
    noises = [answer.noise_multiplier for answer in calibrate_many(asked, "pld")]
    assert noises[1] == 0
    assert noises[0] == noises[4] < noises[3] < noises[2]


def test_no_privacy_needs_no_noise():
    assert one(request(epsilon=math.inf)) == Calibration(0.0, math.inf, "")


def test_a_part_with_fixed_noise_is_paid_for():
    def event_of(noise):
        return ComposedDpEvent([GaussianDpEvent(2.0), sampled(0.3, noise, 100)])

    asked = CalibrationRequest(event_of, 4.0, 1e-5)
    answer = one(asked)
    assert_meets(answer, asked, "pld")
    assert answer.noise_multiplier > one(request(0.3, 100, 4.0, 1e-5)).noise_multiplier


@accountants
def test_a_fixed_part_above_the_budget_is_refused(accountant):
    def event_of(noise):
        return ComposedDpEvent([GaussianDpEvent(1.0), sampled(0.3, noise, 100)])

    with pytest.raises(SilodpError, match=r"North: .*whose noise is fixed.*budget of 2"):
        one(CalibrationRequest(event_of, 2.0, 1e-5, "North"), accountant)


def test_a_fixed_part_that_is_too_dear_is_named():
    dear = request(epsilon=2.0, delta=1e-5, label="North", fixed=selections(0.5, 30))
    words = r"North: .*selection of epsilon 0.5, 30 times.* cost epsilon 6.6.*lower epsilon"
    with pytest.raises(SilodpError, match=words):
        one(dear, "best")


def test_a_delta_at_which_nothing_is_proven_is_named():
    def cut(noise):
        one = TruncatedSubsampledGaussianDpEvent(100, 0.1, 18, noise)
        return SelfComposedDpEvent(one, 100)

    with pytest.raises(SilodpError, match=r"no finite epsilon .* at delta 1e-14.*raise delta"):
        one(CalibrationRequest(cut, 3.0, 1e-14))


@accountants
def test_a_fixed_part_alone_that_fits(accountant):
    asked = CalibrationRequest(lambda _: GaussianDpEvent(5.0), 2.0, 1e-5)
    answer = one(asked, accountant)
    assert answer.noise_multiplier == LEAST_NOISE
    assert answer.epsilon == epsilon_of(GaussianDpEvent(5.0), 1e-5, accountant) < 2


@accountants
def test_the_least_noise_is_given_where_less_would_do(accountant):
    assert one(CalibrationRequest(lambda _: NoOpDpEvent(), 1.0, 1e-5), accountant) == Calibration(
        LEAST_NOISE, 0.0, accountant
    )
    for epsilon in (1e5, 1e300):
        generous = CalibrationRequest(GaussianDpEvent, epsilon, 1e-5)
        assert one(generous, accountant).noise_multiplier == LEAST_NOISE


def test_a_sample_rarer_than_delta_is_free():
    assert one(request(1e-6, 10, 1.0, 0.1)) == Calibration(LEAST_NOISE, 0.0, "pld")


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (0, 1e-5, "epsilon is 0"),
        (-1, 1e-5, "epsilon is -1"),
        (math.nan, 1e-5, "epsilon is nan"),
        (1, 0, "delta is 0"),
        (1, 1, "delta is 1"),
        (math.inf, 2, "delta is 2"),
    ],
)
def test_budgets_out_of_range(epsilon, delta, words):
    with pytest.raises(SilodpError, match=f"North: {words}"):
        one(request(epsilon=epsilon, delta=delta, label="North"))


def test_what_has_no_price_is_refused():
    with pytest.raises(SilodpError, match="has no price"):
        one(CalibrationRequest(LaplaceDpEvent, 1.0, 1e-5))


def test_progress():
    told = []
    calibrate_many(
        [request(epsilon=e) for e in (6.0, 3.0, 6.0)], "pld", progress=lambda *n: told.append(n)
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert calibrate_many([], "pld") == []


# Answers on disk


def test_a_second_call_reads_the_answers(folder, broken_evaluator):
    asked = [request(epsilon=e) for e in (6.0, 3.0)]
    first = calibrate_many(asked, "pld")
    assert [path.name for path in folder.iterdir()] == ["calibration.json"]
    broken_evaluator()
    assert calibrate_many(asked, "pld") == first
    for other in (request(epsilon=5.0), request(delta=1e-4), request(count=401)):
        with pytest.raises(AssertionError):
            one(other)
    for accountant in ("rdp", "best"):
        with pytest.raises(AssertionError):
            one(asked[0], accountant)
    with pytest.raises(AssertionError):
        one(request(relation="replace-one"))
    with pytest.raises(AssertionError):
        one(asked[0], cache=False)


def test_without_the_cache_nothing_is_written(folder):
    one(request(), cache=False)
    assert list(folder.iterdir()) == []


def test_equal_requests_are_solved_once(monkeypatch):
    solved = []
    solve = calibration._solve
    monkeypatch.setattr(calibration, "_solve", lambda *a: (solved.append(a), solve(*a))[1])
    answers = calibrate_many([request() for _ in range(5)], "pld", cache=False)
    assert len(solved) == 1
    assert len(set(answers)) == 1


def test_events_that_agree_at_the_probes_are_told_apart():
    # Noise that is fixed at 1 looks like noise that scales, if one asks at 1 alone; the second
    # pair agrees wherever it is probed, and differs at the answer.
    def scaled(noise):
        return ComposedDpEvent([GaussianDpEvent(noise), GaussianDpEvent(noise)])

    def fixed(noise):
        return ComposedDpEvent([GaussianDpEvent(noise), GaussianDpEvent(1.0)])

    def sly(noise):
        return scaled(noise if noise in (1.0, 2.7) else noise / 2)

    asked = [CalibrationRequest(event_of, 8.0, 1e-5) for event_of in (scaled, fixed, sly)]
    for answer, one_asked in zip(calibrate_many(asked, "pld"), asked, strict=True):
        assert_meets(answer, one_asked, "pld")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b'{"a": 1}', b"\xff\xfe", b"[" * 100_000, b"null"]
)
def test_a_damaged_file_is_replaced(folder, content, broken_evaluator):
    file = folder / "calibration.json"
    file.write_bytes(content)
    answer = one(request())
    assert_meets(answer, request(), "pld")
    broken_evaluator()
    assert one(request()) == answer


@pytest.mark.parametrize(
    "planted",
    [
        {"epsilon": 6.1},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": "5.9"},
        {"noise": -4.0},
        {"noise": 0.0},
        {"noise": 2.0},
        {"noise": math.nan},
        {"noise": math.inf},
        {"noise": None},
        {"event": "0"},
        {"accountant": "rdp"},
        {"accountant": "best"},
        {"accountant": None},
        {"accountant": ["pld"]},
    ],
    ids=str,
)
def test_a_wrong_entry_is_not_used(folder, planted):
    answer = one(request())
    file = folder / "calibration.json"
    whole = file.read_text()
    entries = json.loads(whole)
    (entry,) = entries.values()
    entry.update(planted)
    file.write_text(json.dumps(entries))
    assert one(request()) == answer
    assert file.read_text() == whole


def test_another_version_of_dp_accounting_asks_anew(monkeypatch, broken_evaluator):
    one(request())
    monkeypatch.setattr(calibration, "_DP_ACCOUNTING", "0.7.0")
    broken_evaluator()
    with pytest.raises(AssertionError):
        one(request())


def test_a_folder_that_cannot_be_written_is_no_error(folder, monkeypatch):
    (folder / "file").write_text("not a folder")
    monkeypatch.setenv("SILODP_CACHE", str(folder / "file" / "below"))
    assert_meets(one(request()), request(), "pld")


def test_a_failed_write_leaves_the_old_file(folder, monkeypatch):
    one(request())
    before = (folder / "calibration.json").read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("silodp.base.files.os.replace", full)
    one(request(epsilon=3.0))
    assert (folder / "calibration.json").read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["calibration.json"]


def test_what_was_found_before_an_error_is_kept(broken_evaluator):
    # Sorted by delta, the request that fails comes last.
    bad = CalibrationRequest(lambda _: GaussianDpEvent(0.5), 1.0, 0.01)
    with pytest.raises(SilodpError):
        calibrate_many([bad, request()], "pld")
    broken_evaluator()
    assert one(request()).epsilon <= 6


def test_the_file_does_not_grow_for_ever(folder, monkeypatch):
    monkeypatch.setattr(calibration, "_CACHE_ENTRIES", 2)
    for epsilon in (5.0, 6.0, 7.0):
        one(request(epsilon=epsilon))
    kept = json.loads((folder / "calibration.json").read_text())
    assert [round(entry["epsilon"]) for entry in kept.values()] == [6, 7]


def test_writers_at_once_leave_a_whole_file(folder):
    def write(number):
        for turn in range(20):
            entry = {"noise": 1.0, "epsilon": 1.0, "event": "x" * 1000}
            calibration._write_cache({f"{number} {turn}": entry})

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = json.loads((folder / "calibration.json").read_text())
    assert all(entry["noise"] == 1.0 for entry in entries.values())
    assert [path.name for path in folder.iterdir()] == ["calibration.json"]
