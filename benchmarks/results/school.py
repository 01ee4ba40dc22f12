"""Claims about School: where MR-MTL gains, how lambda moves, what less data change."""

import math
from itertools import pairwise

from benchmarks.results.numbers import (
    LABELS,
    Numbers,
    Outcome,
    block,
    budgets_where,
    claim,
    judged,
    listed,
    over_budgets,
    per_cent,
    table,
)

OTHERS = ("finetune", "ditto", "mocha", "ifca 10%")


@block
def school_paper() -> str:
    numbers = Numbers("school")
    return over_budgets(numbers, numbers.curves(panel="paper"), panel="paper")


@block
def school_bounds() -> str:
    numbers = Numbers("school")
    return over_budgets(numbers, numbers.curves(panel="bounds"), panel="bounds")


@claim
def between_the_ends() -> Outcome:
    numbers = Numbers("school")
    of = {"panel": "paper"}
    wins = budgets_where(numbers, "mrmtl", "local", "fedavg", **of)
    six = {c: numbers.at(curve=c, epsilon=6, **of) for c in ("local", "fedavg", "mrmtl")}
    better = min(six["local"], six["fedavg"], key=lambda point: point.mean)
    return Outcome(
        judged(6 in wins),
        f"At epsilon 6 MR-MTL has {six['mrmtl']}, local training {six['local']}, FedAvg "
        f"{six['fedavg']}: {per_cent(six['mrmtl'], better)} below the better end. It is ahead of "
        f"both at epsilon {listed(wins)}.",
    )


@claim
def strong_privacy() -> Outcome:
    numbers = Numbers("school")
    of = {"panel": "paper"}
    behind = budgets_where(numbers, "fedavg", "mrmtl", **of)
    one = [numbers.at(curve=c, epsilon=1, **of) for c in ("mrmtl", "fedavg", "meanpull")]
    return Outcome(
        judged(bool(behind)),
        f"FedAvg is ahead of MR-MTL at epsilon {listed(behind)} (at 1: {one[1]} against {one[0]}): "
        "lambda in a gradient step cannot grow without end. Mean pull, the same idea as a step "
        f"of its own, has {one[2]} there.",
    )


@claim
def baselines() -> Outcome:
    numbers = Numbers("school")
    of = {"panel": "paper"}
    wins = {c: budgets_where(numbers, "mrmtl", c, **of) for c in OTHERS}
    budgets = numbers.budgets(**of)
    loses = {c: budgets_where(numbers, c, "mrmtl", **of) for c in OTHERS}
    said = "; ".join(
        f"{LABELS[c]}: ahead at {listed(wins[c])}, behind at {listed(loses[c])}" for c in OTHERS
    )
    return Outcome(
        judged(*(len(own) == len(budgets) for own in wins.values())),
        f"MR-MTL against the others, by epsilon (of {listed(budgets)}): {said}.",
    )


@claim
def lambda_falls() -> Outcome:
    parts, falling = [], []
    for name, panel in (("bumps-school", "school"), ("bumps-vehicle", "vehicle")):
        numbers = Numbers(name)
        stars = sorted(
            numbers.select(curve="mrmtl", star=True, panel=panel), key=lambda row: row["epsilon"]
        )
        lams = [row["lam"] for row in stars]
        falling.append(all(b <= a for a, b in pairwise(lams)) and lams[0] > lams[-1])
        heads = ["none" if math.isinf(row["epsilon"]) else f"{row['epsilon']:g}" for row in stars]
        cells = [f"{lam:g}" for lam in lams]
        parts.append(table([f"{panel.capitalize()}, epsilon", *heads], [["best lambda", *cells]]))
    of_data = [
        f"{name} it {'never grows with epsilon' if falls else 'does not fall at every step'}"
        for name, falls in zip(("On School", "on our part of Vehicle"), falling, strict=True)
    ]
    return Outcome(judged(*falling), f"{', '.join(of_data)}:\n\n" + "\n\n".join(parts))


@claim
def advantages() -> Outcome:
    numbers = Numbers("school")
    of = {"panel": "paper"}
    budgets = [budget for budget in numbers.budgets(**of) if budget >= 1]
    leads = {
        end: [
            numbers.at(curve="mrmtl", epsilon=b, **of).lead(numbers.at(curve=end, epsilon=b, **of))
            for b in budgets
        ]
        for end in ("fedavg", "local")
    }
    grows = all(b >= a for a, b in pairwise(leads["fedavg"]))
    shrinks = all(b <= a for a, b in pairwise(leads["local"]))
    rows = [[f"over {LABELS[end]}", *(f"{lead:+.5f}" for lead in leads[end])] for end in leads]
    return Outcome(
        judged(grows, shrinks),
        "MR-MTL's lead in test MSE:\n\n"
        + table(["epsilon", *(f"{budget:g}" for budget in budgets)], rows),
    )


@claim
def larger_with_privacy() -> Outcome:
    rows, private_larger = [], []
    for name, panel, epsilon in (("school", "paper", 6.0), ("figure5", "vehicle", 0.5)):
        numbers = Numbers(name)
        leads = []
        for budget in (epsilon, math.inf):
            best = {} if name == "school" else {"star": True}
            row = numbers.row(curve="mrmtl", epsilon=budget, panel=panel, **best)
            sign = 1 if row["metric"] == "mse" else -1
            ends = [
                numbers.at(curve=end, epsilon=budget, panel=panel).mean
                for end in ("local", "fedavg")
            ]
            leads.append(sign * (min(ends, key=lambda v: sign * v) - row["mean"]))
        private_larger.append(leads[0] > leads[1])
        title = "School" if name == "school" else "Vehicle"
        rows.append([f"{title}, epsilon {epsilon:g}", *(f"{lead:+.5f}" for lead in leads)])
    return Outcome(
        judged(*private_larger),
        "MR-MTL's lead over the better end (MSE, accuracy):\n\n"
        + table(["", "private", "non-private"], rows),
    )


@claim
def less_data() -> Outcome:
    numbers = Numbers("school-splits")
    rows, crossings, wins = [], [], {}
    for panel in ("train-80", "train-50", "train-20"):
        budgets = numbers.budgets(panel=panel)
        crossing = next(
            (
                b
                for b in budgets
                if numbers.at(curve="local", epsilon=b, panel=panel).lead(
                    numbers.at(curve="fedavg", epsilon=b, panel=panel)
                )
                > 0
            ),
            math.inf,
        )
        crossings.append(crossing)
        wins[panel] = budgets_where(numbers, "mrmtl", "local", "fedavg", panel=panel)
        six = [numbers.at(curve=c, epsilon=6, panel=panel) for c in ("local", "fedavg", "mrmtl")]
        where = "nowhere up to 10" if math.isinf(crossing) else f"from {crossing:g} on"
        rows.append([f"{panel.removeprefix('train-')} %", *six, where, listed(wins[panel])])
    shifts = all(b >= a for a, b in pairwise(crossings)) and crossings[-1] > crossings[0]
    head = [
        "for training",
        "local",
        "FedAvg",
        "MR-MTL",
        "local ahead of FedAvg",
        "MR-MTL ahead of both",
    ]
    return Outcome(
        judged(shifts, len(wins["train-20"]) < len(wins["train-80"])),
        "At epsilon 6, and over all budgets:\n\n" + table(head, rows),
    )
