"""Policies: what each silo may ask for, and what that costs it in noise.

python examples/own_policies.py
"""

# %%
# A folder with a file for each silo, named after it: so each file can stay with its silo. Whoever
# has none takes `default.toml`.
from pathlib import Path
from typing import Any

import silodp

POLICIES = {
    "default": "epsilon = 3\ndelta = 1e-4",
    # Stricter, and with a limit for all runs together.
    "silo-01": "epsilon = 1\ndelta = 1e-4\nlifetime_epsilon = 2",
    # One record exchanged for another, instead of one more or less: about twice the noise.
    "silo-02": 'epsilon = 3\ndelta = 1e-4\nrelation = "replace-one"',
    # The number of records is secret: a public stand-in takes its place.
    "silo-03": 'epsilon = 3\ndelta = 1e-4\nrecords = 300\npublic = ["label range"]',
}
folder = Path("runs/policies")
folder.mkdir(parents=True, exist_ok=True)
for silo, lines in POLICIES.items():
    (folder / f"{silo}.toml").write_text(lines)

# %%
# The plan says what each of them comes to, before anything is spent. Silos whose record count is
# secret cannot be weighed by it.
options: dict[str, Any] = {"data": "synthetic", "silos": 4, "policies": folder}
(plans,) = silodp.plan(**options, weights="uniform").plans
for plan in plans:
    told = plan.statement()
    print(
        f"{told['silo']}: epsilon {told['epsilon']:.2f}, {told['relation']}, "
        f"rate {told['sampling_rate']:.3f}, noise {told['noise_multiplier']:.2f}"
    )

# %%
# What a policy does not allow is refused, with a sentence that says what to change.
try:
    silodp.plan(**options, weights="records")
except silodp.SilodpError as refusal:
    print(f"refused: {refusal}")

# %%
# All of them train together, each with its own noise.
result = silodp.run(**options, weights="uniform", rounds=30)
for silo, spent in zip(result.per_silo, result.privacy, strict=True):
    print(f"{silo['silo']}: spent {spent['epsilon']:.2f}, test MSE {silo['mean']:.3f}")
