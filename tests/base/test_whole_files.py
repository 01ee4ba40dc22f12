"""Files are there whole or not at all."""

import os
import stat

import pytest

from silodp.base import files
from silodp.base.errors import SilodpError
from silodp.base.files import SHARED, new_beside, whole_file, write_file


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    for content in ("one", b"two"):
        assert write_file(path, content) == path
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["a.txt"]
    assert mode_of(path) == 0o600


def test_who_may_read_it(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "a", "x", mode=SHARED)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a") == 0o640


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("failure", [Killed, OSError, KeyboardInterrupt])
def test_what_fails_leaves_the_file_that_was_there(tmp_path, failure):
    path = tmp_path / "a"
    write_file(path, "before")

    def fail():
        with whole_file(path) as file:
            file.write(b"half of")
            raise failure

    with pytest.raises(failure):
        fail()
    assert os.listdir(tmp_path) == ["a"]
    assert path.read_text() == "before"


def test_content_is_on_the_disk_before_its_name_and_then_the_folder(tmp_path, monkeypatch):
    order = []

    def noted(name):
        original = getattr(os, name)
        return lambda *args: (order.append(name), original(*args))[1]

    for name in ("fsync", "replace"):
        monkeypatch.setattr(files.os, name, noted(name))
    for sync, expected in (
        ("none", ["replace"]),
        ("file", ["fsync", "replace"]),
        ("folder", ["fsync", "replace", "fsync"]),
    ):
        order.clear()
        write_file(tmp_path / "a", "x", sync=sync)
        assert order == expected


def test_a_folder_that_cannot_be_used_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SilodpError, match=r"a\.txt cannot be written \(.*\): choose another"):
        write_file(tmp_path / "file" / "a.txt", "x")


def test_a_full_disk_is_no_fault_of_the_folder(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_file(tmp_path / "a", "x")
    assert os.listdir(tmp_path) == []


def test_two_processes_do_not_write_to_one_file(tmp_path):
    with new_beside(tmp_path / "a") as one, new_beside(tmp_path / "a") as other:
        assert one != other
        assert {one.name, other.name} == set(os.listdir(tmp_path))
    assert os.listdir(tmp_path) == []
