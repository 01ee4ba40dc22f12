"""Small federations for tests."""

import numpy as np

from silodp import Federation, Records, Silo


def small(task="regression", sizes=(40, 70, 55), d=4, classes=3, seed=0, test=20) -> Federation:
    """A few silos with linear truths that differ from silo to silo."""
    rng = np.random.default_rng(seed)
    shape = (d, classes) if task == "multiclass" else (d,)
    theta = rng.normal(size=shape)

    def records(n, w):
        x = rng.normal(size=(n, d)).astype(np.float32)
        out = x @ w
        if task == "regression":
            return Records(x, out + 0.1 * rng.normal(size=n))
        if task == "binary":
            return Records(x, np.where(out > 0, 1.0, -1.0))
        return Records(x, out.argmax(1))

    silos = []
    for number, n in enumerate(sizes):
        w = theta + 0.3 * rng.normal(size=shape)
        silos.append(Silo(f"silo {number}", records(n, w), records(test, w)))
    return Federation("small", tuple(silos), task, classes if task == "multiclass" else 0)
