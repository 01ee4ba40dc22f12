"""The coordinator: asks sites round by round, checks what they send, and merges it.

It knows no transport: `next_request` says what to ask of whom, `receive` takes the replies. Where
the job stands is on disk after every round, so that any process can resume it.
"""

import hashlib
import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.progress_file import FORMAT as PROGRESS_FORMAT
from silodp.base.progress_file import PROGRESS_FILE
from silodp.base.values import plain
from silodp.engines.checkpoint import flatten, unflatten
from silodp.engines.messages import host_message_like
from silodp.engines.one_silo import message_like
from silodp.sites.agreed_job import (
    broadcast_like,
    coordinators_job,
    first_states,
    weights_of,
)
from silodp.sites.arrays import OTHER_VERSION, largest_noise, norm_of, tree_of
from silodp.sites.membership.coordinator import proposal_of_job
from silodp.sites.proposal import is_job_of
from silodp.sites.protocol import Kind, Reply, Request
from silodp.sites.shown_ledger import is_token
from silodp.sites.state_file import load_state, save_state

STATE = "state"
SHOWN_FILE, SHOWN_FORMAT = "shown.json", 1
_SHOWN_REMEDY = "put back an intact copy; it shows when a site's ledger begins anew"
STATE_FILE, LEARNED_FILE = "state.npz", "learned.json"
# A site is left out after this number of dropped messages in a row.
_MOST_DROPPED = 3
# A message is dropped if its norm is this many times the median.
_FAR_LONGER = 1000.0
# A message is dropped if it says that its noise has a larger variance (at a clip of 1): in the
# server's state it would grow to infinity over the rounds, and then no message could be merged.
_MOST_NOISE = 1e12
_log = logging.getLogger("silodp.coordinator")


class QuorumError(SilodpError):
    """Raised where too few sites answer for the job to go on."""


class Coordinator:
    """One job among all sites, from where it stands.

    Attributes:
      proposal: what is agreed on.
      targets: the sites that are asked next.
      deadline: seconds to wait for them.
    """

    def __init__(self, folder: Path, job: str, silence: str | None = None):
        """The job from where it stands in the federation's folder.

        Args:
          folder: the federation's.
          job: its name.
          silence: what is said of a site that does not answer; else that it did not in time.
        """
        found = proposal_of_job(folder, lambda one: is_job_of(job, one))
        if found is None:
            raise SilodpError(
                f"Job {job!r} is not one of the proposals in {folder}: submit it again."
            )
        self.proposal = found
        self._name, self._folder = job, folder / STATE / job
        self._job, self._method = coordinators_job(self.proposal)
        self._server, silo = first_states(self.proposal, self._job, self._method)
        self._broadcast_like = broadcast_like(self._job, self._method)
        # Methods of messages run on the host, in double precision.
        self._on_host = self._job.method.in_messages
        if self._on_host:
            self._message_like = host_message_like(
                self._job, self._method, silo, self._broadcast_like
            )
            self._merge, self._broadcast = self._method.merge, self._method.broadcast
        else:
            self._message_like = message_like(self._job, self._method, silo, self._broadcast_like)
            self._merge = jax.jit(self._method.merge)
            self._broadcast = jax.jit(self._method.broadcast)
        self._about: dict[str, Any] = {
            "round": 0,  # the next one
            "records": {},
            "answered": {},  # in how many rounds each site took part
            "finished": [],
            "metrics": {},
            "seconds": 0.0,
        }
        state = load_state(self._folder / STATE_FILE)
        if state is not None:
            about, lists = state
            self._about |= about
            self._server = unflatten(lists["server"], self._server, OTHER_VERSION)
        self._phase: Kind = "join"
        self.targets = list(self.proposal.sites)
        self.deadline = self.proposal.rules.deadline
        self._silence = silence or f"no answer within {self.deadline:g} s"
        self._status = dict.fromkeys(self.proposal.sites, "asked")
        self._silent: list[str] = []  # sites that did not answer, and may when they are back
        self._dropped = dict.fromkeys(self.proposal.sites, 0)
        self._last_message: dict[str, tuple[int, str]] = {}
        self._shown_file = folder / SHOWN_FILE
        self._shown: dict[str, str] = _read_shown(self._shown_file)
        self._sent_at = time.perf_counter()

    @property
    def rounds(self) -> int:
        """The number of rounds of the job."""
        return self._job.rounds

    @property
    def round(self) -> int:
        """The number of the next round, from 0."""
        return self._about["round"]

    @property
    def status(self) -> dict[str, str]:
        """The status of each site, in words."""
        return dict(self._status)

    def next_request(self) -> Request | None:
        """The next request to the targets; None at the end of the job."""
        self._sent_at = time.perf_counter()
        if self._phase == "join":
            return self._request("join", [])
        return self.next_work()

    def next_work(self) -> Request | None:
        """What comes after joining: to train in the next round, or to finish; None at the end.

        For who asks for it without waiting for who joins, which is answered along with it.
        """
        broadcast = flatten(self._broadcast(self._server))
        if self._about["round"] < self.rounds:
            self._phase = "train"
            return self._request("train", broadcast)
        waiting = [site for site in self.targets if site not in self._about["finished"]]
        if not waiting:
            self._write_learned()
            return None
        self._phase, self.targets = "finish", waiting
        return self._request("finish", broadcast)

    def _request(self, kind: Kind, arrays: list[np.ndarray]) -> Request:
        number, text = self._about["round"], self.proposal.text
        return Request(kind, self._name, text, number, arrays, shown=dict(self._shown))

    def receive(self, replies: Mapping[str, Reply]) -> None:
        """Takes the replies to a request; drops what does not fit, and logs it."""
        good = {}
        for site in list(self.targets):
            reply = replies.get(site)
            if reply is None:
                self._silent.append(site)
                self._leave_out(site, self._silence)
            elif not _is_plain(reply):
                self._leave_out(site, "its reply is not one that silodp gives")
            elif reply.status != "ok":
                self._leave_out(site, f"refused: {_one_line(reply.reason)}")
            else:
                good[site] = reply
        self._keep_shown(good)
        {"join": self._joined, "train": self._trained, "finish": self._finished}[self._phase](good)
        self._report()

    def _keep_shown(self, replies: Mapping[str, Reply]) -> None:
        """Keeps what sites show of their ledgers, in whichever job, to show it to them again."""
        found = {site: reply.about.get("ledger") for site, reply in replies.items()}
        new = {site: str(token) for site, token in found.items() if is_token(token)}
        if any(self._shown.get(site) != token for site, token in new.items()):
            # Other jobs write it, too: theirs is as good.
            self._shown = _read_shown(self._shown_file) | new
            content = {"format": SHOWN_FORMAT, "sites": self._shown}
            write_file(self._shown_file, json.dumps(content), sync="folder")

    def _joined(self, replies: Mapping[str, Reply]) -> None:
        by_records = self.proposal.training["weights"] == "records"
        for site, reply in replies.items():
            records = reply.about.get("records")
            if by_records and (type(records) is not int or not 0 < records < 2**53):
                self._leave_out(site, "does not say how many records it has, by which weights go")
                continue
            self._about["records"][site] = records if by_records else 1
            self._status[site] = "taking part"
        self._check_quorum(self.targets, "joined")
        self._phase = "train"
        self._save()

    def _trained(self, replies: Mapping[str, Reply]) -> None:
        number = self._about["round"]
        messages = self._checked(replies, number)
        self._check_quorum(list(messages), f"have a part in round {number + 1}")
        server = self._merged(messages)
        if server is None:
            messages = self._harmless(messages)
            self._check_quorum(list(messages), f"have a part in round {number + 1}")
            server = self._merged(messages)
        if server is None:
            raise SilodpError(
                f"The models are not finite any more in round {number + 1}: agree on a smaller lr."
            )
        for site in messages:
            self._dropped[site] = 0
            self._status[site] = "taking part"
            self._about["answered"][site] = self._about["answered"].get(site, 0) + 1
        self._server = server
        self._about["round"] = number + 1
        self._about["seconds"] += time.perf_counter() - self._sent_at
        self._save()

    def _merged(self, messages: Mapping[str, Any]) -> Any:
        """The server's state after these messages; None if no site could go on from it."""
        sites = self.proposal.sites
        absent = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._message_like)
        stack = np.stack if self._on_host else jnp.stack
        joined = jax.tree.map(
            lambda *parts: stack(parts), *(messages.get(site, absent) for site in sites)
        )
        counts = [self._about["records"].get(s, 0) if s in messages else 0 for s in sites]
        weights = jnp.asarray(weights_of(counts), jnp.float32)
        server = jax.block_until_ready(self._merge(self._server, joined, weights))
        try:
            tree_of(flatten(self._broadcast(server)), self._broadcast_like)
        except SilodpError:
            return None
        return server if _has_numbers(server) else None

    def _harmless(self, messages: Mapping[str, Any]) -> dict[str, Any]:
        """The messages without those that make the merged state unusable, alone or among others."""

        def spoils(site: str) -> bool:
            others = {other: m for other, m in messages.items() if other != site}
            alone = self._merged({site: messages[site]}) is None
            return alone or (bool(others) and self._merged(others) is not None)

        spoiling = [site for site in messages if spoils(site)]
        if len(spoiling) == len(messages):
            return dict(messages)  # it is no site's fault
        for site in spoiling:
            self._drop(site, "merged, it leaves models that are not finite")
        return {site: m for site, m in messages.items() if site not in spoiling}

    def check_answer(self, site: str, reply: Reply) -> None:
        """Refuses a site's answer to the next round that would be dropped whatever others say."""
        self._message(site, reply, self._about["round"])
        self._check_size(reply)

    def _check_size(self, reply: Reply) -> None:
        most_noise = _MOST_NOISE * max(1.0, float(self.proposal.training["clip"]) ** 2)
        if largest_noise(reply.arrays, self._message_like) > most_noise:
            raise SilodpError("the noise that it states is larger than any allowed")
        norm = norm_of(reply.arrays, self._message_like)
        # Messages of sums over records are as long as these are many: see the method.
        if not self._on_host and norm > self.proposal.rules.largest_norm:
            raise SilodpError(f"its norm is {norm:.3g}")

    def _checked(self, replies: Mapping[str, Reply], number: int) -> dict[str, Any]:
        """The messages that can be merged, by site; drops the others."""
        messages, norms = {}, {}
        for site, reply in replies.items():
            try:
                message = self._message(site, reply, number)
                self._check_size(reply)
                messages[site] = message
                norms[site] = norm_of(reply.arrays, self._message_like)
            except SilodpError as error:
                self._drop(site, str(error))
        usual = float(np.median(list(norms.values()))) if len(norms) > 2 else 0.0
        for site, norm in norms.items():
            if not self._on_host and usual > 0 and norm > _FAR_LONGER * usual:
                del messages[site]
                self._drop(site, f"its norm is {norm:.3g}")
        return messages

    def _message(self, site: str, reply: Reply, number: int) -> Any:
        round_number = reply.about.get("round")
        if type(round_number) is not int or round_number != number:
            raise SilodpError("it is of another round")
        message = tree_of(reply.arrays, self._message_like)
        if reply.arrays:
            digest = hashlib.sha256(b"".join(a.tobytes() for a in reply.arrays)).hexdigest()
            when, last = self._last_message.get(site, (number, ""))
            if last == digest and when != number:
                raise SilodpError("it is the one of the round before")
            self._last_message[site] = number, digest
        return message

    def _finished(self, replies: Mapping[str, Reply]) -> None:
        for site, reply in replies.items():
            metric = reply.about.get("metric")
            if type(metric) is float and math.isfinite(metric):
                self._about["metrics"][site] = metric
            self._about["finished"].append(site)
            self._status[site] = "finished"
        self._save()

    def _leave_out(self, site: str, why: str) -> None:
        self.targets.remove(site)
        self._status[site] = why
        _log.warning("site %r is left out: %s", site, why)

    def _drop(self, site: str, why: str) -> None:
        number = self._about["round"] + 1
        _log.warning("site %r: its message of round %d is dropped: %s", site, number, why)
        self._status[site] = f"message of round {number} dropped: {why}"
        self._dropped[site] += 1
        if self._dropped[site] >= _MOST_DROPPED:
            self._leave_out(site, f"{_MOST_DROPPED} messages in a row were dropped, lastly: {why}")

    def _check_quorum(self, sites: list[str], what: str) -> None:
        quorum = self.proposal.rules.quorum
        if len(sites) < quorum:
            self._report()
            statuses = "; ".join(
                f"{site}: {self._status[site]}" for site in self.proposal.sites if site not in sites
            )
            raise QuorumError(
                f"{len(sites)} of {len(self.proposal.sites)} sites {what}, but the quorum is "
                f"{quorum} ({statuses}): try again when they are back."
            )

    def _save(self) -> None:
        save_state(self._folder / STATE_FILE, self._about, {"server": flatten(self._server)})

    def _report(self) -> None:
        """Writes where the job stands, for whoever follows it."""
        progress = {
            "format": PROGRESS_FORMAT,
            "job": self._name,
            "method": self.proposal.training["method"],
            "round": self._about["round"],
            "rounds": self.rounds,
            "seconds": self._about["seconds"],
            "answered": self._about["answered"],
            "finished": self._about["finished"],
            "metrics": self._about["metrics"],
            "sites": self._status,
            "silent": self._silent,
            "time": time.time(),
        }
        write_file(self._folder / PROGRESS_FILE, json.dumps(progress))

    def _write_learned(self) -> None:
        """Writes what the method learned about the sites, from their messages."""
        server = self._server
        if not self._on_host:
            server = jax.tree.map(jnp.asarray, server)  # NumPy arrays if read from a file
        learned = jax.tree.map(lambda a: np.asarray(a).tolist(), self._method.learned(server))
        if learned:
            write_file(self._folder / LEARNED_FILE, json.dumps(plain(learned)))


def _read_shown(path: Path) -> dict[str, str]:
    """What each site last showed of its ledger, by the file in the coordinator's folder."""
    if not path.exists():
        return {}
    found = read_json(path, remedy=_SHOWN_REMEDY)
    if not isinstance(found, dict) or found.get("format") != SHOWN_FORMAT:
        raise SilodpError(f"{path} is damaged, or of another version of silodp: {_SHOWN_REMEDY}.")
    return {site: token for site, token in found["sites"].items() if is_token(token)}


def _has_numbers(server: Any) -> bool:
    """Whether no number is NaN. Infinities may be: the noise of a site that keeps it secret."""
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(server)]
    return not any(np.isnan(array).any() for array in arrays if array.dtype.kind == "f")


def _is_plain(reply: Any) -> bool:
    """Whether it is a reply with fields of the right types, whatever it says."""
    return (
        isinstance(reply, Reply)
        and isinstance(reply.status, str)
        and isinstance(reply.reason, str)
        and isinstance(reply.about, dict)
        and isinstance(reply.arrays, list | tuple)
    )


def _one_line(text: str) -> str:
    """The text as one line of printable characters: a terminal would obey others."""
    line = " ".join(text[:300].split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)
