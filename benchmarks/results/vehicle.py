"""Claims about Vehicle, of which a part is at hand."""

import math

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
    table,
)


@claim
def noise_cancels() -> Outcome:
    numbers = Numbers("figure2")
    last = numbers.different("x")[-1]
    points = {
        (curve, budget): numbers.at(curve=curve, epsilon=budget, x=last)
        for curve in ("local", "fedavg")
        for budget in (0.5, 1.0, math.inf)
    }
    private = all(points["fedavg", b].ahead_of(points["local", b]) for b in (0.5, 1.0))
    without = points["local", math.inf].lead(points["fedavg", math.inf]) > 0
    return Outcome(
        judged(private, without),
        "After the last round:\n\n"
        + table(
            ["test accuracy", "epsilon 0.5", "epsilon 1", "non-private"],
            [
                [LABELS[curve], *(points[curve, b] for b in (0.5, 1.0, math.inf))]
                for curve in ("local", "fedavg")
            ],
        ),
    )


@claim
def finetuning_loses() -> Outcome:
    numbers = Numbers("finetuning")
    last, rows, widens, falls = numbers.different("x")[-1], [], [], []
    for fraction in (0.25, 0.5, 0.75):
        of = {"curve": "finetune", "finetune_fraction": fraction}
        switch = max(x for x in numbers.different("x") if x <= fraction * last)
        for budget in numbers.budgets():
            private, without = of | {"epsilon": budget}, of | {"epsilon": math.inf}
            gaps = [
                numbers.at(x=x, **without).mean - numbers.at(x=x, **private).mean
                for x in (switch, last)
            ]
            end = numbers.at(epsilon=budget, x=last, **of)
            local, fedavg = (
                numbers.at(curve=curve, epsilon=budget, x=last) for curve in ("local", "fedavg")
            )
            widens.append(gaps[1] > gaps[0])
            falls.append(abs(end.mean - local.mean) < abs(end.mean - fedavg.mean))
            told = (f"{100 * gap:.1f}" for gap in gaps)
            rows.append([f"{100 * fraction:g} %", f"{budget:g}", *told, end, local, fedavg])
    head = [
        "from",
        "epsilon",
        "gap at the switch",
        "gap at the end",
        "finetuning",
        "local",
        "FedAvg",
    ]
    return Outcome(
        judged(*widens),
        f"The gap between non-private and private finetuning (in points) widens in {sum(widens)} "
        f"of {len(widens)} settings, and it ends nearer to local training than to FedAvg in "
        f"{sum(falls)}:\n\n" + table(head, rows),
    )


@claim
def large_budgets() -> Outcome:
    numbers = Numbers("large-budgets")
    budgets = numbers.budgets()
    lead = [
        numbers.at(curve="local", epsilon=b).lead(numbers.at(curve="fedavg", epsilon=b))
        for b in budgets
    ]
    grows = lead[-1] > lead[0]
    ahead = budgets_where(numbers, "mrmtl", "fedavg")
    curves = ("local", "fedavg", "ifca 10%", "mrmtl", "ebmtl")
    return Outcome(
        judged(grows, budgets[-1] in ahead),
        f"Local training gains on FedAvg by {100 * (lead[-1] - lead[0]):.1f} points from epsilon "
        f"{budgets[0]:g} to {budgets[-1]:g}; MR-MTL is ahead of FedAvg at {listed(ahead)}.\n\n"
        + over_budgets(numbers, curves),
    )


@block
def vehicle_tradeoffs() -> str:
    numbers = Numbers("figure3")
    return over_budgets(numbers, numbers.curves(panel="vehicle"), panel="vehicle")
