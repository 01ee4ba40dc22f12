"""What a person loses who has records in several silos."""

import math

import numpy as np
import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
)

from silodp.base.errors import SilodpError
from silodp.privacy.accounting.accountant import epsilon_of, rdp_curve
from silodp.privacy.accounting.across_silos import composed_guarantee, epsilon_of_any
from silodp.privacy.accounting.events import BoundedRangeDpEvent, PureDpEvent

WEAK = SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)), 30)
SILOS = [GaussianDpEvent(5.0), WEAK, GaussianDpEvent(2.0), BoundedRangeDpEvent(0.3)]


def test_one_silo_is_the_worst_of_them():
    worst = max(epsilon_of(event, 1e-5, "rdp") for event in SILOS)
    assert epsilon_of_any(SILOS, 1, 1e-5) >= worst * (1 - 1e-9)
    assert epsilon_of_any([WEAK], 1, 1e-5) == epsilon_of(WEAK, 1e-5, "rdp")


def test_all_silos_are_their_composition():
    whole = epsilon_of(ComposedDpEvent(SILOS), 1e-5, "rdp")
    for m in (4, 9):
        assert epsilon_of_any(SILOS, m, 1e-5) == pytest.approx(whole, rel=1e-9)


def test_any_two_are_bounded_and_more_cost_more():
    bound = epsilon_of_any(SILOS, 2, 1e-5)
    for i in range(4):
        for j in range(i):
            assert epsilon_of(ComposedDpEvent([SILOS[i], SILOS[j]]), 1e-5, "pld") <= bound
    costs = [epsilon_of_any(SILOS, m, 1e-5) for m in (1, 2, 3, 4)]
    assert costs == sorted(costs)


def test_relation_counts():
    silos = [GaussianDpEvent(4.0), GaussianDpEvent(6.0)]
    halved = [GaussianDpEvent(2.0), GaussianDpEvent(3.0)]
    assert epsilon_of_any(silos, 2, 1e-5, "replace-one") == epsilon_of_any(halved, 2, 1e-5)
    replaced = epsilon_of_any([WEAK], 1, 1e-5, "replace-one")
    assert epsilon_of_any([WEAK], 1, 1e-5) < replaced
    assert replaced == epsilon_of(WEAK, 1e-5, "rdp", "replace-one")


def test_a_guarantee_takes_the_smaller_bound():
    silos = [GaussianDpEvent(3.0)] * 10
    alone = epsilon_of(silos[0], 1e-6)
    epsilon, delta = composed_guarantee([alone] * 10, [1e-6] * 10, silos, 5)
    assert delta == pytest.approx(5e-6)
    assert epsilon == epsilon_of_any(silos, 5, 5e-6) < 5 * alone
    assert composed_guarantee([1.0, 2.0, 3.0], [1e-3, 1e-5, 1e-4], SILOS[:3], 1) == (3.0, 1e-3)


def test_sums_hold_where_no_curve_is_known():
    cut = TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 1.0)
    found = composed_guarantee([1.0, 4.0, 2.0], [1e-5, 1e-6, 1e-6], [cut] * 3, 2)
    assert found == (6.0, pytest.approx(1.1e-5))
    assert composed_guarantee([1.0, 2.0], [0.5, 0.6], SILOS[:2], 2) == (3.0, 1.1)
    private, _ = composed_guarantee([1.0, math.inf], [1e-5] * 2, [cut, NonPrivateDpEvent()], 1)
    assert private == math.inf


def test_delta_that_is_reserved_is_not_spent_twice():
    silos = [GaussianDpEvent(1.0)] * 3
    arguments = [50.0] * 3, [1e-5] * 3, silos, 2
    whole, _ = composed_guarantee(*arguments)
    less, delta = composed_guarantee(*arguments, reserved=[5e-6] * 3)
    assert delta == 2e-5
    assert less == epsilon_of_any(silos, 2, 1e-5) > whole
    assert composed_guarantee(*arguments, reserved=[1e-5] * 3)[0] == 100.0


@pytest.mark.parametrize("m", [0, -1])
def test_a_person_is_in_at_least_one_silo(m):
    with pytest.raises(SilodpError, match="whole number from 1"):
        epsilon_of_any(SILOS, m, 1e-5)


def test_lists_must_agree():
    with pytest.raises(SilodpError, match="one of each for every silo"):
        composed_guarantee([1.0], [1e-5, 1e-5], SILOS[:2], 1)
    with pytest.raises(SilodpError, match="one of each for every silo"):
        composed_guarantee([1.0] * 2, [1e-5] * 2, SILOS[:2], 1, reserved=[1e-6])


def test_curves_of_closed_form():
    orders = [1.5, 2.0, 30.0]
    np.testing.assert_allclose(rdp_curve(GaussianDpEvent(3.0), orders), np.array(orders) / 18)
    replaced = rdp_curve(GaussianDpEvent(3.0), orders, "replace-one")
    np.testing.assert_allclose(replaced, np.array(orders) / 4.5)
    many = rdp_curve(SelfComposedDpEvent(PureDpEvent(0.4), 7), orders)
    np.testing.assert_allclose(many, [7 * min(a * 0.08, 0.4) for a in orders])
    assert np.all(rdp_curve(NonPrivateDpEvent(), orders) == math.inf)
    with pytest.raises(SilodpError, match="above 1"):
        rdp_curve(WEAK, [1.0])
