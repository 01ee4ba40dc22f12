"""A data set of one's own with a name: drawn by a seed, its defaults with it, run like any other.

python examples/own_data_set.py
"""

# %%
# A data set is a function from a seed and options to a federation. Here twelve orchards predict
# their yield from rain and sun; read files in its place.
import numpy as np

import silodp
from silodp.data import coins
from silodp.data.registry import SOURCES, DataOptions, DataSource, Defaults
from silodp.data.split import coin_split


def read(seed: int, options: DataOptions) -> silodp.Federation:
    """The orchards; the seed tosses the coins of the split, never how many records there are."""
    weather = np.random.default_rng(1)  # the same for every seed: these are the records
    silos = []
    for number in range(options.silos or 12):
        x = weather.uniform(-1, 1, (100, 2))
        y = x @ (0.3 + 0.1 * weather.normal(size=2)) + 0.1 * weather.normal(size=100)
        name, records = f"orchard {number + 1}", silodp.Records(x, y)
        # A coin for each record: a permutation of all would be covered by no epsilon.
        parts = coin_split(name, records, coins.of_arrays(x, y), 0.2, seed)
        silos.append(silodp.Silo(name, parts.train, parts.test, expected=parts.expected))
    return silodp.Federation("orchards", tuple(silos), "regression", feature_names=("rain", "sun"))


# %%
# Beside it stands what a user should know, and the training settings that fit.
SOURCES["orchards"] = DataSource(
    name="orchards",
    summary="yield of twelve orchards (regression, 2 features; drawn)",
    citation="made up",
    licence="none needed",
    files=(),
    defaults=Defaults(
        model="linear",
        rounds=40,
        batch_size=16,
        clip=1.0,
        lr=0.1,
        delta=1e-3,
        preprocess="none",
    ),
    preprocessings=("none",),
    takes=frozenset({"silos"}),
    read=read,
)

# %%
# From here on it has a name, its defaults, and every check that other data sets have.
for method in ("local", "ebmtl"):
    result = silodp.run(data="orchards", method=method, epsilon=2.0, seeds=3)
    print(f"{method:7s} test MSE {result.mean:.4f} ± {result.std:.4f}")
