"""Shapes that types name are checked in every method: a wrong one is found where it arises."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from silodp.methods.clusters import merge_by_cluster
from silodp.methods.mocha import mocha
from silodp.methods.relations import expectations
from silodp.methods.server import AVERAGE

MODEL = {"w": jnp.zeros(5), "b": jnp.float32(0)}
UPDATES = {"w": jnp.ones((3, 5)), "b": jnp.ones(3)}  # of three silos
WEIGHTS = jnp.full(3, 1 / 3)


def test_weights_of_other_silos_are_refused():
    shared = AVERAGE.init(MODEL)
    assert AVERAGE.merge(shared, UPDATES, WEIGHTS).model["w"].shape == (5,)
    with pytest.raises(TypeCheckError):
        AVERAGE.merge(shared, UPDATES, jnp.full(2, 0.5))
    with pytest.raises(TypeCheckError):  # arrays of a model that are not of as many silos
        AVERAGE.merge(shared, UPDATES | {"b": jnp.ones(2)}, WEIGHTS)


def test_choices_with_axes_exchanged_are_refused():
    states = {"w": jnp.zeros((2, 5)), "b": jnp.zeros(2)}  # of two clusters
    chosen = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])

    def merge(state, messages, weights):
        return state

    assert merge_by_cluster(merge, states, UPDATES, chosen, WEIGHTS)["w"].shape == (2, 5)
    with pytest.raises(TypeCheckError):
        merge_by_cluster(merge, states, UPDATES, chosen.T, WEIGHTS)


def test_functions_within_a_method_are_checked_too():
    models = jnp.ones((3, 5))
    assert mocha(1.0).broadcast(models)[1].shape == (3,)
    with pytest.raises(TypeCheckError):
        mocha(1.0).broadcast({"w": models, "b": jnp.ones(4)})
    with pytest.raises(TypeCheckError):
        expectations(models[0])
