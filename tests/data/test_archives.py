"""Archives, honest and hostile ones: the wanted files of them arrive whole, or nothing does."""

import hashlib
import io
import os
import stat
import struct
import tarfile
import zipfile

import pytest

from silodp.base.errors import SilodpError
from silodp.data.files import Archive, DataFile
from silodp.data.formats import archives
from silodp.data.formats.archives import download_members

ONE, TWO = os.urandom(600_000), bytes(range(256)) * 2000
HONEST = {"README": b"read me", "set-1/deep/one.bin": ONE, "set-1/two.bin": TWO}


def sha256(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def zipped(members):
    """A zip file; names may be `ZipInfo`s, for odd ones."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(members, packing=""):
    """A tar file; contents may be `TarInfo`s, for members that are no plain files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{packing}") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def special(kind, name="one.bin", target="/etc/passwd"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def get(tmp_path):
    """Fetches files of an archive with this content into a folder of their own."""

    def call(content, wanted, checksum=None, **more):
        (tmp_path / "published").write_bytes(content)
        archive = Archive((tmp_path / "published").as_uri(), checksum)
        download_members(archive, {tmp_path / "set" / f.name: f for f in wanted}, **more)

    return call


@pytest.fixture
def refused(get, tmp_path):
    """The one sentence with which an archive is refused; nothing may be left of it anywhere."""

    def call(content, *names, checksum=None):
        wanted = [DataFile(name, None, None) for name in names or ("one.bin",)]
        with pytest.raises(SilodpError) as error:
            get(content, wanted, checksum)
        assert os.listdir(tmp_path / "set") == []
        assert sorted(os.listdir(tmp_path)) == ["published", "set"]
        assert "by hand" in str(error.value)
        return str(error.value)

    return call


PACKED = {
    "zip": zipped(HONEST),
    "tar": tarred(HONEST),
    "tar.gz": tarred(HONEST, "gz"),
}


@pytest.mark.parametrize("packing", PACKED)
def test_only_what_is_wanted_is_unpacked(get, tmp_path, packing):
    content, seen = PACKED[packing], []
    wanted = [DataFile("one.bin", None, sha256(ONE)), DataFile("two.bin", None, None)]
    get(content, wanted, sha256(content), unpacking=lambda done, of: seen.append((done, of)))
    assert sorted(os.listdir(tmp_path / "set")) == ["one.bin", "two.bin"]
    assert (tmp_path / "set" / "one.bin").read_bytes() == ONE
    assert (tmp_path / "set" / "two.bin").read_bytes() == TWO
    assert {of for _, of in seen} == {len(content)}
    assert all(done <= of for done, of in seen)


def test_what_was_there_is_replaced_or_kept(get, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "one.bin").write_bytes(b"old")
    wrong = [DataFile("one.bin", None, sha256(ONE)), DataFile("two.bin", None, sha256(b""))]
    with pytest.raises(SilodpError, match=r"two\.bin in the archive has sha256"):
        get(PACKED["tar.gz"], wrong)
    assert os.listdir(tmp_path / "set") == ["one.bin"]
    assert (tmp_path / "set" / "one.bin").read_bytes() == b"old"
    get(PACKED["tar.gz"], wrong[:1])
    assert (tmp_path / "set" / "one.bin").read_bytes() == ONE


def test_wrong_checksum_of_the_archive(refused):
    assert "has md5" in refused(PACKED["zip"], checksum="md5:0")


def test_missing_members(refused):
    assert "does not hold three.bin, four.bin" in refused(
        PACKED["tar"], "one.bin", "three.bin", "four.bin"
    )


@pytest.mark.parametrize("name", ["../one.bin", "a/../../evil", "/one.bin", "C:/evil", "..\\evil"])
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_paths_that_point_out(refused, pack, name):
    assert "points out of the folder" in refused(pack({"one.bin": ONE, name: b"evil"}))


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_two_of_the_same_name(refused, pack):
    assert "two files named one.bin" in refused(pack({"a/one.bin": ONE, "b/one.bin": b"evil"}))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_members_that_are_no_files(refused, kind):
    assert "not a file" in refused(tarred({"one.bin": special(kind)}))


def test_link_in_a_zip(refused):
    link = zipfile.ZipInfo("one.bin")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "not a file" in refused(zipped({link: "/etc/passwd"}))


def test_links_that_nobody_wants(get, tmp_path):
    get(
        tarred({"latest": special(tarfile.SYMTYPE, "latest"), "one.bin": ONE}),
        [DataFile("one.bin", None, None)],
    )
    assert os.listdir(tmp_path / "set") == ["one.bin"]


def test_claims_of_too_much(refused, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_MEMBER", 1000)
    assert "more than 1000" in refused(zipped({"one.bin": bytes(1001)}))
    assert "more than 1000" in refused(tarred({"one.bin": bytes(1001)}, "gz"))


def test_tar_bombs(refused, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_TAR", 1 << 20)
    assert "claims to hold" in refused(tarred({"zeros": bytes(2 << 20), "one.bin": ONE}, "gz"))
    trailing = tarred({"one.bin": b"1"}) + bytes(2 << 20)
    assert "claims to hold" in refused(trailing)
    # A header of a long name that asks for memory, not for disk.
    monkeypatch.setattr(archives, "LARGEST_READ", 1 << 15)
    assert "asks for" in refused(tarred({"x" * (1 << 16): b"", "one.bin": b"1"}, "gz"))


def patched(content, old, new):
    """Some bytes of a zip's headers changed, in the local one and in the directory."""
    assert content.count(old) == 2
    return content.replace(old, new)


def test_zip_bomb(refused):
    content = zipped({"one.bin": bytes(3_000_000)})
    lies = patched(content, struct.pack("<I", 3_000_000), struct.pack("<I", 1000))
    assert "damaged" in refused(lies)


def test_a_member_that_is_smaller_than_it_claims(refused):
    content = zipped({"one.bin": bytes(3000)})
    lies = patched(content, struct.pack("<I", 3000), struct.pack("<I", 4000))
    assert "one.bin" in refused(lies)


def test_encrypted_zip(refused):
    content = bytearray(zipped({"one.bin": ONE}))
    content[6] |= 1  # flags of the local header, then of the directory
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in refused(bytes(content))


def test_unusual_packing(refused):
    strange = zipfile.ZipInfo("one.bin")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(strange, bytes(1000), zipfile.ZIP_BZIP2)
    assert "unusual" in refused(out.getvalue())


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("part", [0.0, 0.0001, 0.5, 0.98])
def test_truncated(refused, packing, part):
    content = PACKED[packing]
    # Plain tar ends in zeros, which may be missing: cut off more of it.
    kept = int(part * len(content)) if packing != "tar" else int(part * len(content) * 0.9)
    assert "The archive published is refused" in refused(content[:kept], "one.bin", "two.bin")


@pytest.mark.parametrize("packing", ["zip", "tar.gz"])
def test_damaged(refused, packing):
    content = bytearray(PACKED[packing])
    content[len(content) // 3] ^= 0xFF
    assert "refused" in refused(bytes(content))


@pytest.mark.parametrize(
    "content", [b"", b"<html>Not found</html>" * 100, b"PK\x03\x04", b"\x1f\x8b"]
)
def test_no_archive_at_all(refused, content):
    assert "damaged, or of no kind known here" in refused(content)


@pytest.mark.parametrize("when", ["downloading", "unpacking"])
def test_an_interrupt_leaves_nothing(get, tmp_path, when):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(PACKED["tar.gz"], [DataFile("one.bin", None, None)], **{when: interrupt})
    assert os.listdir(tmp_path / "set") == []
