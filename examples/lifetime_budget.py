"""Two clinics with a budget for life: runs are charged to their ledgers until one does not fit.

python examples/lifetime_budget.py
"""

# %%
# A budget for one run, and one for all runs together.
import tempfile
from pathlib import Path

import silodp

POLICIES = """
[default]
epsilon = 1                # of one run
delta = 1e-4
lifetime_epsilon = 1.8     # of all runs together

[silos.silo-02]            # this clinic allows more
lifetime_epsilon = 3
"""


# %%
# Every run reserves what it may take of both ledgers before it starts. However the next one is
# chosen after seeing the last, neither clinic ever releases more than its lifetime allows.
def main() -> None:
    """Trains until a clinic refuses; then prints what each has spent."""
    with tempfile.TemporaryDirectory() as folder:
        policies, ledger = Path(folder) / "policies.toml", Path(folder) / "ledgers"
        policies.write_text(POLICIES)
        options = {"data": "synthetic", "silos": 2, "rounds": 20, "policies": policies}

        for plan in silodp.plan(**options).plans[0]:
            print(f"{plan.silo}: {plan.total_steps} steps, noise {plan.noise_multiplier:.2f}")
        for number in range(1, 10):
            try:
                result = silodp.run(**options, ledger=ledger)
            except silodp.SilodpError as refusal:
                print(f"run {number} is refused: {refusal}")
                break
            print(f"run {number}: test error {result.mean:.3f}")
        for silo in ("silo-01", "silo-02"):
            left = silodp.remaining(ledger, silo)
            print(
                f"{silo}: spent epsilon {left['spent_epsilon']:.2f} of "
                f"{left['lifetime_epsilon']:g}; {left['left_share']:.0%} of its lifetime is left"
            )


if __name__ == "__main__":
    main()
