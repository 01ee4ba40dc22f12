"""Ctrl-C and SIGTERM: a long computation is stopped between two of its steps, not within one."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_came: list[int] = []
_held: list[bool] = []


def requested() -> bool:
    """Whether a signal came that has not ended the process yet.

    Asked between steps: a KeyboardInterrupt may also have been raised where Python swallows it
    (within a callback of another library).
    """
    return bool(_came)


def _handle(number: int, _) -> None:
    first = not _came
    _came.append(number)
    if not (_held and first):
        raise KeyboardInterrupt


def handle() -> None:
    """From now on, both signals raise KeyboardInterrupt (in the main thread)."""
    for number in _SIGNALS:
        signal.signal(number, _handle)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Within, the first signal only makes `requested` true; a second one is not held back."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    before = {number: signal.signal(number, _handle) for number in _SIGNALS}
    _held.append(True)
    try:
        yield
    finally:
        _held.pop()
        _came.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
