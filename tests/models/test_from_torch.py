"""A module of PyTorch as a model: the same outputs, its own weights, and refusals by layer."""

import jax
import numpy as np
import pytest

import silodp
from silodp.base.errors import SilodpError
from silodp.report import report_page

torch = pytest.importorskip("torch")
nn = torch.nn

RUN = {"data": "synthetic", "silos": 2, "method": "local", "epsilon": 3, "rounds": 1}


def network():
    torch.manual_seed(0)
    hidden = nn.Sequential(nn.Linear(20, 6, bias=False), nn.LayerNorm(6), nn.Tanh())
    return nn.Sequential(nn.Flatten(), hidden, nn.Linear(6, 1))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(5, 3),
        nn.Linear(5, 3, bias=False),
        nn.LayerNorm(5),
        nn.LayerNorm((4, 5), eps=0.1, elementwise_affine=False),
        nn.Flatten(),
        nn.Identity(),
        nn.ReLU(),
        nn.LeakyReLU(0.3),
        nn.ELU(0.7),
        nn.GELU(),
        nn.GELU(approximate="tanh"),
        nn.SiLU(),
        nn.Softplus(beta=2),
        nn.Sigmoid(),
        nn.Tanh(),
    ],
    ids=str,
)
def test_a_layer_says_what_it_says_in_pytorch(layer):
    x = torch.linspace(-30, 30, 60).reshape(3, 4, 5)
    module = nn.Sequential(nn.Linear(5, 5), layer)
    model = silodp.torch_model(module, "regression")
    with torch.no_grad():
        said = module(x).numpy()
    params = model.init(jax.random.key(0))
    np.testing.assert_allclose(model.apply(params, x.numpy()), said, rtol=1e-5, atol=1e-5)


def test_a_module_is_trained_and_comes_back(tmp_path):
    module = network()
    before = [tensor.clone() for tensor in module.parameters()]
    module[1][0].weight.requires_grad = False
    model = silodp.torch_model(module, "regression", name="net")
    result = silodp.run(custom_model=model, keep_models=True, out=tmp_path / "run", **RUN)
    assert result.options["model"] == "net"
    name = result.per_silo[0]["silo"]
    x = np.random.default_rng(0).normal(size=(7, 20)).astype(np.float32)
    assert "no command repeats it" in report_page([tmp_path / "run"])
    for personal in (
        result.model(name, custom_model=model),
        silodp.load_model(tmp_path / "run", custom_model=model, silo=name),
    ):
        own = personal.to_torch()
        with torch.no_grad():
            said = own(torch.from_numpy(x)).numpy()[:, 0]
        np.testing.assert_allclose(personal.predict(x).outputs, said, rtol=1e-4, atol=1e-5)
        frozen, trained = own[1][0].weight, own[2].weight
        assert torch.equal(frozen, before[0])
        assert not torch.equal(trained, before[3])
    # The user's own module is as it was.
    assert all(map(torch.equal, before, module.parameters()))


def test_a_release_of_a_module_is_proven(tmp_path):
    records = silodp.Records(np.eye(20), np.arange(20.0) / 20)
    silos = tuple(silodp.Silo(name, records, records) for name in ("a", "b"))
    federation = silodp.Federation("f", silos, "regression")
    model = silodp.torch_model(network(), "regression")
    own = {"federation": federation, "custom_model": model, "ledger": tmp_path, "delta": 1e-3}
    result = silodp.run(**{name: RUN[name] for name in ("method", "epsilon", "rounds")}, **own)
    assert result.proven


def twice(layer):
    return nn.Sequential(layer, nn.Tanh(), layer)


def hooked():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *given: None)
    return layer


class Own(nn.Linear):
    pass


def broken():
    layer = nn.Linear(2, 1)
    layer.weight.data.fill_(float("nan"))
    return layer


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "Layer 1 .*BatchNorm1d, which mixes"),
        (nn.Sequential(nn.Sequential(nn.Dropout(0.1))), "Layer 0.0 .*Dropout, which draws"),
        (nn.Conv2d(1, 1, 2), "Layer 0 .*Conv2d .*write init and apply"),
        (Own(2, 1), "Layer 0 .*Own "),
        (hooked(), "Layer 0 .*with hooks"),
        (twice(nn.Linear(2, 2)), "Layer 2 .*in two places"),
        (nn.Flatten(0), "Layer 0 .*each record alone"),
        (nn.Tanh(), "no weights"),
        (broken(), "Weights 0.weight .*not finite"),
        ("net", "not a str"),
    ],
)
def test_what_cannot_be_translated_is_refused(module, words):
    with pytest.raises(SilodpError, match=words):
        silodp.torch_model(module, "regression")


@pytest.mark.parametrize(
    ("given", "words"),
    [(nn.Tanh(), "PyTorch .*silodp.torch_model"), (len, "silodp.custom_model makes")],
)
def test_what_is_no_model_is_refused(given, words):
    with pytest.raises(SilodpError, match=words):
        silodp.run(custom_model=given, **RUN)
