"""Serves the report on this machine alone, while runs go on. It can be read, and nothing else.

It answers on 127.0.0.1, to those who know the token in its address: other users of the machine do
not, and neither do pages in the browser that guess at local addresses. Two things can be requested,
the page and the part of it that changes; no address names a file.
"""

import contextlib
import hmac
import secrets
import threading
import traceback
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from silodp.base.errors import SilodpError
from silodp.report.html import Html, tag
from silodp.report.inputs import runs_below
from silodp.report.live import live_part
from silodp.report.page import Part, page
from silodp.report.write import report_page

HOST = "127.0.0.1"
MOST_AT_ONCE = 32  # requests: others on this machine could open connections without end
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class ReportServer(ThreadingHTTPServer):
    """Serves one report until it is shut down.

    Attributes:
      address: address of the page, with its token.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        folders: Sequence[Path],
        ledger: Path | None = None,
        port: int = 0,
        debug: bool = False,
    ):
        """Port 0 takes any free port; `debug` prints where errors arose."""
        self.folders, self.ledger, self.debug = [Path(folder) for folder in folders], ledger, debug
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SilodpError(
                f"Port {port} cannot be used ({reason}): give another --port, or none."
            ) from None
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        self.address = f"http://{HOST}:{self.server_port}/{self.token}/"

    def page(self) -> str:
        """The whole page, as things are now."""
        live = live_part(self.folders)
        # Folders that do not exist yet are left out.
        ready = [folder for folder in self.folders if folder.is_dir() and runs_below(folder)]
        try:
            if ready or self.ledger is not None:
                return report_page(ready, ledger=self.ledger, live=live)
        except SilodpError as error:
            return _problem_page(str(error), live)
        return page("Report", "Nothing is finished yet.", [], live)

    def live(self) -> str:
        """The part that changes."""
        return live_part(self.folders)

    def trouble(self, error: Exception, whole: bool) -> str:
        """Says what could not be shown, in place of the page or of its live part."""
        if self.debug:
            traceback.print_exception(error)
        message = str(error)
        if not isinstance(error, SilodpError):
            message = (
                f"This could not be shown ({type(error).__name__}): run silodp serve again with "
                "--debug and send what it prints."
            )
        if not whole:
            return tag("section", tag("p", message), id="live")
        # Once there is something to show, `data_known` differs and the page reloads.
        return _problem_page(message, tag("section", id="live", data_known=""))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own, unless there are too many already."""
        if not self._free.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.settimeout(1)
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread will release it
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers a request, then makes room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does nothing: a browser that went away is no error."""


def _problem_page(message: str, live: Html) -> str:
    problem = tag("section", tag("p", message, class_="warning", role="alert"))
    return page("Report", "This could not be shown.", [Part("problem", "", problem)], live)


class _Handler(BaseHTTPRequestHandler):
    server: "ReportServer"  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version, sys_version = "silodp", ""
    timeout = 10  # seconds that a silent connection is kept

    def do_GET(self) -> None:
        """Sends the page, or the part of it that changes."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answers like GET, without the content."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        # DNS rebinding: a foreign name that points here still shows in the Host header.
        if self.headers.get("Host") not in self.server.hosts:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        _, _, rest = urlsplit(self.path).path.partition("/")
        token, _, what = rest.partition("/")
        authorised = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not authorised or what not in ("", "live"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        status = HTTPStatus.OK
        try:
            content = (self.server.live() if what else self.server.page()).encode()
        except Exception as error:  # whatever a folder holds, a request gets an answer
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            content = self.server.trouble(error, whole=not what).encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: requests would show the token."""
