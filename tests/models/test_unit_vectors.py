"""Records as vectors of length 1 at most, and models of them as models of the records."""

import math

import numpy as np
import pandas as pd
import pytest
from federations import images, small

import silodp
from silodp.models.model import get_model
from silodp.models.unit_vectors import unit_vectors_of


def table():
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "clinic": ["a", "b"] * 30,
            "age": random.uniform(0, 100, 60),
            "dose": random.uniform(0, 5, 60),
            "ward": random.choice(["x", "y", "z"], 60),
            "days": random.uniform(0, 30, 60),
        }
    )


def test_columns_with_levels_make_records_no_longer_than_one_level():
    federation = silodp.Federation.from_frame(
        table(),
        silo="clinic",
        target="days",
        preprocess="bounds",
        bounds={"age": (0, 100), "dose": (0, 5)},
        levels={"ward": ["x", "y", "z"]},
        target_range=(0, 30),
    )
    vectors = unit_vectors_of(federation)
    assert federation.input_shape == (5,)
    assert vectors.length == math.sqrt(2 + 1 + 1)
    assert (vectors.middle, vectors.half) == (0.5, 0.5)
    for silo in federation.silos:
        assert np.linalg.norm(vectors.vectors(silo.train.x), axis=1).max() <= 1 + 1e-9


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_weights_on_vectors_are_parameters_of_the_model(task):
    federation = small(task)
    vectors, x = unit_vectors_of(federation), federation.silos[0].train.x
    outputs = 3 if task == "multiclass" else 1
    weights = np.random.default_rng(0).normal(size=(5, outputs))
    model = get_model(
        {"regression": "linear", "binary": "logistic", "multiclass": "softmax"}[task],
        *(task, (4,), federation.num_classes),
    )
    said = np.asarray(model.predict(vectors.params(weights), x)).reshape(len(x), outputs)
    expected = vectors.middle + vectors.half * (vectors.vectors(x) @ weights)
    np.testing.assert_allclose(said, expected, rtol=1e-4, atol=1e-5)


def test_labels_are_scaled_and_bounded():
    federation = small("regression")
    vectors = unit_vectors_of(federation)
    outputs = vectors.outputs(np.array([0.0, 3.0, -300.0]))
    np.testing.assert_allclose(outputs, [[0.0], [1.0], [-1.0]])
    one_hot = unit_vectors_of(small("multiclass")).outputs(np.array([2, 0]))
    np.testing.assert_array_equal(one_hot, [[0, 0, 1], [1, 0, 0]])


def test_images_are_as_long_as_their_pixels_may_be():
    federation = images().decoded()
    assert unit_vectors_of(federation).length == math.sqrt(10 * 10 + 1)
