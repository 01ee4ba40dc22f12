"""Events reach every listener; nothing that stays secret is in them."""

import inspect
import math

import pytest

from silodp.base.progress import Reporter, Reporters
from silodp.base.progress_file import kept_progress
from silodp.engines.execution import Shown

EVENTS = {
    "stage": ("training",),
    "promised": ([{"silo": "a"}],),
    "calibrated": (1, 2),
    "encoded": ("minilm", 3, 4, 2, 0.5),
    "trained": (3, 4, 0.5),
    "swept": (1.5, 3, "mrmtl"),
}


class Listener(Reporter):
    """Notes what it hears."""

    def __init__(self, heard, name=""):
        for event in EVENTS:
            setattr(self, event, lambda *args, event=event: heard.append((name, event, args)))


def test_every_event_reaches_every_listener_in_order():
    assert {n for n, _ in inspect.getmembers(Reporter, inspect.isfunction)} == set(EVENTS)
    heard = []
    both = Reporters(Listener(heard, "one"), Listener(heard, "other"))
    for event, args in EVENTS.items():
        getattr(both, event)(*args)
    assert heard == [(n, e, args) for e, args in EVENTS.items() for n in ("one", "other")]


def test_a_file_hears_what_the_listener_hears(tmp_path):
    heard = []
    with kept_progress(tmp_path, Listener(heard), {}) as listener:
        listener.trained(3, 4, 0.5)
        assert '"done": 3' in (tmp_path / "progress.json").read_text()
    assert heard == [("", "trained", (3, 4, 0.5))]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Shown(), (1, 3, 0.5)),
        (Shown(metric=False), (1, 3, math.nan)),
        (Shown(metric=False, rounds=False), (33, 100, math.nan)),
    ],
)
def test_what_is_not_shown_is_in_no_event(shown, expected):
    heard = []
    shown.report(Listener(heard), 1, 3, 0.5)
    ((_, event, args),) = heard
    assert event == "trained"
    assert args == pytest.approx(expected, nan_ok=True)
