"""The tutorial (docs/tutorial.md) in Python: a table, policies, a plan, a run, what it says.

python examples/first_ten_minutes.py
"""

# %%
# A table to begin with: 2,090 made-up patients of twelve hospitals. Yours goes here.
from pathlib import Path
from typing import Any

from make_patients import make

import silodp

folder = Path("runs/patients")
folder.mkdir(parents=True, exist_ok=True)
table = make(folder / "patients.csv")

# %%
# What anybody would call possible is public. Features are scaled by it, and nothing has to be
# learned from the records beforehand.
schema = folder / "schema.toml"
schema.write_text("""
[bounds]
age = [0, 110]
pressure = [40, 250]
earlier_stays = [0, 10]
[levels]
ward = ["medicine", "surgery", "cardiology"]
[target]
range = [0, 30]
""")

# %%
# Each hospital sets its own budget. St Mary is stricter than the others.
policies = folder / "policies.toml"
policies.write_text("""
[default]
epsilon = 3
delta = 1e-4
[silos."St Mary"]
epsilon = 1
""")

options: dict[str, Any] = {
    "data": table,
    "silo_column": "hospital",
    "target": "days",
    "schema": schema,
    "policies": policies,
}

# %%
# Before anything is spent: what will each hospital be asked, and with how much noise?
(plans,) = silodp.plan(**options).plans
for plan in plans:
    print(f"{plan.silo:11s} {plan.total_steps:5d} steps, noise {plan.noise_multiplier:5.2f}")

# %%
# Train, with the default method and with the two ends between which it chooses.
results = {name: silodp.run(**options, method=name) for name in ("local", "fedavg", "ebmtl")}
for name, result in results.items():
    worst = max(result.per_silo, key=lambda silo: silo["mean"])
    print(f"{name:7s} test MSE {result.mean:.4f}; worst: {worst['silo']} with {worst['mean']:.4f}")

# %%
# An experiment, whose noise comes from a seed: would epsilon be proven for a release? What would
# each hospital spend? What was learned?
ours = results["ebmtl"]
assert ours.experiment
assert not ours.unproven, ours.unproven
print({silo["silo"]: round(silo["epsilon"], 3) for silo in ours.privacy})
print(*(ours.learned or {})["summary"], sep="\n")
