"""The job that a proposal describes: the same at the coordinator and at every site."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from silodp.base.progress import Reporter
from silodp.data.federation import Federation
from silodp.data.tables.table import defaults_of
from silodp.engines.job import Job
from silodp.methods.base import Method
from silodp.privacy.mechanisms.randomness import run_key
from silodp.privacy.policy import Policy
from silodp.runs.prepare import Loaded, Prepared, prepare_loaded
from silodp.runs.run import job_of
from silodp.sites.agreed_schema import example
from silodp.sites.proposal import Proposal


def prepared_for(
    proposal: Proposal, federation: Federation, policy: Policy, **own: Any
) -> Prepared:
    """The proposal prepared for one site, with its own records and its own policy.

    Args:
      proposal: what is agreed on.
      federation: the site's records.
      policy: the site's policy.
      **own: options of the run that are the site's own.
    """
    request = replace(proposal.options, epsilon=policy.epsilon, delta=policy.delta, **own)
    return prepare_loaded(
        [request],
        Loaded([federation], defaults_of(federation.task, "bounds")),
        None,
        Reporter(),
        policies=(policy,),
        of_federation=proposal.sites,
    )


def job_among(proposal: Proposal, prepared: Prepared) -> Job:
    """The job, with a place for every site."""
    sites = len(proposal.sites)
    return replace(job_of(prepared), weights=np.full(sites, 1.0 / sites))


def coordinators_job(proposal: Proposal) -> tuple[Job, Method]:
    """The job at the coordinator, and its method: from the schema, without a record."""
    made_up = example(proposal.schema)
    anyone = Policy(
        epsilon=float("inf"), delta=0.5, subject=proposal.schema.subject_column, silo="anyone"
    )
    # The few records are made up, and nothing is trained on them.
    prepared = prepared_for(proposal, made_up, anyone, small_silos="full-batch")
    job = job_among(proposal, prepared)
    return job, job.build(job.method.traced_values(prepared.specs[0].values))


def first_key(proposal: Proposal) -> Array:
    """The key of the first model: public, and the same for all."""
    return jnp.asarray(run_key(proposal.seed, b""))


def first_states(proposal: Proposal, job: Job, method: Method) -> tuple[Any, Any]:
    """The first states of the coordinator and of the site at the first place."""
    return job.first_states(method, first_key(proposal), 0)


def broadcast_like(job: Job, method: Method) -> Any:
    """Shapes and types of the method's broadcast, as a pytree."""
    key = jnp.zeros(2, jnp.uint32)
    if job.method.in_messages:  # on the host: there is nothing to trace
        return method.broadcast(job.first_states(method, key, 0)[0])
    return jax.eval_shape(lambda: method.broadcast(job.first_states(method, key, 0)[0]))


def weights_of(counts: Sequence[float]) -> np.ndarray:
    """Weights of the sites' messages when they are merged; they sum to 1."""
    weights = np.asarray(counts, float)
    return weights / weights.sum()
