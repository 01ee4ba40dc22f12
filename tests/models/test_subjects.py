"""Subjects as the unit of privacy: blocks, and clipping by subject against a plain loop.

Compiling is most of the time: models are made once, and most tests share their shapes.
"""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from silodp import Records, SilodpError, custom_model
from silodp.models.model import get_model
from silodp.models.subjects import blocks_of, by_subject, largest_subject

TASKS = {
    "linear": ("regression", 0),
    "svm": ("binary", 0),
    "logistic": ("binary", 0),
    "softmax": ("multiclass", 4),
}
RAGGED = (3, 1, 5, 2, 2, 1, 4)


@cache
def base_model(name, d=5):
    task, classes = TASKS[name]
    return get_model(name, task, (d,), classes)


@cache
def unit_model(name, *d, microbatch=None):
    """By subject; with a microbatch, as of a model that is not linear."""
    base = base_model(name, *d)
    if microbatch is not None:
        base = base._replace(linear=False, microbatch=microbatch)
    return by_subject(base)


def labels(task, n, rng):
    return {
        "regression": rng.normal(size=n).astype(np.float32),
        "binary": rng.choice([-1.0, 1.0], n).astype(np.float32),
        "multiclass": rng.integers(0, 4, n).astype(np.int32),
    }[task]


def records_of(task, sizes, d=5, seed=0):
    """Subjects of these sizes, their records shuffled among each other."""
    rng = np.random.default_rng(seed)
    subject = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = rng.normal(size=(len(subject), d)).astype(np.float32)
    return Records(x, labels(task, len(subject), rng), subject)


def random_params(model, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda a: jnp.asarray(rng.normal(size=a.shape), jnp.float32), model.init(jax.random.key(0))
    )


def residual(name, out, y):
    """d loss / d outputs of one record, in double precision."""
    if name == "linear":
        return out - y
    if name == "svm":
        return -y * (y * out < 1)
    if name == "logistic":
        return -y / (1 + np.exp(y * out))
    chances = np.exp(out - out.max())
    return chances / chances.sum() - np.eye(len(out))[y]


def by_definition(name, params, records, mask, clip, offset=None):
    """Record by record and subject by subject, in double precision."""
    params = np.asarray(params, np.float64)
    total = np.zeros_like(params)
    for subject in np.flatnonzero(mask):
        rows = np.flatnonzero(records.subject == subject)
        gradient = np.zeros_like(params)
        for row in rows:
            x = np.append(records.x[row].astype(np.float64), 1.0)
            r = residual(name, x @ params, records.y[row])
            gradient += np.multiply.outer(x, r) / len(rows)
        if offset is not None:
            gradient = gradient + np.asarray(offset, np.float64)
        total += gradient * min(1.0, clip / max(np.linalg.norm(gradient), 1e-300))
    return total


def training_data(model, records, width=None):
    blocks, y = blocks_of(records, width)
    return jax.jit(model.prepare)(blocks), y


def clipped_sum(model, *args):
    """Compiled as a whole: one operation after the other takes many times as long."""
    return jax.jit(model.clipped_sum)(*args)


# --- blocks


def test_blocks_hold_each_subjects_records_in_order():
    subject = np.array([1, 0, 1, 2, 1, 0])
    records = Records(np.arange(12.0, dtype=np.float32).reshape(6, 2), np.arange(1.0, 7), subject)
    blocks, y = blocks_of(records)
    np.testing.assert_array_equal(y, [[2, 6, 0], [1, 3, 5], [4, 0, 0]])
    np.testing.assert_array_equal(blocks["present"], [[1, 1, 0], [1, 1, 1], [1, 0, 0]])
    np.testing.assert_array_equal(blocks["x"][1], records.x[[0, 2, 4]])
    assert not blocks["x"][2, 1:].any()
    assert blocks["x"].dtype == blocks["present"].dtype == np.float32
    assert largest_subject(records) == 3


def test_blocks_may_be_wider_but_not_narrower():
    records = records_of("regression", RAGGED)
    blocks, y = blocks_of(records, width=8)
    assert blocks["x"].shape == (7, 8, 5)
    assert y.shape == (7, 8)
    assert blocks["present"].sum(axis=1).tolist() == list(RAGGED)
    with pytest.raises(SilodpError, match="room for 4 records, but a subject has 5"):
        blocks_of(records, width=4)
    with pytest.raises(SilodpError, match="have no subjects"):
        blocks_of(Records(records.x, records.y))


def test_blocks_of_images():
    x = np.random.default_rng(0).normal(size=(3, 4, 6, 2)).astype(np.float32)
    blocks, _ = blocks_of(Records(x, np.zeros(3), np.array([0, 1, 0])))
    np.testing.assert_array_equal(blocks["x"][0], x[[0, 2]])


# --- clipping by subject


# Subjects of many sizes with every loss; more room than they need, one record each, a single
# subject and one of very many, with a loss of one output and one of several.
SHAPES = [(name, RAGGED, 5, None) for name in TASKS]
SHAPES += [("svm", RAGGED, 3, 9), ("softmax", RAGGED, 3, 9), ("logistic", (1,) * 6, 4, None)]
SHAPES += [
    ("softmax", (6,), 2, None),
    ("linear", (2, 40), 12, None),
    ("softmax", (2, 40), 12, None),
]


@pytest.mark.parametrize(("name", "sizes", "d", "width"), SHAPES)
@pytest.mark.parametrize("inside", [False, True])
def test_linear_models_equal_the_definition(name, sizes, d, width, inside):
    records = records_of(TASKS[name][0], sizes, d)
    model = unit_model(name, d)
    params = random_params(model)
    features, y = training_data(model, records, width)
    rng = np.random.default_rng(1)
    offset = jnp.asarray(rng.normal(size=params.shape), jnp.float32) if inside else None
    masks = (np.ones(len(sizes)), np.zeros(len(sizes)), rng.random(len(sizes)) < 0.6)
    for mask, clip in product(masks, (0.3, 2.0, np.inf)):
        mask = np.asarray(mask, np.float32)
        got = clipped_sum(model, params, features, y, mask, clip, offset)
        expected = by_definition(name, params, records, mask, clip, offset)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5)


# Microbatches that leave a rest of the seven subjects; of one, and of more than there are.
@pytest.mark.parametrize(
    ("name", "microbatch"), [*((name, 4) for name in TASKS), ("linear", 1), ("softmax", 64)]
)
@pytest.mark.parametrize("inside", [False, True])
def test_the_generic_path_equals_the_fast_one(name, microbatch, inside):
    params = random_params(base_model(name))
    records = records_of(TASKS[name][0], RAGGED)
    offset = 0.5 * params if inside else None
    mask = np.array([1.0, 0, 1, 1, 0, 1, 1], np.float32)
    fast, generic = (
        clipped_sum(model, params, *training_data(model, records), mask, 0.7, offset)
        for model in (unit_model(name), unit_model(name, microbatch=microbatch))
    )
    np.testing.assert_allclose(generic, fast, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "width"), [*((name, None) for name in TASKS), ("softmax", 3)])
@pytest.mark.parametrize("inside", [False, True])
def test_subjects_with_one_record_equal_records(name, width, inside):
    base, model = base_model(name), unit_model(name)
    params = random_params(base)
    drawn = records_of(TASKS[name][0], (1,) * 12)
    # By the subjects' numbers, which is the order of the blocks.
    records = drawn.take(np.argsort(drawn.subject))
    mask = np.asarray(np.arange(12) % 3 != 0, np.float32)
    offset = 0.5 * params if inside else None
    features, y = training_data(model, records, width)
    got = clipped_sum(model, params, features, y, mask, 0.7, offset)
    plain = jax.jit(base.prepare)(records.x)
    expected = clipped_sum(base, params, plain, records.y, mask, 0.7, offset)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["multiclass", pytest.param("binary", marks=pytest.mark.slow)])
@pytest.mark.parametrize("inside", [False, True])
def test_convnets_clip_by_subject(task, inside):
    base = get_model("convnet", task, (10, 10, 1), 4 if task == "multiclass" else 0)
    model = by_subject(base)
    rng = np.random.default_rng(0)
    subject = np.array([0, 1, 1, 2, 0, 0])
    x = rng.normal(size=(6, 10, 10, 1)).astype(np.float32)
    records = Records(x, labels(task, 6, rng), subject)
    params = base.init(jax.random.key(1))
    offset = jax.tree.map(lambda a: 0.1 * a, params) if inside else None
    features, y = training_data(model, records)
    mask = jnp.array([1.0, 0.0, 1.0])
    got = clipped_sum(model, params, features, y, mask, 0.4, offset)
    total = jax.tree.map(np.zeros_like, params)
    for number in (0, 2):
        rows = np.flatnonzero(subject == number)

        def mean_loss(p, rows=rows):
            return jnp.mean(base.loss(base.apply(p, x[rows]), jnp.asarray(records.y[rows])))

        gradient = jax.grad(mean_loss)(params)
        if offset is not None:
            gradient = jax.tree.map(jnp.add, gradient, offset)
        norm = np.sqrt(sum(float(jnp.sum(g**2)) for g in jax.tree.leaves(gradient)))
        factor = min(1.0, 0.4 / norm)
        total = jax.tree.map(lambda t, g, f=factor: t + f * np.asarray(g), total, gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), got, total)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("microbatch", [None, 4])
def test_one_subject_never_counts_for_more_than_the_clip(name, microbatch):
    model = unit_model(name, microbatch=microbatch)
    params = 100 * random_params(base_model(name))
    features, y = training_data(model, records_of(TASKS[name][0], RAGGED))
    for alone in np.eye(len(RAGGED), dtype=np.float32):
        total = clipped_sum(model, params, features, y, alone, 0.3)
        assert np.linalg.norm(total) <= 0.3 * (1 + 1e-5)


def losses(model, params, features, y):
    return jax.jit(lambda p, f, y: model.loss(model.apply(p, f), y))(params, features, y)


def unit_direction(params, x):
    """NaN at zeros, and so is its gradient: what padding must never reach."""
    return (x / jnp.linalg.norm(x, axis=1, keepdims=True)) @ params["w"] + params["b"]


def log_loss(outputs, y):
    """Of labels above 0 only."""
    return (outputs - jnp.log(y)) ** 2


def test_padding_reaches_no_model():
    base = custom_model(
        lambda key: {"w": jnp.ones(5), "b": jnp.zeros(())},
        unit_direction,
        task="regression",
        loss=log_loss,
        microbatch=4,
    )
    model = by_subject(base)
    records = records_of("regression", RAGGED)
    records = Records(records.x, np.abs(records.y) + 1, records.subject)
    params = base.init(jax.random.key(0))
    sums = []
    for width in (5, 11):
        features, y = training_data(model, records, width)
        sums.append(clipped_sum(model, params, features, y, jnp.ones(7), 1.0))
        assert np.isfinite(losses(model, params, features, y)).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(sums))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *sums)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kind", ["linear", "custom"])
def test_blocks_without_records_add_nothing(kind, inside):
    if kind == "linear":
        base = base_model("linear")
    else:
        base = custom_model(
            lambda key: {"w": jnp.ones(5), "b": jnp.zeros(())}, unit_direction, task="regression"
        )
    model = by_subject(base)
    params = random_params(base)
    offset = params if inside else None
    blocks, y = blocks_of(records_of("regression", RAGGED))

    def total(rows):
        padded = {k: np.pad(v, [(0, rows)] + [(0, 0)] * (v.ndim - 1)) for k, v in blocks.items()}
        features = jax.jit(model.prepare)(padded)
        mask = jnp.ones(len(y) + rows)
        labels = np.pad(y, ((0, rows), (0, 0)))
        return clipped_sum(model, params, features, labels, mask, 1.0, offset)

    for plain, more in zip(jax.tree.leaves(total(0)), jax.tree.leaves(total(4)), strict=True):
        assert np.isfinite(more).all()
        np.testing.assert_allclose(more, plain, rtol=1e-6, atol=1e-7)


@pytest.mark.as_shipped
def test_a_pull_of_zero_inside_the_clip_changes_nothing_at_all():
    model = unit_model("linear")
    params = random_params(model)
    features, y = training_data(model, records_of("regression", RAGGED))
    mask = np.ones(7, np.float32)
    plain = clipped_sum(model, params, features, y, mask, 0.7)
    pulled = clipped_sum(model, params, features, y, mask, 0.7, np.zeros_like(params))
    np.testing.assert_array_equal(plain, pulled)


def test_what_the_model_of_subjects_keeps():
    base, model = base_model("softmax"), unit_model("softmax")
    kept = ("name", "task", "heavy", "init")
    assert [getattr(model, field) for field in kept] == [getattr(base, field) for field in kept]
    records = records_of("multiclass", RAGGED)
    params = random_params(base)
    features, y = training_data(model, records)
    by_record = np.asarray(losses(base, params, jax.jit(base.prepare)(records.x), records.y))
    means = [by_record[records.subject == number].mean() for number in range(len(RAGGED))]
    np.testing.assert_allclose(losses(model, params, features, y), means, rtol=1e-5)


def test_many_silos_at_once():
    """As engines call it: prepared and summed under vmap, silos padded to one shape."""
    model = unit_model("logistic")
    params = random_params(model)
    silos = [records_of("binary", sizes, seed=k) for k, sizes in enumerate((RAGGED, (2, 6)))]

    def padded(array):
        return np.pad(array, [(0, 7 - len(array))] + [(0, 0)] * (array.ndim - 1))

    blocks = [jax.tree.map(padded, blocks_of(records, width=6)) for records in silos]
    features, y = jax.tree.map(lambda *a: np.stack(a), *blocks)

    @jax.vmap
    def of_silo(features, y):
        return model.clipped_sum(params, model.prepare(features), y, jnp.ones(7), 0.5)

    sums = jax.jit(of_silo)(features, y)
    for got, records in zip(sums, silos, strict=True):
        expected = by_definition("logistic", params, records, np.ones(records.units), 0.5)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
