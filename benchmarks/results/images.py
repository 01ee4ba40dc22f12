"""Claims about images: Rotated & Masked MNIST, CIFAR-10."""

from benchmarks.results.numbers import (
    LABELS,
    Numbers,
    Outcome,
    Point,
    block,
    claim,
    judged,
    over_budgets,
    per_cent,
    table,
)

CLUSTERED, WARM, WARM_LOCAL = "ifca 20%", "ifca 20%+mrmtl", "ifca 20%+local"


def masked(numbers: Numbers) -> dict[float, dict[str, Point]]:
    """Of each mask level, each curve's point."""
    curves = numbers.curves()
    return {
        level: {curve: numbers.at(curve=curve, mask_ratio=level) for curve in curves}
        for level in numbers.different("mask_ratio")
    }


@block
def mnist() -> str:
    levels = masked(Numbers("figure6"))
    rows = [
        [LABELS[curve], *(points[curve] for points in levels.values())]
        for curve in next(iter(levels.values()))
    ]
    heads = ["no mask" if not level else f"{100 * level:g} % masked" for level in levels]
    return table(["test accuracy", *heads], rows)


@claim
def warm_start_matches_clusters() -> Outcome:
    points = masked(Numbers("figure6"))[0.0]
    warm, clusters, alone = points[WARM], points[CLUSTERED], points["mrmtl"]
    matches = abs(warm.mean - clusters.mean) < 0.01
    no_gain = points[WARM_LOCAL].mean - points["local"].mean < 0.5 * (warm.mean - alone.mean)
    return Outcome(
        judged(matches, no_gain),
        f"Without masks IFCA has {clusters}, MR-MTL after IFCA {warm}, MR-MTL alone {alone}. Local "
        f"training gains {per_cent(points[WARM_LOCAL], points['local'])} by the same warm start, "
        f"MR-MTL {per_cent(warm, alone)}.",
    )


@claim
def optimal_at_every_level() -> Outcome:
    levels = masked(Numbers("figure6"))
    rows, best, gains = [], [], []
    for level, points in levels.items():
        mine = max(points[WARM].mean, points["mrmtl"].mean)
        others = {c: p.mean for c, p in points.items() if c not in (WARM, "mrmtl", "ebmtl")}
        rival = max(others, key=lambda curve: others[curve])
        best.append(mine >= others[rival] - 0.005)
        gains.append(points[WARM].mean - points["mrmtl"].mean)
        shares = (f"{100 * share:.1f} %" for share in (mine, others[rival]))
        rows.append(
            [f"{100 * level:g} %", *shares, LABELS[rival], f"{100 * gains[-1]:+.1f}"],
        )
    shrinks = gains[-1] < gains[0]
    head = ["masked", "MR-MTL (the better of both)", "best of the others", "", "gain by warm start"]
    return Outcome(
        judged(*best, shrinks),
        f"MR-MTL is the best, or within half a point of it, at {sum(best)} of {len(best)} levels; "
        "what the warm start adds (in points) "
        f"{'shrinks' if shrinks else 'does not shrink'} from the first to the last:\n\n"
        + table(head, rows),
    )


@block
def cifar10() -> str:
    numbers = Numbers("figure3")
    return over_budgets(numbers, numbers.curves(panel="cifar10"), panel="cifar10")


@claim
def cifar10_finetuning() -> Outcome:
    numbers = Numbers("figure3")
    budgets = numbers.budgets(panel="cifar10")
    leads = [
        numbers.at(curve="finetune", epsilon=b, panel="cifar10").mean
        - numbers.at(curve="local", epsilon=b, panel="cifar10").mean
        for b in budgets
    ]
    said = ", ".join(
        f"{100 * lead:+.1f} points at epsilon {budget:g}"
        for lead, budget in zip(leads, budgets, strict=True)
    )
    return Outcome(
        judged(*(lead > 0 for lead in leads)),
        f"Finetuning against local training: {said}.",
    )


@claim
def cifar10_between_the_ends() -> Outcome:
    numbers = Numbers("figure3")
    said, ahead = [], []
    for budget in numbers.budgets(panel="cifar10"):
        of = {"epsilon": budget, "panel": "cifar10"}
        mine = numbers.at(curve="mrmtl", **of)
        name, better = numbers.best(("local", "fedavg"), **of)
        ahead.append(mine.ahead_of(better))
        lam = numbers.row(curve="mrmtl", **of)["lam"]
        points = f"{100 * mine.lead(better):+.1f} points over {LABELS[name]}"
        said.append(f"{points} at epsilon {budget:g} (lambda {lam:g})")
    return Outcome(judged(*ahead), f"MR-MTL: {', '.join(said)}.")
