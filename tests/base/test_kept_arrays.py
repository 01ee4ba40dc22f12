"""Files of arrays with a document: what NumPy wrote is read, and what is damaged is refused."""

import contextlib
import json
import os

import numpy as np
import pytest

from silodp.base.arrays import read_all_arrays, save_arrays
from silodp.base.errors import SilodpError

ARRAYS = {
    "state0": np.arange(6.0).reshape(2, 3),
    "state1": np.array(3, np.int32),
    "none": np.zeros((0, 4), np.float32),
    "truth": np.array([True, False]),
}
ABOUT = {"round": 3, "name": "Łódź", "secret": "00ff"}


def same(read):
    assert read.document == ABOUT
    assert read.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert read.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(read.arrays[name], array)


def test_there_and_back(tmp_path):
    path = tmp_path / "a.npz"
    save_arrays(path, "about", ABOUT, ARRAYS)
    same(read_all_arrays(path, "get it anew", "about"))
    with np.load(path, allow_pickle=False) as file:
        assert json.loads(str(file["about"])) == ABOUT
    assert os.listdir(tmp_path) == ["a.npz"]


def test_what_earlier_versions_wrote_is_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, allow_pickle=False, about=np.array(json.dumps(ABOUT)), **ARRAYS)
    same(read_all_arrays(path, "get it anew", "about"))


def test_every_cut_and_every_changed_byte_is_refused_or_changes_nothing(tmp_path):
    whole, path = tmp_path / "a.npz", tmp_path / "b.npz"
    save_arrays(whole, "about", ABOUT, ARRAYS)
    content = whole.read_bytes()
    cuts = [content[:end] for end in range(0, len(content), 7)]
    flipped = [
        content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]
        for at in range(0, len(content), 3)
    ]
    files = (*cuts, *flipped, b"x" * len(content))
    refused = len(files)
    for damaged in files:
        path.write_bytes(damaged)
        with contextlib.suppress(SilodpError):
            read = read_all_arrays(path, "get it anew", "about")
            refused -= 1
            # The list of contents has no checksum: names may be others, or fewer.
            assert read.document == ABOUT
            for name in ARRAYS.keys() & read.arrays.keys():
                np.testing.assert_array_equal(read.arrays[name], ARRAYS[name])
    assert refused > len(cuts)


def test_objects_and_packed_files_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, about=np.array("{}"), evil=np.array([{}], dtype=object))
    with pytest.raises(SilodpError, match="get it anew"):
        read_all_arrays(path, "get it anew", "about")
    np.savez_compressed(path, about=np.array("{}"), state0=np.zeros(10**5))
    with pytest.raises(SilodpError, match="is packed"):
        read_all_arrays(path, "get it anew", "about")


@pytest.mark.parametrize(
    "about", [None, np.zeros(2), np.array("{"), np.array(["{}"]), np.array("[" * 100_000)]
)
def test_a_document_that_is_none_is_refused(tmp_path, about):
    path = tmp_path / "a.npz"
    np.savez(path, state0=np.ones(2), **({} if about is None else {"about": about}))
    with pytest.raises(SilodpError, match="get it anew"):
        read_all_arrays(path, "get it anew", "about")
