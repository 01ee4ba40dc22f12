"""Words of errors."""

from silodp.base.errors import one_of


def test_very_many_names_are_not_all_told():
    names = [f"ward {n}" for n in range(98)]
    assert one_of("ward 7", names).startswith("'ward 7', ")
    assert one_of("ward 7", names).endswith(" or one of 88 more")
    assert one_of("b", ["a", "b", "c"]) == "'b', 'a' or 'c'"
