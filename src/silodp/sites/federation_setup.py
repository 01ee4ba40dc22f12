"""The coordinator's folder: made from fed.toml, and where its jobs stand.

FEDERATION/
  fed.toml, proposal.json   what is agreed on; proposals/ has all that were proposed, by number
  authority/                the key that lets sites in, under a passphrase
  members.json              whose key is whose, and who was removed
  to-send/                  files for sites: nothing in them is secret
  server/, admin/           FLARE's workspaces of the coordinator
  state/                    where each job stands
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.progress_file import PROGRESS_FILE
from silodp.sites.coordinator import STATE
from silodp.sites.flare.kits import check_site_names, make_coordinator, project_name
from silodp.sites.membership.authority import keep_authority, make_authority, open_authority
from silodp.sites.membership.coordinator import (
    TO_SEND,
    invite,
    keep_proposal,
    move,
    newest_proposal,
    numbered_proposal,
    propose,
)
from silodp.sites.membership.documents import Address, is_host, key_fingerprint, rsa_key
from silodp.sites.membership.members import (
    Member,
    Members,
    has_members,
    read_members,
    write_members,
)
from silodp.sites.proposal import Proposal, ServerTable, proposal_of, read_federation

FED_FILE = "fed.toml"


class SetUp(NamedTuple):
    """A new federation: its folder, its proposal, the sites' invitations, and how it is known."""

    folder: Path
    proposal: Proposal
    invitations: list[Path]
    fingerprint: str


class Proposed(NamedTuple):
    """A new proposal: its number, the files to send, and the sites that are new."""

    number: int
    files: list[Path]
    new: list[str]


def set_up_federation(path: Path, folder: Path | None, passphrase: str) -> SetUp:
    """Makes the coordinator's folder and an invitation for each site, whole or not at all.

    Args:
      path: of fed.toml.
      folder: to make; else it is beside the file, named after it.
      passphrase: that will open the authority's key.
    """
    proposal, server = read_federation(path)
    folder = folder or path.parent / path.stem
    if folder.exists() and any(folder.iterdir()):
        raise SilodpError(f"{folder} is there already: choose another --out.")
    _check_host(path, server.host)
    check_site_names(proposal.sites, server.host)
    at = Address(project_name(proposal.name), server.host, server.host, server.port)
    members = Members(at, server.listens_at)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f".{folder.name}.making"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        authority = make_authority(aside, at.project, passphrase)
        write_members(aside, members)
        keep_proposal(aside, members.number, proposal)
        make_coordinator(aside, authority, members)
        shutil.copyfile(path, aside / FED_FILE)
        invite(aside, authority, proposal.sites)
        if folder.exists():
            folder.rmdir()
        aside.chmod(0o700)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    made = [folder / TO_SEND / f"{site}.invitation" for site in proposal.sites]
    return SetUp(folder, proposal, made, authority_fingerprint_of(authority.root, folder))


def authority_fingerprint_of(root: Any, folder: Path) -> str:
    """What the federation's authority is known by: people compare it by phone."""
    return key_fingerprint(rsa_key(root.public_key(), folder))


def propose_file(folder: Path, path: Path, passphrase: str) -> Proposed:
    """Makes what a fed.toml says the federation's new proposal. Its [server] is not looked at."""
    proposal = read_federation(path).proposal
    return _proposed(folder, proposal, passphrase, path)


def add_sites(folder: Path, sites: Sequence[str], passphrase: str) -> Proposed:
    """Makes a proposal that has these sites too, and invites them."""
    before = newest_proposal(folder)
    for site in sites:
        if site in before.sites:
            raise SilodpError(
                f"{folder} has site {site!r} already: its invitation is in {folder / TO_SEND}, and "
                "a certificate is renewed by the site (silodp site renew)."
            )
    document = before.to_plain() | {"sites": [*before.sites, *sites]}
    return _proposed(folder, proposal_of(str(folder), document), passphrase)


def renew_coordinator(
    folder: Path,
    passphrase: str,
    host: str | None = None,
    port: int | None = None,
    bind: ServerTable | None = None,
) -> list[Path]:
    """Makes new keys and certificates of the server and its administrator, for another year.

    A folder of version 0.1.0 is taken over first: its authority's key gets the passphrase, and the
    copies of sites' keys that were in it are removed. Sites go on with what they have.

    Args:
      folder: the federation's.
      passphrase: of its authority's key.
      host: the server's name as sites know it, if it moved.
      port: its port as sites know it, if that changed.
      bind: where it listens, if that changed.

    Returns:
      files: to send to sites, if the server moved: each takes its own (silodp site join).
    """
    if not has_members(folder) and (old := _old_authority(folder)) is not None:
        _take_over(folder, old, passphrase)
    authority, members = open_authority(folder, passphrase), read_members(folder)
    at = members.server
    files: list[Path] = []
    if host is not None or port is not None or bind is not None:
        host, port = host or at.host, port or at.port
        _check_host(folder, host)
        listens = members.bind if bind is None else bind.listens_at
        files = move(folder, authority, host, port, listens)
        if (host, port) == (at.host, at.port):
            files = []  # sites find it where it was
    make_coordinator(folder, authority, read_members(folder))
    return files


def present_sites(folder: Path, proposal: Proposal) -> list[str]:
    """The sites of a proposal that were not removed since."""
    removed = read_members(folder).removed
    return [site for site in proposal.sites if site not in removed]


def proposal_of_federation(folder: Path, number: int | None = None) -> Proposal:
    """What the federation in this folder has agreed on, or an earlier proposal by its number."""
    return newest_proposal(folder) if number is None else numbered_proposal(folder, number)


def _proposed(
    folder: Path, proposal: Proposal, passphrase: str, path: Path | None = None
) -> Proposed:
    members = read_members(folder)
    check_site_names(proposal.sites, members.server.identity)
    files, new = propose(folder, open_authority(folder, passphrase), proposal)
    if path is not None:
        write_file(folder / FED_FILE, path.read_bytes())
    return Proposed(members.number + 1, files, new)


def _old_authority(folder: Path) -> Path | None:
    """Where version 0.1.0 kept the keys of the authority and of all sites."""
    return next(iter(sorted((folder / "provision").glob("*/state/cert.json"))), None)


def _take_over(folder: Path, old: Path, passphrase: str) -> None:
    """Makes a folder of version 0.1.0 one of this version."""
    content = read_json(old, remedy="put back an intact copy")
    proposal = newest_proposal(folder)
    server = folder / "server" / "startup" / "fed_server.json"
    try:
        (about,) = read_json(server, remedy="put back an intact copy")["servers"]
        host, port = about["service"]["target"].rsplit(":", 1)
        root, key = (
            content["root_cert"],
            load_pem_private_key(content["root_pri_key"].encode(), None),
        )
        sites = {name: Member(content[name]["cert"]) for name in proposal.sites}
        if not isinstance(key, RSAPrivateKey):
            raise TypeError
        table = ServerTable(host, int(port))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SilodpError(f"{old} is damaged: put back an intact copy.") from None
    keep_authority(folder, root, key, passphrase)
    keep_proposal(folder, 1, proposal)
    members = Members(Address(about["name"], host, host, table.port), table.listens_at)
    members.sites = sites
    write_members(folder, members)
    for place in ("provision", "kits"):
        shutil.rmtree(folder / place, ignore_errors=True)


def _check_host(where: Path, host: str) -> None:
    if not is_host(host):
        raise SilodpError(
            f"{where}: the host {host!r} is not a host name: use letters, digits, '-' and '.', at "
            "most 63."
        )


def progress_of(folder: Path, job: str) -> dict[str, Any] | None:
    """The progress of a job; None before its first replies."""
    path = folder / STATE / job / PROGRESS_FILE
    return read_json(path, remedy="look again") if path.exists() else None


def jobs_of(folder: Path) -> list[dict[str, Any]]:
    """The progress of all jobs that were begun, by name in alphabetical order."""
    names = sorted(path.parent.name for path in (folder / STATE).glob(f"*/{PROGRESS_FILE}"))
    jobs = [progress_of(folder, name) for name in names]
    return [progress for progress in jobs if progress is not None]


def is_finished(progress: dict[str, Any] | None, sites: Sequence[str]) -> bool:
    """Whether each of these sites has its model."""
    return progress is not None and all(site in progress["finished"] for site in sites)
