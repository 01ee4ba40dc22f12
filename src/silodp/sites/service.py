"""Files with which a machine runs a site, or a federation's server, for years: systemd, container.

Both run the same command in the foreground, restart it, and ask `status --check` how it is.
"""

import getpass
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.version import own_version

Kind = Literal["site", "federation"]


class Service(NamedTuple):
    """What is to run.

    Attributes:
      kind: of folder.
      name: of the site or the federation, for files and descriptions.
      folder: the folder.
      writes: further folders that it writes to, such as that of its ledgers.
      reads: files that it reads outside of these.
    """

    kind: Kind
    name: str
    folder: Path
    writes: Sequence[Path] = ()
    reads: Sequence[Path] = ()

    @property
    def file_name(self) -> str:
        """The name of its files, without their endings."""
        letters = (letter if letter.isalnum() and letter.isascii() else "-" for letter in self.name)
        return f"silodp-{self.kind}-{''.join(letters)}"


def write_service(service: Service, out: Path) -> list[Path]:
    """Writes the unit and the container file into a folder; neither holds anything secret."""
    for path in (service.folder, *service.writes, *service.reads):
        if any(ord(letter) < 32 for letter in str(path)):
            raise SilodpError(f"{path!r} has a name that no unit can hold: give it another one.")
    return [
        write_file(out / f"{service.file_name}.service", unit_of(service), mode=0o644),
        write_file(out / f"{service.file_name}.Containerfile", container_of(service), mode=0o644),
    ]


def unit_of(service: Service) -> str:
    """A unit for systemd, which may write to the folders of the service and to no other."""
    folder = service.folder.resolve()
    words = [sys.executable, "-m", "silodp", service.kind, "start", str(folder), "--foreground"]
    writes = " ".join(_quoted(str(path.resolve())) for path in (folder, *service.writes))
    return f"""\
# Put this into /etc/systemd/system, then: systemctl enable --now {service.file_name}
[Unit]
Description=silodp {service.kind} {service.name.replace("%", "%%")}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={getpass.getuser()}
ExecStart={" ".join(map(_quoted, words))}
# Variables such as the url of a database (url_env): only root and the service read that file.
EnvironmentFile=-/etc/silodp/{service.file_name}.env
Restart=always
RestartSec=10
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths={writes}

[Install]
WantedBy=multi-user.target
"""


def container_of(service: Service) -> str:
    """A container file; the folders are mounted at their own paths, which site.toml names."""
    folder, version = service.folder.resolve(), own_version()
    mounts = [f"-v '{path.resolve()}:{path.resolve()}'" for path in (folder, *service.writes)]
    mounts += [f"-v '{path.resolve()}:{path.resolve()}:ro'" for path in service.reads]
    command = [service.kind, "start", str(folder), "--foreground"]
    check = [service.kind, "status", str(folder), "--check"]
    return f"""\
# podman build -t {service.file_name} -f {service.file_name}.Containerfile .
# podman run -d --restart=always --userns=keep-id --network=host \\
#   {" ".join(mounts)} {service.file_name}
FROM python:3.11-slim
RUN pip install --no-cache-dir 'silodp[sites]=={version}'
HEALTHCHECK --interval=60s --timeout=30s CMD {_json(["silodp", *check])}
ENTRYPOINT ["silodp"]
CMD {_json(command)}
"""


def _quoted(word: str) -> str:
    """A word as systemd reads it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _json(words: Sequence[str]) -> str:
    return json.dumps(list(words))
