"""A site's worker: checks a request, plans, charges, trains, keeps, and only then replies.

It knows no transport: a request comes in, a reply goes out (see `protocol`). A request is compared
with the proposals that the site consented to; the budget, the records, the noise and the metric
stay here. A round that was answered gets the same reply again: nothing is released twice with
other noise.
"""

import contextlib
import logging
import threading
import traceback
from pathlib import Path
from typing import get_args

from silodp.base.errors import SilodpError
from silodp.base.version import own_version
from silodp.sites.consents import consented, has_consented, superseded
from silodp.sites.job_at_site import JobAtSite, is_begun
from silodp.sites.last_error import forget_error, from_the_machine, note_error
from silodp.sites.membership.site import is_member, read_membership
from silodp.sites.proposal import Proposal, first_difference, is_job_of, read_proposal
from silodp.sites.protocol import Kind, Reply, Request
from silodp.sites.refusals import CANNOT, Refusal
from silodp.sites.shown_ledger import ShownLedger
from silodp.sites.site_files import read_site
from silodp.sites.trail import Outcome, Trail

_log = logging.getLogger("silodp.site")

INTERNAL = "internal error at the site; its own log says more"


class SiteWorker:
    """A site, as the coordinator sees it."""

    def __init__(self, folder: Path, coordinator: str | None = None):
        """Does nothing yet.

        Args:
          folder: the site's.
          coordinator: the name of the key by which the site knows its coordinator; else that in the
            folder.
        """
        self._folder = Path(folder)
        self._config = read_site(self._folder)
        if coordinator is None:
            known = is_member(self._folder)
            coordinator = read_membership(self._folder).federation if known else ""
        self._coordinator = coordinator
        self._shown = ShownLedger(self._folder, self._config, coordinator)
        self._trail = Trail(self._folder)
        self._at_work: JobAtSite | None = None
        self._one_at_a_time = threading.Lock()

    def answer(self, request: Request) -> Reply:
        """Replies in any case; what went wrong inside stays inside."""
        with self._one_at_a_time:
            try:
                reply = self._noted(request)
                forget_error(self._folder)
                return reply
            except Refusal as refusal:
                _log.warning("refused: %s", refusal)
                note_error(self._folder, _text(request, "job"), refusal.own)
                return Reply("refused", str(refusal))
            except Exception as error:
                # The next request goes by what is on the disk, whatever got there.
                self.close()
                machine = from_the_machine(error)
                if machine is not None:
                    _log.error("cannot answer: %s", machine)
                    note_error(self._folder, _text(request, "job"), machine)
                    return Reply("refused", CANNOT)
                # The place of the error without its message, which may hold a record's values.
                where = "".join(traceback.format_tb(error.__traceback__))
                _log.error("%s at\n%s", type(error).__name__, where)
                words = f"an internal error ({type(error).__name__}): site.log says where"
                note_error(self._folder, _text(request, "job"), words)
                return Reply("refused", INTERNAL)

    def answer_here(self, request: Request) -> Reply:
        """Replies, or raises what went wrong: for a person at the site, and nobody else.

        A refusal is raised as well.
        """
        with self._one_at_a_time:
            return self._noted(request)

    def close(self) -> None:
        """Ends the work on the job: another process may go on with it."""
        if self._at_work is not None:
            self._at_work.close()
            self._at_work = None

    def _noted(self, request: Request) -> Reply:
        """The answer, once it is in the site's trail; a refusal gets there if the disk allows."""
        try:
            reply = self._answer(request)
        except Refusal as refusal:
            with contextlib.suppress(SilodpError, OSError):
                self._note(request, "refused", str(refusal))
            raise
        self._note(request, "answered")
        return reply

    def _note(self, request: Request, outcome: Outcome, reason: str = "") -> None:
        job, number = self._at_work, request.round
        own = job is not None and job.name == request.job
        self._trail.note(
            coordinator=self._coordinator,
            federation=job.proposal.name if job is not None and own else "",
            job=_text(request, "job"),
            kind=_text(request, "kind"),
            number=number if type(number) is int and abs(number) < 2**53 else -1,
            outcome=outcome,
            reason=reason,
            ledger=(self._shown.token(request.job) or "") if own else "",
        )

    def _answer(self, request: Request) -> Reply:
        if request.version != own_version():
            raise Refusal(
                f"the coordinator has silodp {request.version[:40]!r}, this site "
                f"{own_version()!r}: have the same version at all sites"
            )
        if request.kind not in get_args(Kind):
            raise Refusal("the kind of the request is unknown")
        if type(request.round) is not int or request.round < 0:
            raise Refusal("the round is not a whole number from 0")
        proposal = self._consented(request)
        job = self._at_work
        # A job's name has a part of the proposal's digest only, which two might have in common.
        if job is None or (job.name, job.proposal.digest) != (request.job, proposal.digest):
            self.close()
            self._shown.check(request.shown.get(self._config.site))
            job = self._at_work = JobAtSite(
                *(self._folder, self._config, proposal, request.job, request.round),
                shown=self._shown,
            )
        if request.kind == "join":
            return job.join()
        if request.kind == "train":
            return job.train(request.round, request.arrays)
        return job.finish(request.arrays)

    def _consented(self, request: Request) -> Proposal:
        """The proposal, if this site has consented to exactly that one.

        It is parsed and compared when a job is joined; from then on, its text must be the same,
        and the consent must still be there.
        """
        job = self._at_work
        if (
            job is not None
            and (job.name, job.proposal.text) == (request.job, request.proposal)
            and has_consented(self._folder, job.proposal)
        ):
            return job.proposal
        try:
            proposal = read_proposal(request.proposal)
        except SilodpError as error:
            raise Refusal(str(error)) from None
        agreed = consented(self._folder)
        begun = is_job_of(request.job, proposal) and is_begun(self._folder, request.job)
        if proposal.digest in {one.digest for one in superseded(self._folder)} and not begun:
            raise Refusal("this site has consented to a newer proposal since")
        agreed += superseded(self._folder)
        if proposal.digest not in {one.digest for one in agreed}:
            # Proposals of other federations are not for this coordinator to know.
            own = [one for one in agreed if one.name == proposal.name]
            difference = f": {first_difference(own[0], proposal)}" if own else ""
            raise Refusal(f"this site did not consent to this proposal{difference}")
        if not is_job_of(request.job, proposal):
            raise Refusal("the job is not one of this proposal")
        if self._config.site not in proposal.sites:
            raise Refusal("this site is not in the proposal")
        return proposal


def _text(request: object, field: str) -> str:
    """A field of a request that may be anything, for the site's own files."""
    value = getattr(request, field, "")
    return value[:80] if isinstance(value, str) else ""
