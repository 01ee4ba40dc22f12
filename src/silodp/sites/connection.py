"""Whether a site and its coordinator hear each other, as each side notes it for its own commands.

    SITE/site.up                 the site's process: when it last heard of the coordinator, else why
    FEDERATION/connections.json  the server: when it last heard of each site

Both are written by processes that run, and mean nothing without them.
"""

import json
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.base.files import write_file

SITE_UP, CONNECTIONS = "site.up", "connections.json"
# Headers of a sign of life and of its answer.
VERSION, TIME, SECOND = "silodp-version", "silodp-time", "silodp-second"
ASKED_AT = "silodp-asked"
BEAT = 4  # seconds from one sign of life to the next
LATELY = 15.0  # seconds without one after which a site is not connected


@dataclass
class Connection:
    """What one side knows of the connection.

    Attributes:
      pid: the process that writes it.
      since: when it began.
      heard: when the other side was last heard.
      trouble: why it is not heard now, and what to do; None while it is.
      clock: how many seconds the site's clock is ahead of the coordinator's.
      version: of silodp at the other side.
      second: when another machine last tried to be this site, and the address that it gave.
    """

    pid: int = 0
    since: float = 0.0
    heard: float | None = None
    trouble: str | None = None
    clock: float | None = None
    version: str | None = None
    second: list[Any] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the other side was heard lately."""
        return self.heard is not None and abs(time.time() - self.heard) < LATELY

    def write(self, folder: Path) -> None:
        """Writes it into the site's folder."""
        _write(folder / SITE_UP, asdict(self))


def connection_at(folder: Path) -> Connection:
    """What the process of the site in this folder last noted."""
    return _connection(_read(folder / SITE_UP))


def connections(folder: Path) -> dict[str, Connection]:
    """What the server of the federation in this folder last noted, by site."""
    found = _read(folder / CONNECTIONS)
    return {str(name): _connection(own) for name, own in found.items()}


def write_connections(folder: Path, sites: dict[str, Connection]) -> None:
    """Notes what the server knows of each site."""
    _write(folder / CONNECTIONS, {name: asdict(own) for name, own in sites.items()})


def _write(path: Path, content: dict[str, Any]) -> None:
    write_file(path, json.dumps(content), sync="none")


def _connection(own: Any) -> Connection:
    names = {field.name for field in fields(Connection)}
    if not isinstance(own, dict) or set(own) - names:
        return Connection()
    return Connection(**own)


def _read(path: Path) -> dict[str, Any]:
    """What was noted; nothing where that is no note of this version."""
    try:
        found = json_of(path.read_bytes(), str(path), "start the process again")
    except (OSError, SilodpError):
        return {}
    return found if isinstance(found, dict) else {}
