"""members.json, in the coordinator's folder: whose key is whose, and who was removed for good.

A site is let in with the key that was approved for its name, and with no other: not with one that
it had before, and not at all once it was removed. The server asks here whenever a site registers.
It holds public keys, hence no secret; it is written by the coordinator's commands, and by the
server when a site comes with its renewed key for the first time.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from silodp.base.documents import decode, read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.membership.documents import Address, certificate_of, is_host, key_id, rsa_key

MEMBERS_FILE = "members.json"
_LOCK = ".members.lock"
FORMAT = 1
_REMEDY = "put back an intact copy; without it, no site is let in"
_MISSING = (
    "give the folder that `silodp federation init` made; if version 0.1.0 made it, `silodp "
    "federation renew` takes it over"
)


@dataclass
class Member:
    """A site that was let in at some time.

    Attributes:
      certificate: the one that it has.
      next: a renewed one, until the site first comes with it; else empty.
      former: names of keys that it had before, which let in nobody.
    """

    certificate: str
    next: str = ""
    former: list[str] = field(default_factory=list)


@dataclass
class Members:
    """The federation's members, and what was issued to them.

    Attributes:
      server: where sites find the server.
      bind: the address at which the server listens, and its port there.
      number: of the newest proposal.
      issued: how many certificates were issued.
      sites: those with a certificate, by name.
      removed: those that were removed, by name, and when.
    """

    server: Address
    bind: tuple[str, int]
    number: int = 1
    issued: int = 0
    sites: dict[str, Member] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)

    def check_not_removed(self, site: str) -> None:
        """Refuses a site that was removed: its name does not come back."""
        if site in self.removed:
            raise SilodpError(
                f"Site {site!r} was removed for good on {self.removed[site]}: choose another name."
            )

    def check_key(self, site: str, key: str, proven: bool, replace: bool) -> None:
        """Refuses a request for a certificate of a key that must not have one.

        Args:
          site: that the request is from.
          key: the name of the key.
          proven: whether the site's present key stands behind it.
          replace: whether a person says that the present key is lost.
        """
        self.check_not_removed(site)
        member = self.sites.get(site)
        for name, other in self.sites.items():
            if key in other.former or (name != site and key in _keys(other)):
                raise SilodpError(
                    f"The request is with a key that was replaced, or is that of {name!r}: have "
                    f"site {site!r} make a new one (silodp site renew)."
                )
        if member is None or key in _keys(member) or proven or replace:
            return
        raise SilodpError(
            f"Site {site!r} has a certificate, and the request is not by the key of it: ask the "
            "site by phone. If it has lost its key, or somebody else has it, give --replace."
        )

    def take(self, site: str, key: str, certificate: str, proven: bool) -> None:
        """Notes a certificate for a key that was checked. A key that is not proven replaces."""
        member = self.sites.get(site)
        if member is None:
            self.sites[site] = Member(certificate)
        elif key == _key(member.certificate):
            member.certificate = certificate
        elif proven:
            if member.next and key != _key(member.next):
                member.former.append(_key(member.next))
            member.next = certificate
        else:
            member.former += [one for one in _keys(member) if one != key]
            member.certificate, member.next = certificate, ""

    def remove(self, site: str, day: str) -> None:
        """Removes a site for good."""
        self.check_not_removed(site)
        self.removed[site] = day

    def is_let_in(self, site: str, key: str) -> bool:
        """Whether a site that shows a certificate of this key is let in."""
        member = self.sites.get(site)
        return member is not None and site not in self.removed and key in _keys(member)

    def is_new(self, site: str, key: str) -> bool:
        """Whether the site comes with its renewed key for the first time."""
        member = self.sites[site]
        return bool(member.next) and key == _key(member.next)

    def turn(self, site: str) -> None:
        """Takes the site's renewed key for its key; the one before lets in nobody any more."""
        member = self.sites[site]
        member.former.append(_key(member.certificate))
        member.certificate, member.next = member.next, ""

    def newest_certificate(self, site: str) -> str:
        """The last certificate that was issued to the site."""
        member = self.sites[site]
        return member.next or member.certificate


def read_members(folder: Path) -> Members:
    """The members of the federation in this folder."""
    path = folder / MEMBERS_FILE
    content = read_json(path, missing=_MISSING, remedy=_REMEDY)
    try:
        if content["format"] != FORMAT:
            raise SilodpError(
                f"{path} has format {content['format']!r}, but this silodp knows only {FORMAT}: "
                "use the version that wrote it."
            )
        host, port = content["bind"]
        members = Members(
            decode(Address, content["server"], f"{path}: [server]"),
            (str(host), int(port)),
            int(content["number"]),
            int(content["issued"]),
            {name: Member(**own) for name, own in content["sites"].items()},
            dict(content["removed"]),
        )
        known = all(_keys(member) for member in members.sites.values())
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SilodpError(f"{path} is damaged: {_REMEDY}.") from None
    if not known or not (is_host(members.bind[0]) and 0 < members.bind[1] < 65536):
        raise SilodpError(f"{path} is damaged: {_REMEDY}.")
    return members


def has_members(folder: Path) -> bool:
    """Whether the folder is that of a federation whose members are noted."""
    return (folder / MEMBERS_FILE).exists()


def write_members(folder: Path, members: Members) -> None:
    """Writes the members; they are on the disk when this returns."""
    content: dict[str, Any] = {"format": FORMAT, **asdict(members)}
    text = json.dumps(content, indent=1, sort_keys=True)
    write_file(folder / MEMBERS_FILE, text + "\n", sync="folder")


@contextlib.contextmanager
def changed_members(folder: Path) -> Iterator[Members]:
    """The members, written if the block ends well; no other process changes them meanwhile."""
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SilodpError(f"Folder {folder} cannot be written to ({error.strerror}).") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        members = read_members(folder)
        yield members
        write_members(folder, members)
    finally:
        os.close(handle)


def _key(certificate: str) -> str:
    path = Path(MEMBERS_FILE)
    return key_id(rsa_key(certificate_of(certificate, path).public_key(), path))


def _keys(member: Member) -> list[str]:
    return [_key(one) for one in (member.certificate, member.next) if one]
