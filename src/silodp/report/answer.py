"""The answer first: who gain, by how much, at what privacy. In sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.base.text import count, shown
from silodp.figures.looks import Look, look_of
from silodp.models.metrics import get_metric
from silodp.privacy.plan import NOT_PRIVATE
from silodp.report.gains import (
    CHANCE,
    Gain,
    few_records,
    gains_by_silo,
    known_gains,
    overall,
    test_records,
)
from silodp.report.inputs import Run
from silodp.report.numbers import budget, measured, one_budget, plus_minus, small
from silodp.results.result import AT_SITES, Result
from silodp.runs.baselines import BASELINES, NAMES

WHAT = NAMES


def look(result: Result) -> Look:
    """Colour, line and mark of the result's method."""
    return look_of(result.method)


def over_seeds(result: Result) -> str:
    """Says over how many seeds the result is a mean."""
    return f"mean over {count(len(result.test['per_seed']), 'seed')}"


def unproven_reasons(result: Result) -> list[str]:
    """Why epsilon is not proven, for silos that have one."""
    if all(math.isinf(epsilon) for epsilon in result.epsilons):
        return []
    return [reason for reason in result.unproven if reason != NOT_PRIVATE]


def sentences(run: Run) -> list[str]:
    """Says by how much, at what privacy, and what is not known."""
    result = run.result
    lines = [_of_all(run)] if run.baselines else []
    for method in BASELINES:
        if method in run.baselines and len(result.per_silo) > 1:
            lines.append(_of_silos(result, run.baselines[method], method))
    lines.append(privacy_sentence(result))
    lines += [part_sentence(silo) for silo in result.privacy if silo.get("of_rounds") is not None]
    return lines


def part_sentence(silo: Mapping[str, Any]) -> str:
    """Says in how many rounds a site took part, and what it paid for.

    Args:
      silo: the privacy entry of a site's own result.
    """
    took, rounds, charged = silo.get("rounds", 0), silo["of_rounds"], silo.get("charged_rounds")
    name = shown(silo["silo"])
    if took >= rounds:
        return f"Silo {name} took part in all of the {count(rounds, 'round')}."
    sentence = f"Silo {name} took part in {took:,} of {count(rounds, 'round')}"
    if charged is not None:
        # A metric at the end is charged apart from rounds.
        sentence += f" and is charged for {charged:,}, because rounds are charged in blocks"
        if charged < rounds:
            sentence += "; what the others would have cost was given back to its lifetime"
    return (
        f"{sentence}. Epsilon here is that of all {rounds:,} rounds, which bounds that of a part."
    )


def missing_baselines(run: Run) -> str | None:
    """Says what to do where there is nothing to compare with; None if all is there."""
    if run.result.options.get("engine") == AT_SITES:  # no other run to compare with
        return None
    missing = [m for m in BASELINES if m not in run.baselines and m != run.result.method]
    if not missing:
        return None
    start = f"Not compared with {' and '.join(WHAT[m] for m in missing)}: "
    if run.result.options.get("ledger") is not None:
        return (
            f"{start}these would be further runs, charged to the same ledgers. Compare beforehand, "
            "on records that are not secret, or without a ledger as an experiment."
        )
    return (
        f"{start}train with --baselines, or give the folders of their runs (same data, budgets and "
        "seeds) beside this one."
    )


def _of_all(run: Run) -> str:
    result = run.result
    what = get_metric(result.metric).noun
    own = plus_minus(result.mean, result.std, result.metric)
    comparisons = []
    for method in BASELINES:
        if other := run.baselines.get(method):
            gain = overall(result, other)
            theirs = f"{WHAT[method]} ({measured(other.mean, other.metric)})"
            comparisons.append(
                f"{how_much(gain, result.metric)} {theirs}{_certainty(gain, result)}"
            )
    return f"Over all silos its test {what} is {own}: {', and '.join(comparisons)}."


def how_much(gain: Gain, metric: str) -> str:
    """A gain in words, such as "12 % lower (better) than"."""
    if gain.mean == 0:
        return "the same as"
    about = get_metric(metric)
    return f"{about.size(gain.mean)} {about.way(gain.mean)} than"


def _certainty(gain: Gain, result: Result) -> str:
    seeds = len(result.test["per_seed"])
    if gain.mean == 0:
        return ""
    if few_records(result):
        return f", which may be chance ({count(test_records(result) or 0, 'test record')})"
    if math.isnan(gain.error):
        return f", by {count(seeds, 'seed')}: too few to tell it from chance"
    if not gain.clear:
        return f", which may be chance (over {seeds} seeds, Student's t at {100 * CHANCE:g} %)"
    return ""


def _of_silos(result: Result, other: Result, method: str) -> str:
    gains = known_gains(gains_by_silo(result, other))
    if not gains:
        return f"Against {WHAT[method]}, no silo can be compared."
    better, worse = sum(g.mean > 0 for g in gains), sum(g.mean < 0 for g in gains)
    if not better and not worse:
        return f"Against {WHAT[method]}, no silo gains or loses."
    start = (
        f"Against {WHAT[method]}, {count(better, 'silo gains', 'silos gain')} and {worse:,} lose"
    )
    if math.isnan(gains[0].error):
        seeds = count(len(result.test["per_seed"]), "seed")
        return f"{start}; over {seeds} single silos vary a lot."
    if all(g.few for g in gains):
        return f"{start}; their test records are too few for any of it to be clear."
    clear = sum(g.mean > 0 and g.clear for g in gains)
    clear_loss = sum(g.mean < 0 and g.clear for g in gains)
    expected = CHANCE / 2 * len(gains)  # to either side
    by_chance = f" (by chance alone, about {expected:.0f} would do either)" if expected >= 1 else ""
    return (
        f"{start}; clearly so (over seeds, Student's t at {100 * CHANCE:g} %), {clear:,} gain and "
        f"{clear_loss:,} lose{by_chance}."
    )


def privacy_sentence(result: Result) -> str:
    """Says what each silo was promised."""
    spent = result.epsilons
    if all(math.isinf(epsilon) for epsilon in spent):
        return "Without privacy: nothing protects the records from what was released."
    protected = {"record": "each single record", "subject": "each person with all their records"}
    whom = protected.get(result.privacy[0]["unit"], "each record")
    sentence = f"Privacy of {whom}: {epsilon_range(spent)}, {delta_range(result)}"
    if without := without_privacy(result):
        sentence += f"; but {count(without, 'silo has', 'silos have')} no privacy at all"
    if unproven_reasons(result):
        return f"{sentence}. It is NOT proven for what the run did."
    if result.experiment:
        return f"{sentence}, of an experiment: its noise came from seeds and protects nobody."
    return f"{sentence}. Proven."


def without_privacy(result: Result) -> int:
    """Number of silos without a budget."""
    return sum(math.isinf(epsilon) for epsilon in result.epsilons)


def epsilon_range(spent: Sequence[float]) -> str:
    """Range of epsilon over the silos that have a budget."""
    finite = [epsilon for epsilon in spent if math.isfinite(epsilon)]
    if one_budget(finite):
        return f"epsilon {budget(max(finite))}"
    return f"epsilon {budget(min(finite))} to {budget(max(finite))}, each silo its own"


def delta_range(result: Result) -> str:
    """Range of delta over the silos that have a budget."""
    deltas = [p["delta"] for p in result.privacy if math.isfinite(p["epsilon"])]
    low, high = small(min(deltas)), small(max(deltas))
    return f"delta {low}" if low == high else f"delta {low} to {high}"
