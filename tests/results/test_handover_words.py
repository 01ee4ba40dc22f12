"""What a card says of privacy, in words: no more than is true."""

import math

import pytest

from silodp.results.model_export.meaning import meaning_of_privacy

PRIVACY = {"epsilon": 3.0, "delta": 1e-4, "unit": "record", "unproven": []}


def test_noise_from_a_seed_makes_it_an_experiment():
    first, *_ = meaning_of_privacy(PRIVACY, [], noise_from_seed=True)
    assert "a model of an experiment" in first
    said = " ".join(meaning_of_privacy(PRIVACY, [], noise_from_seed=False))
    assert "experiment" not in said
    assert "epsilon 3, delta 0.0001 for one record" in said


@pytest.mark.parametrize("seeded", [True, False])
def test_without_privacy_nothing_is_promised(seeded):
    said = " ".join(meaning_of_privacy(PRIVACY | {"epsilon": math.inf}, [], seeded))
    assert "No privacy was asked for" in said
    assert "delta" not in said


def test_what_is_not_proven_is_said():
    said = " ".join(meaning_of_privacy(PRIVACY | {"unproven": ["a reason"]}, ["means"], False))
    assert "This is not proven" in said
    assert "keep it where the records are" in said
