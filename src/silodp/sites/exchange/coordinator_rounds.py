"""What the coordinator of an exchange does in a round: asks by files, and merges what comes back.

What is asked, checked and merged is up to the same `Coordinator` as over a network. Here is what
it does not know of: files that come one by one, over days, twice, or never. All that is between
two commands is on disk.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.text import shown
from silodp.engines.devices import prepare_jax
from silodp.sites.coordinator import STATE, STATE_FILE, Coordinator
from silodp.sites.exchange.coordinator_folder import CoordinatorFolder
from silodp.sites.exchange.keys import fingerprint
from silodp.sites.exchange.signed_file import Heading, Received, names_of, round_words
from silodp.sites.messages import packed_request, unpacked_reply
from silodp.sites.proposal import is_job_of
from silodp.sites.protocol import Reply
from silodp.sites.state_file import load_state

_ASKED, _ANSWERS = "asked.json", "answers"
_SILENT = "no answer by file"
_PUT_BACK = "put back an intact copy"
_LONGEST_REASON = 300


class Asked(NamedTuple):
    """What was asked.

    Attributes:
      round: counted from 0; the number of rounds where sites are asked to finish.
      files: a file for each site that is asked.
      missing: the sites that have not joined, and are not asked.
    """

    round: int
    files: list[Path]
    missing: list[str]


class Merged(NamedTuple):
    """What became of the files that were merged.

    Attributes:
      joined: the fingerprint of each site that joined with one of these files, by site.
      round: the round that is open or was merged, from 0; the number of rounds at the end.
      merged: whether it was merged.
      waiting: the sites whose answers to it are not there.
      refused: why sites refused it, by site.
      sites: the status of each site after it was merged, in words.
      finished: whether every site has its model.
    """

    joined: dict[str, str]
    round: int
    merged: bool = False
    waiting: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}
    sites: Mapping[str, str] = {}
    finished: bool = False


class _Answer(NamedTuple):
    """A site's answer: what it replied to being asked to join, and then to work."""

    file: Received
    joined: Reply
    worked: Reply | None

    @property
    def refusal(self) -> str | None:
        """Why the site refuses; None if it does not."""
        last = self.worked or self.joined
        return None if last.status == "ok" else shown(last.reason, _LONGEST_REASON)


class CoordinatorJob:
    """A run of the proposal, at the coordinator: where it stands between two commands.

    Attributes:
      name: of the job.
      round: the next one, from 0; the number of rounds when all are merged.
      finished: the sites that have their models.
      asked: the sites that were asked for that round; None if none was yet.
    """

    def __init__(self, fed: CoordinatorFolder, run: int = 1):
        self._fed, self._run = fed, run
        self._made: Coordinator | None = None
        self.name = fed.proposal.job(run)
        self._state = fed.folder / STATE / self.name
        found = load_state(self._state / STATE_FILE)
        self.round: int = 0 if found is None else found[0]["round"]
        self.finished: list[str] = [] if found is None else found[0]["finished"]
        self.asked: list[str] | None = None
        path = self._state / _ASKED
        if path.exists():
            asked = read_json(path, remedy="remove it, and ask again")
            if asked["round"] == self.round:
                self.asked = [site for site in asked["sites"] if site not in self.finished]

    @property
    def begun(self) -> bool:
        """Whether anything was asked."""
        return self._state.exists()

    @property
    def words(self) -> str:
        """The round that is next."""
        return round_words(self.round, self._fed.rounds)

    def ask(self, again: bool = False, now: bool = False) -> Asked:
        """Writes a file for each site that has joined: the next round, or the end.

        Args:
          again: write the files of a round that was asked before.
          now: do not wait for sites that have not joined, if those that have are a quorum.
        """
        fed, proposal = self._fed, self._fed.proposal
        keys, quorum = fed.joined(), proposal.rules.quorum
        missing = [site for site in proposal.sites if site not in keys]
        merge = f"silodp exchange merge {fed.folder}"
        if missing and not (now and len(keys) >= quorum):
            allowed = f", or go on without, by --now (the quorum is {quorum})"
            raise SilodpError(
                f"{', '.join(missing)}: not joined yet: merge their join files first ({merge} "
                f"FILES){allowed if len(keys) >= quorum else ''}."
            )
        if self.asked and not again:
            raise SilodpError(
                f"{self.words.capitalize()} is asked already: merge the answers ({merge} FILES), "
                "or write the same files again with --again."
            )
        if again and self.asked is None:
            raise SilodpError(f"{self.words.capitalize()} was never asked: leave out --again.")
        prepare_jax()
        request = self._coordinator().next_work()
        if request is None:
            raise SilodpError(
                "Every site has its model, so nothing is left to ask: for a further run, which "
                f"sites pay for anew, give --run {self._run + 1}."
            )
        message = packed_request(request)
        sites = [site for site in keys if site not in self.finished]
        files = [
            fed.write(Heading("ask", fed.federation, site, self.name, self.round), {}, [message])
            for site in sites
        ]
        # Once they are there: what is noted as asked can be sent.
        asked = {"round": self.round, "sites": sites}
        write_file(self._state / _ASKED, json.dumps(asked), sync="folder")
        return Asked(self.round, files, missing)

    def merge(self, files: Sequence[Path], now: bool = False) -> Merged:
        """Takes join files and answers; merges the round once all who were asked have answered.

        It takes all of these files, or refuses one and takes none.

        Args:
          files: from the sites, in any order; those that were taken before may be among them.
          now: do not wait for further answers, if those that are there are a quorum.
        """
        received = [self._fed.received(path) for path in files]
        joins = [one for one in received if one.heading.what == "join"]
        new_keys = self._fed.check_joins(joins)
        keys = self._fed.joined() | new_keys
        answers = self._kept(keys)
        new: list[_Answer] = []
        for one in received:
            if one.heading.what == "answer":
                answer = self._answer(one, keys)
                self._check_only(answer, answers.get(one.heading.site))
                answers[one.heading.site] = answer
                new.append(answer)
        self._check_numbers(new)
        # All is as it should be.
        for one in joins:
            self._fed.keep_join(one)
        for site, answer in answers.items():
            write_file(self._answer_file(site), answer.file.content, sync="folder")
        waiting = tuple(site for site in self.asked or () if site not in answers)
        refused = {s: a.refusal for s, a in answers.items() if a.refusal is not None}
        merged = Merged(
            {site: fingerprint(public) for site, public in new_keys.items()},
            self.round,
            waiting=waiting,
            refused=refused,
        )
        # In the end each site's answer stands for itself.
        ready = answers and (not waiting or now or self.round == self._fed.rounds)
        if ready:
            return self._merged(merged, answers)
        if now:
            raise SilodpError(
                f"{self.words.capitalize()} has no answer to merge: give the files that sites "
                "sent back."
            )
        return merged

    def answered(self) -> list[str]:
        """The sites whose answers to the open round are here."""
        return list(self._kept(self._fed.joined()))

    def _merged(self, merged: Merged, answers: Mapping[str, _Answer]) -> Merged:
        """Hands the answers to the coordinator, as replies over a network are."""
        proposal, last = self._fed.proposal, self.round == self._fed.rounds
        quorum, number = proposal.rules.quorum, len(answers) - len(merged.refused)
        if not last and number < quorum:
            reasons = [f"{site}: no answer yet" for site in merged.waiting]
            reasons += [f"{site} refused: {why}" for site, why in merged.refused.items()]
            raise SilodpError(
                f"{self.words.capitalize()} has {number} answers of {len(proposal.sites)}, but the "
                f"quorum is {quorum} ({'; '.join(reasons)}): merge again with those of more sites."
            )
        prepare_jax()
        coordinator, self._made = self._coordinator(), None
        if not last:
            coordinator.next_request()
            coordinator.receive({site: answer.joined for site, answer in answers.items()})
        coordinator.next_work()
        worked = {site: a.worked for site, a in answers.items() if a.worked is not None}
        coordinator.receive(worked)
        # What sites answered is in the coordinator's state now, and kept nowhere else.
        shutil.rmtree(self._state / _ANSWERS, ignore_errors=True)
        if last:
            coordinator.next_work()  # what the method learned is written once all is over
        finished = CoordinatorJob(self._fed, self._run).finished
        statuses = coordinator.status | dict.fromkeys(finished, "finished")
        done = set(self._fed.joined()) <= set(finished)
        return merged._replace(merged=True, sites=statuses, finished=done)

    def _coordinator(self) -> Coordinator:
        """The job's coordinator, from where the job stands."""
        if self._made is None:
            self._made = Coordinator(self._fed.folder, self.name, _SILENT)
        return self._made

    def _answer(self, one: Received, keys: Mapping[str, str]) -> _Answer:
        """The answer in a file; refuses one that is not of this round."""
        of, site, rounds = one.heading, one.heading.site, self._fed.rounds
        if site not in keys:
            raise SilodpError(
                f"{one.path} is from {site!r}, which has not joined: merge its join file first."
            )
        if not one.is_by(keys[site]) or not is_job_of(of.job, self._fed.proposal):
            raise one.altered()
        if of.job != self.name:
            run = of.job.rpartition("-")[2]
            raise SilodpError(
                f"{one.path} is of another run: merge it by itself, with --run {run}."
            )
        answers = f"{one.path} answers {round_words(of.round, rounds)}"
        if of.round < self.round or (of.round == self.round and site in self.finished):
            raise SilodpError(f"{answers}, which is merged already: leave it out.")
        if of.round > self.round:
            raise SilodpError(
                f"{answers}, but {self.words} is not merged yet: if the folder {self._fed.folder} "
                "was put back from a copy, put back the newest one."
            )
        if site not in (self.asked or ()):
            raise SilodpError(
                f"{answers}, which {self._fed.folder} did not ask of {site!r}: ask first (silodp "
                f"exchange ask {self._fed.folder})."
            )
        replies = [unpacked_reply(message) for message in one.messages]
        if not 1 <= len(replies) <= 2:
            raise one.altered()
        return _Answer(one, replies[0], replies[1] if len(replies) > 1 else None)

    def _check_numbers(self, answers: Sequence[_Answer]) -> None:
        """Refuses answers that could never be merged: once taken, a site cannot give another."""
        trained = [a for a in answers if a.worked is not None and a.refusal is None]
        if self.round == self._fed.rounds or not trained:
            return
        prepare_jax()
        coordinator = self._coordinator()
        for answer in trained:
            site = answer.file.heading.site
            try:
                assert answer.worked is not None
                coordinator.check_answer(site, answer.worked)
            except SilodpError as error:
                raise SilodpError(
                    f"{answer.file.path} cannot be merged ({error}): leave it out, and ask "
                    f"{site!r} how it was made."
                ) from None

    def _check_only(self, answer: _Answer, before: _Answer | None) -> None:
        """Refuses a second answer to one round, unless the first was a refusal."""
        if before is None or before.refusal is not None:
            return
        if before.file.content != answer.file.content:
            raise SilodpError(
                f"{answer.file.path} is another answer than the one that "
                f"{answer.file.heading.site!r} gave to {self.words}: leave it out, and ask the "
                "site why there are two."
            )

    def _answer_file(self, site: str) -> Path:
        name = names_of(self._fed.proposal.sites)[site]
        return self._state / _ANSWERS / f"{self.round}-{name}"

    def _kept(self, keys: Mapping[str, str]) -> dict[str, _Answer]:
        """The answers to the open round that are here already."""
        paths = {site: self._answer_file(site) for site in self.asked or ()}
        return {
            site: self._answer(Received(path, _PUT_BACK), keys)
            for site, path in paths.items()
            if path.exists()
        }


def status_of(fed: CoordinatorFolder) -> dict[str, Any]:
    """Who has joined, and where each job stands."""
    keys, jobs, run = fed.joined(), [], 1
    while (job := CoordinatorJob(fed, run)).begun:
        answered = job.answered()
        jobs.append(
            {
                "job": job.name,
                "run": run,
                "round": job.round,
                "rounds": fed.rounds,
                "asked": job.asked or [],
                "answered": answered,
                "waiting": [site for site in job.asked or () if site not in answered],
                "finished": job.finished,
            }
        )
        run += 1
    return {
        "federation": fed.proposal.name,
        "fingerprint": fingerprint(fed.public),
        "sites": {
            site: fingerprint(keys[site]) if site in keys else None for site in fed.proposal.sites
        },
        "jobs": jobs,
    }
