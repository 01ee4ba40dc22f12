"""A site's ledger never begins anew unseen: it must hold what it held when it last answered.

With each answer goes a *token*: a hash of the ledger's last entry of that job. It says nothing (the
entry holds random digits, and is never sent), changes only with what the job itself is charged, and
stands for all entries before it, because they are chained. The coordinator keeps the newest of each
site, and hands it back with every request. A site whose ledger has no entry of this token has
another ledger than it answered with: a new and empty one after it was set up again, or an older
copy. It would promise what is spent already, so it refuses, before anything is charged.

Where people know better (other records now, with a ledger of their own), they say so at the site:
`silodp site consent --other-ledger`. A coordinator that makes a token up gets a refusal.
"""

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.privacy.ledger.chain import Entry
from silodp.privacy.ledger.storage import head_of, read_ledger
from silodp.sites.refusals import OTHER_LEDGER, Refusal
from silodp.sites.site_files import SiteConfig

FILE = "other-ledger.json"


class ShownLedger:
    """A site's ledger as one federation sees it.

    Two federations get other tokens of one entry, and neither learns from the other's whether they
    have a site's ledger in common.
    """

    def __init__(self, folder: Path, config: SiteConfig, federation: str):
        """Reads nothing yet.

        Args:
          folder: the site's.
          config: its own file.
          federation: by which the site knows its coordinator: the name of a key.
        """
        self._folder, self._config, self._federation = folder, config, federation
        self._head: str | None = None
        self._entries: tuple[Entry, ...] = ()

    def token(self, job: str, kinds: Collection[str] = ("reserve", "charge")) -> str | None:
        """The token of the job's last entry of these kinds; None where nothing is charged."""
        last = None
        for entry in self._read():
            if entry.run == job and entry.kind in kinds:
                last = entry
        return None if last is None else self._token_of(last)

    def check(self, token: str | None) -> None:
        """Refuses if the ledger does not hold what the coordinator kept of it, if it kept any."""
        if token is None or self._config.keys == "test":
            return
        noted = _noted(self._folder)
        if token in noted.get("accepted", []):
            return
        if any(token == self._token_of(entry) for entry in self._read()):
            return
        _write(self._folder, noted | {"refused": token})
        raise Refusal(
            OTHER_LEDGER,
            f"the ledger {self._config.ledger_name!r} in {self._config.ledger} is not the one that "
            "this site answered with before: put back the newest copy of that one, or name its "
            "source in site.toml; if these are other records now, say so (silodp site consent "
            "--other-ledger)",
        )

    def _read(self) -> tuple[Entry, ...]:
        """The ledger's entries, read again only when there are new ones."""
        config = self._config
        head = None if config.keys == "test" else head_of(config.ledger, config.ledger_name)
        if head is None:
            return ()
        if head != self._head:
            self._entries = read_ledger(config.ledger, config.ledger_name).entries
            self._head = head
        return self._entries

    def _token_of(self, entry: Entry) -> str:
        words = f"silodp ledger {self._federation} {self._config.site} {entry.hash}"
        return hashlib.sha256(words.encode()).hexdigest()


def accept_other(folder: Path) -> bool:
    """Takes the people's word for another ledger, once refused; returns whether there was any."""
    noted = _noted(folder)
    if "refused" not in noted:
        return False
    token = noted.pop("refused")
    _write(folder, noted | {"accepted": [*noted.get("accepted", []), token]})
    return True


def is_token(value: Any) -> bool:
    """Whether it has the form of a token."""
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _noted(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    try:
        found = json_of(path.read_bytes(), str(path), "remove it")
    except (FileNotFoundError, SilodpError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(folder: Path, noted: dict[str, Any]) -> None:
    write_file(folder / FILE, json.dumps(noted), sync="folder")
