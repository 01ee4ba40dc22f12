"""What a site does when asked: it checks, plans, charges, trains, keeps, and only then answers.

No engine is known here: a request comes in, a reply goes out (see `protocol`). What is asked is
compared with what the site consented to; the budget, the records, the noise and the metric stay
here. A round that was answered is answered again in the same words: nothing is released twice with
other noise.
"""

import logging
import threading
import traceback
from pathlib import Path
from typing import get_args

from silodp.base.errors import SilodpError
from silodp.base.version import own_version
from silodp.sites.consents import consented
from silodp.sites.job_at_site import JobAtSite, Refusal
from silodp.sites.proposal import Proposal, first_difference, is_job_of, read_proposal
from silodp.sites.protocol import Kind, Reply, Request
from silodp.sites.site_files import read_site

_log = logging.getLogger("silodp.site")

INTERNAL = "internal error at the site; its own log says more"


class SiteWorker:
    """A site, as the coordinator sees it."""

    def __init__(self, folder: Path):
        self._folder = Path(folder)
        self._config = read_site(self._folder)
        self._at_work: JobAtSite | None = None
        self._one_at_a_time = threading.Lock()

    def answer(self, request: Request) -> Reply:
        """Always an answer; what went wrong inside stays inside."""
        with self._one_at_a_time:
            try:
                return self._answer(request)
            except Refusal as refusal:
                _log.warning("refused: %s", refusal)
                return Reply("refused", str(refusal))
            except Exception as error:
                # Where it failed, but not in its own words: they may hold what a record holds.
                where = "".join(traceback.format_tb(error.__traceback__))
                _log.error("%s at\n%s", type(error).__name__, where)
                # What comes next goes by what is on the disk, whatever got there.
                self.close()
                return Reply("refused", INTERNAL)

    def close(self) -> None:
        """Another process may go on with the job."""
        if self._at_work is not None:
            self._at_work.close()
            self._at_work = None

    def _answer(self, request: Request) -> Reply:
        if request.version != own_version():
            raise Refusal(
                f"the coordinator has silodp {request.version[:40]!r}, this site "
                f"{own_version()!r}: have the same version at all sites"
            )
        if request.kind not in get_args(Kind):
            raise Refusal("the request is of no kind that is known")
        if type(request.round) is not int or request.round < 0:
            raise Refusal("the round is no number")
        proposal = self._consented(request)
        job = self._at_work
        # A job's name has a part of the proposal's digest only, which two might have in common.
        if job is None or (job.name, job.proposal.digest) != (request.job, proposal.digest):
            self.close()
            job = self._at_work = JobAtSite(
                self._folder, self._config, proposal, request.job, request.round
            )
        if request.kind == "join":
            return job.join()
        if request.kind == "train":
            return job.train(request.round, request.arrays)
        return job.finish(request.arrays)

    def _consented(self, request: Request) -> Proposal:
        """The proposal, if this site has said yes to just that."""
        try:
            proposal = read_proposal(request.proposal)
        except SilodpError as error:
            raise Refusal(str(error)) from None
        agreed = consented(self._folder)
        if proposal.digest not in {one.digest for one in agreed}:
            # What is agreed on with others is not for everybody.
            like = [one for one in agreed if one.name == proposal.name]
            differs = f": {first_difference(like[0], proposal)}" if like else ""
            raise Refusal(f"this site did not consent to this proposal{differs}")
        if not is_job_of(request.job, proposal):
            raise Refusal("the job is not one of this proposal")
        if self._config.site not in proposal.sites:
            raise Refusal("this site is not in the proposal")
        return proposal
