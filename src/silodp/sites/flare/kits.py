"""Kits, with which the server lets a site in: how they are made, and how a site unpacks one."""

import contextlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.base.files import whole_file
from silodp.sites.flare.hardening import ADMIN, KIT_FILES, ORG, harden_server, harden_site

__all__ = ["check_site_name", "harden_server", "harden_site", "make_kits", "unpack_kit"]

PROPOSAL_FILE = "proposal.json"
_STARTUP = tuple(f"startup/{name}" for name in KIT_FILES)
_ENTRIES = (*_STARTUP, PROPOSAL_FILE)
_LARGEST = 1 << 20  # bytes, of any file in a kit: the proposal has a line for every column
_CA_DAYS = 3650
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
)
_SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")
_TAKEN = frozenset(("server", "admin", "localhost"))


def check_site_name(name: str) -> None:
    """Refuses a name that FLARE cannot carry."""
    if not _SITE.fullmatch(name):
        raise SilodpError(
            f"The site name {name!r} is not allowed: use letters a to z, digits, '-' and '_', "
            "at most 63 of them, the first not '-'."
        )
    if name.lower() in _TAKEN:
        raise SilodpError(f"The site name {name!r} is taken by the server: choose another.")


def make_kits(
    folder: Path, name: str, host: str, port: int, sites: Sequence[str], proposal: str
) -> list[Path]:
    """Makes the server, its administrator and one kit for each site, in the federation's folder.

    If called again with more sites, it makes kits for these and keeps the others. Each kit holds
    the proposal.
    """
    for site in sites:
        check_site_name(site)
    folded = [site.lower() for site in sites]
    for site in sites:
        if folded.count(site.lower()) > 1 or site.lower() == host.lower():
            raise SilodpError(f"The site name {site!r} is given twice: name every site once.")
    if not _HOST.fullmatch(host) or len(host) > 63:
        raise SilodpError(
            f"The host {host!r} is not a host name: use letters, digits, '-' and '.', at most 63."
        )
    if not 1 <= port <= 65535:
        raise SilodpError(f"The port {port} is not one: use 1 to 65535.")
    folder.mkdir(parents=True, exist_ok=True)
    made = _provision(_private(folder / "provision"), _project(name, host, port, sites))
    _keep(made / host, folder / "server")
    harden_server(folder / "server", (folder / "server-store").resolve())
    _keep(made / ADMIN, folder / "admin")
    kits = _private(folder / "kits")
    paths = [_zipped(made / site, kits / f"{site}.zip", proposal) for site in sites]
    # Keys are in the authority's state and in the kits: a third copy is one too many.
    shutil.rmtree(made)
    return paths


def unpack_kit(zip: Path, into: Path) -> str:
    """Unpacks a kit into a new folder, with the site's own settings; returns the site's name.

    Nothing in a kit is ever run: all but certificates, a key, the server's address and the proposal
    is refused.
    """
    if into.exists():
        raise SilodpError(f"{into} is already there: choose another folder, or remove it.")
    files = _read_zip(zip)
    site, client = _checked(zip, files)
    into.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{into.name}-", dir=into.parent))  # mode 0700
    try:
        (aside / "startup").mkdir(mode=0o700)
        (aside / PROPOSAL_FILE).write_bytes(files[PROPOSAL_FILE])
        for name in KIT_FILES:
            text = json.dumps(client, indent=1).encode() if name.endswith(".json") else files[name]
            path = aside / "startup" / name
            path.touch(mode=0o600)
            path.write_bytes(text)
        harden_site(aside)
        os.rename(aside, into)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return site


def _project(name: str, host: str, port: int, sites: Sequence[str]) -> dict[str, Any]:
    people: list[dict[str, Any]] = [
        {"name": host, "type": "server", "org": ORG, "fed_learn_port": port, "admin_port": port},
        {"name": ADMIN, "type": "admin", "org": ORG, "role": "project_admin"},
    ]
    people += [{"name": site, "type": "client", "org": ORG} for site in sites]
    builders = [
        ("workspace.WorkspaceBuilder", {"template_file": ["master_template.yml"]}),
        ("static_file.StaticFileBuilder", {"config_folder": "config", "scheme": "grpc"}),
        ("cert.CertBuilder", {"root_valid_days": _CA_DAYS}),
    ]
    return {
        "api_version": 3,
        # FLARE makes a folder and a certificate of this name.
        "name": re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:48] or "silodp",
        "description": "",
        "participants": people,
        "builders": [
            {"path": f"nvflare.lighter.impl.{path}", "args": args} for path, args in builders
        ],
    }


def _provision(folder: Path, project: dict[str, Any]) -> Path:
    """Has FLARE make everything; returns the folder of what was made."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.prov_utils import prepare_builders
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    output = io.StringIO()
    try:
        with _umask(0o077), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            made = Provisioner(str(folder), prepare_builders(project), None)
            context = made.provision(prepare_project(project))
    except (Exception, SystemExit) as error:
        raise SilodpError(
            f"FLARE could not make the kits: {error or output.getvalue()}."
        ) from error
    if context.get(CtxKey.BUILD_ERROR):
        raise SilodpError(f"FLARE could not make the kits: {output.getvalue().strip()}.")
    return Path(str(context[CtxKey.CURRENT_PROD_DIR]))


def _keep(made: Path, place: Path) -> None:
    """Moves what was made to its place, unless something is there, which may be running."""
    if not place.exists():
        shutil.move(made, place)
    place.chmod(0o700)


def _zipped(site: Path, path: Path, proposal: str) -> Path:
    """The kit of a site as a zip file: certificates, a key, the server's address, the proposal."""
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in _STARTUP:
            archive.write(site / entry, entry)
        archive.writestr(PROPOSAL_FILE, proposal)
    return path


def _read_zip(path: Path) -> dict[str, bytes]:
    """The files of a kit by name; refuses a file that is not a kit."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            for entry in entries:
                _check_entry(path, entry)
            names = [entry.filename for entry in entries if not entry.is_dir()]
            for missing in sorted(set(_ENTRIES) - set(names)):
                raise SilodpError(
                    f"{path} has no {missing}: ask the coordinator for the kit again."
                )
            if len(names) != len(_ENTRIES):
                raise SilodpError(
                    f"{path} has a file twice: ask the coordinator for the kit again."
                )
            return {entry.split("/")[-1]: archive.read(entry) for entry in _ENTRIES}
    except FileNotFoundError:
        raise SilodpError(f"{path} is not there: give the kit that the coordinator sent.") from None
    except SilodpError:
        raise
    # A damaged file can fail in whatever part of zipfile reads it.
    except Exception as error:
        raise SilodpError(
            f"{path} is damaged or is no zip file: ask the coordinator for the kit again."
        ) from error


def _check_entry(path: Path, entry: zipfile.ZipInfo) -> None:
    name = entry.filename
    mode = entry.external_attr >> 16
    if stat.S_ISLNK(mode):
        raise SilodpError(f"{path} holds the link {name!r}, which no kit needs: do not use it.")
    if entry.is_dir() and name == "startup/":
        return
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or ":" in name:
        raise SilodpError(f"{path} holds {name!r}, a path out of its folder: do not use it.")
    if "custom" in parts:
        raise SilodpError(f"{path} holds code ({name!r}), which no kit needs: do not use it.")
    if name not in _ENTRIES:
        raise SilodpError(f"{path} holds {name!r}, which no kit of silodp needs: do not use it.")
    if entry.file_size > _LARGEST:
        raise SilodpError(f"{path} holds {name!r} of {entry.file_size} bytes: do not use it.")
    if entry.flag_bits & 1:
        raise SilodpError(f"{path} is encrypted: decrypt it first.")


def _checked(path: Path, files: dict[str, bytes]) -> tuple[str, dict[str, Any]]:
    """The site's name and a new FLARE configuration, from the checked content of the kit."""
    try:
        certificate = x509.load_pem_x509_certificate(files["client.crt"])
        authority = x509.load_pem_x509_certificate(files["rootCA.pem"])
        key = load_pem_private_key(files["client.key"], None)
        certificate.verify_directly_issued_by(authority)
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        site = str(names[0].value)
    except (ValueError, TypeError, IndexError, InvalidSignature) as error:
        raise SilodpError(
            f"{path} has certificates that do not belong together: ask for the kit again."
        ) from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise SilodpError(f"{path} has a key of another certificate: ask for the kit again.")
    if certificate.not_valid_after_utc < datetime.now(UTC):
        day = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        raise SilodpError(f"{path} was valid until {day}: ask the coordinator for a new kit.")
    check_site_name(site)
    return site, _client_configuration(path, site, files["fed_client.json"])


def _client_configuration(path: Path, site: str, text: bytes) -> dict[str, Any]:
    """A FLARE configuration with the kit's server address and nothing else: it could name code."""
    wrong = SilodpError(f"{path} does not say where the server is: ask for the kit again.")
    try:
        (server,) = json_of(text, str(path), "ask for the kit again")["servers"]
        project, identity = server["name"], server["identity"]
        host, port = server["service"]["target"].split(":")
        valid = (
            re.fullmatch(r"[A-Za-z0-9_-]{1,63}", project)
            and _HOST.fullmatch(identity)
            and _HOST.fullmatch(host)
            and 1 <= int(port) <= 65535
            and server["service"]["scheme"] == "grpc"
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        raise wrong from None
    if not valid:
        raise wrong
    return {
        "format_version": 2,
        "servers": [
            {
                "name": project,
                "service": {"target": f"{host}:{int(port)}", "scheme": "grpc"},
                "identity": identity,
            }
        ],
        "client": {
            "ssl_private_key": "client.key",
            "ssl_cert": "client.crt",
            "ssl_root_cert": "rootCA.pem",
            "fqsn": site,
            "is_leaf": True,
            "connection_security": "mtls",
        },
    }


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
