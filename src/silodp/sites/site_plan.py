"""A proposal at one site: its records, its noise, and what it would take of the site's ledger."""

from silodp.privacy.session import RunLedgers
from silodp.runs.accounts import ledgers_of
from silodp.runs.prepare import Prepared
from silodp.sites.agreed_job import prepared_for
from silodp.sites.proposal import Proposal
from silodp.sites.site_data import load_records
from silodp.sites.site_files import SiteConfig

# In how many blocks a job is charged: a site that is cut off has paid for at most one block more
# than it answered.
BLOCKS = 20


def plan_of(config: SiteConfig, proposal: Proposal, most: int | None = None) -> Prepared:
    """What a proposal would ask of this site, and with how much noise.

    Reads the records, and refuses none because of what it holds; sends nothing.

    Args:
      config: the site's own file.
      proposal: what the site is asked to take part in.
      most: as for `load_records`. Without it, more records than the policy allows for are refused.
    """
    federation = load_records(
        config.site,
        config.data,
        proposal.schema,
        seed=config.seed,
        test_fraction=config.test_fraction,
        id_column=config.id_column,
        most=most,
    )
    testing = config.keys == "test"
    return prepared_for(
        proposal,
        federation,
        config.policy,
        # Noise from a seed is not private: there is nothing to charge.
        ledger=None if testing else config.ledger,
        entropy="seed" if testing else "os",
        first_seed=config.seed,
    )


def ledgers_at_site(config: SiteConfig, prepared: Prepared) -> RunLedgers | None:
    """What the job may take of the ledger of the site's source; None where nothing is charged."""
    ledgers = ledgers_of(prepared)
    if ledgers is None:
        return None
    ledgers = ledgers.in_blocks(BLOCKS)
    if config.source is None:
        return ledgers
    return ledgers.to_source(config.source).marked(site=config.site)
