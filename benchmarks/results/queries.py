"""Claims about what queries beyond training, and tuning, cost."""

import math

from benchmarks.results.numbers import (
    Numbers,
    Outcome,
    budgets_where,
    claim,
    judged,
    listed,
    table,
)


@claim
def ditto_pays() -> Outcome:
    numbers = Numbers("figure4")
    parts, holds = [], []
    for panel in ("school", "vehicle"):
        budgets = numbers.budgets(panel=panel)
        ratios = [
            float(numbers.row(curve="ditto", epsilon=b, panel=panel)["noise_multiplier"])
            / float(numbers.row(curve="mrmtl", epsilon=b, panel=panel)["noise_multiplier"])
            for b in budgets
        ]
        ahead = budgets_where(numbers, "mrmtl", "ditto", panel=panel)
        behind = budgets_where(numbers, "ditto", "mrmtl", panel=panel)
        holds.append(bool(ahead) and not behind)
        parts.append(
            f"{panel.capitalize()}: {min(ratios):.2f} to {max(ratios):.2f} times the noise; MR-MTL "
            f"is ahead at epsilon {listed(ahead)}, behind at {listed(behind)} (of "
            f"{listed(budgets)})."
        )
    return Outcome(judged(*holds), " ".join(parts))


@claim
def selection_in_every_round() -> Outcome:
    numbers = Numbers("figure4")
    rows, dearer = [], []
    for panel in ("school", "vehicle"):
        for budget in numbers.budgets(panel=panel):
            own = [
                numbers.row(curve=curve, epsilon=budget, panel=panel)
                for curve in ("fedavg", "ifca 10%", "ifca every round")
            ]
            noise = [float(row["noise_multiplier"]) for row in own]
            points = [
                numbers.at(curve=str(row["curve"]), epsilon=budget, panel=panel) for row in own
            ]
            dearer.append(noise[2] > 1.2 * noise[1] and points[1].lead(points[2]) > 0)
            rows.append(
                [f"{panel.capitalize()}, {budget:g}", *(f"{n:.4g}" for n in noise), *points]
            )
    head = ["epsilon", "noise: FedAvg", "IFCA 10 %", "every round"]
    return Outcome(
        judged(*dearer),
        "Noise multiplier (median silo) and test metric:\n\n"
        + table([*head, "metric: FedAvg", "IFCA 10 %", "every round"], rows),
    )


@claim
def cost_of_tuning() -> Outcome:
    numbers = Numbers("figure7")
    parts, outweighed = [], 0
    for panel in numbers.different("panel"):
        least: dict[str, float] = {}
        for row in numbers.select(panel=panel):
            least[row["curve"]] = min(row["error"], least.get(row["curve"], math.inf))
        untuned = sorted(
            (row["lambda"], row["error"]) for row in numbers.select(curve="private", panel=panel)
        )
        end = min(untuned[0][1], untuned[-1][1])
        tuned = [error for curve, error in least.items() if curve.startswith("tuned")]
        paying = sum(error < end for error in tuned)
        outweighed += paying < len(tuned)
        tau = numbers.different("tau", panel=panel)[0]
        told = (least["private"], end, min(tuned), max(tuned))
        best, better_end, cheapest, dearest = (f"{1000 * error:.3g}" for error in told)
        parts.append(
            f"({panel}) tau {tau:g}: {best} at the best lambda, {better_end} at the better end, "
            f"{cheapest} to {dearest} tuned; tuning pays for {paying} of {len(tuned)} protocols."
        )
    said = "Errors in thousandths. " + " ".join(parts)
    return Outcome(judged(outweighed > 0), said)
