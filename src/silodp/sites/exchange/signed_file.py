"""The files that coordinator and sites send each other: one form, signed as a whole.

    silodp exchange 1          the form, and its number
    9f86d081...                the signature of all that follows (and of the line above)
    {"what": "ask", ...}       the head, one line of JSON: what it is, for whom, of which round
    ...                        the bytes of the arrays, one after the other

The head says which federation (a digest of proposal and coordinator's key), site, job and round a
file belongs to, so that none can stand for another. Requests and replies in it are packed as for
the network (see `messages`). Nothing is encrypted.

Whoever sends a file may be hostile: it is read up to a limit, runs nothing, unpacks nothing, and
what the head claims is true only once the signature is checked.
"""

import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.base.text import folder_names
from silodp.sites.exchange.keys import is_signed, signature
from silodp.sites.proposal import Proposal

What = Literal["invitation", "join", "ask", "answer"]

FORMAT = 1
# Folders of the coordinator's folder, and of a site's.
EXCHANGE, TO_SEND = "exchange", "to-send"
_FIRST = b"silodp exchange %d\n" % FORMAT
_ANY_FIRST = re.compile(rb"silodp exchange ([1-9][0-9]{0,5})\n")
_SIGNATURE = 128  # hexadecimal digits
# Bytes of the largest file, and of the longest head: a proposal has a line for every column.
_LARGEST = 1 << 29
_LONGEST_HEAD = 1 << 24
_FIELDS = ("what", "federation", "site", "job", "round", "about", "messages")


@dataclass(frozen=True)
class Heading:
    """What a file belongs to.

    Attributes:
      what: what it is.
      federation: see `federation_id`.
      site: the site that it is for, or from.
      job: the name of the job; empty in an invitation and in a join file.
      round: counted from 0, as in a request; the number of rounds in the last ask and answer.
    """

    what: What
    federation: str
    site: str
    job: str = ""
    round: int = 0


def federation_id(proposal: str, coordinator: str) -> str:
    """A name for a federation: a digest of its proposal's digest and the coordinator's key."""
    return hashlib.sha256(f"silodp federation {proposal} {coordinator}".encode()).hexdigest()


def round_words(number: int, rounds: int) -> str:
    """What a round is called, of so many; after these comes the end."""
    return f"round {number + 1} of {rounds}" if number < rounds else "the last question"


@functools.lru_cache(maxsize=8)
def names_of(sites: tuple[str, ...]) -> Mapping[str, str]:
    """A name for files of each site."""
    return dict(zip(sites, folder_names(sites), strict=True))


def file_name(heading: Heading, proposal: Proposal) -> str:
    """The name of a file: whose it is, of which run and round, and what."""
    parts, run = [names_of(proposal.sites)[heading.site]], heading.job.rpartition("-")[2]
    if heading.job:
        rounds = proposal.training["rounds"]
        parts += [] if run == "1" else [f"run-{run}"]
        parts += [f"round-{heading.round + 1}" if heading.round < rounds else "last"]
    return ".".join([*parts, heading.what])


def signed_file(
    key: Ed25519PrivateKey,
    heading: Heading,
    about: Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """The content of a file: the same for the same arguments, to the byte.

    Args:
      key: of who sends it.
      heading: what it belongs to.
      about: plain values.
      messages: packed requests or replies.
    """
    head = {
        **vars(heading),
        "about": dict(about),
        "messages": [
            {
                "what": one["what"],
                "words": one["words"],
                "arrays": [{**array, "bytes": len(array["bytes"])} for array in one["arrays"]],
            }
            for one in messages
        ],
    }
    line = json.dumps(head, sort_keys=True, allow_nan=False).encode() + b"\n"
    raw = (array["bytes"] for one in messages for array in one["arrays"])
    body = line + b"".join(raw)
    return _FIRST + signature(key, _FIRST + body).encode() + b"\n" + body


def is_exchange_file(path: Path) -> bool:
    """Whether the file begins as one of an exchange does."""
    try:
        with path.open("rb") as file:
            return _ANY_FIRST.match(file.read(len(_FIRST) + 8)) is not None
    except OSError:
        return False


class Received:
    """A file as it came. What it claims is believed only after `is_by`.

    Attributes:
      path: of the file.
      heading: what it says that it belongs to.
      about: plain values.
      messages: packed requests or replies, not looked into yet.
      content: the whole file.
    """

    def __init__(self, path: Path, remedy: str):
        """Reads a file; refuses one that is none of an exchange.

        Args:
          path: the file.
          remedy: how to get it again.
        """
        self.path, self._remedy = path, remedy
        self.content = self._read()
        found = _ANY_FIRST.match(self.content)
        if found is None:
            raise SilodpError(
                f"{path} is no file of an exchange: give the one that was sent to you, as it came."
            )
        if found[0] != _FIRST:
            raise SilodpError(
                f"{path} has format {int(found[1])}, but this silodp knows only {FORMAT}: have the "
                "same version of silodp at all sites."
            )
        start = len(_FIRST) + _SIGNATURE + 1
        self._signature = self.content[len(_FIRST) : start - 1].decode("latin-1")
        end = self.content.find(b"\n", start, start + _LONGEST_HEAD)
        if self.content[start - 1 : start] != b"\n" or end < 0:
            raise self.altered()
        self._body = self.content[start:]
        self.heading, self.about, self.messages = self._parsed(
            self.content[start:end], memoryview(self.content)[end + 1 :]
        )

    def is_by(self, public: str) -> bool:
        """Whether the holder of the key has signed the file, as it is."""
        return is_signed(public, self._signature, _FIRST + self._body)

    def altered(self) -> SilodpError:
        """The error for a file that is not as it was sent."""
        return SilodpError(
            f"{self.path} is not as it was sent (altered, cut short, or by somebody else): "
            f"{self._remedy}."
        )

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except OSError as error:
            raise SilodpError(
                f"{self.path} cannot be read ({error.strerror}): check the path."
            ) from None
        if len(content) > _LARGEST:
            raise SilodpError(
                f"{self.path} is larger than any file of an exchange: give the one that was sent."
            )
        return content

    def _parsed(
        self, line: bytes, raw: memoryview
    ) -> tuple[Heading, dict[str, Any], list[dict[str, Any]]]:
        try:
            head = json_of(line, "It", "have it sent again")
            if not isinstance(head, dict) or set(head) != set(_FIELDS):
                raise self.altered()
            heading = Heading(*(head[name] for name in _FIELDS[:5]))
            about, messages = head["about"], head["messages"]
            texts = (heading.federation, heading.site, heading.job)
            fits = (
                heading.what in get_args(What)
                and all(isinstance(text, str) for text in texts)
                and type(heading.round) is int
                and heading.round >= 0
                and isinstance(about, dict)
                and isinstance(messages, list)
            )
            if not fits:
                raise self.altered()
            taken, found = 0, []
            for one in messages:
                arrays = []
                for array in one["arrays"]:
                    size = array["bytes"]
                    if type(size) is not int or not 0 <= size <= len(raw) - taken:
                        raise self.altered()
                    arrays.append({**array, "bytes": bytes(raw[taken : taken + size])})
                    taken += size
                found.append({**one, "arrays": arrays})
        except (SilodpError, TypeError, KeyError):
            raise self.altered() from None
        if taken != len(raw):
            raise self.altered()
        return heading, about, found
