"""MR-MTL with DP-SGD in plain NumPy: slow, and meant to be read beside Algorithm A1 of the paper.

The noise multiplier is an input here; `silodp` works it out from each silo's own budget.

python examples/plain_mrmtl.py
"""

# %%
# A silo's pass: DP-SGD, with a pull towards the mean (line 6 of the algorithm).
import numpy as np


def dp_sgd(w, mean, x, y, lam, lr, clip, noise, batch, rng):
    """One local epoch: w is pulled towards the mean of all silos with strength lambda."""
    n = len(y)
    for _ in range(n // batch):
        drawn = rng.random(n) < batch / n  # Poisson sampling: each record by itself
        gradients = (x[drawn] @ w - y[drawn])[:, None] * x[drawn]
        norms = np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1e-12)
        clipped = gradients * np.minimum(1, clip / norms)
        noisy = clipped.sum(axis=0) + clip * noise * rng.normal(size=w.shape)
        # Divided by the expected batch size: how many were drawn is private.
        w = w - lr * (noisy / batch + lam * (w - mean))
    return w


# %%
# The rounds: silos train from where they were, and the server moves the mean.
def mrmtl(silos, rounds, lam, lr=0.1, clip=1.0, noise=1.0, batch=32, seed=0):
    """Algorithm A1; `silos` is a list of (x, y). Returns each silo's own model, and their mean."""
    rng = np.random.default_rng(seed)
    d = silos[0][0].shape[1]
    models, mean = [np.zeros(d) for _ in silos], np.zeros(d)
    for _ in range(rounds):
        updates = []
        for k, (x, y) in enumerate(silos):
            new = dp_sgd(models[k], mean, x, y, lam, lr, clip, noise, batch, rng)
            updates.append(new - models[k])
            models[k] = new
        mean = mean + np.mean(updates, axis=0)
    return models, mean


# %%
# Try it: which lambda suits four silos that differ a little?
def main() -> None:
    """Four silos whose true models differ a little: the error of their own models, by lambda."""
    rng = np.random.default_rng(1)
    theta = rng.normal(size=5)
    truths = [theta + 0.2 * rng.normal(size=5) for _ in range(4)]
    silos = []
    for truth in truths:
        x = rng.normal(size=(200, 5))
        silos.append((x, x @ truth + 0.1 * rng.normal(size=200)))
    for lam in (0.0, 0.1, 1.0):
        models, _ = mrmtl(silos, rounds=30, lam=lam, noise=4.0)
        error = np.mean([np.sum((w - t) ** 2) for w, t in zip(models, truths, strict=True)])
        print(f"lambda {lam:4.1f}: mean squared distance to the truth {error:.4f}")


if __name__ == "__main__":
    main()
