"""Eigenvectors that are followed from round to round, against LAPACK's."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silodp.methods.ebmtl.constants import CONSTANTS
from silodp.methods.ebmtl.eigenvectors import first_basis, follow, full_sweep


def followed(matrices, turns=None):
    """After one call for each of the matrices: basis, eigenvalues; the worst basis on the way."""
    size = matrices.shape[1]
    first = first_basis(size)
    turns = turns or full_sweep(first)

    def step(basis, matrix):
        basis, values = follow(matrix, basis, turns)
        products = basis.T @ basis
        # An odd one out is paired with a column of zeros.
        expected = jnp.diag(jnp.round(jnp.diag(products)))
        return basis, (values, jnp.max(jnp.abs(products - expected)))

    basis, (values, crooked) = jax.jit(partial(jax.lax.scan, step))(first, jnp.asarray(matrices))
    there = np.linalg.norm(basis, axis=0) > 0.5
    assert there.sum() == min(size, CONSTANTS.most_followed)
    return np.asarray(basis)[:, there], np.asarray(values[-1])[there], float(jnp.max(crooked))


def random_matrix(size, strong=0, seed=0):
    """Products of rows of noise, with a few strong directions."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size, 2 * size))
    for number in range(strong):
        rows += 4 * (number + 2) * np.outer(_unit(rng, size), _unit(rng, 2 * size)) * size**0.5
    return rows @ rows.T


def _unit(rng, size):
    vector = rng.normal(size=size)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("size", [1, 2, 3, 29, 40])
def test_a_few_calls_find_all_eigenvectors(size):
    matrix = random_matrix(size)
    basis, values, crooked = followed(np.array([matrix] * 8, np.float32))
    expected, vectors = np.linalg.eigh(matrix)
    order = np.argsort(values)
    np.testing.assert_allclose(values[order], expected, rtol=1e-4, atol=1e-5 * expected[-1])
    # Each of them points the same way, or the opposite one.
    cosines = np.abs(np.sum(basis[:, order] * vectors, axis=0))
    np.testing.assert_allclose(cosines, 1, atol=1e-3)
    assert crooked < 1e-5


@pytest.mark.parametrize("size", [3, 29, 40])
def test_a_few_turns_a_call_find_them_as_well(size):
    """The next call goes on with the pairs that the last did not come to."""
    matrix = random_matrix(size)
    _, values, crooked = followed(np.array([matrix] * 8 * size, np.float32), turns=1)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), rtol=1e-4, atol=1e-3)
    assert crooked < 1e-5


def test_of_many_the_largest_are_found():
    size, strong = 90, 4
    assert size > CONSTANTS.most_followed
    matrix = random_matrix(size, strong)
    basis, values, crooked = followed(np.array([matrix] * 12, np.float32))
    assert basis.shape == (size, CONSTANTS.most_followed)
    expected, vectors = np.linalg.eigh(matrix)
    order = np.argsort(values)[-strong:]
    np.testing.assert_allclose(values[order], expected[-strong:], rtol=1e-4)
    cosines = np.abs(np.sum(basis[:, order] * vectors[:, -strong:], axis=0))
    np.testing.assert_allclose(cosines, 1, atol=1e-3)
    # The others are below the largest that are left.
    assert np.sort(values)[-strong - 1] < expected[-strong - 1] * (1 + 1e-4)
    assert crooked < 1e-5


@pytest.mark.parametrize("size", [29, 90])
def test_they_stay_orthonormal_and_near_while_the_matrix_changes(size):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(size, 2 * size)) + 2 * size**0.5 * np.outer(
        _unit(rng, size), _unit(rng, 2 * size)
    )
    changing = rows + np.cumsum(0.01 * rng.normal(size=(300, *rows.shape)), axis=0)
    matrices = np.einsum("tij,tkj->tik", changing, changing)
    basis, values, crooked = followed(matrices.astype(np.float32))
    assert crooked < 1e-5  # rounding does not add up
    expected, vectors = np.linalg.eigh(matrices[-1])
    assert values.max() == pytest.approx(expected[-1], rel=1e-3)
    assert abs(basis[:, values.argmax()] @ vectors[:, -1]) > 0.999
    if size <= CONSTANTS.most_followed:
        np.testing.assert_allclose(np.sort(values), expected, rtol=0.02, atol=1e-3 * expected[-1])


@pytest.mark.parametrize("size", [40, 90])
def test_zeros_and_a_few_directions_leave_a_basis(size):
    """In a first round nothing may differ; and silos may differ in a few directions only."""
    rows = np.random.default_rng(2).normal(size=(size, 5))
    matrix = rows @ rows.T
    matrices = [np.zeros_like(matrix), *[matrix] * 10]
    _, values, crooked = followed(np.array(matrices, np.float32))
    expected = np.linalg.eigvalsh(matrix)[-5:]
    np.testing.assert_allclose(np.sort(values)[-5:], expected, rtol=1e-4)
    assert np.abs(np.sort(values)[:-5]).max() < 1e-4 * expected[-1]
    assert crooked < 1e-5
