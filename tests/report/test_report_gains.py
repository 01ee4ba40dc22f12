"""Who gained and by how much, as a report counts it, and numbers as it writes them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import made_up

from silodp.base.text import percent
from silodp.report.gains import gain, gains_by_silo
from silodp.report.numbers import duration, of_hundred, plus_minus


def test_gains_are_seed_by_seed():
    found = gain([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], "mse")
    assert found.mean == pytest.approx(1 / 3)
    assert found.error == pytest.approx(0)
    assert found.clear
    found = gain([0.9, 0.8], [0.8, 0.7], "accuracy")
    assert found.mean == pytest.approx(0.1)
    assert math.isnan(found.error)
    assert not found.clear
    noisy = gain([1.0, 3.0, 2.0, 2.0], [2.1, 2.0, 2.0, 2.0], "mse")
    assert not noisy.clear
    assert gain([0.1], [0.0], "mse").mean == pytest.approx(-0.1)


def test_gains_of_silos_are_in_their_order():
    one, other = made_up(), made_up("local", scale=2.0)
    assert [round(found.mean, 6) for found in gains_by_silo(one, other)] == [0.5] * 6


def test_few_seeds_need_more_than_two_standard_errors():
    three = gain([1.0, 1.1, 0.8], [1.6, 1.2, 1.4], "mse")
    assert 2 < three.mean / three.error < 4.3
    assert not three.clear
    many = gain([1.0, 1.1, 0.8] * 4, [1.6, 1.2, 1.4] * 4, "mse")
    assert many.clear


def test_words_for_numbers():
    assert [of_hundred(x) for x in (0, 0.5, 0.75006, 0.99999, 1)] == [
        "0",
        "50",
        "75.1",
        "99.999",
        "100",
    ]
    assert plus_minus(0.912, 0.004, "accuracy") == "91.2 ± 0.4 %"
    assert plus_minus(0.0123, 0.0, "mse") == "0.0123"
    assert [duration(s) for s in (1.25, 59.4, 61, 3700)] == [
        "1.2 s",
        "59 s",
        "1 min 1 s",
        "1 h 1 min",
    ]
    assert [percent(x) for x in (0, 0.05, 0.123, 1)] == ["0 %", "5.0 %", "12 %", "100 %"]


@given(st.floats(0, 1))
def test_a_bound_is_never_rounded_down(chance):
    assert float(of_hundred(chance)) >= 100 * chance - 1e-6
