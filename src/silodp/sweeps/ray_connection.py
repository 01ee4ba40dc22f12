"""Connects to a Ray cluster, and notices in time if it is not there or gone."""

import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from typing import Any, NamedTuple, TextIO
from urllib.parse import urlsplit

from silodp.base.errors import SilodpError

# Ray itself tries for many minutes to reach a cluster that is not there.
SECONDS_TO_ANSWER = 30
_PROBE = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='error')"
_SECONDS_TO_CONNECT = 5
# A head that is restarted answers again within this number of checks, some seconds apart.
_LOOKS = 4
_THREAD_THAT_PRINTS = "ray_listen_error_messages"


class Connection(NamedTuple):
    """The module `ray`, connected, and the cluster's address."""

    ray: Any
    host: str
    port: int

    def is_alive(self) -> bool:
        """Whether the cluster still listens; Ray itself would wait, and then end this process."""
        for look in range(_LOOKS):
            if look:
                time.sleep(_SECONDS_TO_CONNECT)
            if _why_not(self.host, self.port) is None:
                return True
        return False


@contextmanager
def connected(address: str) -> Iterator[Connection]:
    """Connects to the cluster at that address while the block runs."""
    if find_spec("ray") is None:
        raise SilodpError(
            "--ray needs Ray, which is not installed: pip install 'silodp[ray]' here and on every "
            "worker."
        )
    import ray

    if ray.is_initialized():
        raise SilodpError("This process is connected to Ray already: call ray.shutdown() first.")
    _check_answers(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # ConnectionError, ValueError, RuntimeError, by version
        raise _no_answer(address, one_line(error)) from None
    # Ray sets a handler of its own: the one before is put back.
    if threading.current_thread() is threading.main_thread() and before is not None:
        signal.signal(signal.SIGTERM, before)
    try:
        if address == "auto":
            address = ray.get_runtime_context().gcs_address
        with redirect_stdout(_WithoutRay(sys.stdout)):
            yield Connection(ray, *_host_and_port(address))
    finally:
        ray.shutdown()


class _WithoutRay:
    """Standard output without Ray's messages about workers that died."""

    def __init__(self, inner: TextIO):
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        """Writes the text, unless it comes from Ray's thread."""
        if threading.current_thread().name == _THREAD_THAT_PRINTS:
            return len(text)
        return self._inner.write(text)

    def flush(self) -> None:
        """Flushes the inner stream."""
        self._inner.flush()


def _check_answers(address: str) -> None:
    """Refuses an address without a cluster, in time and without Ray's own messages."""
    if address != "auto":
        reason = _why_not(*_host_and_port(address))
        if reason is not None:
            raise _no_answer(address, reason)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE, address],
            capture_output=True,
            text=True,
            timeout=SECONDS_TO_ANSWER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _no_answer(address, f"nothing for {SECONDS_TO_ANSWER} seconds") from None
    if done.returncode:
        raise _no_answer(address, one_line(done.stderr))


def _why_not(host: str, port: int) -> str | None:
    """Why nothing listens there; None if something does."""
    try:
        socket.create_connection((host, port), timeout=_SECONDS_TO_CONNECT).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit("//" + address.removeprefix("ray://"))
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise SilodpError(
            f"--ray is {address!r}: give the address of a Ray cluster, as host:port or "
            "ray://host:port, or auto."
        )
    return host, port


def _no_answer(address: str, reason: str) -> SilodpError:
    return SilodpError(
        f"No Ray cluster answers at {address!r} ({reason}): start one with `ray start --head`, or "
        "join it with `ray start --address`; give its token if it has one; or leave out --ray."
    )


def one_line(error: Exception | str) -> str:
    """The last line of Ray's message, which holds the cause."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(error).__name__
