import sys
from collections import Counter

import numpy as np
import pytest
from sklearn.datasets import load_digits

from silodp.base.errors import SilodpError
from silodp.data.images.rotated_masked import Images
from silodp.data.registry import DataOptions, resolve
from silodp.data.sources import digits
from silodp.data.split import PAPER_DEAL


def load(seed=0, **options):
    given = DataOptions(**options)
    return resolve("digits", given).load(seed, given)


def test_the_bundled_images():
    federation = load(silos=4, rotations=1, mask_ratio=0)
    x = np.concatenate([part.x for silo in federation.silos for part in (silo.train, silo.test)])
    bundled = load_digits()
    assert len(x) == len(bundled.target) == 1797
    assert sorted(map(bytes, x[..., 0])) == sorted(
        map(bytes, np.round(bundled.images * 255 / 16).astype(np.uint8))
    )


def test_rotated_and_masked():
    federation = load()
    assert len(federation.silos) == 12
    assert federation.input_shape == (8, 8, 1)
    assert federation.uncovered == (PAPER_DEAL,)
    assert federation.declared == ("feature bounds", "class list")
    assert {name[:11] for name in federation.names} == {
        *("rotated-000", "rotated-090", "rotated-180", "rotated-270")
    }
    for silo in load(mask_ratio=0.5).silos:
        white = (silo.train.x == 255).all(axis=0)
        assert (silo.test.x[:, white] == 255).all()
        assert 0 < white.sum() < 64


def test_a_policy_that_does_not_make_the_classes_public_refuses(cli, sentence, tmp_path):
    policies = tmp_path / "policies.toml"
    policies.write_text(
        '[default]\nepsilon = 3\ndelta = 1e-3\npublic = ["feature bounds", "record count"]'
    )
    said = sentence(cli("run", "--data", "digits", "--policies", policies, "--rounds", 1))
    assert "'rotated-000-01'" in said
    assert "class list" in said


def test_test_fraction():
    assert load(test_fraction=0.5).test_counts.sum() == 899


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SilodpError, match=r"pip install 'silodp\[digits\]'"):
        load()


@pytest.mark.slow
def test_it_learns_and_a_private_run_is_proven(cli):
    done = cli(
        *("run", "--data", "digits", "--method", "local", "--epsilon", "inf", "--rounds", 60),
        *("--json", "--mask-ratio", 0),
    )
    import json

    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["test"]["mean"] > 0.85
    done = cli(
        *("run", "--data", "digits", "--epsilon", 4, "--rounds", 1, "--split", "coin", "--json"),
    )
    assert '"proven": true' in done.stdout


@pytest.mark.parametrize("density", [None, 0.5])
def test_by_coins_an_image_less_moves_no_other(monkeypatch, density):
    images = digits.read_digits()

    def federation(left_out=None, seed=0):
        kept = np.arange(len(images.y)) != left_out
        monkeypatch.setattr(digits, "read_digits", lambda: Images(images.x[kept], images.y[kept]))
        return load(seed=seed, split="coin", density=density, mask_ratio=0)

    def trained(federation):
        return [Counter(x.tobytes() for x in silo.train.x) for silo in federation.silos]

    whole = federation()
    assert whole.uncovered == ()
    assert sum(silo.max_count for silo in whole.silos) == len(images.y)
    everyone, moved = trained(whole), 0
    for left_out in range(6):
        left = trained(federation(left_out))
        assert sum((one - other).total() for one, other in zip(left, everyone, strict=True)) == 0
        gone = sum((one - other).total() for one, other in zip(everyone, left, strict=True))
        assert gone <= 1
        moved += gone
    assert moved
    other = federation(seed=1)  # the images of a silo stay, their parts do not
    np.testing.assert_array_equal(other.public_counts, whole.public_counts)
    assert trained(other) != everyone
