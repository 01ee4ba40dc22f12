"""Sums in whole grains: what one record adds is bounded, and nothing else changes with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from silodp.data.federation import Records
from silodp.data.tasks.hazard import labels_of_times
from silodp.models import losses, steady
from silodp.models.model import custom_model, get_model
from silodp.models.subjects import blocks_of, by_subject
from silodp.models.whole_sums import CLIP_SLACK
from silodp.privacy.mechanisms.lattice import lattice_of

CLIP = 1.0
RESIDUAL_OF = {kind.loss: kind.residual for kind in losses.LINEAR_MODELS.values()}
EXTREMES = [0.0, -0.0, 1e-45, 1e-30, -1e-19, 1.0, -3e4, 1e19, -3.4e38, np.inf, -np.inf, np.nan]


def grain_for(batch, noise=1.0):
    return jnp.float32(lattice_of(CLIP, noise, batch).grain)


def an_mlp():
    def init(key):
        return {"w": jnp.full((4, 3), 0.1), "v": jnp.full(3, 0.2)}

    return custom_model(init, lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"], "regression")


# Of each kind of sum, one: linear (by each loss), any model, subjects of both, ConvNet.
def kinds():
    rng = np.random.default_rng(0)
    n = 12

    def records(shape, labels):
        return rng.normal(size=(n, *shape)).astype(np.float32), labels

    signs = np.where(rng.random(n) < 0.5, -1.0, 1.0).astype(np.float32)
    numbers = rng.normal(size=n).astype(np.float32)
    classes = rng.integers(0, 3, n)
    linear = get_model("linear", "regression", (4,))
    exposed = np.stack([np.arange(n) % 5, rng.uniform(0.1, 1, n)], axis=1).astype(np.float32)
    events = classes % 2
    courses = labels_of_times(rng.uniform(0, 5, n), events, (1, 2, 3.5)).astype(np.float32)
    return {
        "linear": (linear, *records((4,), numbers)),
        "svm": (get_model("svm", "binary", (4,)), *records((4,), signs)),
        "logistic": (get_model("logistic", "binary", (4,)), *records((4,), signs)),
        "weighted": (
            get_model("logistic", "binary", (4,), prevalence=0.1),
            *records((4,), signs),
        ),
        "softmax": (get_model("softmax", "multiclass", (4,), 3), *records((4,), classes)),
        "poisson": (get_model("poisson", "count", (4,)), *records((4,), exposed)),
        "ordered": (get_model("ordered", "ordinal", (4,), 4), *records((4,), classes + events)),
        "hazards": (get_model("hazards", "hazard", (4,), 3), *records((4,), courses)),
        "any": (an_mlp(), *records((4,), numbers)),
        "convnet": (
            get_model("convnet", "multiclass", (12, 12, 1), 3),
            *records((12, 12, 1), classes),
        ),
    }


KINDS = kinds()
SUBJECT_OF = np.repeat(np.arange(5), [1, 4, 2, 3, 2])
SUBJECTS = {f"{name} by subject": KINDS[name] for name in ("linear", "softmax", "hazards", "any")}
# Of each a single model, so that tests share what is compiled for it.
UNITS = {name: model for name, (model, _, _) in KINDS.items()}
UNITS |= {name: by_subject(model) for name, (model, _, _) in SUBJECTS.items()}


def laid_out(name):
    """The model of units, its features and labels, with one unit a row."""
    _, x, y = (KINDS | SUBJECTS)[name]
    if name in SUBJECTS:
        x, y = blocks_of(Records(x, y, SUBJECT_OF))
    return UNITS[name], prepared(UNITS[name], x), y


def prepared(model, x):
    """The features, on the host: there a row is taken without a program of its own."""
    return jax.tree.map(np.asarray, jax.jit(model.prepare)(x))


def params_of(model, scale=1.0):
    shapes = model.init(jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 20))
    return jax.tree.map(lambda p: scale * jax.random.normal(next(keys), p.shape), shapes)


def summed(name, params, features, y, mask, offset=None):
    """The sum in single precision."""
    return flat(jax.jit(UNITS[name].clipped_sum)(params, features, y, mask, CLIP, offset))


def flat(tree):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


def whole(model, params, features, y, mask=None, offset=None, grain=None):
    mask = np.ones(len(y)) if mask is None else mask
    mask = np.asarray(mask, np.float32)
    grain = grain_for(len(y)) if grain is None else grain
    total = jax.jit(model.whole_sum)(params, features, y, mask, CLIP, grain, offset)
    assert all(leaf.dtype == jnp.int32 for leaf in jax.tree.leaves(total))
    return flat(total).astype(np.int64)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("name", [*KINDS, *SUBJECTS])
def test_it_is_the_sum_of_clipped_gradients(name, offset):
    model, features, y = laid_out(name)
    params, mask = params_of(model), np.arange(len(y)) % 3 != 1
    pull = jax.tree.map(lambda p: 0.3 * p, params) if offset else None
    grain = grain_for(len(y))
    found = whole(model, params, features, y, mask, pull) * float(grain)
    expected = summed(name, params, features, y, mask.astype(np.float32), pull)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert np.abs(found).max() > 0.1


@pytest.mark.as_shipped
@pytest.mark.parametrize("name", [*KINDS, *SUBJECTS])
def test_each_record_adds_what_it_adds_alone_wherever_it_stands(name):
    """Reversed, and with others left out: the sum is that of each by itself, to the last bit."""
    model, features, y = laid_out(name)
    params, grain = params_of(model, 3.0), grain_for(len(y))
    alone = [
        whole(model, params, jax.tree.map(lambda a, i=i: a[i : i + 1], features), y[i : i + 1],
              grain=grain)
        for i in range(len(y))
    ]  # fmt: skip
    together = whole(model, params, features, y)
    np.testing.assert_array_equal(together, np.sum(alone, axis=0))
    turned = jax.tree.map(lambda a: a[::-1], (features, y))
    np.testing.assert_array_equal(whole(model, params, *turned), together)
    mask = np.arange(len(y)) % 3 != 1
    found = whole(model, params, features, y, mask)
    np.testing.assert_array_equal(found, np.array(alone)[mask].sum(axis=0))


@pytest.mark.as_shipped
@pytest.mark.parametrize("name", ["linear", "logistic", "softmax"])
def test_neither_padding_nor_a_batch_over_silos_changes_a_bit(name):
    """As the simulation does it: silos side by side, each padded to the largest."""
    model, _, y = KINDS[name]
    rng = np.random.default_rng(3)
    rows = np.stack([rng.permutation(37) for _ in range(5)])
    many = rng.normal(size=(37, 4)).astype(np.float32) * 10
    labels = np.asarray(y)[rng.integers(0, len(y), 37)]
    params, grain = params_of(model, 2.0), grain_for(37)

    def of_silo(order):
        features = model.prepare(jnp.asarray(many)[order])
        return model.whole_sum(
            params, features, jnp.asarray(labels)[order], jnp.ones(37), CLIP, grain
        )

    sums = np.asarray(jax.jit(jax.vmap(of_silo))(jnp.asarray(rows)))
    direct = whole(model, params, prepared(model, many), labels, grain=grain)
    for one in sums:
        np.testing.assert_array_equal(one.ravel(), direct)


@pytest.mark.as_shipped
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_largest_subject_changes_no_other_subjects_share(name):
    """Blocks with more room, because somebody has more records: to the last bit the same."""
    _, x, y = SUBJECTS[name]
    records = Records(x, y, np.repeat(np.arange(4), 3))
    unit = UNITS[name]
    params, grain = params_of(unit, 2.0), grain_for(4)
    sums = []
    for room in (3, 9):
        blocks, labels = blocks_of(records, room)
        sums.append(whole(unit, params, prepared(unit, blocks), labels, grain=grain))
    np.testing.assert_array_equal(sums[1], sums[0])


@pytest.mark.as_shipped
@pytest.mark.parametrize("by", ["record", "subject"])
def test_one_row_more_moves_no_other_records_share_beside_a_pull_inside_the_clip(by):
    """As training does it: the pull is a product, which a compiler may fuse with the sum or not.

    The records nearly cancel a strong pull, so that what they add hangs on its last bit.
    """
    width, held = 9, 39
    linear = get_model("linear", "regression", (width,))
    model = linear if by == "record" else by_subject(linear)

    @jax.jit
    def first_sum(w, towards, strength, x, y, mask):
        blocks = {"x": x[:, None], "present": jnp.ones((len(x), 1))}
        features = model.prepare(x if by == "record" else blocks)
        labels = y if by == "record" else y[:, None]

        def step(w, _):
            pull = strength * (w - towards)
            total = model.whole_sum(w, features, labels, mask, CLIP, grain_for(held), pull)
            return w - 1e-3 * total.astype(jnp.float32), total

        return jax.lax.scan(step, w, None, length=2)[1][0]

    for seed in range(5):
        rng = np.random.default_rng(seed)
        strength = np.float32(rng.uniform(1e8, 2e8))
        towards = np.append(rng.normal(size=width), 1.0).astype(np.float32)
        pull = strength * -towards
        sums = []
        for rows in (held, held + 1, 64):
            x, y = np.zeros((rows, width), np.float32), np.zeros(rows, np.float32)
            x[:held], y[:held] = pull[:-1] / pull[-1], pull[-1]
            mask = (np.arange(rows) < held).astype(np.float32)
            zeros = np.zeros(width + 1, np.float32)
            sums.append(np.asarray(first_sum(zeros, towards, strength, x, y, mask)))
        np.testing.assert_array_equal(sums[1], sums[0])
        np.testing.assert_array_equal(sums[2], sums[0])


@pytest.mark.as_shipped
def test_whether_any_subject_has_two_records_changes_no_other_subjects_share():
    """A loop of one turn is compiled as none, and rounds in other ways: there is always a loop."""
    width, subjects = 40, 150

    def init(key):
        return {"w": jax.random.normal(key, (width, width)), "g": jnp.ones(width)}

    def apply(params, x):
        h = x @ params["w"]
        h = (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5)
        return jnp.sum(jax.nn.gelu(h * params["g"]), -1)

    model = by_subject(custom_model(init, apply, "regression"))
    params, rng = model.init(jax.random.key(1)), np.random.default_rng(0)
    x = rng.normal(size=(subjects, width)).astype(np.float32)
    records = Records(x, rng.normal(size=subjects).astype(np.float32), np.arange(subjects))

    @jax.jit
    def share(params, blocks, labels, mask):
        return model.whole_sum(params, model.prepare(blocks), labels, mask, CLIP, 2.0**-28)

    alone = np.eye(subjects, dtype=np.float32)
    found = [
        [flat(share(params, *blocks_of(records, room), mask)) for mask in alone] for room in (1, 2)
    ]
    np.testing.assert_array_equal(found[1], found[0])


def extremes(name):
    """Features and labels of units, with every extreme in every place."""
    _, x, y = (KINDS | SUBJECTS)[name]
    rng = np.random.default_rng(4)
    for trial in range(3):
        odd = np.array(x)
        odd.flat[rng.integers(0, odd.size, odd.size // 2)] = rng.choice(EXTREMES[:9], odd.size // 2)
        if trial == 0:
            odd[:] = 3e38
        labels = y
        if name in SUBJECTS:
            odd, labels = blocks_of(Records(odd, y, SUBJECT_OF))
        yield prepared(UNITS[name], odd), labels


@pytest.mark.as_shipped
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e30])
@pytest.mark.parametrize("name", [*KINDS, *SUBJECTS])
def test_extreme_records_and_models_add_no_more_than_the_clip(name, scale):
    """Never more than is paid for, and never not a number."""
    params, grain = params_of(UNITS[name], scale), grain_for(1)
    for features, labels in extremes(name):
        for i in range(0, len(labels), 4):
            one = jax.tree.map(lambda a, i=i: a[i : i + 1], (features, labels))
            added = whole(UNITS[name], params, *one, grain=grain) * float(grain)
            assert np.linalg.norm(added) <= CLIP * (1 + CLIP_SLACK)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e30])
@pytest.mark.parametrize("name", [*KINDS, *SUBJECTS])
def test_of_extreme_records_and_models_an_experiments_sum_is_a_number_too(name, scale):
    params = params_of(UNITS[name], scale)
    for features, labels in extremes(name):
        total = summed(name, params, features, labels, np.ones(len(labels), np.float32))
        assert np.isfinite(total).all()


@pytest.mark.as_shipped
@settings(max_examples=100, deadline=None)
@given(
    row=st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4
    ),
    label=st.floats(width=32, allow_nan=False, allow_infinity=False),
    weight=st.floats(-(2.0**70), 2.0**70, width=32),
)
def test_no_record_moves_a_linear_sum_by_more_than_is_paid_for(row, label, weight):
    model = KINDS["linear"][0]
    features = prepared(model, np.asarray([row], np.float32))
    params = np.array([weight, -weight, weight / 3, 1.0, 0.5], np.float32)
    grain = grain_for(1)
    added = whole(model, params, features, np.asarray([label], np.float32), grain=grain)
    assert np.linalg.norm(added * float(grain)) <= CLIP * (1 + CLIP_SLACK)


@pytest.mark.as_shipped
def test_a_large_sum_moves_by_no_more_than_the_clip():
    """Data crafted so that single precision loses small addends: each world's sum, to the grain.

    A sum of floats would move by 1.71 clips.
    """
    n = 65_537
    rng = np.random.default_rng(0)
    x = np.where(rng.random((n, 3)) < 0.5, 1.0, 1 + 2.0**-12).astype(np.float32)
    x[:: n // 7] *= -1.0
    y = np.full(n, -1e4, np.float32)
    model = get_model("linear", "regression", (3,))
    params = jnp.array([0.1, -0.2, 0.3, 0.0])
    grain = grain_for(n)

    def total(rows):
        return whole(model, params, prepared(model, x[rows]), y[rows], grain=grain)

    everything = np.arange(n)
    with_all = total(everything)
    for left_out in (0, n // 2, n - 1):
        moved = (with_all - total(np.delete(everything, left_out))) * float(grain)
        assert np.linalg.norm(moved) <= CLIP * (1 + CLIP_SLACK)
        assert np.linalg.norm(moved) >= CLIP * 0.99


@pytest.mark.parametrize("loss", [losses.squared_loss, losses.hinge_loss, losses.logistic_loss])
def test_residuals_are_the_derivatives_of_losses(loss):
    outputs = np.linspace(-40, 40, 801, dtype=np.float32)
    for y in (-1.0, 1.0):
        label = np.full(801, y, np.float32)
        exact = np.asarray(jax.jit(jax.vmap(jax.grad(loss)))(outputs, label))
        smooth = np.abs(y * outputs - 1) > 1e-6  # the hinge has a corner
        found = np.asarray(jax.jit(RESIDUAL_OF[loss])(outputs, label))
        np.testing.assert_allclose(found[smooth], exact[smooth], atol=1e-5)


def test_the_softmax_residual_is_the_derivative():
    outputs = (np.random.default_rng(0).normal(size=(50, 5)) * 6).astype(np.float32)
    y = np.arange(50) % 5
    exact = jax.jit(jax.grad(lambda out: losses.softmax_loss(out, y).sum()))(outputs)
    found = jax.jit(RESIDUAL_OF[losses.softmax_loss])(outputs, y)
    np.testing.assert_allclose(found, exact, atol=2e-5)


@pytest.mark.parametrize("name", ["poisson", "ordered", "hazards"])
def test_residuals_of_several_labels_are_the_derivatives(name):
    rng = np.random.default_rng(0)
    _, _, y = KINDS[name]
    kind = losses.LINEAR_MODELS[name]
    shape = {"poisson": (len(y),), "ordered": (len(y), 3), "hazards": (len(y), 3)}[name]
    derivative = jax.jit(jax.grad(lambda out: kind.loss(out, y).sum()))
    residual = jax.jit(lambda out: kind.residual(out, y))
    for scale in (0.01, 1.0, 6.0):
        outputs = (rng.normal(size=shape) * scale).astype(np.float32)
        np.testing.assert_allclose(residual(outputs), derivative(outputs), rtol=2e-3, atol=5e-5)


ODD_LABELS = [0.0, 1.0, 2.0, 1e6, -1.0, 1e12, 3e38]


def odd_labels(name, label):
    """Labels of the model's kind that no check has seen, one for each four numbers of `label`."""
    y, label = KINDS[name][2], np.asarray(label, np.float32).reshape(-1, 4)
    if y.ndim > 1:
        return label[:, : y.shape[1]].astype(y.dtype)
    if y.dtype.kind == "i":
        label = np.nan_to_num(label, posinf=0) % 4
    return label[:, 0].astype(y.dtype)


def check_no_more_than_the_clip(model, features, labels, weights, clip):
    params = np.asarray(weights, np.float32)[: model.init(jax.random.key(0)).size]
    params = params.reshape(model.init(jax.random.key(0)).shape)
    one = np.ones(1, np.float32)
    added = flat(jax.jit(model.whole_sum)(params, features, labels, one, clip, 2.0**-24, None))
    assert np.linalg.norm(added * 2.0**-24) <= clip * (1 + CLIP_SLACK)
    total = flat(jax.jit(model.clipped_sum)(params, features, labels, one, clip))
    # In single precision, whose range squares of the extremes leave.
    assert np.linalg.norm(total) <= clip * (1 + 1e-4), "and so is an experiment's"


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["svm", "weighted", "softmax", "poisson", "ordered", "hazards"]),
    row=st.lists(st.sampled_from(EXTREMES), min_size=4, max_size=4),
    label=st.lists(st.sampled_from(ODD_LABELS), min_size=4, max_size=4),
    weights=st.lists(st.sampled_from([*EXTREMES[:9], 20.0, -60.0]), min_size=15, max_size=15),
    clip=st.sampled_from([1.0, 0.01]),
)
@example("ordered", [0.0] * 3 + [1e19], [1.0] + [0.0] * 3, [0.0] * 3 + [-1e-19] + [0.0] * 11, 0.01)
def test_no_label_and_no_model_gets_more_through_than_the_clip(name, row, label, weights, clip):
    """Counts, ranks and courses that no check has seen: bounded, and never not a number."""
    model = KINDS[name][0]
    features = prepared(model, np.asarray([row], np.float32))
    check_no_more_than_the_clip(model, features, odd_labels(name, label), weights, clip)


COUNTS_BY_SUBJECT = by_subject(KINDS["poisson"][0])


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["poisson", "hazards"]),
    records=st.integers(1, 3),
    rows=st.lists(st.sampled_from(EXTREMES), min_size=12, max_size=12),
    label=st.lists(st.sampled_from(ODD_LABELS), min_size=12, max_size=12),
    weights=st.lists(st.sampled_from([*EXTREMES[:9], 20.0, -60.0]), min_size=15, max_size=15),
)
def test_all_records_of_a_person_get_no_more_through_than_one_clip(
    name, records, rows, label, weights
):
    """However many counts or courses a person has, each of which is several terms of a loss."""
    model = COUNTS_BY_SUBJECT if name == "poisson" else UNITS["hazards by subject"]
    x, y = np.asarray(rows, np.float32).reshape(3, 4), odd_labels(name, label)
    own = Records(x[:records], y[:records], np.zeros(records, int))
    blocks, labels = blocks_of(own, 3)
    check_no_more_than_the_clip(model, prepared(model, blocks), labels, weights, 1.0)


@pytest.mark.as_shipped
@pytest.mark.parametrize("width", [1, 3, 64, 785])
def test_a_steady_sum_is_a_sum_and_zeros_behind_change_nothing(width):
    values = np.random.default_rng(width).normal(size=(6, width)).astype(np.float32)
    found = np.asarray(jax.jit(lambda v: steady.steady_sum(v, 1))(values))
    np.testing.assert_allclose(found, values.astype(np.float64).sum(1), atol=1e-4)
    longer = np.concatenate([values, np.zeros((6, 9), np.float32)], axis=1)
    np.testing.assert_array_equal(jax.jit(lambda v: steady.steady_sum(v, 1))(longer), found)


@pytest.mark.as_shipped
def test_tidy_numbers_can_be_squared():
    tidied = np.asarray(steady.tidy(jnp.asarray(EXTREMES, jnp.float32)))
    assert np.isfinite(tidied**2).all()
    assert ((tidied == 0) | (np.abs(tidied) >= steady.SMALLEST)).all()
    assert tidied[EXTREMES.index(1.0)] == 1.0
