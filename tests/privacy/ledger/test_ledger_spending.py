"""What counts in a ledger, what fits, and the life of a run: reserved, charged, closed."""

import functools
import math
import os

import hypothesis
import independent_accountant
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, get_sigma_gaussian
from hypothesis import strategies
from ledgers import (
    AMPLE,
    DELTA,
    A,
    account,
    charge,
    close,
    gaussian,
    kinds,
    old_charge,
    old_ledger,
    reservation,
    reserve,
    sampled,
    spend,
    unsampled,
)

from silodp.base.errors import SilodpError
from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.ledger import lifetime
from silodp.privacy.ledger.account import Allowance, RunClosedError
from silodp.privacy.ledger.charging import (
    BudgetSpentError,
    allow,
    charge_all,
    close_all,
    close_everywhere,
    convert,
    reserve_all,
    would_exceed,
)
from silodp.privacy.ledger.standing import remaining, spent_epsilon, summed_up
from silodp.privacy.ledger.storage import read_ledger
from silodp.privacy.ledger.words import in_words, standing_notes

FIVE = Allowance(5.0, DELTA)


def taking(share, allowance=FIVE, rounds=1, **more):
    """A run of so many rounds that takes this share of the lifetime, all rounds together."""
    opened = allowance.opened()
    order = opened.order / 2 if opened.kind == "renyi" else 1.0
    moved = 1 if allowance.relation == "add-remove" else 2
    noise = moved * math.sqrt(order * rounds / (share * opened.budget))
    return gaussian(noise, rounds, **more)


def planned(noise, rounds=1, delta=DELTA):
    return epsilon_of(unsampled(rounds, noise), delta, "pld")


def shares(folder, silo=A):
    told = remaining(folder, silo)
    names = ("spent_share", "reserved_share", "given_back_share", "left_share")
    return tuple(told[name] for name in names)


# --- what counts


def test_costs_are_those_of_the_filter_and_add_up(tmp_path):
    runs = [sampled(10, 2.0), sampled(20, 3.0, 0.3), unsampled(1, 5.0)]
    for number, event in enumerate(runs):
        spend(tmp_path, reservation(lambda _, event=event: event), f"run {number}")
    opened = AMPLE.opened()
    expected = sum(lifetime.cost(event, opened) for event in runs) / opened.budget
    told = remaining(tmp_path, A)
    assert told["spent_share"] == pytest.approx(expected, rel=1e-12)
    assert told["left_share"] == pytest.approx(1 - expected, rel=1e-9)
    assert told["filter"] == {"kind": "renyi", "order": opened.order}


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "parts",
    [
        [(1.0, 2.0, 3)],
        [(0.2, 2.0, 60)],
        [(0.2, 2.0, 60), (1.0, 6.0, 2)],
        [(0.1, 1.5, 40), (0.3, 3.0, 40), (1.0, 8.0, 1)],
    ],
)
def test_spent_epsilon_is_never_below_an_independent_accountants(tmp_path, relation, parts):
    allowance = Allowance(12.0, DELTA, relation)
    for number, (rate, noise, steps) in enumerate(parts):
        event = functools.partial(sampled, noise=noise, rate=rate, steps=steps)
        if rate == 1.0:
            event = functools.partial(unsampled, noise=noise)
            what = reservation(event, steps)
        else:
            what = reservation(event, 1)
        spend(tmp_path, what, f"run {number}", allowance)
        done = [
            (independent_accountant.gaussian_losses(rate, noise, relation), steps)
            for rate, noise, steps in parts[: number + 1]
        ]
        truth = independent_accountant.epsilon(done, DELTA)
        told = remaining(tmp_path, A)
        assert truth * (1 - 2e-4) <= told["spent_epsilon"] <= 12.0
        # The largest further release, if all had been planned beforehand, is within the lifetime.
        moved = 1 if relation == "add-remove" else 2
        noise = moved * get_sigma_gaussian(told["remaining_epsilon"], DELTA)
        more = (independent_accountant.gaussian_losses(1.0, noise, relation), 1)
        assert independent_accountant.epsilon([*done, more], DELTA) <= 12.0


def test_a_single_run_costs_what_its_plan_says_though_it_ended_early(tmp_path):
    what = gaussian(4.0, rounds=8)
    reserve(tmp_path, what, allowance=FIVE)
    assert remaining(tmp_path, A)["spent_epsilon"] == 0
    charge(tmp_path, what, 0, 2)
    close(tmp_path)
    told = remaining(tmp_path, A)
    assert planned(4.0, 2) <= told["spent_epsilon"] <= planned(4.0, 8) * (1 + 1e-9)


def test_overflow_takes_of_what_was_set_aside(tmp_path):
    most = FIVE.opened().overflow_budget
    spend(tmp_path, taking(0.1, overflow=0.6 * most), "a", FIVE)
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, taking(0.1, overflow=0.6 * most), "b", FIVE)
    reserve(tmp_path, taking(0.1, rounds=4, overflow=0.4 * most), "c", FIVE)
    charge(tmp_path, taking(0.1, rounds=4, overflow=0.4 * most), 0, 2, "c")
    close(tmp_path, "c")  # half of it is given back
    spend(tmp_path, taking(0.1, overflow=0.19 * most), "d", FIVE)
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, taking(0.1, overflow=0.02 * most), "e", FIVE)
    total = math.fsum(cost.overflow for cost in account(tmp_path).spent)
    assert total == pytest.approx(0.99 * most)


def test_overflow_beyond_delta_is_refused(tmp_path):
    with pytest.raises(SilodpError, match="does not fit its lifetime"):
        reserve(tmp_path, gaussian(overflow=DELTA), allowance=FIVE)
    assert not os.listdir(tmp_path)


def test_what_a_run_says_of_itself_is_not_believed(tmp_path):
    spend(tmp_path, gaussian(epsilon=0.0, delta=0.0))
    assert remaining(tmp_path, A)["spent_epsilon"] == pytest.approx(planned(2.0))


def test_replace_one(tmp_path):
    """A record that is exchanged moves a sum twice as far, so that it costs four times as much."""
    one, other = Allowance(8.0, DELTA), Allowance(8.0, DELTA, "replace-one")
    spend(tmp_path, gaussian(8.0), allowance=one)
    spend(tmp_path, gaussian(8.0), allowance=other, silo="other")
    assert remaining(tmp_path, "other")["relation"] == "replace-one"
    assert shares(tmp_path, "other")[0] == pytest.approx(4 * shares(tmp_path)[0], rel=1e-6)
    spend(tmp_path, reservation(sampled, 5), "sampled", one)
    spend(tmp_path, reservation(sampled, 5), "sampled", other, "other")
    assert shares(tmp_path, "other")[0] > shares(tmp_path)[0]


@hypothesis.settings(max_examples=15, deadline=None, derandomize=True)
@hypothesis.given(
    strategies.lists(
        strategies.tuples(
            strategies.floats(3.0, 20.0),
            strategies.integers(1, 8),
            strategies.lists(strategies.booleans(), min_size=8, max_size=8),
            strategies.booleans(),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_runs_do_shares_add_up_and_nothing_is_uncharged(tmp_path_factory, runs):
    folder = tmp_path_factory.mktemp("ledger")
    paid = given_back = held = 0.0
    opened = FIVE.opened()
    for number, (noise, rounds, answered, closed) in enumerate(runs):
        what = gaussian(noise, rounds)
        one = lifetime.cost(unsampled(1, noise), opened) / opened.budget
        try:
            reserve(folder, what, f"run {number}", FIVE)
        except BudgetSpentError:
            # An open run may have the lifetime alone; else what is taken would be too much.
            alone = any(run.alone for run in account(folder).runs.values()) if number else False
            assert alone or paid + held + rounds * one > 1
            continue
        charged = 0
        for first in range(rounds):
            if answered[first]:
                charge(folder, what, first, first + 1, f"run {number}")
                charged += 1
        paid += charged * one
        if closed:
            close(folder, f"run {number}")
            given_back += (rounds - charged) * one
        else:
            held += (rounds - charged) * one
        spent, reserved, back, left = shares(folder)
        assert spent == pytest.approx(paid, rel=1e-9)
        assert reserved == pytest.approx(held, rel=1e-9, abs=1e-9)
        assert back == pytest.approx(given_back, rel=1e-9, abs=1e-9)
        if not any(run.alone and run.live for run in account(folder).runs.values()):
            assert spent + reserved + left == pytest.approx(1)
            assert spent + reserved <= 1


# --- the life of a run


def test_a_run_is_reserved_charged_in_blocks_and_closed(tmp_path):
    what = taking(0.6, rounds=6)
    reserve(tmp_path, what, allowance=FIVE)
    assert account(tmp_path).runs["run"].state == "reserved"
    assert shares(tmp_path) == pytest.approx((0, 0.6, 0, 0.4), rel=1e-6)
    charge(tmp_path, what, -1, 0)
    charge(tmp_path, what, 0, 2)
    assert account(tmp_path).runs["run"].state == "charged"
    assert shares(tmp_path) == pytest.approx((0.2, 0.4, 0, 0.4), rel=1e-6)
    charge(tmp_path, what, 3, 4)  # the one before was missed
    assert account(tmp_path).runs["run"].charged == 3
    close(tmp_path, reason="abandoned")
    run = account(tmp_path).runs["run"]
    assert (run.state, run.closed, run.charged) == ("closed", "abandoned", 3)
    assert shares(tmp_path) == pytest.approx((0.3, 0, 0.3, 0.7), rel=1e-6)
    # What was given back can be reserved again, and no more than that.
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, taking(0.701), "more", FIVE)
    spend(tmp_path, taking(0.699), "next", FIVE)
    words = [in_words(entry) for entry in read_ledger(tmp_path, A).entries]
    assert words[2:7] == [
        "Reserved for 6 rounds.",
        "Charged for the preparation (statistics)",
        "Charged for rounds 1 to 2",
        "Charged for round 4",
        "Closed: abandoned; whatever was not charged is given back",
    ]


def test_what_is_reserved_is_not_there_for_others(tmp_path):
    reserve(tmp_path, taking(0.6), "a", FIVE)
    with pytest.raises(BudgetSpentError, match=r"1 open run such as 'a' hold a part"):
        reserve(tmp_path, taking(0.6), "b", FIVE)
    close(tmp_path, "a", "refused")
    assert shares(tmp_path) == pytest.approx((0, 0, 0.6, 1), rel=1e-6)
    spend(tmp_path, taking(0.6), "b", FIVE)


@pytest.mark.parametrize(
    ("first", "last"), [(0, 2), (1, 4), (2, 3), (-1, 0), (-1, 7), (3, 3), (4, 3), (6, 8), (-2, 9)]
)
def test_no_round_is_charged_twice_nor_before_those_that_are(tmp_path, first, last):
    what = gaussian(rounds=6)
    reserve(tmp_path, what)
    charge(tmp_path, what, 1, 3)
    with pytest.raises(SilodpError, match="no round is charged twice"):
        charge(tmp_path, what, first, last)
    assert kinds(tmp_path) == ["opened", "policy", "reserve", "charge"]


@pytest.mark.parametrize(
    ("what", "dearer"),
    [
        (gaussian(2.0, 6), gaussian(1.9, 6)),
        (gaussian(2.0, 6), gaussian(2.0, 6, overflow=1e-12)),
        (reservation(functools.partial(sampled, noise=2.1), 6), reservation(sampled, 6)),
    ],
)
def test_a_charge_beyond_what_was_reserved_is_refused(tmp_path, what, dearer):
    reserve(tmp_path, what)
    with pytest.raises(SilodpError, match="more than it reserved"):
        charge(tmp_path, dearer, -1, 7)
    assert kinds(tmp_path) == ["opened", "policy", "reserve"]
    charge(tmp_path, what, -1, 7)


def test_parts_that_cost_more_than_the_whole_are_refused_where_they_do(tmp_path):
    what = gaussian(2.0, 6)
    reserve(tmp_path, what)
    charge(tmp_path, what, 0, 3)
    with pytest.raises(SilodpError, match="more than it reserved"):
        charge(tmp_path, gaussian(1.9, 6), 3, 6)
    charge(tmp_path, what, 3, 6)


def test_a_run_has_its_name_once(tmp_path):
    reserve(tmp_path, gaussian())
    for end in (lambda: None, lambda: close(tmp_path)):
        end()
        with pytest.raises(SilodpError, match="knows run 'run' already: resume"):
            reserve(tmp_path, gaussian())


@pytest.mark.parametrize("charged", [False, True])
def test_nothing_follows_a_close(tmp_path, charged):
    what = gaussian(rounds=4)
    reserve(tmp_path, what)
    if charged:
        charge(tmp_path, what, 0, 2)
    close(tmp_path, reason="abandoned")
    before = read_ledger(tmp_path, A).head
    for refuse in (
        lambda: charge(tmp_path, what, 2, 4),
        lambda: close(tmp_path),
        lambda: close_all(tmp_path, [A], "run", "again"),
    ):
        with pytest.raises(RunClosedError, match=r"closed \(abandoned\).*start a new run"):
            refuse()
    with pytest.raises(SilodpError, match="knows run 'run' already"):
        reserve(tmp_path, what)
    assert read_ledger(tmp_path, A).head == before


def test_nothing_precedes_a_reservation(tmp_path):
    reserve(tmp_path, gaussian(), "another")
    before = read_ledger(tmp_path, A).head
    for refuse in (lambda: charge(tmp_path, gaussian()), lambda: close(tmp_path)):
        with pytest.raises(SilodpError, match="nothing reserved for run 'run'"):
            refuse()
    assert read_ledger(tmp_path, A).head == before


def test_all_silos_or_none(tmp_path):
    what = dict.fromkeys("ab", gaussian(rounds=4))
    reserve_all(tmp_path, what, dict.fromkeys("ab", AMPLE), "run")
    close(tmp_path, silo="b")
    for refuse in (
        lambda: charge_all(tmp_path, what, "run", 0, 1),
        lambda: close_all(tmp_path, ["a", "b"], "run", "failed"),
        lambda: close_all(tmp_path, ["a", "c"], "run", "failed"),
    ):
        with pytest.raises(SilodpError):
            refuse()
    assert kinds(tmp_path, "a") == ["opened", "policy", "reserve"]
    assert close_everywhere(tmp_path, ["a", "b"], "run", "abandoned") == ["a"]
    with pytest.raises(SilodpError, match="holds an open run 'run'"):
        close_everywhere(tmp_path, ["a", "b"], "run", "abandoned")


def test_blocks_of_a_reservation():
    what = gaussian(rounds=10, blocks=4)
    found = [what.block_of(number) for number in range(-1, 11)]
    assert sorted(set(found)) == [(-1, 0), (0, 3), (3, 6), (6, 9), (9, 10), (10, 11)]
    assert all(
        first <= number < last for number, (first, last) in zip(range(-1, 11), found, strict=True)
    )
    assert gaussian(rounds=10, blocks=1).block_of(4) == (-1, 11)
    opened = FIVE.opened()

    def cost(first, last):
        return lifetime.cost(what.event_of(first, last), opened), what.cost(first, last)["overflow"]

    parts = [cost(*block) for block in set(found)]
    whole = cost(-1, 11)
    assert [math.fsum(each) for each in zip(*parts, strict=True)] == pytest.approx(whole)


# --- what does not fit


def test_refusal_says_how_many_rounds_fit(tmp_path):
    allowances = {A: Allowance(3.0, DELTA), "ample": AMPLE, "tighter": Allowance(2.0, DELTA)}
    event = functools.partial(sampled, noise=4.0)
    first = dict.fromkeys(allowances, reservation(event, 10))
    reserve_all(tmp_path, first, allowances, "first")
    charge_all(tmp_path, first, "first", -1, 11)
    close_all(tmp_path, list(allowances), "first", "finished")
    wanted = dict.fromkeys(allowances, reservation(event, 200))
    with pytest.raises(BudgetSpentError) as refused:
        reserve_all(tmp_path, wanted, allowances, "second")
    text = str(refused.value)
    assert text.startswith("Silo 'tighter': ")
    assert "1 other silo" in text
    left = remaining(tmp_path, "tighter")["left_share"]
    assert f"{left:.0%} of epsilon 2 at delta 1e-05 is left" in text
    fit = int(text.split(" of its 200 rounds")[0].split()[-1])
    assert 0 < fit < 200
    assert kinds(tmp_path, "tighter") == ["opened", "policy", "reserve", "charge", "close"]
    more = dict.fromkeys(allowances, reservation(event, fit + 1))
    with pytest.raises(SilodpError, match=f"with the same noise {fit} of its {fit + 1} rounds"):
        reserve_all(tmp_path, more, allowances, "third")
    reserve_all(tmp_path, dict.fromkeys(allowances, reservation(event, fit)), allowances, "fourth")


def test_refused_run_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "ledgers"
    wanted = {"a": gaussian(), "b": gaussian(0.1)}
    allowances = dict.fromkeys(wanted, Allowance(3.0, DELTA))
    only = {"a": Allowance(3.0, DELTA)}
    for refuse in (
        lambda: reserve_all(folder, wanted, allowances, "run"),
        lambda: would_exceed(folder, wanted, allowances),
        lambda: reserve_all(folder, wanted, {"a": AMPLE}, "run"),
        lambda: reserve_all(folder, {"a": gaussian()}, only, ""),
        lambda: reserve_all(folder, {"a": gaussian()}, only, "a\nb"),
        lambda: reserve_all(folder, {"a": gaussian()}, only, "x" * 201),
        lambda: reserve_all(folder, {"a": gaussian(x=object())}, only, "run"),
        lambda: reserve_all(folder, {"a": gaussian(x=math.nan)}, only, "run"),
        lambda: reserve_all(folder, {"a": gaussian(overflow=-1.0)}, only, "run"),
        lambda: reserve_all(folder, {"a": gaussian(rounds=0)}, only, "run"),
        lambda: reserve_all(folder, {"a": gaussian(rounds=2.0)}, only, "run"),
    ):
        with pytest.raises(SilodpError):
            refuse()
        assert not folder.exists()


def test_check_writes_nothing(tmp_path):
    would_exceed(tmp_path / "new", {A: gaussian()}, {A: AMPLE})
    assert not (tmp_path / "new").exists()
    reserve(tmp_path, gaussian())
    before = read_ledger(tmp_path, A).head
    would_exceed(tmp_path, {A: gaussian()}, {A: AMPLE})
    assert read_ledger(tmp_path, A).head == before


def test_what_is_left_fits_and_more_does_not(tmp_path):
    spend(tmp_path, taking(0.4), "first", FIVE)
    left = remaining(tmp_path, A)["remaining_epsilon"]
    assert 0 < left < 5

    def noise_for(epsilon):
        return get_sigma_gaussian(epsilon, DELTA)

    would_exceed(tmp_path, {A: gaussian(noise_for(left * 0.999))}, {A: FIVE})
    with pytest.raises(SilodpError, match="does not fit"):
        would_exceed(tmp_path, {A: gaussian(noise_for(left * 1.01))}, {A: FIVE})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Allowance(20.0, DELTA, relation="replace-one"), "relation to 'add-remove'"),
        (Allowance(20.0, DELTA, unit="subject"), "unit to 'record'"),
        (Allowance(20.0, DELTA, filter="gaussian"), "lifetime_filter to 'renyi'"),
    ],
)
def test_ledger_is_bound_to_how_it_counts(tmp_path, other, told):
    reserve(tmp_path, gaussian())
    for refuse in (
        lambda: reserve(tmp_path, gaussian(), "second", other),
        lambda: would_exceed(tmp_path, {A: gaussian()}, {A: other}),
    ):
        with pytest.raises(SilodpError, match=told):
            refuse()
    assert kinds(tmp_path) == ["opened", "policy", "reserve"]


def test_gaussian_filter(tmp_path):
    """Gaussian mechanisms may fill it to the brim; what it has no price for it does not take."""
    tight = Allowance(5.0, DELTA, filter="gaussian")
    for number in range(4):
        spend(tmp_path, taking(0.2499, tight), f"run {number}", tight)
    told = remaining(tmp_path, A)
    assert told["filter"] == {"kind": "gaussian", "order": 0.0}
    assert told["left_share"] == pytest.approx(4e-4, rel=1e-3)
    assert told["spent_epsilon"] <= 5.0
    with pytest.raises(SilodpError, match="has no price in a lifetime of the filter 'gaussian'"):
        reserve(tmp_path, reservation(sampled, 1), "sampled", tight)
    allow(tmp_path, A, 9.0)
    assert remaining(tmp_path, A)["filter"]["kind"] == "gaussian"
    with pytest.raises(SilodpError, match="lifetime_filter to 'gaussian'"):
        reserve(tmp_path, gaussian(), "other", Allowance(9.0, DELTA))


@pytest.mark.parametrize(
    "fields",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"relation": "swap"},
        {"unit": "house"},
        {"filter": "best"},
    ],
)
def test_allowance_that_is_not_sound(fields):
    with pytest.raises(SilodpError, match=next(iter(fields))):
        Allowance(**{"epsilon": 3.0, "delta": DELTA, **fields})


# --- one run alone


@pytest.fixture
def brim():
    """A run that is within a lifetime by its own plan, and not by the filter; and that lifetime."""
    what = gaussian(2.0, rounds=4)
    allowance = Allowance(planned(2.0, 4) * 1.001, DELTA)
    opened = allowance.opened()
    assert lifetime.cost(what.event, opened) > opened.budget
    return what, allowance


def test_a_first_run_may_have_the_lifetime_alone(tmp_path, brim):
    what, allowance = brim
    reserve(tmp_path, what, allowance=allowance)
    assert account(tmp_path).runs["run"].alone
    told = remaining(tmp_path, A)
    assert told["given_to"] == "run"
    assert (told["left_share"], told["remaining_epsilon"]) == (0, 0)
    assert any("given to run run alone" in note for note in standing_notes(told))
    charge(tmp_path, what, 0, 1)
    for end in (lambda: None, lambda: close(tmp_path)):
        end()
        with pytest.raises(BudgetSpentError, match="given to run 'run' alone"):
            reserve(tmp_path, gaussian(1e6), "tiny", allowance)
    told = remaining(tmp_path, A)
    assert (told["given_to"], told["left_share"]) == ("run", 0)
    assert told["spent_epsilon"] <= allowance.epsilon
    assert told["broken"] == []
    with pytest.raises(BudgetSpentError, match="given to run 'run' alone"):  # lowered is no way out
        reserve(tmp_path, gaussian(1e6), "tiny", Allowance(allowance.epsilon / 2, DELTA))
    # Raised, it is one among others, and counts by the filter.
    reserve(tmp_path, gaussian(50.0), "tiny", Allowance(20.0, DELTA))
    told = remaining(tmp_path, A)
    assert told["given_to"] is None
    assert told["spent_share"] + told["reserved_share"] + told["left_share"] == pytest.approx(1)


def test_alone_and_never_charged_is_given_back_whole(tmp_path, brim):
    what, allowance = brim
    reserve(tmp_path, what, allowance=allowance)
    close(tmp_path, reason="refused")
    told = remaining(tmp_path, A)
    assert (told["given_to"], told["left_share"], told["runs"]) == (None, 1, 0)
    spend(tmp_path, gaussian(20.0), "another", allowance)


def test_no_run_is_alone_beside_another(tmp_path, brim):
    what, allowance = brim
    spend(tmp_path, gaussian(1e5), "before", allowance)
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, what, allowance=allowance)


def test_no_run_is_alone_that_its_own_plan_does_not_allow(tmp_path, brim):
    what, allowance = brim
    small = Allowance(allowance.epsilon * 0.99, DELTA)
    with pytest.raises(BudgetSpentError, match="by itself it costs epsilon"):
        reserve(tmp_path, what, allowance=small)


# --- changes of a lifetime


def test_lowering_keeps_the_older_promise_in_force(tmp_path):
    """Less epsilon at more delta, say: then neither implies the other."""
    loose = Allowance(6.0, 1e-4)
    spend(tmp_path, taking(0.5, loose), "a", loose)
    lower = Allowance(5.9, 1e-4)
    spend(tmp_path, taking(0.01, loose), "b", lower)
    known = account(tmp_path)
    assert [promise.allowance for promise in known.promises] == [loose, lower]
    words = in_words([e for e in read_ledger(tmp_path, A).entries if e.kind == "policy"][-1])
    assert words == (
        "Lifetime allowance lowered to epsilon 5.9 at delta 0.0001; that of epsilon 6 at delta "
        "0.0001 holds too"
    )
    # Whatever fits must fit both, so that left is what the tighter one leaves.
    left = remaining(tmp_path, A)["left_share"]
    taken = [
        sum(c.taken(p.lifetime) for c in known.counted) / p.lifetime.budget for p in known.promises
    ]
    assert left == pytest.approx(1 - max(taken))


def test_a_lowered_lifetime_that_is_spent_lets_nothing_pass(tmp_path):
    spend(tmp_path, taking(0.5), "a", FIVE)
    lower = Allowance(1.0, DELTA)
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, taking(0.01), "b", lower)
    assert kinds(tmp_path).count("policy") == 1  # what is refused changes nothing
    allow(tmp_path, A, 1.0)
    told = remaining(tmp_path, A)
    assert told["broken"] == [{"epsilon": 1.0, "delta": DELTA}]
    assert told["left_share"] == 0
    assert any("NOT KEPT" in note for note in standing_notes(told))


@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
def test_a_lifetime_that_is_changed_in_hindsight_says_nothing_of_what_was_spent(tmp_path, kind):
    """Lowered to just what was spent, the best order would be known after what was seen."""
    loose = Allowance(10.0, DELTA, filter=kind)
    for number in range(20):
        spend(tmp_path, gaussian(8.0), f"run {number}", loose)
    told = remaining(tmp_path, A)
    assert not told["changed"]
    just = next(
        epsilon
        for epsilon in (2.2 + 0.02 * step for step in range(100))
        if 20 * lifetime.cost(GaussianDpEvent(8.0), Allowance(epsilon, DELTA, filter=kind).opened())
        <= Allowance(epsilon, DELTA, filter=kind).opened().budget
    )
    assert just < told["spent_epsilon"]
    for epsilon in (just, 12.0):
        allow(tmp_path, A, epsilon)
        after = remaining(tmp_path, A)
        assert after["lifetime_epsilon"] == epsilon
        assert after["spent_epsilon"] == told["spent_epsilon"]
        assert after["broken"] == []
        assert after["changed"]
        assert any("changed after something had been charged" in n for n in standing_notes(after))
    # At a smaller delta it is more, and never what was promised at a larger one.
    allow(tmp_path, A, 12.0, DELTA / 10)
    assert remaining(tmp_path, A)["spent_epsilon"] > told["spent_epsilon"]
    allow(tmp_path, A, 10.0)  # what it was, but not since before anything was charged
    assert remaining(tmp_path, A)["changed"]


def test_a_lifetime_that_is_changed_before_anything_is_charged_is_fixed_then(tmp_path):
    reserve(tmp_path, gaussian(20.0), "never charged", FIVE)
    allow(tmp_path, A, 3.0)
    spend(tmp_path, gaussian(20.0), "a", Allowance(3.0, DELTA))
    assert account(tmp_path).fixed.allowance == Allowance(3.0, DELTA)
    assert not remaining(tmp_path, A)["changed"]


def test_raising_is_a_new_promise_in_so_many_words(tmp_path):
    for number, epsilon in enumerate((5.0, 5.0, 9.0)):
        spend(tmp_path, gaussian(20.0), f"run {number}", Allowance(epsilon, DELTA))
    policies = [e for e in read_ledger(tmp_path, A).entries if e.kind == "policy"]
    assert [e.body["epsilon"] for e in policies] == [5.0, 9.0]
    assert policies[1].body["before"] == {"epsilon": 5.0, "delta": DELTA}
    words = in_words(policies[1])
    assert "RAISED to epsilon 9" in words
    assert "The promise of epsilon 5 at delta 1e-05 ends here" in words
    assert "did not depend on what was released" in words
    assert [p.allowance for p in account(tmp_path).promises] == [Allowance(9.0, DELTA)]


@pytest.mark.parametrize(
    ("changes", "in_force"),
    [
        ([(5, 1e-5), (4, 1e-5), (3, 1e-5)], [(5, 1e-5), (4, 1e-5), (3, 1e-5)]),
        ([(5, 1e-5), (3, 1e-5), (4, 1e-5)], [(5, 1e-5), (4, 1e-5)]),
        ([(5, 1e-5), (6, 1e-6)], [(6, 1e-6)]),
        ([(5, 1e-5), (4, 1e-4)], [(4, 1e-4)]),
        ([(5, 1e-5), (5, 1e-6), (9, 1e-5)], [(9, 1e-5)]),
    ],
)
def test_promises_in_force(tmp_path, changes, in_force):
    first, *more = changes
    reserve(tmp_path, gaussian(50.0), allowance=Allowance(*first))
    for one in more:
        allow(tmp_path, A, *one)
    found = [(p.allowance.epsilon, p.allowance.delta) for p in account(tmp_path).promises]
    assert found == in_force


def test_of_several_that_charge_none_loosens_what_another_relies_on(tmp_path):
    """The least of each number, whoever comes first; and refused by it."""

    def charged(run, epsilon, delta, noise=20.0):
        how = ({A: gaussian(noise)}, {A: Allowance(epsilon, delta)})
        would_exceed(tmp_path, *how, strictest=True)
        reserve_all(tmp_path, *how, run, strictest=True)

    charged("a", 5.0, 1e-5)
    charged("b", 9.0, 1e-6)
    charged("c", 9.0, 1e-4)
    assert account(tmp_path).allowance == Allowance(5.0, 1e-6)
    assert kinds(tmp_path).count("policy") == 2
    with pytest.raises(SilodpError, match="of epsilon 5 at delta 1e-06 is left"):
        charged("d", 50.0, 1e-4, noise=0.7)


def test_an_allowance_is_changed_in_so_many_words(tmp_path):
    reserve(tmp_path, gaussian(20.0), allowance=FIVE)
    assert allow(tmp_path, A, 9.0) == Allowance(9.0, DELTA)
    assert allow(tmp_path, A, 9.0) == Allowance(9.0, DELTA)  # nothing new to write
    assert allow(tmp_path, A, 3.0, 1e-6) == Allowance(3.0, 1e-6)
    assert account(tmp_path).allowance == Allowance(3.0, 1e-6)
    assert kinds(tmp_path) == ["opened", "policy", "reserve", "policy", "policy"]
    for wrong in (0.0, math.inf, math.nan):
        with pytest.raises(SilodpError, match="lifetime epsilon"):
            allow(tmp_path, A, wrong)
    with pytest.raises(SilodpError, match="has no ledger"):
        allow(tmp_path, "another", 9.0)
    assert account(tmp_path).allowance == Allowance(3.0, 1e-6)


# --- what is said of it


def test_standing(tmp_path):
    assert remaining_of_new(tmp_path)["same_again"] is None
    spend(tmp_path, taking(0.1), "small", FIVE)
    reserve(tmp_path, taking(0.25, rounds=5), "open", FIVE)
    told = remaining(tmp_path, A)
    assert told["open_runs"] == ["open"]
    assert told["runs"] == 2
    assert told["same_again"] == {"share": pytest.approx(0.25), "runs": 2, "rounds": 5}
    assert any("open, and holding what is reserved: open" in n for n in standing_notes(told))
    for number in range(2):
        reserve(tmp_path, taking(0.25, rounds=5), f"again {number}", FIVE)
    assert remaining(tmp_path, A)["same_again"]["runs"] == 0
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, taking(0.25, rounds=5), "again 2", FIVE)


def remaining_of_new(folder):
    reserve(folder, gaussian(), "first", FIVE, "new")
    close(folder, "first", silo="new")
    told = remaining(folder, "new")
    assert (told["spent_epsilon"], told["remaining_epsilon"]) == (0, 5)
    assert (told["runs"], told["open_runs"]) == (0, [])
    return told


def test_a_summary_names_nobody(tmp_path):
    spend(tmp_path, taking(0.104), "secret run", FIVE, "secret clinic")
    spend(tmp_path, taking(0.5), "secret run", FIVE, "another secret")
    spend(tmp_path, gaussian(50.0), "secret run", AMPLE, "third secret")
    silos = ("secret clinic", "another secret", "third secret")
    told = summed_up([remaining(tmp_path, silo) for silo in silos])
    assert "secret" not in str(told)
    assert told["silos"] == 3
    assert [row["silos"] for row in told["lifetimes"]] == [2, 1]
    assert told["lifetimes"][0]["spent_share"] == [0.1, 0.5]
    assert told["lifetimes"][0]["left_share"] == [0.5, 0.9]


# --- ledgers of the first format


OLD = [
    ("policy", "", {"epsilon": 8.0, "delta": DELTA}),
    ("charge", "a", old_charge(unsampled(10, 8.0), data="school")),
    ("resume", "a", {"round": 4}),
    ("finish", "a", {}),
    ("charge", "b", old_charge(sampled(10))),
    ("void", "b", {"reason": "no memory"}),
    ("charge", "c", old_charge(unsampled(10, 8.0))),
    ("settle", "c", old_charge(unsampled(3, 8.0), 3)),
    ("charge", "d", old_charge(unsampled(5, 9.0), 5, 1e-12)),
]


def share_of(events_, epsilon=8.0):
    opened = Allowance(epsilon, DELTA).opened()
    return sum(lifetime.cost(event, opened) for event in events_) / opened.budget


def test_an_old_ledger_is_read_and_counts_in_full(tmp_path):
    old_ledger(tmp_path, OLD)
    told = remaining(tmp_path, A)
    assert told["format"] == 1
    assert told["open_runs"] == ["d"]
    done = [unsampled(10, 8.0), unsampled(3, 8.0), unsampled(5, 9.0)]
    assert told["spent_share"] == pytest.approx(share_of(done), rel=1e-9)
    assert told["spent_epsilon"] >= epsilon_of(ComposedDpEvent(done), DELTA, "pld")
    assert any("silodp ledger convert" in note for note in standing_notes(told))
    states = {name: run.closed for name, run in account(tmp_path).runs.items()}
    assert states == {"a": "finished", "b": "void: no memory", "c": "ended early", "d": None}
    assert [in_words(entry) for entry in read_ledger(tmp_path, A).entries][2:] == [
        "Charged for 10 rounds: data school",
        "Run goes on from round 4; costs nothing more",
        "Run finished as charged",
        "Charged for 10 rounds",
        "Run released nothing and does not count: no memory",
        "Charged for 10 rounds",
        "Ended early, counts for 3 rounds",
        "Charged for 5 rounds",
    ]


def test_an_old_ledger_takes_nothing_before_it_is_converted(tmp_path):
    old_ledger(tmp_path, OLD)
    before = read_ledger(tmp_path, A).head
    eight = Allowance(8.0, DELTA)
    for refuse in (
        lambda: reserve(tmp_path, gaussian(90.0), "new", eight),
        lambda: would_exceed(tmp_path, {A: gaussian(90.0)}, {A: eight}),
        lambda: charge(tmp_path, gaussian(9.0, 5), 0, 5, "d"),
        lambda: close(tmp_path, "d"),
        lambda: allow(tmp_path, A, 9.0),
    ):
        with pytest.raises(SilodpError, match=r"format 1.*silodp ledger convert"):
            refuse()
    assert read_ledger(tmp_path, A).head == before


def test_a_converted_ledger_counts_its_past(tmp_path):
    old_ledger(tmp_path, OLD)
    before = remaining(tmp_path, A)
    convert(tmp_path, A)
    told = remaining(tmp_path, A)
    assert (told["format"], told["open_runs"], told["broken"]) == (2, [], [])
    for name in ("spent_share", "left_share", "lifetime_epsilon", "spent_epsilon"):
        assert told[name] == pytest.approx(before[name])
    left = told["left_share"]
    eight = Allowance(8.0, DELTA)
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, taking(left * 1.01, eight), "more", eight)
    spend(tmp_path, taking(left * 0.99, eight), "rest", eight)
    for refuse in (lambda: charge(tmp_path, gaussian(9.0, 5), 0, 5, "d"),):
        with pytest.raises(RunClosedError):
            refuse()
    with pytest.raises(SilodpError, match="leave it as it is"):
        convert(tmp_path, A)


def test_a_converted_ledger_that_was_filled_to_the_brim_says_so(tmp_path):
    """Two runs that fitted as if planned beforehand, and do not however they were chosen."""
    epsilon = planned(2.0, 2) * 1.0001
    entries = [("policy", "", {"epsilon": epsilon, "delta": DELTA})]
    for run in "ab":
        entries += [("charge", run, old_charge(unsampled(1, 2.0), 1)), ("finish", run, {})]
    old_ledger(tmp_path, entries)
    convert(tmp_path, A)
    told = remaining(tmp_path, A)
    assert told["broken"]
    assert all(one == {"epsilon": epsilon, "delta": DELTA} for one in told["broken"])
    assert told["left_share"] == 0
    assert told["spent_epsilon"] > epsilon
    with pytest.raises(BudgetSpentError):
        reserve(tmp_path, gaussian(1e6), "tiny", Allowance(epsilon, DELTA))


def test_an_old_ledger_without_any_charge_is_converted_too(tmp_path):
    old_ledger(tmp_path, [])
    convert(tmp_path, A)
    assert remaining(tmp_path, A)["lifetime_epsilon"] is None
    spend(tmp_path, gaussian(20.0), "first", FIVE)


def test_an_old_ledger_that_replaces_one(tmp_path):
    entries = [OLD[0], ("charge", "a", old_charge(unsampled(1, 8.0), 1)), ("finish", "a", {})]
    old_ledger(tmp_path, entries, relation="replace-one")
    convert(tmp_path, A)
    eight = Allowance(8.0, DELTA, "replace-one")
    spend(tmp_path, gaussian(20.0), "next", eight)
    spent = spent_epsilon(account(tmp_path))
    parts = [
        (independent_accountant.gaussian_losses(1.0, noise, "replace-one"), 1)
        for noise in (8.0, 20.0)
    ]
    assert independent_accountant.epsilon(parts, DELTA) * (1 - 2e-4) <= spent <= 8
