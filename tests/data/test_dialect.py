"""How text tables are written: what is found, what is said, and that both readers agree."""

import gzip
import math
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.data.problems import Problems
from silodp.data.registry import DataOptions, resolve
from silodp.data.tables.by_value import is_missing
from silodp.data.tables.dialect import Dialect, dialect_of, sniffed, thousands_of
from silodp.data.tables.files import (
    EVERY_COLUMN,
    FileForm,
    Reading,
    is_table,
    read_table,
    table_stem,
)
from silodp.data.tables.values import read_values

GERMAN = Dialect(delimiter=";", decimal=",")


def written(folder, content, name="a.csv"):
    path = Path(folder) / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "dialect"),
    [
        ("a,b\n1,x\n", Dialect()),
        ("\ufeffa,b\n1,x\n", Dialect()),
        ("a;b\n1,5;x\n", GERMAN),
        ("a;b\n1.5;x\n", Dialect(delimiter=";")),
        ("a;b\n1,5;x\n2.5;y\n", GERMAN),  # 2.5 is then no number, and not guessed to be one
        ("a;b\n1,5;2.5\n2,5;3.5\n", Dialect(delimiter=";")),  # nobody can tell
        ("a;b\n1.5;31.12.2024\n", Dialect(delimiter=";")),
        ("a;b\n1,5;31.12\n2;x\n", GERMAN),
        ("a\tb\n1,5\tx\n", Dialect(delimiter="\t", decimal=",")),
        ("a|b\n1|x\n", Dialect(delimiter="|")),
        ("sep=;\na;b\n1;x\n", Dialect(delimiter=";")),
        ("a;b,c;d\n1;x,y;2\n", Dialect(delimiter=";")),
        ("größe;b\n1;ä\n".encode("cp1252"), Dialect(delimiter=";", encoding="cp1252")),
        (b"gr\x81;b\n1;x\n", Dialect(delimiter=";", encoding="latin-1")),
        ("größe\tb\n1\tx\n".encode("utf-16"), Dialect(delimiter="\t", encoding="utf-16")),
        ("a\tb\n1\tä\n".encode("utf-16-le"), Dialect(delimiter="\t", encoding="utf-16-le")),
        ("a\tb\n1\tä\n".encode("utf-16-be"), Dialect(delimiter="\t", encoding="utf-16-be")),
        ("a;b\n1.234,5;x\n", GERMAN),
        ("a;b\n1.234;x\n", Dialect(delimiter=";")),  # 1.234, or 1234?
        ("a\n1\n", Dialect()),
    ],
)
def test_what_is_found(tmp_path, content, dialect):
    assert sniffed(written(tmp_path, content)).dialect == dialect


def test_what_was_found_from_records_is_told(tmp_path):
    found = sniffed(written(tmp_path, "a;b\n1,5;ä\n".encode("cp1252")))
    assert found.by_records == ("the encoding cp1252", "the decimal comma")
    assert sniffed(written(tmp_path, "a;b\n1;x\n")).by_records == ()
    assert sniffed(written(tmp_path, "a;b\n1;x\n".encode("utf-16"))).by_records == ()


@pytest.mark.parametrize("value", ["1,234", "1,234,567", "1,234.5", "1 234", "1'234", "1\u00a0234"])
def test_marks_of_thousands_are_proposed_and_never_taken(tmp_path, value):
    path = written(tmp_path, f"a;b\n{value};x\n7;y\n")
    found = sniffed(path)
    assert (found.dialect.decimal, found.dialect.thousands) == (".", "")
    assert found.unsure == {"a": value}
    mark = thousands_of(value, ".")
    frame = read_table(path, form=FileForm(Dialect(delimiter=";", thousands=mark)))
    assert frame.a[0] == float(value.replace(mark, "").replace("\u00a0", ""))


@pytest.mark.parametrize(
    ("dialect", "text", "plain"),
    [
        (GERMAN, "1,5", "1.5"),
        (GERMAN, "-,5e3", "-.5e3"),
        (GERMAN, "1.500", "1,500"),  # 1500 or 1.5: no number, until somebody says
        (GERMAN, "1.5", "1,5"),
        (GERMAN, "31.12.2024", "31.12.2024"),
        (GERMAN, "E11.9", "E11.9"),
        (GERMAN, "a,b", "a,b"),
        (Dialect(";", ",", "."), "1.234.567,5", "1234567.5"),
        (Dialect(";", ",", "."), "1,5", "1.5"),
        (Dialect(thousands=","), "1,234.5", "1234.5"),
        (Dialect(thousands=","), "1,23", "1,23"),
        (Dialect(thousands=" "), "1\u202f234", "1234"),
        (Dialect(), "1,5", "1,5"),
    ],
)
def test_numbers_in_plain_spelling(dialect, text, plain):
    assert dialect.plain(text) == plain


def test_a_declared_form_is_not_found_anew(tmp_path):
    path = written(tmp_path, "a;b\n1,5;x\n2,5;y\n")
    reading = Reading()
    frame = read_table(path, form=FileForm(Dialect(delimiter=";")), reading=reading)
    assert list(frame.a) == ["1,5", "2,5"]
    assert not reading.by_records
    assert read_table(path).a.tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"delimiter": "x"}, "delimiter is 'x'"),
        ({"decimal": "."}, None),
        ({"thousands": "."}, "both '.'"),
        ({"decimal": ",", "thousands": ","}, "both ','"),
        ({"encoding": "ebcdic"}, "encoding is 'ebcdic'"),
        ({"delimeter": ";"}, "did you mean 'delimiter'"),
    ],
)
def test_dialects_that_are_declared(table, words):
    if words is None:
        assert dialect_of("here", table) == Dialect()
        return
    with pytest.raises(SilodpError, match=words):
        dialect_of("here", table)


def test_packed_tables(tmp_path):
    content = b"site;x;y\nnorth;1,5;2\nsouth;2,5;3\n"
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(content)
    with zipfile.ZipFile(tmp_path / "b.tsv.zip", "w") as archive:
        archive.writestr("inner.csv", content)
    for name in ("a.csv.gz", "b.tsv.zip"):
        assert read_table(tmp_path / name).x.tolist() == [1.5, 2.5]
        stored = read_values(tmp_path / name, ["x"], GERMAN)
        assert stored.frame.x.tolist() == ["1.5", "2.5"]
        assert is_table(tmp_path / name)
    assert table_stem(Path("a.csv.gz")) == "a"
    with zipfile.ZipFile(tmp_path / "b.tsv.zip", "a") as archive:
        archive.writestr("more.csv", content)
    with pytest.raises(SilodpError, match="holds 2 files"):
        read_table(tmp_path / "b.tsv.zip")
    written(tmp_path, b"\x1f\x8bnothing", "c.csv.gz")
    with pytest.raises(SilodpError, match="cannot be unpacked"):
        read_table(tmp_path / "c.csv.gz")
    written(tmp_path, b"nothing", "c.csv.zip")
    with pytest.raises(SilodpError, match="cannot be unpacked"):
        read_table(tmp_path / "c.csv.zip")


# --- the reader that refuses and the one that does not

DIALECTS = [
    Dialect(),
    GERMAN,
    Dialect(";", ",", "."),
    Dialect("\t", ".", ",", "utf-16"),
    Dialect("|", ".", "", "latin-1"),
]
cells = st.text("ab ,;.|\"'1234\n\tä", max_size=7) | st.sampled_from(
    ["1,5", "1.5", "1.234,5", "1,234.5", "", "NA", "007", "31.12.2024", "-1e3", '"', "x;y", "1 234"]
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=5), st.sampled_from(DIALECTS))
@example([("", " ;")], Dialect(";", ","))
def test_both_readers_read_the_same(rows, dialect):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        frame = pd.DataFrame([("first", "row"), *rows], columns=["a", "b"])
        frame.to_csv(path, sep=dialect.delimiter, encoding=dialect.encoding, index=False)
        strict = read_table(path, EVERY_COLUMN, form=FileForm(dialect))
        total = read_values(path, ["a", "b"], dialect).frame
        for name in ("a", "b"):
            one, other = (
                [None if is_missing(value) else value for value in frame[name]]
                for frame in (strict, total)
            )
            assert one == other


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(cells, cells), max_size=4),
    st.tuples(cells, cells),
    st.integers(0, 4),
    st.sampled_from(DIALECTS),
)
def test_no_row_changes_how_others_are_read(rows, odd, place, dialect):
    """Of the reader of sites: with a row more, each of the others is read as before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"

        def read(some):
            frame = pd.DataFrame(some, columns=["a", "b"])
            frame.to_csv(path, sep=dialect.delimiter, encoding=dialect.encoding, index=False)
            return read_values(path, ["a", "b"], dialect).frame.to_numpy().tolist()

        together = read([*rows[:place], odd, *rows[place:]])
        alone = read([odd])
        place = min(place, len(rows))
        assert together == [*read(rows[:place]), *alone, *read(rows[place:])]


# --- programs' own files


def people():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "site": ["north", "south"] * 20,
            "age": rng.integers(20, 80, 40).astype(float),
            "ward": rng.choice(["a", "b"], 40),
            "score": rng.normal(50, 10, 40),
        }
    )


def load(path, **options):
    given = DataOptions(**{"silo_column": "site", "target": "score", **options})
    return resolve(path, given).load(0, given)


def test_stata(tmp_path):
    people().to_stata(tmp_path / "a.dta", write_index=False)
    people().to_csv(tmp_path / "a.csv", index=False)
    ours, plain = load(tmp_path / "a.dta"), load(tmp_path / "a.csv")
    for one, other in zip(ours.silos, plain.silos, strict=True):
        np.testing.assert_allclose(one.train.x, other.train.x, rtol=1e-5)


@pytest.mark.parametrize("name", ["a.dta", "a.sas7bdat", "a.xpt"])
def test_files_of_programs_that_are_none(tmp_path, name):
    written(tmp_path, b"nothing of the kind" * 100, name)
    with pytest.raises(SilodpError, match="damaged or of another kind"):
        load(tmp_path / name)


def test_a_program_that_is_not_installed(tmp_path, monkeypatch):
    for module, name, extra in (("openpyxl", "a.xlsx", "excel"), ("pyreadstat", "a.sav", "spss")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        written(tmp_path, b"x", name)
        with pytest.raises(SilodpError, match=f"pip install 'silodp\\[{extra}\\]'"):
            load(tmp_path / name)


def test_workbooks(tmp_path):
    pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    frame = people()
    frame["day"] = pd.to_datetime("2020-01-01") + pd.to_timedelta(range(40), "D")
    frame["code"] = ["3+", *range(39)]
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        frame.to_excel(book, sheet_name="visits", index=False, startrow=2)
        pd.DataFrame().to_excel(book, sheet_name="empty", index=False)
    read = read_table(path)
    assert read.age.tolist() == frame.age.tolist()
    assert read.day[1] == pd.Timestamp("2020-01-02")
    assert read.code[:2].tolist() == ["3+", "0"]
    with pd.ExcelWriter(path, engine="openpyxl", mode="a") as book:
        frame.to_excel(book, sheet_name="more", index=False)
    with pytest.raises(SilodpError, match=r"has 2 sheets .*'visits', 'more'.*--sheet"):
        read_table(path)
    options = {"ignore": ["day", "code"]}
    assert load(path, sheet="more", **options).names == ("north", "south")
    with pytest.raises(SilodpError, match="has no sheet 'moer': did you mean 'more'"):
        load(path, sheet="moer", **options)


# --- what a run says of it


def test_a_form_found_from_records_is_not_covered(tmp_path):
    path = tmp_path / "a.csv"
    people().to_csv(path, sep=";", decimal=",", index=False)
    found = load(path)
    assert any("How the file is written" in note for note in found.uncovered)
    declared = load(path, file={"delimiter": ";", "decimal": ","})
    assert not any("How the file is written" in note for note in declared.uncovered)
    assert all(
        math.isclose(one.train.x.sum(), other.train.x.sum(), abs_tol=1e-9)
        for one, other in zip(found.silos, declared.silos, strict=True)
    )
    options = DataOptions(silo_column="site", target="score")
    (said,) = resolve(path, options, Problems()).said
    assert "semicolons between values, a decimal comma" in said
