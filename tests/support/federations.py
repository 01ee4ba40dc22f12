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


def two_kinds():
    """Four silos, two of a kind, the kinds being opposites."""
    silos = []
    for number, sign in enumerate((1, -1, 1, -1)):
        one = small(sizes=(50,), seed=number).silos[0]
        truth = sign * np.arange(1.0, 5.0) / 4 + 0.05 * number
        parts = [Records(part.x, part.x @ truth) for part in (one.train, one.test)]
        silos.append(Silo(f"silo {number}", *parts))
    return Federation("kinds", tuple(silos), "regression")


def images(sizes=(30, 41), side=10, channels=1, classes=3, subjects=False, pixels=(0.0, 1.0)):
    """A few silos with images, in one byte a value."""
    rng = np.random.default_rng(0)

    def records(n, subject=None):
        y = np.arange(n) % classes
        x = rng.integers(0, 200, (n, side, side, channels))
        x[np.arange(n), y, y] = 255
        return Records(x.astype(np.uint8), y, subject)

    return Federation(
        "images",
        tuple(
            Silo(f"silo {k}", records(n, np.arange(n) // 2 if subjects else None), records(12))
            for k, n in enumerate(sizes)
        ),
        "multiclass",
        num_classes=classes,
        pixels=pixels,
    )
