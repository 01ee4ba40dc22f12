"""What a site's ledger knows of a job, and which of its rounds were answered.

What is reserved, charged and given back when is in `privacy.session`.
"""

import json
import logging
from pathlib import Path
from typing import IO

from silodp.base.documents import read_json
from silodp.base.files import write_file
from silodp.privacy.ledger.account import Run, account_of
from silodp.privacy.ledger.charging import run_of
from silodp.privacy.ledger.storage import exists, read_ledger
from silodp.privacy.session import RunLedgers, give_back
from silodp.sites.job_lock import only_one
from silodp.sites.proposal import Proposal, is_job_of
from silodp.sites.refusals import LOST, NEVER_BEGUN, WAITING, Refusal
from silodp.sites.site_files import SiteConfig
from silodp.sites.state_file import load_state

STATE_FILE = "state.npz"
ANSWERED = "answered"
_log = logging.getLogger("silodp.site")


def run_in_ledger(config: SiteConfig, ledgers: RunLedgers | None, job: str) -> Run | None:
    """What the site's ledger says about the job; None if nothing, or where nothing is charged."""
    if ledgers is None:
        return None
    return run_of(ledgers.directory, config.ledger_name, job)


class AnsweredRounds:
    """The last round that was answered under one charge, noted beside the ledger.

    It is not with the state: so a state that is put back from a copy is known to be older.
    """

    def __init__(self, ledgers: RunLedgers | None, job: str, charge: str | None):
        """Notes nothing where nothing is charged.

        Args:
          ledgers: what the job may take of the site's ledger.
          job: its name.
          charge: by which the ledger knows the charge for the noise of the job's secret.
        """
        self._job = job
        self._path: Path | None = None
        if ledgers is not None and charge is not None:
            self._path = ledgers.directory / ANSWERED / f"{charge}.json"

    def claim(self) -> IO[str] | None:
        """Locks the noise of the charge for this process; None where there is none to lock.

        Two folders with one secret (a copy) could answer a round with one noise, in two ways.
        """
        return None if self._path is None else only_one(self._path.with_suffix(".lock"))

    def last(self) -> int:
        """The last round that was answered; -1 if none was."""
        path = self._path
        if path is None or not path.exists():
            return -1
        try:
            return int(read_json(path, remedy="put back an intact copy")["round"])
        except (ValueError, KeyError, TypeError):
            _log.warning("%s cannot be read: it says which rounds were answered", path)
            raise Refusal(LOST) from None

    def note(self, number: int) -> None:
        """Notes a round after its state is kept, before its answer (maybe a refusal) leaves."""
        path = self._path
        if path is not None and self.last() < number:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_file(path, json.dumps({"job": self._job, "round": number}))


def give_back_what_never_began(
    config: SiteConfig, ledgers: RunLedgers | None, proposal: Proposal, jobs: Path
) -> None:
    """Gives back what runs of the proposal reserved of which no round was answered.

    Consent is to a proposal, whatever the number of its runs, and each that joins reserves all
    that it may take: asked to join run after run, a site would have nothing left for others.

    Args:
      config: the site's own file.
      ledgers: what the job may take of its ledger.
      proposal: whose runs.
      jobs: the folder that holds the state of every job.
    """
    directory, ledger = config.ledger, config.ledger_name
    if ledgers is None or not exists(directory, ledger):
        return
    runs = account_of(read_ledger(directory, ledger)).runs
    for folder in sorted(jobs.iterdir()):
        name = folder.name
        if not is_job_of(name, proposal) or not _never_began(runs.get(name)):
            continue
        try:
            lock = only_one(folder / "lock", patience=0.0)
        except Refusal:
            raise Refusal(WAITING) from None
        with lock:
            found, run = load_state(folder / STATE_FILE), run_of(directory, ledger, name)
            own = found and run and found[0].get("charge") == run.about.get("charge")
            if own and _never_began(run):  # and not that of another folder on this ledger
                give_back(directory, ledger, name, NEVER_BEGUN)


def _never_began(run: Run | None) -> bool:
    """Whether it holds a reservation, and nothing was charged of it."""
    return run is not None and run.closed is None and not run.blocks
