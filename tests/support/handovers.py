"""Tables, runs and the rows that a run tested on, for tests of models that are taken home."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import silodp
from silodp.data.split import train_test_split
from silodp.data.tables.files import in_order
from silodp.results.model_export.card import read_card

AGE, WARD = 'the "age",\nin years', "ward; or 'unit'"
NASTY = ("<script>alert(1)</script>", "../../x", "a\nb", "=cmd()")
RUN = {"rounds": 3, "batch_size": 16, "lr": 0.1, "epsilon": 4.0, "delta": 1e-3, "method": "mrmtl"}


def patients(silos=("north", "south"), rows=60, seed=0):
    """Rows of all silos: two numbers, two categories, and targets of every kind."""
    rng = np.random.default_rng(seed)
    n = rows * len(silos)
    frame = pd.DataFrame(
        {
            "site": np.repeat(silos, rows),
            AGE: rng.uniform(20, 80, n),
            "dose": rng.integers(0, 9, n),
            WARD: rng.choice(["x", "y", "w"], n),
            "smoker": rng.choice([True, False], n),
        }
    )
    score = frame[AGE] - 3 * frame["dose"] + 10 * (frame[WARD] == "x") + rng.normal(0, 2, n)
    return frame.assign(
        score=score,
        ill=np.where(score > score.median(), "yes", "no"),
        grade=np.digitize(score, np.quantile(score, [0.3, 0.6])),
    )


TARGETS = ("score", "ill", "grade")
DECLARED = {
    "bounds": {AGE: [0, 120], "dose": [0, 10]},
    "levels": {WARD: ["x", "y", "w"], "smoker": ["False", "True"]},
}


def schema_file(folder, **target):
    """With DECLARED, and the range or the classes of the target."""
    lines = []
    for section, values in (*DECLARED.items(), ("target", target)):
        lines += [
            f"[{section}]",
            *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in values.items()),
        ]
    path = folder / "schema.toml"
    path.write_text("\n".join(lines))
    return path


def trained(frame, folder, target="score", declared=None, **options):
    """The result of a run on these rows, with models in folder / "run".

    With `declared` (of the target), columns are declared too.
    """
    if declared is not None:
        options["schema"] = schema_file(folder, **declared)
    table = folder / "patients.csv"
    frame.to_csv(table, index=False)
    ignore = [name for name in TARGETS if name != target]
    asked = {"data": str(table), "silo_column": "site", "target": target, "ignore": ignore}
    asked["split"] = "paper"  # which `own_test_rows` can follow by the place of rows alone
    return silodp.run(**RUN | asked | options, keep_models=True, out=folder / "run")


def handed(folder, silo):
    """Where a run's hand-over to a silo is."""
    return read_card(folder / "run", silo).path.parent


def own_test_rows(frame, silo, seed=0, test_fraction=0.2):
    """The silo's own rows that a run of this seed tested on."""
    own = frame[frame["site"].astype(str) == silo]
    return own.iloc[train_test_split(len(own), test_fraction, seed)[1]]


def silos_of(frame):
    return in_order(set(frame["site"]))


def loaded_from_memory(result, **more):
    """The models of a result, written and read."""
    with tempfile.TemporaryDirectory() as folder:
        result.write(Path(folder))
        return [silodp.load_model(folder, silo=silo["silo"], **more) for silo in result.per_silo]
