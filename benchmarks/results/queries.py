"""Claims about what queries beyond training, and tuning, cost."""

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
    parts, better, worse = [], 0, 0
    for panel in ("school", "vehicle"):
        budgets = numbers.budgets(panel=panel)
        ratios = [
            float(numbers.row(curve="ditto", epsilon=b, panel=panel)["noise_multiplier"])
            / float(numbers.row(curve="mrmtl", epsilon=b, panel=panel)["noise_multiplier"])
            for b in budgets
        ]
        ahead = budgets_where(numbers, "mrmtl", "ditto", panel=panel)
        behind = budgets_where(numbers, "ditto", "mrmtl", panel=panel)
        better, worse = better + len(ahead), worse + len(behind)
        parts.append(
            f"{panel.capitalize()}: {min(ratios):.2f} to {max(ratios):.2f} times the noise; MR-MTL "
            f"is ahead at epsilon {listed(ahead)}, behind at {listed(behind)} (of "
            f"{listed(budgets)})."
        )
    return Outcome(judged(better > 0, worse == 0), " ".join(parts))


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
                [f"{panel.capitalize()}, {budget:g}", *(f"{n:.3g}" for n in noise), *points]
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
        curves = {
            curve: [row["error"] for row in numbers.select(curve=curve, panel=panel)]
            for curve in numbers.different("curve", panel=panel)
        }
        private = sorted(
            (row["lambda"], row["error"]) for row in numbers.select(curve="Private", panel=panel)
        )
        end = min(private[0][1], private[-1][1])
        tuned = [min(own) for curve, own in curves.items() if "TNB" in curve or "Poisson" in curve]
        paying = sum(error < end for error in tuned)
        outweighed += paying < len(tuned)
        tau = numbers.different("tau", panel=panel)[0]
        told = (min(curves["Private"]), end, min(tuned), max(tuned))
        untuned, ends, least, most = (f"{1000 * error:.3g}" for error in told)
        parts.append(
            f"({panel}) tau {tau:g}: {untuned} at the best lambda, {ends} at the better end, "
            f"{least} to {most} tuned; tuning pays for {paying} of {len(tuned)} protocols."
        )
    said = "Errors in thousandths. " + " ".join(parts)
    return Outcome(judged(outweighed > 0), said)
