"""The coordinator's folder in an exchange: made from fed.toml, and who has joined.

FEDERATION/
  fed.toml, proposal.json   what is agreed on
  exchange/key.pem          the coordinator's private key, which never leaves the folder
  exchange/joined/          the join file of each site, with the site's public key
  state/                    where each job stands, what was asked, and answers not merged yet
  to-send/                  files for the sites; they can be written again at any time
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.sites.exchange.keys import (
    KEY_FILE,
    fingerprint,
    is_public_key,
    make_key,
    public_key,
    read_key,
)
from silodp.sites.exchange.signed_file import (
    EXCHANGE,
    TO_SEND,
    Heading,
    Received,
    federation_id,
    file_name,
    is_exchange_file,
    names_of,
    signed_file,
)
from silodp.sites.proposal import read_federation, read_proposal

PROPOSAL_FILE = "proposal.json"
_JOINED, _FED_FILE = "joined", "fed.toml"
_SEND_AGAIN = "have the site send it again (`silodp exchange answer` writes the same file again)"
_PUT_BACK = "put back an intact copy"


def is_coordinators(folder: Path) -> bool:
    """Whether it is the folder of a coordinator who exchanges files."""
    return (folder / EXCHANGE / KEY_FILE).exists() and (folder / _FED_FILE).exists()


def make_coordinator(path: Path, folder: Path | None = None) -> "CoordinatorFolder":
    """Makes the folder and an invitation for each site, whole or not at all."""
    if is_exchange_file(path):
        raise SilodpError(
            f"{path} is a file from a coordinator: a site takes part with `silodp exchange join`."
        )
    proposal = read_federation(path).proposal
    folder = folder or path.parent / path.stem
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SilodpError(f"{folder} is there already: choose another --out.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f".{folder.name}.making"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        write_file(aside / PROPOSAL_FILE, proposal.text)
        shutil.copyfile(path, aside / _FED_FILE)
        make_key(aside / EXCHANGE)
        CoordinatorFolder(aside).write_invitations()
        aside.chmod(0o700)
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return CoordinatorFolder(folder)


class CoordinatorFolder:
    """The folder of a coordinator who exchanges files.

    Attributes:
      folder: the folder.
      proposal: what is agreed on.
      public: the coordinator's public key.
      federation: the federation's name in files; see `federation_id`.
    """

    def __init__(self, folder: Path):
        """Refuses another folder."""
        self.folder = folder
        if not is_coordinators(folder):
            raise SilodpError(
                f"{folder} is no coordinator's folder: give the folder that `silodp exchange init` "
                "made."
            )
        path = folder / PROPOSAL_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise SilodpError(f"{path} cannot be read: {_PUT_BACK}.") from None
        self.proposal = read_proposal(text, str(path))
        self._key = read_key(folder / EXCHANGE, "put back a copy, or invite all sites anew")
        self.public = public_key(self._key)
        self.federation = federation_id(self.proposal.digest, self.public)

    @property
    def rounds(self) -> int:
        """The number of rounds of a job."""
        return self.proposal.training["rounds"]

    def write(
        self, heading: Heading, about: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()
    ) -> Path:
        """Writes a file to send."""
        path = self.folder / TO_SEND / file_name(heading, self.proposal)
        return write_file(path, signed_file(self._key, heading, about, messages))

    def write_invitations(self) -> list[Path]:
        """Writes the invitation of each site; they are the same each time."""
        about = {"proposal": self.proposal.text, "public": self.public}
        return [
            self.write(Heading("invitation", self.federation, site), about)
            for site in self.proposal.sites
        ]

    def received(self, path: Path) -> Received:
        """A file that claims to be from a site of this federation."""
        one = Received(path, _SEND_AGAIN)
        if one.heading.what not in ("join", "answer"):
            raise SilodpError(
                f"{path} is from a coordinator (an {one.heading.what}): give what sites sent back."
            )
        if one.heading.federation != self.federation:
            raise SilodpError(
                f"{path} is of another federation than {self.folder}: have the site send the file "
                "for this one, or give the other one's folder."
            )
        if one.heading.site not in self.proposal.sites:
            raise one.altered()
        return one

    def joined(self) -> dict[str, str]:
        """The public key of each site that has joined, by its name."""
        paths = {site: self._join_file(site) for site in self.proposal.sites}
        return {
            site: _key_in(Received(path, _PUT_BACK))
            for site, path in paths.items()
            if path.exists()
        }

    def check_joins(self, joins: Sequence[Received]) -> dict[str, str]:
        """The public keys that sites join with, by site; refuses another than the known one."""
        known, found = self.joined(), {}
        for one in joins:
            site, public = one.heading.site, _key_in(one)
            before = known.get(site) or found.get(site, public)
            if before != public:
                raise SilodpError(
                    f"{one.path} joins {site!r} with the key {fingerprint(public)}, but it has "
                    f"joined with {fingerprint(before)}: ask the site by phone which one is its "
                    f"own; if the new one, remove {self._join_file(site)} and merge again."
                )
            found[site] = public
        return found

    def keep_join(self, join: Received) -> None:
        """Keeps a join file that was checked."""
        write_file(self._join_file(join.heading.site), join.content, sync="folder")

    def _join_file(self, site: str) -> Path:
        return self.folder / EXCHANGE / _JOINED / f"{names_of(self.proposal.sites)[site]}.join"


def _key_in(join: Received) -> str:
    """The public key in a join file, which is signed with it."""
    public = join.about.get("public")
    if not is_public_key(public) or not join.is_by(str(public)):
        raise join.altered()
    return str(public)
