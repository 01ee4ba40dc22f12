"""A site's folder: made from what the coordinator sent, and its status.

SITE/
  site.toml       the site's own: data, policy, ledger
  proposal.json   the coordinator's proposal, from its invitation, or a newer one
  consented/      proposals that the site has consented to
  membership.json, kit/  the site's key and certificate, and FLARE's workspace (see `membership`);
                  or, where files are exchanged instead,
  exchange/       the coordinator's invitation and the site's key
  to-send/        files for the coordinator
  state/          where each job stands
  results/        the site's own models, and how good they are

What was spent is not here, but where the site keeps the ledgers of its data sources (see
`sources`), which other federations charge too. (A folder whose site.toml names no source has its
own: ledger/.)
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError
from silodp.base.files import write_file
from silodp.base.progress_file import PROGRESS_FILE
from silodp.base.values import plain
from silodp.data.tables.table import DEFAULT_TEST_FRACTION
from silodp.privacy.ledger.account import Run, account_of
from silodp.privacy.ledger.standing import remaining
from silodp.privacy.ledger.storage import exists, ledger_path, read_ledger
from silodp.privacy.policy import Policy
from silodp.results.model_export.files import folders_of
from silodp.results.result import RESULT_FILE, read_result
from silodp.sites.connection import Connection, connection_at
from silodp.sites.consents import consent
from silodp.sites.job_at_site import RESULTS, STATE
from silodp.sites.last_error import last_error
from silodp.sites.membership.site import (
    PROPOSAL_FILE,
    certificate_at,
    is_member,
    join_with,
    note_consent,
    read_invitation,
    read_membership,
    read_new_proposal,
)
from silodp.sites.proposal import Proposal, read_proposal
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_files import DEFAULT_LEDGER, SiteConfig, read_site, write_site
from silodp.sites.sources import Claim

KIT = "kit"


@dataclass(frozen=True)
class SiteSettings:
    """What a site decides for itself when it is set up, whatever carries its messages.

    Attributes:
      data: where the site's records are.
      policy: what the site allows.
      tell_noise: whether the coordinator may know the scale of its noise.
      test_fraction: share of its records to keep for testing.
      id_column: the column that names a record for good.
      claim: the source that the records are; else the ledger is in the site's folder, and knows
        of no other federation.
    """

    data: DataAtSite
    policy: Policy
    tell_noise: bool = True
    test_fraction: float = DEFAULT_TEST_FRACTION
    id_column: str | None = None
    claim: Claim | None = None


def set_up(invitation: Path, folder: Path | None, settings: SiteSettings) -> Path:
    """Makes the folder of a site that answers over a network, and its key; returns the folder.

    Args:
      invitation: the file from the coordinator.
      folder: to make; else it is beside the invitation, named after the site.
      settings: the site's own.
    """
    invited, proposal = read_invitation(invitation)

    def unpack(aside: Path) -> None:
        join_with(invited, aside)
        write_file(aside / PROPOSAL_FILE, proposal.text)

    return make_site(invited.site, unpack, folder or invitation.parent / invited.site, settings)


def make_site(
    site: str, unpack: Callable[[Path], None], folder: Path, settings: SiteSettings
) -> Path:
    """Makes a site's folder of whatever the coordinator sent, whole or not at all; returns it.

    Args:
      site: its name.
      unpack: puts what was sent into a folder, the proposal among it.
      folder: to make.
      settings: the site's own.
    """
    claim = settings.claim
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SilodpError(f"{folder} is there already: choose another --out.")
    if claim is not None and claim.directory.resolve().is_relative_to(folder.resolve()):
        raise SilodpError(
            f"The ledgers ({claim.directory}) are inside of {folder}, which may be removed with a "
            "federation, and what was spent forgotten: choose another --ledger."
        )
    aside = folder.absolute().parent / f".{folder.name}.making"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        unpack(aside)
        write_site(
            aside,
            site,
            settings.data,
            settings.policy,
            ledger=DEFAULT_LEDGER if claim is None else claim.directory,
            source=None if claim is None else claim.name,
            tell_noise=settings.tell_noise,
            test_fraction=settings.test_fraction,
            id_column=settings.id_column,
        )
        if claim is not None:
            claim.make()
        if folder.exists():
            folder.rmdir()
        aside.chmod(0o700)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


class Offered(NamedTuple):
    """A proposal to look at, and its number; None where a federation has only one."""

    proposal: Proposal
    number: int | None


def offered_proposal(folder: Path, path: Path | None) -> Offered:
    """The proposal in a file from the coordinator, or else the one in the site's folder."""
    if is_member(folder):
        if path is not None:
            return Offered(*read_new_proposal(folder, path))
        return Offered(_proposal_in(folder / PROPOSAL_FILE), read_membership(folder).offered)
    if path is not None:
        raise SilodpError(
            f"{folder} has joined for one proposal: join anew with the invitation to another one "
            "(silodp exchange join), with the same --source."
        )
    return Offered(_proposal_in(folder / PROPOSAL_FILE), None)


def consent_to(folder: Path, offered: Offered) -> None:
    """Records the site's consent; of those before, only jobs that were begun are gone on with."""
    if offered.number is not None:
        note_consent(folder, offered.proposal, offered.number)
    consent(folder, offered.proposal, supersede=offered.number is not None)


def _proposal_in(path: Path) -> Proposal:
    try:
        return read_proposal(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise SilodpError(f"{path} cannot be read ({error}): check the path.") from None


def site_status(folder: Path) -> dict[str, Any]:
    """Whether the site runs, where its jobs stand, what is spent: for the site alone."""
    config = read_site(folder)
    running = connected = False
    error = last_error(folder)
    problems = [] if error is None else [f"refused: {error.words}"]
    about: dict[str, Any] = {"level": len(problems), "problems": problems}
    if (folder / KIT).exists():  # else no process of it runs: it may be without FLARE
        from silodp.sites.flare.processes import SITE_PID, is_running, site_is_up
        from silodp.sites.health import WORDS, level_of, site_problems, valid_until

        running, connected = is_running(folder / SITE_PID), site_is_up(folder)
        seen = site_problems(folder, running)
        found = connection_at(folder) if running else Connection()
        about = {
            "state": WORDS[level_of(seen)],
            "problems": [one.words for one in seen],
            "level": level_of(seen),
            "heard": found.heard,
            "clock": found.clock,
            "version": found.version,
            "certificate_until": valid_until(certificate_at(folder)),
        }
    runs: dict[str, Run] = {}
    if exists(config.ledger, config.ledger_name):
        runs = account_of(read_ledger(config.ledger, config.ledger_name)).runs
    paths = sorted((folder / STATE).glob(f"*/{PROGRESS_FILE}"))
    jobs = [_with_charge(read_json(path, remedy="look again"), runs) for path in paths]
    return {
        "site": config.site,
        "running": running,
        "connected": connected,
        **about,
        "jobs": jobs,
        "source": config.source,
        "ledger": str(ledger_path(config.ledger, config.ledger_name)),
        **standing(config),
    }


def _with_charge(job: dict[str, Any], runs: Mapping[str, Run]) -> dict[str, Any]:
    """The progress of a job at the site, with what the ledger says about it.

    `answered` is the number of rounds that the site took part in, `charged` the number that it paid
    for (None where nothing is private, hence nothing is charged), `closed` the reason why no round
    can be answered any more.
    """
    run = runs.get(job.get("job", ""))
    closed = None if run is None else run.closed
    if job.get("finished"):
        state = "finished"
    elif closed is not None:
        state = f"closed: {closed}"
    elif run is not None and run.state == "reserved":
        state = "joined; all of it is reserved, nothing is charged"
    else:
        state = "under way"
    charged = None if run is None else run.charged
    answered = job.get("answered", job.get("round"))
    return job | {"answered": answered, "charged": charged, "closed": closed, "state": state}


def standing(config: SiteConfig) -> dict[str, Any]:
    """The epsilon `spent` in the site's ledger, and the `lifetime` that is in force.

    With a source, the lifetime is the stricter of the site's policy and the ledger's own. Shares
    are shares of the ledger's lifetime, as in `account.standing`.
    """
    epsilon, delta = config.policy.lifetime
    account: dict[str, Any] = {}
    if exists(config.ledger, config.ledger_name):
        account = remaining(config.ledger, config.ledger_name)
        if config.source is not None and account["lifetime_epsilon"] is not None:
            epsilon = min(epsilon, account["lifetime_epsilon"])
            delta = min(delta, account["lifetime_delta"])
    shares = ("spent_share", "reserved_share", "given_back_share")
    left = account.get("left_share")
    return {
        "spent": account.get("spent_epsilon", 0.0),
        "lifetime": epsilon,
        "lifetime_delta": delta,
        **{name: account.get(name, 0.0) for name in shares},
        "left_share": 1.0 if left is None else left,
        "same_again": account.get("same_again"),
        "open_runs": account.get("open_runs", []),
        "given_to": account.get("given_to"),
    }


def site_models(folder: Path) -> list[dict[str, Any]]:
    """The site's own models, each with its metric on the site's test records."""
    read_site(folder)  # another folder is refused
    found = []
    for path in sorted((folder / RESULTS).glob(f"*/{RESULT_FILE}")):
        result = read_result(path.parent)
        found.append(
            {
                "job": path.parent.name,
                "method": result.method,
                "metric": result.metric,
                "test": result.test["mean"],
                "epsilon": plain(result.privacy[0]["epsilon"]),
                "rounds": result.privacy[0].get("rounds"),
                "of_rounds": result.privacy[0].get("of_rounds"),
                "model": str(path.parent / folders_of([one["silo"] for one in result.per_silo])[0]),
            }
        )
    return found
