"""Ctrl-C and SIGTERM: they stop a long computation between two steps, not within one."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_received: list[int] = []
_holding: list[bool] = []


def requested() -> bool:
    """Whether a signal came that has not ended the process yet.

    Long computations call it between steps: a KeyboardInterrupt may have been raised where Python
    swallows it (within a callback of another library).
    """
    return bool(_received)


def _handle(number: int, _) -> None:
    first = not _received
    _received.append(number)
    if not (_holding and first):
        raise KeyboardInterrupt


def handle() -> None:
    """Makes both signals raise KeyboardInterrupt from now on (in the main thread)."""
    for number in _SIGNALS:
        signal.signal(number, _handle)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Holds the first signal back while the block runs: it only makes `requested` true."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    before = {number: signal.signal(number, _handle) for number in _SIGNALS}
    _holding.append(True)
    try:
        yield
    finally:
        _holding.pop()
        _received.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
