"""A model as a module of PyTorch says what silodp says."""

import sys

import numpy as np
import pytest
from federations import images
from handovers import RUN, handed, loaded_from_memory, patients, trained

import silodp
from silodp.base.errors import SilodpError


def check_equal(model, records):
    torch = pytest.importorskip("torch")
    module = model.to_torch()
    with torch.no_grad():
        said = module(torch.from_numpy(model.features(records))).numpy()
    outputs = model.predict(records).outputs
    assert said.shape == outputs.shape
    np.testing.assert_allclose(said, outputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("score", {}),
        ("ill", {}),
        ("ill", {"model": "svm"}),
        ("grade", {}),
        ("grade", {"task": "ordinal", "declared": {"classes": ["0", "1", "2"]}}),
    ],
)
def test_tables(tmp_path, target, options):
    frame = patients()
    trained(frame, tmp_path, target, **options)
    check_equal(silodp.load_model(handed(tmp_path, "south")), frame)


def test_a_model_is_a_line_and_a_card(tmp_path):
    trained(patients(), tmp_path, rounds=1)
    model = silodp.load_model(handed(tmp_path, "south"))
    assert repr(model).startswith("PersonalModel(silo 'south': linear, regression; columns ")
    assert "\n" not in repr(model)
    assert model._repr_markdown_().startswith("# Model of south")


@pytest.mark.parametrize("statistics", [0.0, 0.3])
def test_images(statistics):
    result = silodp.run(
        federation=images(side=13),
        model="convnet",
        keep_models=True,
        statistics_share=statistics,
        **RUN | {"rounds": 1},
    )
    bytes_ = np.random.default_rng(0).integers(0, 256, (7, 13, 13, 1), np.uint8)
    check_equal(loaded_from_memory(result)[1], bytes_)


def test_without_torch_it_says_what_to_install(tmp_path, monkeypatch):
    trained(patients(), tmp_path, rounds=1)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SilodpError, match="pip install torch"):
        silodp.load_model(handed(tmp_path, "south")).to_torch()
