"""FLARE's workspaces: the server's and the administrator's at the coordinator, a site's at a site.

Each party writes its own, from what it knows and has checked. Nothing that FLARE reads is sent.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.flare.hardening import ADMIN, harden_server
from silodp.sites.membership.authority import Authority, key_bytes, new_key
from silodp.sites.membership.members import Members
from silodp.sites.membership.site import Membership
from silodp.sites.proposal import LOOPBACK

_SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")
_TAKEN = frozenset(("server", "admin", "localhost"))


def check_site_names(sites: Sequence[str], identity: str) -> None:
    """Refuses names that FLARE cannot carry, or takes for one."""
    folded = [site.lower() for site in sites]
    for site in sites:
        if not _SITE.fullmatch(site):
            raise SilodpError(
                f"The site name {site!r} is not allowed: use letters a to z, digits, '-' and '_', "
                "at most 63 of them, the first not '-'."
            )
        if site.lower() in _TAKEN:
            raise SilodpError(f"The site name {site!r} is taken by the server: choose another.")
        if folded.count(site.lower()) > 1 or site.lower() == identity.lower():
            raise SilodpError(f"The site name {site!r} is given twice: name every site once.")


def make_coordinator(folder: Path, authority: Authority, members: Members) -> None:
    """Makes keys and certificates of the server and of its administrator, anew if there are any."""
    at = members.server
    for place, name, hosts, role in (
        ("server", at.identity, (at.host, at.identity, "localhost", LOOPBACK), None),
        ("admin", ADMIN, (), "project_admin"),
    ):
        startup, key = folder / place / "startup", new_key()
        startup.mkdir(parents=True, exist_ok=True)
        for private in (folder / place, startup):
            private.chmod(0o700)
        file = "server" if hosts else "client"
        certificate = authority.certificate(name, key.public_key(), hosts=hosts, role=role)
        write_file(startup / f"{file}.key", key_bytes(key))
        write_file(startup / f"{file}.crt", certificate)
        write_file(startup / "rootCA.pem", authority.root_pem)
    (folder / "admin" / "transfer").mkdir(mode=0o700, exist_ok=True)
    (folder / "admin" / "local").mkdir(mode=0o700, exist_ok=True)


def configure_server(folder: Path, members: Members, admin_port: int) -> None:
    """Writes the settings of the server and its administrator, which may have moved meanwhile.

    The administrator is let in at `admin_port` of this machine only, and nowhere else: its key is
    of no use to whoever takes it elsewhere.
    """
    at, (host, port) = members.server, members.bind
    _write(
        folder / "server" / "startup" / "fed_server.json",
        {
            "format_version": 2,
            "servers": [
                {
                    "name": at.project,
                    "service": {"target": f"{host}:{port}", "scheme": "grpc"},
                    "identity": at.identity,
                    "admin_server": LOOPBACK,
                    "admin_host": LOOPBACK,
                    "admin_port": admin_port,
                    "ssl_private_key": "server.key",
                    "ssl_cert": "server.crt",
                    "ssl_root_cert": "rootCA.pem",
                    "connection_security": "mtls",
                }
            ],
        },
    )
    _write(
        folder / "admin" / "startup" / "fed_admin.json",
        {
            "format_version": 1,
            "admin": {
                "project_name": at.project,
                "username": ADMIN,
                "server_identity": at.identity,
                "scheme": "grpc",
                "host": LOOPBACK,
                "port": admin_port,
                "connection_security": "mtls",
                "uid_source": "user_input",
                "with_file_transfer": True,
                "upload_dir": "transfer",
                "download_dir": "transfer",
                "client_key": "client.key",
                "client_cert": "client.crt",
                "ca_cert": "rootCA.pem",
            },
        },
    )
    _write(
        folder / "admin" / "local" / "resources.json",
        {
            "format_version": 1,
            "admin": {"idle_timeout": 900.0, "login_timeout": 10.0, "with_debug": False},
        },
    )
    harden_server(folder / "server", (folder / "server-store").resolve(), members.removed)


def admin_port_of(folder: Path) -> int:
    """The port of this machine at which the server lets its administrator in."""
    path = folder / "admin" / "startup" / "fed_admin.json"
    about = read_json(path, missing="start the server first", remedy="start the server again")
    return int(about["admin"]["port"])


def configure_site(kit: Path, own: Membership) -> None:
    """Writes where the server is into a site's workspace."""
    at = own.server
    _write(
        kit / "startup" / "fed_client.json",
        {
            "format_version": 2,
            "servers": [
                {
                    "name": at.project,
                    "service": {"target": f"{at.host}:{at.port}", "scheme": "grpc"},
                    "identity": at.identity,
                }
            ],
            "client": {
                "ssl_private_key": "client.key",
                "ssl_cert": "client.crt",
                "ssl_root_cert": "rootCA.pem",
                "fqsn": own.site,
                "is_leaf": True,
                "connection_security": "mtls",
            },
        },
    )


def project_name(name: str) -> str:
    """FLARE's name for a federation of this name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] or "silodp"


def _write(path: Path, value: dict[str, Any]) -> None:
    write_file(path, json.dumps(value, indent=1) + "\n")
