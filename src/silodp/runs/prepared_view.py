"""A plan as a line, as a table in a notebook, and as a DataFrame."""

from typing import TYPE_CHECKING

import pandas as pd

from silodp.base.html_table import html_table
from silodp.base.text import shown

if TYPE_CHECKING:
    from silodp.runs.prepare import Prepared


def prepared_in_a_line(prepared: "Prepared") -> str:
    """What would be trained, how often, and at what epsilon."""
    spec, federation = prepared.specs[0], prepared.federations[0]
    settings, silos = len(prepared.specs), len(federation.silos)
    low, high = (f"{one(plan.epsilon for plan in spec.plans):.3g}" for one in (min, max))
    return (
        f"Prepared({spec.request.method} on {shown(federation.name)}: {silos} "
        f"silo{'s' * (silos != 1)}, {settings} setting{'s' * (settings != 1)}, {spec.rounds} "
        f"rounds, epsilon {low if low == high else f'{low} to {high}'}; nothing is trained yet)"
    )


def prepared_as_html(prepared: "Prepared") -> str:
    """A table of the silos' plans (of the first setting) below that line."""
    frame = prepared_by_silo(prepared, 0).reset_index()
    rows = [
        [f"{value:.4g}" if isinstance(value, float) else value for value in row]
        for row in frame.itertuples(index=False)
    ]
    return html_table(prepared_in_a_line(prepared), list(frame.columns), rows, prepared.warnings)


def prepared_by_silo(prepared: "Prepared", number: int) -> pd.DataFrame:
    """A row for each silo: its records, how they are drawn, its noise and its epsilon."""
    rows = [
        {
            "silo": plan.silo,
            "records": plan.public_count if policy.count_is_public else None,
            "sampling_rate": plan.sampling_rate,
            "steps": plan.total_steps,
            "noise_multiplier": plan.noise_multiplier,
            "epsilon": plan.epsilon,
            "delta": plan.delta,
        }
        for plan, policy in zip(
            prepared.plans[number], prepared.specs[number].policies, strict=True
        )
    ]
    return pd.DataFrame(rows).set_index("silo")
