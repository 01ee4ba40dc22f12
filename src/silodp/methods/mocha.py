"""Mocha: personal models, and how silos relate to each other, learned together.

V. Smith, C.-K. Chiang, M. Sanjabi, A. Talwalkar. Federated multi-task learning. NeurIPS 2017. In
primal form, because DP-SGD needs gradients; see `relations` for the relationship matrix.

The models W (one row a silo) have the penalty lambda/2 * trace(W' Omega W), where Omega is the
inverse of the matrix of relations, which the server learns from released models: it costs no
privacy. For one silo that is a pull towards what the others' models let expect of its own, by
relations that may be positive or negative. Convex models only: the parameters of others cannot be
compared one by one. (One silo alone is pulled towards zero.)

Use it with linear models where some silos resemble each other, or are opposites of each other.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from silodp.methods.base import Method, OfSilos, Params, Start, one_pass_a_round
from silodp.methods.relations import expectations
from silodp.privacy.mechanisms.queries import Queries
from silodp.privacy.mechanisms.shapes import Number

# A silo's own model, and its place in the federation.
Silo = tuple[Params, Int[Array, ""]]
# What is expected of each silo's model, and how precisely.
Expected = tuple[OfSilos, Float[Array, " silos"]]


def mocha(lam: Number) -> Method:
    """Personal models, each pulled towards what related silos let expect."""

    def init(start: Start) -> tuple[OfSilos, Silo]:
        models = jax.tree.map(lambda w: jnp.stack([w] * start.silos), start.params)
        return models, (start.params, jnp.int32(start.place))

    def broadcast(models: OfSilos) -> Expected:
        one = jax.tree.map(lambda leaf: leaf[0], models)
        rows = jax.vmap(lambda model: ravel_pytree(model)[0])(models)
        expected, precision = expectations(rows)
        return jax.vmap(ravel_pytree(one)[1])(expected), precision

    def train_as_expected(silo: Silo, sent: Expected, queries: Queries) -> tuple[Silo, Params]:
        own, place = silo
        expected, precision = jax.tree.map(lambda leaf: leaf[place], sent)
        trained = queries.train(own, towards=expected, strength=lam * precision)
        return (trained, place), trained

    return Method(
        schedule=one_pass_a_round,
        init=init,
        broadcast=broadcast,
        local=train_as_expected,
        merge=lambda models, trained, weights: trained,
        personal=lambda silo, sent: silo[0],
    )
