"""Why a site refuses a request, in the words that the coordinator gets: they tell of no record."""

from silodp.base.errors import SilodpError

CANNOT = "the site cannot answer; its own log says more"
SPENT = "budget spent"
CLOSED = "the job is closed in the site's ledger: submit it again, as another run"
OTHER_LEDGER = "the site's ledger is not the one that it answered with before"
LEDGER = "the site's ledger does not allow this"
WAITING = (
    "another run of this proposal has joined and has no round yet: let it begin, or submit this "
    "one when it has ended"
)
NEVER_BEGUN = "another run of its proposal joined before any round of it was answered"
NONE_LEFT = "the job has no round left: submit it again, as another run"
LOST = "the job was begun, but where it stood is lost at the site: submit it again, as another run"
CHANGED = (
    "the site's records, policy or keys are not those that the job was begun with: submit it "
    "again, as another run"
)
NOT_FINITE = "the model is not finite any more: a smaller lr would help"


class Refusal(SilodpError):
    """A site's refusal of a request: its text is all that the coordinator learns.

    Attributes:
      own: why, in words for the people at the site alone.
    """

    def __init__(self, text: str, own: str | None = None):
        super().__init__(text)
        self.own = text if own is None else own


class BusyRefusal(Refusal):
    """A refusal that another process of the site is the reason of, for as long as it is at work."""


class StaleRefusal(Refusal):
    """A refusal of a request that is older than what the site has answered since."""
