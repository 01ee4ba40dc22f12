"""The reader of MATLAB files: what scipy writes, what is damaged, and what is made to do harm."""

import io
import struct
import tempfile
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from cell_files import HEADER, array, element, row
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.data.formats import mat as mat_files
from silodp.data.formats.mat import MAX_CELLS, read_cells

DOUBLE = element(9, struct.pack("<d", 1.5))


def read(path, content):
    path.write_bytes(content)
    return read_cells(path, ["X"], "mend it")["X"]


@pytest.fixture
def refused(tmp_path):
    """Holds that a content is refused with these words, and that little memory was taken."""

    def check(words, content):
        tracemalloc.start()
        try:
            with pytest.raises(SilodpError, match=words) as error:
                read(tmp_path / "a.mat", content)
            assert tracemalloc.get_traced_memory()[1] < 20 * len(content) + (1 << 20)
        finally:
            tracemalloc.stop()
        assert str(error.value).endswith(": mend it.")

    return check


def cell(content, shape=(1, 1)):
    """A file whose one cell array X holds what is given."""
    return HEADER + array(1, shape, content, b"X")


def packed(content):
    compressed = zlib.compress(content)
    return struct.pack("<II", 15, len(compressed)) + compressed


def small_file(compressed):
    cells = row(np.arange(12, dtype="u1").reshape(4, 3), np.array([[0.5, -2.0]]))
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"Z": "words", "X": cells}, do_compression=compressed)
    return buffer.getvalue()


SMALL_FILES = [small_file(False), small_file(True)]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f4", "f8", "?"])
def test_equals_scipy(tmp_path, compressed, dtype):
    xs = [np.arange(12).reshape(3, 4).astype(dtype), np.ones((1, 4), dtype), np.ones((0, 4))]
    path = tmp_path / "a.mat"
    contents = {"Z": {"a": "other"}, "X": row(*xs), "text": "words", "n": np.ones(3)}
    scipy.io.savemat(path, contents, do_compression=compressed)
    expected = scipy.io.loadmat(path)["X"].ravel()
    got = read_cells(path, ["X"], "mend it")["X"]
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_either_byte_order(tmp_path):
    numbers = array(6, (2, 1), element(9, struct.pack(">dd", 1.5, -2.0), ">"), order=">")
    header = b"MATLAB 5.0".ljust(124, b" ") + b"\x01\x00MI"
    got = read(tmp_path / "a.mat", header + array(1, (1, 1), numbers, b"X", ">"))
    np.testing.assert_array_equal(got[0], [[1.5], [-2.0]])


@settings(max_examples=500, deadline=10_000)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(data):
    """scipy's own reader crashes the process on some of these."""
    content = bytearray(data.draw(st.sampled_from(SMALL_FILES)))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]
    with tempfile.TemporaryDirectory() as folder:
        try:
            got = read(Path(folder) / "a.mat", content)
        except SilodpError:
            return
    assert all(isinstance(matrix, np.ndarray) for matrix in got)


def test_bombs(refused):
    zeros = bytes(1 << 24)  # packed, a thousandth of it
    refused("would unpack to more than 128 MiB", HEADER + packed(struct.pack("<II", 14, 1 << 31)))
    refused("would unpack to more than 128 MiB", HEADER + packed(b"\xff" * 16))
    refused(
        "not as many bytes as it announces",
        HEADER + packed(struct.pack("<II", 14, 100) + zeros),
    )
    refused("not as many bytes as it announces", HEADER + packed(struct.pack("<II", 14, 1 << 26)))
    refused("cut short", HEADER + packed(b"\x0e\0\0"))
    # Packed over and over: only one layer is opened.
    refused("not an array", HEADER + packed(packed(packed(cell(b"")))))


def test_all_that_is_packed_counts_together(tmp_path, monkeypatch):
    one = packed(array(1, (1, 1), array(6, (100, 100), element(9, bytes(80_000))), b"X"))
    monkeypatch.setattr(mat_files, "MAX_BYTES", 200_000)
    assert len(read(tmp_path / "a.mat", HEADER + 2 * one)) == 1
    with pytest.raises(SilodpError, match="would unpack to more"):
        read(tmp_path / "a.mat", HEADER + 3 * one)


def test_large_files(tmp_path, monkeypatch):
    monkeypatch.setattr(mat_files, "MAX_BYTES", 1 << 20)
    with (tmp_path / "a.mat").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(SilodpError, match=r"more than 1048576 bytes: mend it"):
        read_cells(tmp_path / "a.mat", ["X"], "mend it")


def test_impossible_shapes(refused):
    wide = element(12, struct.pack("<qq", 0, 1 << 62))
    refused("impossible shape", cell(array(6, wide, element(9, b""))))
    refused("impossible shape", cell(array(6, (-1, -1), DOUBLE)))
    refused("impossible shape", cell(b"", shape=(-1, 1)))
    huge = element(13, struct.pack("<QQ", 1 << 31, 1 << 31))
    refused("impossible shape", cell(array(6, huge, DOUBLE)))
    refused("impossible shape", cell(b"", shape=huge))
    refused("not as many numbers", cell(array(6, (1 << 27, 1 << 27), DOUBLE)))
    refused("header of an array", cell(array(6, (1,) * 100, DOUBLE)))
    refused("header of an array", cell(array(6, element(9, struct.pack("<dd", 1, 1)), DOUBLE)))
    not_a_number = element(9, struct.pack("<d", float("nan")))
    refused("header of an array", HEADER + element(14, not_a_number * 2 + element(1, b"X")))


def test_many_cells(refused):
    empty = element(14, b"")
    refused(f"more than {MAX_CELLS} cells", cell(empty * 10, shape=(MAX_CELLS + 1, 1)))
    refused("ends after 10 of its cells", cell(empty * 10, shape=(MAX_CELLS, 1)))


def test_cells_in_cells(refused):
    nested = array(6, (1, 1), DOUBLE)
    for _ in range(3000):
        nested = array(1, (1, 1), nested)
    refused("plain matrix of numbers", cell(nested))


@pytest.mark.parametrize(
    ("array_class", "stored"),
    [(9, element(9, struct.pack("<d", np.nan))), (7, element(9, struct.pack("<d", 1e300)))],
    ids=["NaN as a byte", "beyond single precision"],
)
def test_numbers_that_do_not_fit(refused, array_class, stored):
    refused("does not fit into their array", cell(array(array_class, (1, 1), stored)))
