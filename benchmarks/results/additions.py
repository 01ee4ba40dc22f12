"""Where our additions move the frontier."""

from benchmarks.results.numbers import (
    LABELS,
    Numbers,
    block,
    table,
)


@block
def additions() -> str:
    numbers = Numbers("additions")
    budgets = numbers.budgets()
    steps = [
        ("MR-MTL: RDP, pull inside the clip", "rdp-inside", "mrmtl"),
        ("MR-MTL: PLD, inside", "pld-inside", "mrmtl"),
        ("MR-MTL: PLD, outside", "ours", "mrmtl"),
        ("mean pull", "ours", "meanpull"),
        ("EB-MTL, nothing to tune but the learning rate", "ours", "ebmtl"),
    ]
    rows = [
        [label, *(numbers.at(curve=curve, panel=panel, epsilon=b) for b in budgets)]
        for label, panel, curve in steps
    ]
    return table(["epsilon", *(f"{b:g}" for b in budgets)], rows)


@block
def noise_of_accountants() -> str:
    numbers = Numbers("additions-settings")
    budgets = numbers.budgets()
    rows = []
    for label, panel in (("RDP", "rdp-inside"), ("PLD (the tighter of both)", "pld-inside")):
        noise = [
            numbers.select(panel=panel, method="local", epsilon=budget)[0]["noise_multiplier"]
            for budget in budgets
        ]
        rows.append([label, *(f"{value:.3f}" for value in noise)])
    return table(["epsilon", *(f"{budget:g}" for budget in budgets)], rows)


@block
def ebmtl_against_all() -> str:
    numbers = Numbers("school")
    rows = []
    for panel, label in (("paper", "paper's scaling"), ("bounds", "public bounds")):
        cells = []
        for budget in numbers.budgets(panel=panel):
            mine = numbers.at(curve="ebmtl", epsilon=budget, panel=panel)
            others = [c for c in numbers.curves(panel=panel) if c not in ("ebmtl", "meanpull")]
            name, best = numbers.best(others, epsilon=budget, panel=panel)
            lower = 100 * (best.mean - mine.mean) / best.mean
            cells.append(f"{lower:+.1f} % ({LABELS[name]})")
        rows.append([label, *cells])
    return table(["epsilon", *(f"{b:g}" for b in numbers.budgets(panel="paper"))], rows)
