"""Three clinics with records of their own, three budgets, and a model for each.

python examples/own_data.py
"""

# %%
# Each clinic sets its own budget, in a file of policies.
import tempfile
from pathlib import Path

import numpy as np

import silodp

POLICIES = """
[default]
delta = 1e-4
[silos.north]
epsilon = 1
[silos.south]
epsilon = 3
[silos.west]
epsilon = 10
"""


# %%
# Records are arrays: features, and what is to be predicted. Training and test are set apart by you.
def clinic(name: str, patients: int, effect: float, seed: int) -> silodp.Silo:
    """A clinic whose patients' outcome depends on two measurements, a little in its own way."""
    rng = np.random.default_rng(seed)

    def records(n: int) -> silodp.Records:
        x = rng.normal(size=(n, 2))
        return silodp.Records(x, x @ [1.0, effect] + 0.2 * rng.normal(size=n))

    return silodp.Silo(name, train=records(patients), test=records(100))


# %%
# They train together; each gets a model of its own.
def main() -> None:
    """Trains with every silo's own budget, and prints what each silo got for it."""
    federation = silodp.Federation(
        "clinics",
        (clinic("north", 200, 0.4, 1), clinic("south", 300, 0.5, 2), clinic("west", 400, 0.7, 3)),
        task="regression",
    )
    with tempfile.TemporaryDirectory() as folder:
        policies = Path(folder) / "policies.toml"
        policies.write_text(POLICIES, encoding="utf-8")
        result = silodp.run(
            federation=federation,
            method="mrmtl",
            lam=0.1,
            policies=policies,
            rounds=30,
            keep_models=True,
        )
    for number, (silo, spent) in enumerate(zip(result.per_silo, result.privacy, strict=True)):
        weights = result.models[0, number]  # [seed, silo]: two weights and the bias
        print(
            f"{silo['silo']:6s} epsilon {spent['epsilon']:.2f}  test MSE {silo['mean']:.3f}  "
            f"weights {np.round(weights, 2)}"
        )


if __name__ == "__main__":
    main()
