import hashlib
import json
import os
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from silodp.cache import cache_dir
from silodp.cli.data import app
from silodp.datasets import SOURCES, files
from silodp.datasets.files import DataFile, download, find_file
from silodp.errors import SilodpError

CONTENT = bytes(range(256)) * 1000


def data_file(url, content=CONTENT):
    return DataFile("some.mat", url, hashlib.sha256(content).hexdigest())


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
        assert str(place) in str(error.value)
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


@pytest.mark.parametrize("url", ["nonsense", "file:///no/such/file"])
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


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def fake_school(monkeypatch, tmp_path):
    """School with a file that can be had without the network."""
    (tmp_path / "origin").write_bytes(CONTENT)
    file = DataFile(
        "school.mat", (tmp_path / "origin").as_uri(), hashlib.sha256(CONTENT).hexdigest()
    )
    monkeypatch.setitem(SOURCES, "school", replace(SOURCES["school"], files=(file,)))
    return tmp_path / "cache" / "data" / "school" / "school.mat"


def test_get_and_get_again(fake_school):
    result = run("get", "school")
    assert result.exit_code == 0
    assert "now at" in result.output
    assert fake_school.read_bytes() == CONTENT
    assert "already at" in run("get", "school").output
    fake_school.write_bytes(b"damaged")
    assert "now at" in run("get", "school").output
    assert fake_school.read_bytes() == CONTENT


def test_get_into_a_folder(fake_school, tmp_path):
    run("get", "school")
    result = run("get", "school", "--data-dir", tmp_path / "mine")
    assert "now at" in result.output  # although the cache has it
    assert (tmp_path / "mine" / "school" / "school.mat").read_bytes() == CONTENT


def test_get_refuses_what_a_damaged_file_would_hide(fake_school, tmp_path, monkeypatch):
    monkeypatch.setenv("SILODP_DATA", str(tmp_path))
    (tmp_path / "school.mat").write_bytes(b"damaged")
    result = run("get", "school")
    assert isinstance(result.exception, SilodpError)
    assert "remove" in str(result.exception)


def test_get_without_files_or_without_name():
    assert "needs no file" in run("get", "synthetic").output
    result = run("get", "scholl")
    assert isinstance(result.exception, SilodpError)
    assert "use 'school' or" in str(result.exception)


def test_list(fake_school):
    rows = {row["name"]: row for row in json.loads(run("list", "--json").output)}
    assert rows["school"]["files"] == {"school.mat": None}
    assert rows["synthetic"]["files"] == {}
    assert "not here yet" in " ".join(run("list").output.split())
    run("get", "school")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").output)}
    assert Path(rows["school"]["files"]["school.mat"]) == fake_school


def test_checksum_of_an_unreadable_file(tmp_path):
    with pytest.raises(SilodpError, match="cannot be read"):
        files.sha256_of(tmp_path / "none")
