import functools
import gzip
import hashlib
import json
import os
import socket
import tarfile
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from silodp.base.cache import cache_dir
from silodp.base.errors import SilodpError
from silodp.data import files
from silodp.data.files import Archive, DataFile, download, find_file
from silodp.data.formats import archives
from silodp.data.registry import SOURCES

CONTENT = bytes(range(256)) * 1000


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def data_file(url, content=CONTENT):
    return DataFile("some.mat", url, f"sha256:{sha256(content)}")


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """No test sees the developer's own folders."""
    monkeypatch.delenv("SILODP_DATA", raising=False)
    monkeypatch.setenv("SILODP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/missing":
                self.send_error(404)
                return
            if self.path.startswith("/to="):
                self.send_response(302)
                self.send_header("Location", self.path.removeprefix("/to="))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            if self.path != "/no-length":
                self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000] if self.path == "/truncated" else CONTENT)

        def log_message(self, format, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http_server:
        thread = threading.Thread(target=http_server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http_server.server_port}"
        http_server.shutdown()
        thread.join()


def test_cache_dir(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("SILODP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "silodp"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "silodp"


def test_find_file_looks_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("SILODP_DATA", str(tmp_path / "env"))
    places = [
        tmp_path / "cache" / "data" / "a.mat",
        tmp_path / "cache" / "data" / "set" / "a.mat",
        tmp_path / "env" / "a.mat",
        tmp_path / "env" / "set" / "a.mat",
        tmp_path / "given" / "a.mat",
        tmp_path / "given" / "set" / "a.mat",
    ]
    with pytest.raises(SilodpError) as error:
        find_file("set", "a.mat", tmp_path / "given")
    for place in places:
        assert str(place.parent) in str(error.value)
    assert "`silodp data get set`" in str(error.value)
    for place in places:  # each goes before those written so far
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")
        assert find_file("set", "a.mat", tmp_path / "given") == place


def test_download_http(server, tmp_path):
    seen = []
    target = tmp_path / "new" / "folder" / "some.mat"
    download(data_file(f"{server}/ok"), target, lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["some.mat"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask


def test_download_without_length(server, tmp_path):
    seen = []
    download(
        data_file(f"{server}/no-length"),
        tmp_path / "some.mat",
        lambda done, total: seen.append(total),
    )
    assert (tmp_path / "some.mat").read_bytes() == CONTENT
    assert set(seen) == {None}


def test_download_file_url_replaces(tmp_path):
    (tmp_path / "from").write_bytes(CONTENT)
    (tmp_path / "some.mat").write_bytes(b"old")
    download(data_file((tmp_path / "from").as_uri()), tmp_path / "some.mat")
    assert (tmp_path / "some.mat").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("page", "words"),
    [("/truncated", "1000 of 256000 bytes"), ("/missing", "could not be downloaded")],
)
def test_bad_download_leaves_nothing(server, tmp_path, page, words):
    folder = tmp_path / "folder"
    with pytest.raises(SilodpError, match=words) as error:
        download(data_file(server + page), folder / "some.mat")
    assert str(folder / "some.mat") in str(error.value)
    assert os.listdir(folder) == []


def test_wrong_checksum_leaves_what_was_there(server, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "some.mat").write_bytes(b"old")
    with pytest.raises(SilodpError, match="sha256"):
        download(data_file(f"{server}/ok", b"other"), folder / "some.mat")
    assert os.listdir(folder) == ["some.mat"]
    assert (folder / "some.mat").read_bytes() == b"old"


def test_an_interrupt_leaves_nothing(server, tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    folder = tmp_path / "folder"
    with pytest.raises(KeyboardInterrupt):
        download(data_file(f"{server}/ok"), folder / "some.mat", interrupt)
    assert os.listdir(folder) == []


def test_no_network(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/some.mat"
    with pytest.raises(SilodpError, match="by hand") as error:
        download(data_file(url), tmp_path / "some.mat")
    assert url in str(error.value)
    assert str(tmp_path / "some.mat") in str(error.value)


def test_a_silent_server_times_out(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/some.mat"
        with pytest.raises(SilodpError, match="timed out"):
            download(data_file(url), tmp_path / "some.mat", timeout=0.1)


def test_a_redirect_within_http(server, tmp_path):
    download(data_file(f"{server}/to=/ok"), tmp_path / "some.mat")
    assert (tmp_path / "some.mat").read_bytes() == CONTENT


@pytest.mark.parametrize("to", ["ftp://127.0.0.1/some.mat", "file:///etc/hosts", "data:,evil"])
def test_redirects_to_another_scheme(server, tmp_path, to):
    with pytest.raises(SilodpError, match=r"not followed|not allowed"):
        download(data_file(f"{server}/to={to}"), tmp_path / "some.mat")
    assert os.listdir(tmp_path) == []


def test_a_redirect_that_would_give_up_encryption():
    request = urllib.request.Request("https://example.org/some.mat")
    careful = files._CarefulRedirects()
    with pytest.raises(urllib.error.HTTPError, match="from https to http") as error:
        careful.redirect_request(request, None, 302, "", Message(), "http://example.org/some.mat")
    error.value.close()
    request = urllib.request.Request("http://example.org/some.mat")
    assert careful.redirect_request(request, None, 302, "", Message(), "https://example.org/")


@pytest.mark.parametrize(
    "url", ["nonsense", "file:///no/such/file", "ftp://127.0.0.1/some.mat", "data:,evil"]
)
def test_bad_url(tmp_path, url):
    with pytest.raises(SilodpError, match="could not be downloaded"):
        download(data_file(url), tmp_path / "some.mat")


def test_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SilodpError, match="cannot be written to"):
        download(data_file(f"{server}/ok"), tmp_path / "file" / "some.mat")


def test_destination_that_is_a_folder(server, tmp_path):
    (tmp_path / "some.mat").mkdir()
    with pytest.raises(SilodpError, match="move away"):
        download(data_file(f"{server}/ok"), tmp_path / "some.mat")
    assert os.listdir(tmp_path) == ["some.mat"]


# --- `silodp data list` and `silodp data get`


@pytest.fixture
def run(cli):
    return functools.partial(cli, "data")


@pytest.fixture
def fake_school(monkeypatch, tmp_path):
    """School with a file that can be had without the network."""
    (tmp_path / "origin").write_bytes(CONTENT)
    file = DataFile(
        "school.mat",
        (tmp_path / "origin").as_uri(),
        "sha256:" + hashlib.sha256(CONTENT).hexdigest(),
    )
    monkeypatch.setitem(SOURCES, "school", replace(SOURCES["school"], files=(file,)))
    return tmp_path / "cache" / "data" / "school" / "school.mat"


def test_get_and_get_again(run, fake_school):
    result = run("get", "school")
    assert result.exit_code == 0
    assert "now at" in result.output
    assert fake_school.read_bytes() == CONTENT
    assert "already at" in run("get", "school").output
    fake_school.write_bytes(b"damaged")
    assert "now at" in run("get", "school").output
    assert fake_school.read_bytes() == CONTENT


def test_get_into_a_folder(run, fake_school, tmp_path):
    run("get", "school")
    result = run("get", "school", "--data-dir", tmp_path / "mine")
    assert "now at" in result.output  # although the cache has it
    assert (tmp_path / "mine" / "school" / "school.mat").read_bytes() == CONTENT


def test_get_refuses_what_a_damaged_file_would_hide(
    run, sentence, fake_school, tmp_path, monkeypatch
):
    monkeypatch.setenv("SILODP_DATA", str(tmp_path))
    (tmp_path / "school.mat").write_bytes(b"damaged")
    assert "remove" in sentence(run("get", "school"))


def test_get_without_files_or_without_name(run, sentence):
    assert "needs no file" in run("get", "synthetic").output
    assert "did you mean 'school'" in sentence(run("get", "scholl"))


def test_list(run, fake_school):
    rows = {row["name"]: row for row in json.loads(run("list", "--json").output)}
    assert rows["school"]["files"] == {"school.mat": None}
    assert rows["synthetic"]["files"] == {}
    assert "not here yet" in " ".join(run("list").output.split())
    run("get", "school")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").output)}
    assert Path(rows["school"]["files"]["school.mat"]) == fake_school


def test_checksum_of_an_unreadable_file(tmp_path):
    with pytest.raises(SilodpError, match="cannot be read"):
        files.digest_of(tmp_path / "none", "sha256")


def test_kinds_of_checksum(tmp_path):
    (tmp_path / "file").write_bytes(b"hello\n")
    for checksum in (
        "md5:b1946ac92492d2347c6235b4d2611184",
        "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
        "git:ce013625030ba8dba906f756967f9e9ca394464a",
    ):
        assert files.has_checksum(tmp_path / "file", checksum)
        assert not files.has_checksum(tmp_path / "file", checksum[:-1] + "x")


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """Puts data sets with these files into the list."""

    def add(*data_files, by_hand=""):
        source = replace(SOURCES["school"], name="made-up", files=data_files, by_hand=by_hand)
        monkeypatch.setitem(SOURCES, "made-up", source)
        return tmp_path / "cache" / "data" / "made-up"

    return add


def test_get_from_an_archive_that_is_fetched_once(run, made_up, tmp_path, monkeypatch):
    (tmp_path / "one.bin").write_bytes(b"one")
    (tmp_path / "two.bin").write_bytes(b"two")
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as packed:
        for name in ("one.bin", "two.bin"):
            packed.add(tmp_path / name, f"set/{name}")
    archive = Archive((tmp_path / "set.tar.gz").as_uri(), None)
    one = DataFile("one.bin", archive, "md5:" + hashlib.md5(b"one").hexdigest())
    two = DataFile("two.bin", archive, None)
    folder = made_up(one, two)
    fetched, fetch = [], archives.fetch
    monkeypatch.setattr(archives, "fetch", lambda *args: fetched.append(args) or fetch(*args))
    result = run("get", "made-up")
    assert result.exit_code == 0
    assert len(fetched) == 1
    assert sorted(os.listdir(folder)) == ["one.bin", "two.bin"]
    assert "one.bin is now at" in result.output
    assert f"no checksum of it is published; its sha256 is {sha256(b'two')}" in result.output
    again = run("get", "made-up").output
    assert len(fetched) == 1
    assert again.count("already at") == 2
    assert "could not be checked" in again
    (folder / "one.bin").unlink()
    run("get", "made-up")
    assert len(fetched) == 2
    assert (folder / "one.bin").read_bytes() == b"one"


def test_an_archive_that_was_checked_vouches_for_its_files(run, made_up, tmp_path):
    (tmp_path / "one.bin").write_bytes(b"one")
    with tarfile.open(tmp_path / "set.tar", "w") as packed:
        packed.add(tmp_path / "one.bin", "one.bin")
    digest = sha256((tmp_path / "set.tar").read_bytes())
    archive = Archive((tmp_path / "set.tar").as_uri(), f"sha256:{digest}")
    made_up(DataFile("one.bin", archive, None))
    assert "the checksum of its archive is right" in run("get", "made-up").output


def test_get_what_must_be_asked_for(run, sentence, made_up, tmp_path):
    (tmp_path / "origin").write_bytes(CONTENT)
    free = DataFile("free.bin", (tmp_path / "origin").as_uri(), None)
    closed = DataFile("closed.bin", None, None)
    folder = made_up(free, closed, by_hand="Ask the owners for access.")
    done = run("get", "made-up")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: Data set 'made-up': closed.bin cannot be fetched by a command: "
        "Ask the owners for access."
    )
    assert (folder / "free.bin").read_bytes() == CONTENT
    (folder / "closed.bin").write_bytes(b"")
    assert run("get", "made-up").exit_code == 0
    made_up(by_hand="Ask the owners for access.")
    assert "its files cannot be fetched" in sentence(run("get", "made-up"))


def test_another_packing_will_do(run, made_up, tmp_path):
    file = DataFile("a.bin", "file:///no/such/file", "md5:0", also=("a.bin.gz", "a.bin.xz"))
    folder = made_up(file, DataFile("b.bin", "file:///no/such/file", "md5:0"))
    folder.mkdir(parents=True)
    (folder / "a.bin.xz").write_bytes(b"")
    (folder / "b.bin").write_bytes(b"")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").output)}
    assert rows["made-up"]["files"]["a.bin"] == str(folder / "a.bin.xz")
    made_up(file)
    result = run("get", "made-up")
    assert result.exit_code == 0
    assert f"here as {folder / 'a.bin.xz'}, packed in another way, and not" in result.output
    made_up(DataFile("a.mat", None, "md5:0", forms=("a.bin.xz",)))
    assert "another form, which is not checked" in run("get", "made-up").output


def test_the_same_content_packed_anew_is_checked(run, sentence, made_up):
    packed = gzip.compress(CONTENT, mtime=1)
    of_content = "md5:" + hashlib.md5(CONTENT).hexdigest()
    file = DataFile("a.gz", "file:///no/such/file", "md5:0", also=("a",), content=of_content)
    folder = made_up(file)
    folder.mkdir(parents=True)
    for name, content in (("a.gz", packed), ("a", CONTENT)):
        (folder / name).write_bytes(content)
        result = run("get", "made-up")
        assert "the checksum of its content is right" in result.output
        (folder / name).unlink()
    # Of another content it is fetched anew (here from nowhere), or must go first.
    (folder / "a.gz").write_bytes(gzip.compress(CONTENT + b"more"))
    assert "could not be downloaded" in sentence(run("get", "made-up"))
    (folder / "a.gz").unlink()
    (folder / "a").write_bytes(CONTENT + b"more")
    assert "wrong checksum" in sentence(run("get", "made-up"))


def test_list_says_how_to_get_it(run, made_up, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # so that no cell is broken

    def listed(*data_files, **more):
        made_up(*data_files, **more)
        return " ".join(run("list").output.replace("│", " ").split())

    files_of = [DataFile(f"{n}.bin", "file:///no", None) for n in "abc"]
    assert "a.bin and 2 more: not here yet" in listed(*files_of)
    asked = [DataFile("closed.bin", None, None)]
    assert "closed.bin: on request" in listed(*asked, by_hand="Ask.")
    assert "on request" in listed(by_hand="Ask.")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").output)}
    assert rows["made-up"]["by_hand"] == "Ask."
