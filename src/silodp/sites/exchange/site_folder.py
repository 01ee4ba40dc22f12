"""A site's side of an exchange: joins by a file, and answers each file with one file.

The folder is that of any site (see `site_setup`), with these in it:

  exchange/invitation   the coordinator's: the proposal, and the coordinator's public key
  exchange/key.pem      the site's private key, which never leaves the folder
  to-send/              files for the coordinator; they can be written again at any time

Consent, plan, charge and release are those of a site over a network, by the same objects
(`SiteWorker`, `JobAtSite`): a file only carries the request in, and the reply out. So an answer is
the same whenever and however often it is asked for, and is paid for once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.version import own_version
from silodp.sites.consents import consented
from silodp.sites.exchange.keys import (
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
    names_of,
    round_words,
    signed_file,
)
from silodp.sites.messages import packed_reply, unpacked_reply, unpacked_request
from silodp.sites.proposal import Proposal, is_job_of, read_proposal
from silodp.sites.protocol import Reply, Request
from silodp.sites.refusals import BusyRefusal, Refusal, StaleRefusal
from silodp.sites.site_files import read_site
from silodp.sites.site_setup import PROPOSAL_FILE, SiteSettings, make_site, site_status
from silodp.sites.worker import SiteWorker

_INVITATION = "invitation"
_SEND_AGAIN = "have the coordinator send it again (`silodp exchange ask --again`)"
_INVITE_AGAIN = "have the coordinator send the invitation again"


class Invitation(NamedTuple):
    """What a coordinator invites a site to.

    Attributes:
      site: the name of the site.
      federation: the federation's name in files.
      public: the coordinator's public key.
      proposal: what all are to agree on.
      content: of the file.
    """

    site: str
    federation: str
    public: str
    proposal: Proposal
    content: bytes

    @property
    def folder_name(self) -> str:
        """A name for the site's folder: its own, as far as file systems allow."""
        return names_of(self.proposal.sites)[self.site]


def read_invitation(path: Path) -> Invitation:
    """Reads an invitation: it is as whoever has its key signed it. People compare whose that is."""
    return _invitation(Received(path, _INVITE_AGAIN))


def _invitation(one: Received) -> Invitation:
    if one.heading.what != "invitation":
        raise SilodpError(
            f"{one.path} is no invitation (an {one.heading.what}): give the file that ends in "
            ".invitation."
        )
    public, text = one.about.get("public"), one.about.get("proposal")
    if not is_public_key(public) or not isinstance(text, str) or not one.is_by(str(public)):
        raise one.altered()
    proposal = read_proposal(text, str(one.path))
    if (
        one.heading.federation != federation_id(proposal.digest, str(public))
        or one.heading.site not in proposal.sites
    ):
        raise one.altered()
    return Invitation(one.heading.site, one.heading.federation, str(public), proposal, one.content)


def is_sites(folder: Path) -> bool:
    """Whether it is the folder of a site that exchanges files."""
    return (folder / EXCHANGE / _INVITATION).exists()


def set_up_by_file(invitation: Path, folder: Path | None, settings: SiteSettings) -> Path:
    """Makes the folder of a site that answers by files, and its key; returns the folder.

    Args:
      invitation: the file from the coordinator.
      folder: to make; else it is beside the invitation, named after the site.
      settings: the site's own.
    """
    invited = read_invitation(invitation)

    def unpack(aside: Path) -> None:
        write_file(aside / EXCHANGE / _INVITATION, invited.content)
        write_file(aside / PROPOSAL_FILE, invited.proposal.text)
        make_key(aside / EXCHANGE)

    folder = folder or invitation.parent / invited.folder_name
    return make_site(invited.site, unpack, folder, settings)


class Answered(NamedTuple):
    """An answer that was written.

    Attributes:
      kind: what was asked: to join, to train or to finish.
      path: the file to send.
      words: the round, in words; empty for a join file.
      refusal: why the site refuses, as the coordinator will read it; None if it does not.
      job: the name of the job; empty for a join file.
    """

    kind: str
    path: Path
    words: str = ""
    refusal: str | None = None
    job: str = ""


class ExchangeSite:
    """A site that answers by files.

    Attributes:
      folder: the site's.
      invitation: what it was invited to.
      public: the site's public key.
    """

    def __init__(self, folder: Path):
        """Refuses the folder of another kind of site."""
        self.folder, self._site = folder, read_site(folder).site
        if not is_sites(folder):
            raise SilodpError(
                f"{folder} is no site of an exchange: give the folder that `silodp exchange join` "
                "made."
            )
        self.invitation = read_invitation(folder / EXCHANGE / _INVITATION)
        remedy = "put back a copy, or join anew in another folder and tell the coordinator"
        self._key = read_key(folder / EXCHANGE, remedy)
        self.public = public_key(self._key)

    def answer(self, path: Path) -> Answered:
        """Answers a file of the coordinator's with one to send back.

        A file that is not for this site, not of this federation, not as it was sent, or older than
        what was answered since is refused, and nothing is charged. A refusal of the site's own (a
        budget that is spent) is an answer.
        """
        one = Received(path, _SEND_AGAIN)
        self._check(one)
        own = self.invitation.proposal
        if own.digest not in {agreed.digest for agreed in consented(self.folder)}:
            raise SilodpError(
                f"{self.folder} has not consented to {own.name!r}: look at the plan and consent "
                f"first (silodp site consent {self.folder})."
            )
        if one.heading.what == "invitation":
            return Answered("join", self.write_join())
        request = self._request(one)
        words = round_words(request.round, own.training["rounds"])
        replies = self._replies(request, one, words)
        refusal = None if replies[-1].status == "ok" else replies[-1].reason
        heading = Heading("answer", one.heading.federation, self._site, request.job, request.round)
        before = self._path(heading)
        if refusal is not None and before.exists() and not _is_refusal(before):
            raise SilodpError(
                f"{self.folder} refuses {words} now ({refusal}), and has answered it before: send "
                f"{before}, which it wrote then."
            )
        written = self._write(heading, {}, [packed_reply(reply) for reply in replies])
        return Answered(request.kind, written, words, refusal, request.job)

    def write_join(self) -> Path:
        """Writes the file by which the coordinator learns the site's public key."""
        heading = Heading("join", self.invitation.federation, self._site)
        return self._write(heading, {"public": self.public})

    def status(self) -> dict[str, Any]:
        """What the site and its coordinator are known by, and what `site status` says."""
        return {
            "federation": self.invitation.proposal.name,
            "fingerprint": fingerprint(self.public),
            "coordinator": fingerprint(self.invitation.public),
            "by_file": True,
            **site_status(self.folder),
        }

    def _write(
        self, heading: Heading, about: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()
    ) -> Path:
        return write_file(self._path(heading), signed_file(self._key, heading, about, messages))

    def _path(self, heading: Heading) -> Path:
        return self.folder / TO_SEND / file_name(heading, self.invitation.proposal)

    def _check(self, one: Received) -> None:
        """Refuses a file that is not this coordinator's to this site, as it was sent."""
        of = one.heading
        if of.what not in ("invitation", "ask"):
            raise SilodpError(
                f"{one.path} is from a site, for the coordinator: give the file that the "
                "coordinator sent."
            )
        if of.federation != self.invitation.federation:
            raise SilodpError(
                f"{one.path} is of another federation than {self.folder} has joined: answer it in "
                "the folder that joined that one, or have the coordinator send the one for this."
            )
        if not one.is_by(self.invitation.public):
            raise one.altered()
        if of.site != self._site:
            raise SilodpError(
                f"{one.path} is for site {of.site!r}, and this is {self._site!r}: have the "
                "coordinator send the one for this site."
            )

    def _request(self, one: Received) -> Request:
        """The request in a file; refuses one that does not say the same as its head."""
        if len(one.messages) != 1:
            raise one.altered()
        request = unpacked_request(one.messages[0])
        if request.version != own_version():
            raise SilodpError(
                f"{one.path} is by silodp {request.version[:40]!r}, and this site has "
                f"{own_version()!r}: have the same version of silodp at all sites."
            )
        proposal = self.invitation.proposal
        if (
            (request.job, request.round) != (one.heading.job, one.heading.round)
            or request.proposal != proposal.text
            or not is_job_of(request.job, proposal)
            or request.kind == "join"
        ):
            raise SilodpError(
                f"{one.path} asks for something else than its head says: have the coordinator look "
                "at how it was made."
            )
        return request

    def _replies(self, request: Request, one: Received, words: str) -> list[Reply]:
        """What the site replies to being asked to join, and to work; a refusal is the last."""
        worker, replies = SiteWorker(self.folder, self.invitation.public), []
        join = replace(request, kind="join", arrays=[])
        try:
            for asked in (join, request):
                replies.append(worker.answer_here(asked))
        except BusyRefusal as busy:
            raise SilodpError(f"{self.folder}: {busy}: wait for it, and answer again.") from None
        except StaleRefusal as stale:
            raise SilodpError(
                f"{one.path} asks for {words}, which is over at this site ({stale}): answer the "
                "newest file from the coordinator."
            ) from None
        except Refusal as refusal:
            replies.append(Reply("refused", str(refusal)))
        finally:
            worker.close()
        return replies


def _is_refusal(path: Path) -> bool:
    """Whether an answer that the site wrote before is no more than a refusal."""
    return unpacked_reply(Received(path, "remove it, and answer again").messages[-1]).status != "ok"
