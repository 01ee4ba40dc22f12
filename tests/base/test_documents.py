"""Documents are refused in one sentence: where it stands, what it is, what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from silodp.base.documents import (
    check_keys,
    declared,
    decode,
    json_of,
    read_json,
    read_toml,
    toml_of,
)
from silodp.base.errors import SilodpError


def refused(call, *args, **named):
    with pytest.raises(SilodpError) as error:
        call(*args, **named)
    said = str(error.value)
    assert "\n" not in said
    assert said.endswith((".", "?"))
    return said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 1\nb = = 2\n", "X is not valid TOML: fix line 2 (Invalid value)."),
        ("a = 1\n\na = 2\n", "X is not valid TOML: fix line 3 (Cannot overwrite a value)."),
        ("a = 1\nb = [1,\n2", "fix line 3 ("),
        ("a = " + "9" * 5000, "X is not valid TOML: fix it ("),
        ("a = " + "[" * 100_000, "X is not valid TOML: fix "),
    ],
)
def test_the_line_of_invalid_toml_is_told(text, words):
    assert words in refused(toml_of, text, "X")
    assert refused(toml_of, text, "X", "or not").endswith("; or not.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,\n"b" 2}', "X is not valid JSON (line 2: Expecting ':' delimiter): do it anew."),
        ("", "X is not valid JSON (line 1: Expecting value): do it anew."),
        (b"\xff\xfe", "X is not valid JSON ('utf-8' codec"),
        ("[" * 100_000, "X is not valid JSON ("),
        ("1" * 5000, "X is not valid JSON ("),
    ],
)
def test_invalid_json_is_told(text, words):
    assert words in refused(json_of, text, "X", "do it anew")


def test_files_that_cannot_be_read(tmp_path):
    for read in (read_toml, lambda *args, **named: read_json(*args, **named, remedy="do it")):
        path = tmp_path / "none"
        assert refused(read, path) == f"{path} does not exist: check the path."
        assert refused(read, path, "X", missing="make it") == "X does not exist: make it."
        assert "X cannot be read (Is a directory): check" in refused(read, tmp_path, "X")
        (tmp_path / "binary").write_bytes(b"a = '\xff'")
        assert refused(read, tmp_path / "binary", "X") == "X is not text: save it as UTF-8."


def test_unknown_names():
    check_keys("X", {"a": 1}, ("a", "b"))
    known = ("epsilon", "delta", "relation", "unit", "subject", "public")
    assert refused(check_keys, "X", {"epsilo": 1}, known) == (
        "X: the key 'epsilo' is unknown: did you mean 'epsilon'?"
    )
    assert refused(check_keys, "X", ["zzz"], known, "field") == (
        "X: the field 'zzz' is unknown: known are 'epsilon', 'delta', 'relation', 'unit', "
        "'subject' and 1 more."
    )


@dataclass(frozen=True)
class Inner:
    """A part of a document."""

    share: float = declared("give a share", fits=lambda share: 0 < share < 1)


def is_even(number):
    if number % 2:
        raise SilodpError(f"{number} is odd: give an even number.")
    return True


@dataclass(frozen=True)
class Document:
    """Of every type that documents have."""

    name: str = declared("give a name", fits=bool)
    count: int = declared("give a whole number", 2, is_even)
    wide: float = declared("give a number", 1.0)
    on: bool = declared("write true or false", False)
    kind: Literal["a", "b"] = declared("use 'a' or 'b'", "a")
    names: tuple[str, ...] = declared("give a list of names", ())
    maybe: str | None = declared("give a text", None)
    table: Mapping[str, Any] = declared("write [table]", {})
    inner: Inner | None = declared("write [inner]", None)  # noqa: RUF009


def test_what_is_declared_is_filled():
    whole = {
        **{"name": "x", "count": 4, "wide": 3, "on": True, "kind": "b", "names": ["p", "q"]},
        **{"maybe": "y", "table": {"z": 1}, "inner": {"share": 0.5}},
    }
    read = decode(Document, whole, "X")
    assert read == Document("x", 4, 3.0, True, "b", ("p", "q"), "y", {"z": 1}, Inner(0.5))
    assert type(read.wide) is float
    assert decode(Document, {"name": "x"}, "X") == Document("x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": None}, "X has no name: give a name."),
        ({"name": ""}, "X: name is '': give a name."),
        ({"name": 3}, "X: name is 3: give a name."),
        ({"count": True}, "X: count is True: give a whole number."),
        ({"count": 2.0}, "X: count is 2.0: give a whole number."),
        ({"count": 3}, "X: 3 is odd: give an even number."),
        ({"wide": "1"}, "X: wide is '1': give a number."),
        ({"wide": float("nan")}, "X: wide is nan: give a number."),
        ({"wide": 10**400}, "give a number."),
        ({"wide": False}, "X: wide is False: give a number."),
        ({"on": 1}, "X: on is 1: write true or false."),
        ({"kind": "c"}, "X: kind is 'c': use 'a' or 'b'."),
        ({"kind": ["a"]}, "X: kind is ['a']: use 'a' or 'b'."),
        ({"names": "pq"}, "X: names is 'pq': give a list of names."),
        ({"names": ["p", 3]}, "X: names is ['p', 3]: give a list of names."),
        ({"maybe": 3}, "X: maybe is 3: give a text."),
        ({"nmae": "x"}, "X: the key 'nmae' is unknown: did you mean 'name' or 'names' or 'maybe'?"),
        ({"inner": {}}, "X: [inner] has no share: give a share."),
        ({"inner": {"share": 2}}, "X: [inner]: share is 2: give a share."),
        ({"inner": {"shar": 2}}, "X: [inner]: the key 'shar' is unknown: did you mean 'share'?"),
    ],
)
def test_what_is_not_so_is_refused(change, words):
    table = {n: v for n, v in ({"name": "x"} | change).items() if v is not None}
    assert refused(decode, Document, table, "X").endswith(words)


@pytest.mark.parametrize("field", ["table", "inner"])
def test_what_stands_in_place_of_a_table_is_not_repeated(field):
    said = refused(decode, Document, {"name": "x", field: "secret"}, "X")
    assert "not a table" in said
    assert "secret" not in said
