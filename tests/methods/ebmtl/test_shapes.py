"""Shapes that types name are checked, so that a wrong one is found where it arises."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from silodp.methods.ebmtl.estimators import by_coordinate
from silodp.methods.ebmtl.free_tests import Layers, products


def test_arrays_of_other_shapes_are_refused():
    rows, silos, parameters = jnp.ones((3, 4)), jnp.ones(3), jnp.ones(4)
    assert by_coordinate(rows, silos, parameters).shape == (3, 4)
    with pytest.raises(TypeCheckError):
        by_coordinate(rows, parameters, silos)
    with pytest.raises(TypeCheckError):
        products(rows, rows, silos, silos, Layers((4,)))  # one estimate, not several


def test_arrays_of_other_kinds_are_refused():
    with pytest.raises(TypeCheckError):
        by_coordinate(jnp.ones((3, 4), int), jnp.ones(3), jnp.ones(4))
