"""A model of your own: any pair of pure functions `init(key)` and `apply(params, x)`.

Here a small Equinox network; in Flax it would be
    init=lambda key: module.init(key, x[:1]), apply=module.apply
and in Haiku
    init=lambda key: transformed.init(key, x[:1]), apply=lambda p, x: transformed.apply(p, None, x).

python examples/own_model.py        (needs `pip install equinox`)
"""

# %%
# The model: parameters from a key, and predictions from parameters.
import equinox as eqx
import jax
import numpy as np

import silodp


def equinox_model(features: int) -> silodp.Model:
    """A network with one hidden layer, as a silodp model."""

    def new(key: jax.Array) -> eqx.nn.MLP:
        return eqx.nn.MLP(features, "scalar", width_size=16, depth=1, key=key)

    # An Equinox model is parameters and structure in one: silodp trains the parameters.
    _, structure = eqx.partition(new(jax.random.key(0)), eqx.is_inexact_array)

    def init(key: jax.Array):
        return eqx.filter(new(key), eqx.is_inexact_array)

    def apply(params, x: jax.Array) -> jax.Array:
        return jax.vmap(eqx.combine(params, structure))(x)

    return silodp.custom_model(init, apply, task="regression", name="mlp")


# %%
# Data that need more than a line.
def curved(name: str, n: int, seed: int) -> silodp.Silo:
    """Records that no linear model can fit."""
    rng = np.random.default_rng(seed)

    def records(n: int) -> silodp.Records:
        x = rng.uniform(-2, 2, (n, 1))
        return silodp.Records(x, np.sin(2 * x[:, 0]) + 0.1 * seed)

    return silodp.Silo(name, records(n), records(100))


# %%
# The same run, with both.
def main() -> None:
    """Trains the network and a linear model, both privately."""
    federation = silodp.Federation(
        "waves", tuple(curved(f"silo {k}", 400, k) for k in range(3)), task="regression"
    )
    options = {
        "federation": federation,
        "method": "fedavg",
        "epsilon": 8.0,
        "rounds": 60,
        "lr": 0.3,
    }
    linear = silodp.run(**options)
    network = silodp.run(custom_model=equinox_model(1), **options)
    print(f"linear model: test MSE {linear.mean:.3f}")
    print(f"network:      test MSE {network.mean:.3f}")
    assert network.mean < linear.mean


if __name__ == "__main__":
    main()
