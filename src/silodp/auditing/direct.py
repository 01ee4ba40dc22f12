"""All checks of what a silo releases, each through the real engine: see `checks`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from silodp.auditing.checks import Check, judged
from silodp.auditing.claim import check_claim
from silodp.auditing.draw_checks import check_draws
from silodp.auditing.message_checks import message_checks
from silodp.auditing.noise_checks import MOST_PARAMETERS, check_low_bits, check_noise
from silodp.auditing.select_checks import check_selections
from silodp.auditing.sensitivity import check_own_noise, check_sensitivity
from silodp.data.federation import Federation
from silodp.engines.job import Job
from silodp.privacy.plan import SiloPlan


def direct_checks(
    job: Job,
    federation: Federation,
    plans: Sequence[SiloPlan],
    place: int,
    seeds: range,
    stage: Callable[[str], None],
) -> tuple[Check, ...]:
    """The checks of the silo at that place, judged together.

    Args:
      job: what is audited.
      federation: the audited silo and others that take part.
      plans: the plan of each silo.
      place: the audited silo's place.
      seeds: seeds that nothing else uses.
      stage: called with what is looked at next.
    """
    if job.method.in_messages:
        return message_checks(job, federation, plans, place, seeds, stage)
    plan = plans[place]
    # At least one more silo, so that what silos must not share is seen: made up, if there is none.
    others = [one for number, one in enumerate(plans) if number != place and one.private]
    company = (plan, *(others or [replace(plan, silo=f"a copy of {plan.silo}")]))
    found: list[Check] = []

    def add(kind: str, checks: Sequence[Check]) -> None:
        found.extend(replace(check, kind=kind) for check in checks)

    add("claim", [check_claim(plan)])
    stage("checking the noise")
    add("noise", check_noise(job, company, 0, seeds))
    if not job.model.linear or job.parameters > MOST_PARAMETERS:
        add("noise", check_own_noise(job, federation, plans, place, seeds))
    if job.secret:  # experiments are not released, and may have noise of single precision
        add("low bits", check_low_bits(job, plan, seeds))
    stage("checking the batches")
    if plan.draw != "shuffle":  # which the plan itself says is not proven
        sampled = [one for one in company if one.draw != "shuffle"]
        add("batches", check_draws(job, sampled, 0, seeds))
    stage("checking the clip")
    add("clip", check_sensitivity(job, federation, place, plan, seeds))
    if plan.schedule.select_rounds:
        stage("checking the selections")
        add("selections", check_selections(job, company, 0, seeds))
    return judged(found)
