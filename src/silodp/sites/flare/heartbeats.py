"""What a site notes of its signs of life, and what it hears in answer.

FLARE's client goes on in silence when the server cannot be reached, so that a site which was cut
off would call itself connected. So each sign of life is noted with its answer: when it was heard,
how far the clocks are apart, which version is at the other end; else, why there is none.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannelTopic, MessageHeaderKey, ReturnCode
from nvflare.private.fed.client.communicator import Communicator

from silodp.base.version import own_version
from silodp.sites.connection import ASKED_AT, SECOND, TIME, VERSION, Connection
from silodp.sites.flare.probe import why_unreachable

AGAIN = 5.0  # seconds until a site that was not let in asks again
_TOPICS = (CellChannelTopic.HEART_BEAT, CellChannelTopic.Challenge, CellChannelTopic.Register)
_LEAVING = 2.0  # seconds for taking leave
_AT_FIRST, _LATER = 120.0, 60.0  # after so many seconds, it asks as rarely as this
_log = logging.getLogger("silodp.sites")


class Heartbeats:
    """Notes the answers to a site's signs of life."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._now = Connection(pid=os.getpid(), since=time.time(), version=None)
        self._now.write(folder)
        self._leave: Callable[[], Any] | None = None  # takes leave of the server

    def install(self) -> None:
        """Has FLARE's client tell each answer here, and ask again where it would give up."""
        send, register, heard = CoreCell.send_request, Communicator.client_registration, self._heard

        def send_request(cell: Any, *args: Any, **kwargs: Any) -> Any:
            topic, request = kwargs.get("topic"), kwargs.get("request")
            if topic not in _TOPICS:
                return send(cell, *args, **kwargs)
            before = time.time()
            if request is not None:
                request.set_header(VERSION, own_version())
                request.set_header(ASKED_AT, before)
            reply = send(cell, *args, **kwargs)
            heard(topic == CellChannelTopic.HEART_BEAT, reply, before)
            return reply

        def client_registration(communicator: Any, *args: Any) -> Any:
            began = time.monotonic()
            while True:
                try:
                    found = register(communicator, *args)
                except FLCommunicationError:
                    # Its reason was in the answer, and is noted; FLARE's words hide it.
                    self._trouble(self._now.trouble or "the coordinator refuses")
                    time.sleep(AGAIN if time.monotonic() - began < _AT_FIRST else _LATER)
                    continue
                self._let_in()
                self._leave = lambda: communicator.quit_remote(None, args[1], None, None, args[2])
                return found

        cell_type: Any = CoreCell
        communicator_type: Any = Communicator
        signal.signal(signal.SIGTERM, self._stop)
        cell_type.send_request = send_request
        communicator_type.client_registration = client_registration

    def _stop(self, number: int, frame: Any) -> None:
        """Takes leave of the server, which else would take the next start for a second machine."""
        if self._leave is not None:
            leaving = threading.Thread(target=self._leave, daemon=True)
            leaving.start()
            leaving.join(_LEAVING)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _heard(self, is_heartbeat: bool, reply: Any, before: float) -> None:
        headers = {} if reply is None else reply.headers
        code = headers.get(MessageHeaderKey.RETURN_CODE)
        if code == ReturnCode.UNAUTHENTICATED:
            self._trouble(str(headers.get(MessageHeaderKey.ERROR) or "the coordinator refuses"))
        elif code != ReturnCode.OK:
            why = why_unreachable(self._folder)
            self._trouble(why or "the coordinator's server does not answer")
        elif is_heartbeat:
            now, version, second = time.time(), headers.get(VERSION), headers.get(SECOND)
            self._now.clock = _number(headers.get(TIME), (before + now) / 2)
            self._now.version = version if isinstance(version, str) else None
            if isinstance(second, list) and second != self._now.second:
                _log.warning("another machine tried to be this site, and was not let in")
                self._now.second = second
            self._let_in()

    def _let_in(self) -> None:
        if self._now.trouble is not None:
            _log.warning("connected to the coordinator again")
        self._now.heard, self._now.trouble = time.time(), None
        self._now.write(self._folder)

    def _trouble(self, why: str) -> None:
        if why != self._now.trouble:
            _log.warning("not connected to the coordinator: %s", why)
        self._now.trouble = why
        self._now.write(self._folder)


def _number(at_server: Any, here: float) -> float | None:
    """How many seconds this machine's clock is ahead of the server's."""
    return here - at_server if isinstance(at_server, float) else None
