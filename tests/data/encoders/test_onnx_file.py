"""A network in a file: what it makes, and files that are not used, nor anything in them run."""

import hashlib

import numpy as np
import pytest
from encoders import onnx_network

from silodp.base.errors import SilodpError
from silodp.data.encoders.encoding import features_of
from silodp.data.encoders.named import encoder_info, encoder_of

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "cache"))


def images(count=3, side=8):
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def encoded(path, records, **options):
    return features_of(encoder_of(encoder_info(path, no_cache=True, **options)), list(records))


def refused(words, path, **options):
    with pytest.raises(SilodpError, match=words) as error:
        encoded(path, images(), **options)
    message = str(error.value)
    assert message.endswith((".", "?"))
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize("batch", [1, "records"])
def test_its_features_are_its_output_at_unit_norm(tmp_path, batch):
    path = tmp_path / "net.onnx"
    weights = onnx_network(path, batch=batch)
    flat = (images() / 255.0).transpose(0, 3, 1, 2).reshape(3, -1)
    expected = flat @ weights
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoded(path, images()), expected, atol=1e-5)


def test_what_is_said_beside_it(tmp_path):
    path = tmp_path / "net.onnx"
    onnx_network(path)
    plain = encoder_info(path)
    assert (plain.name, plain.licence, plain.size) == ("net.onnx", "not stated", 8)
    path.with_suffix(".toml").write_text(
        'licence = "MIT"\ntrained_on = "pictures of clouds"\nmean = [0.5, 0.5, 0.5]\n'
        "deviation = [0.25, 0.25, 0.25]\n"
    )
    told = encoder_info(path)
    assert (told.licence, told.trained_on) == ("MIT", "pictures of clouds")
    assert told.sha256 != plain.sha256  # other features
    path.with_suffix(".toml").write_text("means = [0.5, 0.5, 0.5]\n")
    refused("means", path)


def test_another_network_has_another_hash(tmp_path):
    one, two = tmp_path / "one.onnx", tmp_path / "two.onnx"
    onnx_network(one)
    onnx_network(two, seed=1)
    assert encoder_info(one).sha256 != encoder_info(two).sha256


def test_another_size(tmp_path):
    path = tmp_path / "net.onnx"
    onnx_network(path)
    refused("takes 8 pixels", path, size=16)


# --- files that are not used


def test_weights_in_another_file_are_not_read(tmp_path):
    """Neither one beside it, nor one anywhere else."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"1234" * 3 * 64 * 5)

    def elsewhere(onnx, model):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../secret")

    path = tmp_path / "net.onnx"
    onnx_network(path, changed=elsewhere)
    refused("another file", path)


def test_within_a_branch_as_well(tmp_path):
    def hidden(onnx, model):
        inner = onnx.helper.make_graph([], "inner", [], [])
        tensor = inner.initializer.add(name="w", data_type=1, dims=[1])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="/etc/hostname")
        node = onnx.helper.make_node("If", ["image"], ["never"], then_branch=inner)
        model.graph.node.append(node)

    path = tmp_path / "net.onnx"
    onnx_network(path, changed=hidden)
    refused("another file", path)


def test_operations_of_others_are_not_run(tmp_path):
    def foreign(onnx, model):
        model.graph.node[0].domain = "com.example"

    path = tmp_path / "net.onnx"
    onnx_network(path, changed=foreign)
    refused("none of the standard's", path)


def test_batch_statistics_are_refused(tmp_path):
    """A network that takes from each record the mean of its batch."""

    def centred(onnx, model):
        model.graph.node[1].output[0] = "raw"
        add = onnx.helper.make_node
        model.graph.node.append(add("ReduceMean", ["raw"], ["mean"], axes=[0], keepdims=1))
        model.graph.node.append(add("Mul", ["mean", "half"], ["part"]))
        model.graph.node.append(add("Sub", ["raw", "part"], ["features"]))
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")
        )

    path = tmp_path / "net.onnx"
    onnx_network(path, batch="records", changed=centred)
    refused("no function of one record", path)


def test_chance_is_refused(tmp_path):
    def noisy(onnx, model):
        model.graph.node[1].output[0] = "raw"
        add = onnx.helper.make_node
        model.graph.node.append(add("RandomNormalLike", ["raw"], ["noise"], scale=5.0))
        model.graph.node.append(add("Add", ["raw", "noise"], ["features"]))

    path = tmp_path / "net.onnx"
    onnx_network(path, changed=noisy)
    refused("no function of one record", path)


def test_numbers_that_are_none(tmp_path):
    def broken(value):
        def change(onnx, model):
            own = onnx.numpy_helper.from_array(np.full((192, 5), value, np.float32), "weights")
            model.graph.initializer[0].CopyFrom(own)

        return change

    for value, words in ((np.nan, "NaN"), (np.inf, "NaN"), (1e30, "beyond")):
        path = tmp_path / "net.onnx"
        onnx_network(path, changed=broken(value))
        refused(words, path)


def test_inputs_that_are_neither_images_nor_texts(tmp_path):
    def table(onnx, model):
        del model.graph.input[0].type.tensor_type.shape.dim[3]

    path = tmp_path / "net.onnx"
    onnx_network(path, changed=table)
    refused("cannot be run|neither an image", path)


@pytest.mark.parametrize("cut", [0, 7, 100, 2000])
def test_cut_short(tmp_path, cut):
    path = tmp_path / "net.onnx"
    onnx_network(path)
    path.write_bytes(path.read_bytes()[:cut])
    refused("no file of ONNX|cannot be run", path)


def test_no_network_at_all(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(hashlib.sha256(b"").digest() * 100)
    refused("no file of ONNX|cannot be run", path)


def test_too_many_features(tmp_path):
    path = tmp_path / "net.onnx"
    onnx_network(path, width=70_000)
    refused("70000 features", path)


# --- texts


def write_model(path, nodes, inputs, constants=()):
    import onnx

    helper = onnx.helper
    made = helper.make_model(
        helper.make_graph(
            nodes(helper.make_node),
            "texts",
            [helper.make_tensor_value_info(*each) for each in inputs],
            [helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(array, name) for name, array in constants],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    path.write_bytes(made.SerializeToString())


def test_a_network_that_takes_texts_as_they_are(tmp_path):
    def nodes(node):
        counted = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
        pool = {"ngram_counts": [0], "ngram_indexes": [0, 1], "pool_strings": ["good", "bad"]}
        return [node("TfIdfVectorizer", ["text"], ["features"], **counted, **pool)]

    path = tmp_path / "words.onnx"
    write_model(path, nodes, [("text", 8, [1])])
    assert encoder_info(path).takes == "text"
    assert encoded(path, ["good", "bad", "other"]).tolist() == [[1, 0], [0, 1], [0, 0]]


def test_a_network_that_takes_word_pieces(tmp_path):
    """Of an output for each piece, the mean; masks are ones, kinds zeros."""
    vectors = np.eye(5, 4, dtype=np.float32)

    def nodes(node):
        return [
            node("Gather", ["vectors", "input_ids"], ["each"]),
            node("Cast", ["attention_mask"], ["mask"], to=1),
            node("Unsqueeze", ["mask", "last"], ["column"]),
            node("Mul", ["each", "column"], ["features"]),
        ]

    path = tmp_path / "bert.onnx"
    shape = [1, "pieces"]
    write_model(
        path,
        nodes,
        [("attention_mask", 7, shape), ("input_ids", 7, shape), ("token_type_ids", 7, shape)],
        [("vectors", vectors), ("last", np.array([2], np.int64))],
    )
    with pytest.raises(SilodpError, match="name their list"):
        encoder_info(path)
    path.with_suffix(".toml").write_text('pieces = "vocab.txt"\n')
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood")
    # [CLS] [UNK] [SEP], whose vectors are the third, second and fourth axis.
    np.testing.assert_allclose(encoded(path, ["x"])[0], [0, 3**-0.5, 3**-0.5, 3**-0.5], rtol=1e-6)
    (tmp_path / "vocab.txt").write_text("no marks")
    with pytest.raises(SilodpError, match="no list of word pieces"):
        encoder_info(path)
    path.with_suffix(".toml").write_text('pieces = "../vocab.txt"\n')
    with pytest.raises(SilodpError, match="a file beside"):
        encoder_info(path)
