"""Events as data: what they may hold, and that they come back from JSON as they were."""

import json
import math
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
    TruncatedSubsampledGaussianDpEvent,
    ZCDpEvent,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.privacy.accounting import events as package
from silodp.privacy.accounting.events import (
    KINDS,
    BoundedRangeDpEvent,
    PureDpEvent,
    from_json,
    steps_of,
    to_json,
)

amounts = st.floats(0, 1e300)
noises = amounts | st.just(math.inf)
chances = st.floats(0, 1)
counts = st.integers(0, 10**12)
single = st.one_of(
    st.builds(NoOpDpEvent),
    st.builds(NonPrivateDpEvent),
    st.builds(GaussianDpEvent, noises),
    st.builds(PoissonSampledDpEvent, chances, st.builds(GaussianDpEvent, noises)),
    st.builds(TruncatedSubsampledGaussianDpEvent, st.integers(1), chances, counts, noises),
    st.builds(BoundedRangeDpEvent, amounts),
    st.builds(PureDpEvent, amounts),
    st.builds(ZCDpEvent, amounts, amounts),
)
events = st.recursive(
    single,
    lambda inner: st.one_of(
        st.builds(SelfComposedDpEvent, inner, counts),
        st.builds(ComposedDpEvent, st.lists(inner, max_size=3)),
        st.builds(RepeatAndSelectDpEvent, inner, st.floats(1, 1e9), noises),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(events)
def test_events_come_back_from_json_as_they_were(event):
    text = json.dumps(to_json(event), allow_nan=False)
    back = from_json(json.loads(text))
    assert back == event
    assert steps_of(back) == steps_of(event)
    assert json.dumps(to_json(back)) == text


def test_json_reads_like_the_event():
    event = SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 3)
    assert to_json(event) == {
        "type": "SelfComposedDpEvent",
        "event": {
            "type": "PoissonSampledDpEvent",
            "sampling_probability": 0.1,
            "event": {"type": "GaussianDpEvent", "noise_multiplier": 2.0},
        },
        "count": 3,
    }
    tuning = to_json(RepeatAndSelectDpEvent(NoOpDpEvent(), 10, math.inf))
    assert tuning["shape"] == "inf"


def test_numbers_of_numpy_become_plain():
    text = json.dumps(to_json(SelfComposedDpEvent(GaussianDpEvent(np.float32(2)), np.int64(3))))
    assert from_json(json.loads(text)) == SelfComposedDpEvent(GaussianDpEvent(2.0), 3)


@pytest.mark.parametrize("kind", [BoundedRangeDpEvent, PureDpEvent])
@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf, "1", None, True])
def test_an_epsilon_that_cannot_be_is_refused(kind, epsilon):
    with pytest.raises(SilodpError, match=r"epsilon .*: give a number, 0 or more and finite"):
        kind(epsilon)


def test_own_events_are_frozen_and_differ():
    with pytest.raises(AttributeError):
        PureDpEvent(1.0).epsilon = 2.0  # type: ignore[misc]
    assert PureDpEvent(1.0) != BoundedRangeDpEvent(1.0)
    assert steps_of(PureDpEvent(1.0)) != steps_of(BoundedRangeDpEvent(1.0))
    assert len({PureDpEvent(1.0), BoundedRangeDpEvent(1.0), PureDpEvent(1)}) == 2


@pytest.mark.parametrize(
    "event", [LaplaceDpEvent(1.0), SelfComposedDpEvent(LaplaceDpEvent(1.0), 2)], ids=str
)
def test_what_has_no_price_is_not_written(event):
    with pytest.raises(SilodpError, match="has no price"):
        to_json(event)


GAUSSIAN = {"type": "GaussianDpEvent", "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "no JSON object"),
        ([], "no JSON object"),
        ({}, "None is unknown"),
        ({"type": 3}, "3 is unknown"),
        ({"type": ["GaussianDpEvent"]}, "is unknown"),
        (
            {"type": "LaplaceDpEvent", "noise_multiplier": 1.0},
            "'LaplaceDpEvent' is unknown: give '",
        ),
        ({"type": "GaussianDpEvent"}, "lacks its field 'noise_multiplier'"),
        ({**GAUSSIAN, "sigma": 1.0}, "no field 'sigma'"),
        ({"type": "NoOpDpEvent", "x": 1}, "no field 'x'"),
        ({**GAUSSIAN, "noise_multiplier": "2"}, "give a number, 0 or more"),
        ({**GAUSSIAN, "noise_multiplier": None}, "give a number"),
        ({**GAUSSIAN, "noise_multiplier": True}, "give a number"),
        ({**GAUSSIAN, "noise_multiplier": [1.0]}, "give a number"),
        ({**GAUSSIAN, "noise_multiplier": -1.0}, "give a number"),
        ({**GAUSSIAN, "noise_multiplier": math.nan}, "give a number"),
        ({**GAUSSIAN, "noise_multiplier": 10**400}, "give a number"),
        ({"type": "PureDpEvent", "epsilon": "inf"}, "finite"),
        ({"type": "ZCDpEvent", "rho": 0.1}, "lacks its field 'xi'"),
        ({"type": "SelfComposedDpEvent", "event": GAUSSIAN, "count": 3.0}, "a whole number"),
        ({"type": "SelfComposedDpEvent", "event": GAUSSIAN, "count": -1}, "a whole number"),
        ({"type": "SelfComposedDpEvent", "event": GAUSSIAN, "count": "inf"}, "a whole number"),
        ({"type": "SelfComposedDpEvent", "event": 1, "count": 2}, "no JSON object"),
        ({"type": "ComposedDpEvent", "events": GAUSSIAN}, "a list of events"),
        ({"type": "ComposedDpEvent", "events": [1]}, "no JSON object"),
        (
            {"type": "PoissonSampledDpEvent", "sampling_probability": 1.5, "event": GAUSSIAN},
            "from 0 to 1",
        ),
        (
            {"type": "RepeatAndSelectDpEvent", "event": GAUSSIAN, "mean": 0.5, "shape": 1.0},
            "a number, 1 or more",
        ),
    ],
)
def test_json_that_is_no_event_is_refused(data, words):
    with pytest.raises(SilodpError, match=words):
        from_json(data)


def test_json_nested_without_end_is_refused():
    data: dict = {"type": "NoOpDpEvent"}
    for _ in range(5000):
        data = {"type": "SelfComposedDpEvent", "event": data, "count": 1}
    with pytest.raises(SilodpError, match="nested too deeply"):
        from_json(data)


# --- one module for each


def test_no_event_is_forgotten():
    """A module of the package that is not looked at would be a price that nobody pays."""
    modules = {info.name for info in pkgutil.iter_modules(package.__path__)} - {"kind"}
    found = [import_module(f"{package.__name__}.{name}").KIND for name in modules]
    assert sorted(map(id, found)) == sorted(map(id, KINDS.values()))
    assert all(kind.event is event for event, kind in KINDS.items())
    assert all((kind.step is None) != (kind.parts is None) for kind in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_derives_from_an_event_has_no_price(kind):
    event = object.__new__(type("Other", (kind,), {"__repr__": lambda self: "other"}))
    with pytest.raises(SilodpError, match="has no price here"):
        steps_of(event)
