"""Makes up a table of patients of twelve hospitals, for whoever has no table at hand.

python examples/make_patients.py            writes patients.csv
"""

# %%
# Hospitals differ in size, and a little in what keeps their patients longer.
import sys
from pathlib import Path

import numpy as np
import pandas as pd

HOSPITALS = {
    **{"St Mary": 80, "Lakeside": 90, "Mill Road": 100, "Old Town": 110},
    **{"Harbour": 120, "Hillview": 130, "Riverbank": 150, "Westgate": 170},
    **{"Green Park": 200, "Northern": 240, "Royal": 300, "University": 400},
}
WARDS = np.array(["medicine", "surgery", "cardiology"])


def patients(hospital: str, count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Patients of one hospital, each with the days of their stay."""
    age = rng.integers(18, 96, count)
    pressure = np.clip(rng.normal(130, 20, count).round(), 60, 220).astype(int)
    ward = rng.integers(3, size=count)
    earlier_stays = np.minimum(rng.poisson(1, count), 10)
    own = 1.5 * rng.normal(size=4)  # what is special about this hospital
    days = (
        (9 + own[0])
        + (4 + own[1]) * (age - 57) / 40
        + (2 + own[2]) * (pressure - 130) / 40
        + (3 + own[3]) * (WARDS[ward] == "cardiology")
        + (earlier_stays - 1)
        + 2.5 * rng.normal(size=count)
    )
    return pd.DataFrame(
        {
            "hospital": hospital,
            "age": age,
            "pressure": pressure,
            "ward": WARDS[ward],
            "earlier_stays": earlier_stays,
            "days": np.clip(days, 0, 30).round().astype(int),
        }
    )


# %%
# The same patients every time: all that is random comes from one seed.
def make(path: Path) -> Path:
    """Writes the table."""
    rng = np.random.default_rng(7)
    table = pd.concat([patients(name, count, rng) for name, count in HOSPITALS.items()])
    table.to_csv(path, index=False)
    print(f"{path}: {len(table)} patients of {len(HOSPITALS)} hospitals")
    return path


if __name__ == "__main__":
    make(Path(sys.argv[1] if len(sys.argv) > 1 else "patients.csv"))
