"""Words for errors about names that are not known."""

import pytest

from silodp.base.errors import alike, meant, one_of

MANY = [f"hospital {n}" for n in range(1000)]


@pytest.mark.parametrize(
    ("name", "known", "words"),
    [
        ("fedvag", ["fedavg", "ifca+fedavg", "local"], "did you mean 'fedavg'?"),
        ("Ward", ["age", "ward"], "did you mean 'ward'?"),
        ("lamb", ["lamp", "lama", "x"], "did you mean 'lamp' or 'lama'?"),
        ("zzz", ["a", "b"], "known are 'a', 'b'."),
        (
            "zzz",
            MANY,
            "known are 'hospital 0', 'hospital 1', 'hospital 2', 'hospital 3', "
            "'hospital 4' and 995 more.",
        ),
        (3, ["a"], "known are 'a'."),
    ],
)
def test_what_was_meant(name, known, words):
    assert meant(name, known) == words


def test_few_of_many_are_offered():
    assert alike("hospital 77x", MANY) == ["hospital 77", "hospital 177", "hospital 277"]
    assert alike("x", []) == []


def test_very_many_names_are_not_all_told():
    names = [f"ward {n}" for n in range(98)]
    assert one_of("ward 7", names).startswith("'ward 7', ")
    assert one_of("ward 7", names).endswith(" or one of 88 more")
    assert one_of("b", ["a", "b", "c"]) == "'b', 'a' or 'c'"
