"""A result, read back: who gained, who spent what, and what is taken for granted.

python examples/read_a_result.py
"""

# %%
# Two runs, each written to a folder. `silodp run --out FOLDER` writes the same.
from pathlib import Path
from typing import Any

import silodp

folder = Path("runs/read")
options: dict[str, Any] = {
    "data": "synthetic",
    "silos": 6,
    "epsilon": 2.0,
    "rounds": 40,
    "seeds": 3,
}
for method in ("local", "ebmtl"):
    silodp.run(**options, method=method, out=folder / method, overwrite=True)

# %%
# One format for everything: `result.json`.
alone, together = (silodp.read_result(folder / method) for method in ("local", "ebmtl"))
print(f"{together.metric}: {alone.mean:.3f} alone, {together.mean:.3f} together")

# %%
# Silo by silo: is joining worth it for each?
for mine, ours in zip(alone.per_silo, together.per_silo, strict=True):
    gain = 1 - ours["mean"] / mine["mean"]
    print(f"{ours['silo']} ({ours['records']} records): {gain:.0%} less error than alone")

# %%
# What was spent, whether that is proven, and under which assumptions.
for silo in together.privacy:
    print(f"{silo['silo']}: epsilon {silo['epsilon']:.3f} at delta {silo['delta']:g}")
print("proven" if together.proven else together.unproven)
print(*together.assumptions, sep="\n")

# %%
# How the error came down, and the pictures of what `ebmtl` learned.
print([round(point["mean"], 3) for point in together.history[::5]])
print([path.name for path in silodp.draw_learned(together, folder / "pictures")])
