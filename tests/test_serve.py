"""`silodp serve`: live, on this machine alone, for those who know the token; and what it reads."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from report_runs import EVIL, made_up, write_federation

import silodp
from silodp.errors import SilodpError
from silodp.progress_file import PROGRESS_FILE, KeepsProgress, kept_progress
from silodp.report.live import live_part, progress_in
from silodp.report.server import HOST, ReportServer
from silodp.reporting import Reporter, SweepReporter


@contextmanager
def served(*folders, **more):
    with ReportServer([Path(folder) for folder in folders], **more) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(server, path="", method="GET", **headers):
    """The answer to a request: its status, headers and text."""
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_the_page_is_there_for_those_who_know_the_token(tmp_path):
    write_federation(tmp_path)
    with served(tmp_path) as server:
        assert server.address == f"http://127.0.0.1:{server.server_port}/{server.token}/"
        status, headers, text = asked(server, f"/{server.token}/")
        assert status == 200
        assert "silos do better with MR-MTL than alone" in text
        assert "Nothing is being trained here now" in text
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Frame-Options"] == "DENY"
        status, _, part = asked(server, f"/{server.token}/live")
        assert status == 200
        assert part.startswith('<section id="live"') or 'id="live"' in part
        status, _, nothing = asked(server, f"/{server.token}/", "HEAD")
        assert (status, nothing) == (200, "")


def test_nobody_else_gets_anything(tmp_path):
    write_federation(tmp_path)
    with served(tmp_path) as server:
        token = server.token
        for path in ("/", f"/{token[:-1]}/", f"/{token}x/", "//", "/live", f"/{token.upper()}!/"):
            assert asked(server, path)[0] == 404, path
        for path in ("result.json", "../", "%2e%2e/", "live/../x", "mrmtl/result.json"):
            assert asked(server, f"/{token}/{path}")[0] == 404, path
        # A page elsewhere whose name was made to point to this machine.
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
            assert asked(server, f"/{token}/", Host=host)[0] == 403, host
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            assert asked(server, f"/{token}/", method)[0] == 501, method


def test_it_answers_on_this_machine_alone(tmp_path):
    with served(tmp_path) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert server.token not in repr(server.server_address)
    with ReportServer([tmp_path]) as one, ReportServer([tmp_path]) as other:
        assert one.token != other.token
        assert len(one.token) >= 32


def test_a_port_that_is_taken_is_told(tmp_path):
    with (
        ReportServer([tmp_path]) as server,
        pytest.raises(SilodpError, match=f"Port {server.server_port} cannot be used"),
    ):
        ReportServer([tmp_path], port=server.server_port)


def test_a_folder_to_come_is_waited_for(tmp_path):
    with served(tmp_path / "later") as server:
        page = f"/{server.token}/"
        assert "Nothing is finished yet." in asked(server, page)[2]
        known = re.search(r'data-known="([^"]*)"', asked(server, page + "live")[2]).group(1)
        made_up().write(tmp_path / "later")
        after = re.search(r'data-known="([^"]*)"', asked(server, page + "live")[2]).group(1)
        assert after != known  # the page loads itself anew
        assert "MR-MTL reaches" in asked(server, page)[2]


def test_a_damaged_result_is_a_sentence_on_the_page(tmp_path):
    (tmp_path / "result.json").write_text('{"<b>": ')
    with served(tmp_path) as server:
        status, _, text = asked(server, f"/{server.token}/")
    assert status == 200
    assert "is not a result" in text
    assert "<b>" not in text


def test_what_goes_on_is_shown_with_names_escaped(tmp_path):
    (tmp_path / "run").mkdir()
    told = KeepsProgress(tmp_path / "run", Reporter(), {"data": EVIL[0], "method": "mrmtl"})
    told.promised([{**p, "silo": EVIL[1]} for p in made_up().privacy])
    told.stage("training")
    for done in range(1, 11):
        told.trained(done, 10, 1 / done)
    part = live_part([tmp_path])
    assert "Training, 10 of 10 rounds" in part
    assert "test metric 0.1" in part
    assert '<progress max="10" value="10">' in part
    assert "alert(1)" in part
    assert "<script" not in part
    assert "<img" not in part
    assert "No sign of life" not in part


def test_a_killed_process_is_told(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    told = {"process": child.pid, "time": time.time() - 100, "done": 3, "total": 9}
    path = tmp_path / PROGRESS_FILE
    path.write_text(json.dumps(told | {"stage": "training", "seconds": 5.0}))
    assert "the process has ended without finishing" in live_part([tmp_path])
    path.write_text(json.dumps(told | {"stage": "training", "process": os.getpid()}))
    assert "has ended" not in live_part([tmp_path])  # perhaps it compiles


def test_sites_are_read_too(tmp_path):
    """They keep their own rounds, in state/JOB."""
    folder = tmp_path / "state" / "job"
    folder.mkdir(parents=True)
    told = {"job": "j1", "method": "mrmtl", "round": 3, "rounds": 9, "time": time.time()}
    (folder / PROGRESS_FILE).write_text(json.dumps(told | {"finished": False, "metrics": {}}))
    assert "Training, 3 of 9 rounds" in live_part([tmp_path])
    (folder / PROGRESS_FILE).write_text(json.dumps(told | {"finished": True}))
    assert progress_in(tmp_path) == []


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"time": "x"}', '{"time": 1, "done": NaN}', "3"]
)
def test_what_cannot_be_read_is_left_out(tmp_path, content):
    (tmp_path / PROGRESS_FILE).write_text(content)
    assert progress_in(tmp_path) == []
    assert "Nothing is being trained" in live_part([tmp_path])


# What runs write


class Looks(Reporter):
    """Reads the file whenever something is reported."""

    def __init__(self, folder):
        self.folder, self.seen = folder, []

    def _look(self):
        self.seen += progress_in(self.folder)

    def stage(self, name):
        self._look()

    def trained(self, done, total, metric):
        self._look()


def test_a_run_keeps_its_progress_and_removes_it(tmp_path):
    looks = Looks(tmp_path)
    silodp.run(data="synthetic", silos=3, rounds=4, epsilon=2, out=tmp_path / "a", reporter=looks)
    stages = [told["stage"] for told in looks.seen]
    assert "compiling" in stages or "training" in stages
    silos = looks.seen[-1]["silos"]
    assert [silo["silo"] for silo in silos] == ["silo-01", "silo-02", "silo-03"]
    assert silos[0]["epsilon"] == pytest.approx(2, rel=0.01)
    assert not (tmp_path / "a" / PROGRESS_FILE).exists()
    assert not list((tmp_path / "a").glob(".progress*"))


def test_a_run_that_fails_leaves_no_progress(tmp_path):
    class Fails(Looks):
        def trained(self, done, total, metric):
            super().trained(done, total, metric)
            raise RuntimeError("stopped")

    looks = Fails(tmp_path)
    with pytest.raises(RuntimeError, match="stopped"):
        silodp.run(data="synthetic", silos=3, rounds=4, epsilon=2, out=tmp_path, reporter=looks)
    assert looks.seen
    assert not (tmp_path / PROGRESS_FILE).exists()


def test_metrics_that_have_a_price_are_not_shown(tmp_path):
    looks = Looks(tmp_path)
    common = {"data": "synthetic", "silos": 3, "rounds": 4, "epsilon": 2}
    silodp.run(out=tmp_path, reporter=looks, metric_share=0.2, **common)
    assert looks.seen
    assert all(not told["metrics"] for told in looks.seen)


def test_progress_of_a_sweep_counts_runs(tmp_path):
    inner = SweepReporter()
    with kept_progress(tmp_path, inner, {"sweep": "mine"}) as told:
        told.swept(3.5, 8, None)
        (seen,) = progress_in(tmp_path)
        assert (seen["done"], seen["total"]) == (3.5, 8)
        assert "3.5 of 8 runs" in live_part([tmp_path])
    assert progress_in(tmp_path) == []


def test_a_folder_that_cannot_be_written_stops_no_run(tmp_path):
    told = KeepsProgress(tmp_path / "gone" / "away", Reporter(), {})
    told.stage("training")
    told.trained(1, 2, 0.5)
    assert list(tmp_path.iterdir()) == []


def test_many_metrics_are_thinned(tmp_path):
    told = KeepsProgress(tmp_path, Reporter(), {})
    for done in range(5000):
        told.trained(done, 5000, float(done))
    told.trained(5000, 5000, -1.0)
    (seen,) = progress_in(tmp_path)
    assert len(seen["metrics"]) <= 201
    assert seen["metrics"][0] == [0, 0.0]
    assert seen["metrics"][-1] == [5000, -1.0]


# The command


def test_the_command_serves_until_it_is_stopped(tmp_path):
    write_federation(tmp_path)
    command = [sys.executable, "-m", "silodp", "serve", str(tmp_path), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            lines = [child.stdout.readline() for _ in range(3)]
            address = json.loads("".join(lines))["address"]
            port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/(.+)/", address).groups()
            connection = http.client.HTTPConnection(HOST, int(port), timeout=30)
            connection.request("GET", f"/{token}/")
            assert "than alone" in connection.getresponse().read().decode()
            connection.close()
        finally:
            child.send_signal(signal.SIGINT)
            out, error = child.communicate(timeout=60)
    assert child.returncode == 0, error
    assert "Traceback" not in error
    assert token not in error
    assert out == ""
