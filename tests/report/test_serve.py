"""`silodp serve`: live, on this machine alone, for those who know the token; and what it reads."""

import http.client
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from interruptible import interruptible
from report_runs import EVIL, made_up, write_federation
from served_reports import served

import silodp
from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.base.progress_file import PROGRESS_FILE, ProgressFile, kept_progress
from silodp.report.live import live_part, progress_in
from silodp.report.server import HOST, MOST_AT_ONCE, ReportServer

pytestmark = pytest.mark.usefixtures("kept_programs")


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
        assert "MR-MTL is the best of 3 methods" in text
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
    assert "is not valid JSON" in text
    assert "<b>" not in text


def test_what_goes_on_is_shown_with_names_escaped(tmp_path):
    (tmp_path / "run").mkdir()
    told = ProgressFile(tmp_path / "run", {"data": EVIL[0], "method": "mrmtl"})
    told.promised([{**p, "silo": EVIL[1]} for p in made_up().privacy])
    told.stage("training")
    for done in range(1, 11):
        told.trained(done, 10, 1 / done)
    part = live_part([tmp_path])
    assert "Training, 10 of 10 rounds" in part
    assert "test metric 0.1" in part
    assert 'max="10" value="10"' in part
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


@pytest.mark.parametrize(
    "odd",
    [
        {"stage": None},
        {"stage": [1]},
        {"seconds": "x"},
        {"seconds_left": math.inf},
        {"silos": {"a": 1}},
        {"silos": [3]},
        {"silos": [{"silo": "a", "epsilon": 1}]},
        {"silos": [{"silo": "a", "epsilon": math.inf, "delta": 1}]},
        {"silos": [{"silo": ["a"], "epsilon": -1, "delta": 10**400}]},
        {"metrics": [[1, 0.5], [2, "inf"]]},
        {"metrics": [[1, 0.5], [2, math.inf]]},
        {"metrics": [1, 2]},
        {"metrics": "words"},
        {"metrics": [[1, 2, 3], [1]]},
        {"process": 2**80, "time": 1.0},
        {"total": "x"},
        {"total": -5},
        {"total": 10**400},
        {"method": ["a"], "data": 3, "job": {}},
    ],
)
def test_what_is_odd_is_left_out_and_the_rest_shown(tmp_path, odd):
    plain = {"time": time.time(), "done": 1, "total": 10, "stage": "training", "seconds": 3.0}
    plain |= {"metrics": [[1, 0.5], [2, 0.4]], "process": os.getpid(), "data": "known"}
    plain |= {"silos": [{"silo": "a", "epsilon": 1, "delta": 1e-4}]}
    (tmp_path / PROGRESS_FILE).write_text(json.dumps(plain | odd))
    part = live_part([tmp_path])
    assert "so far" in part
    assert ("1 of 10 rounds" in part) == ("total" not in odd and "stage" not in odd)
    assert "inf" not in part


def test_a_sign_of_life_is_not_looked_for_in_a_number_of_no_process(tmp_path):
    told = {"time": 1.0, "done": 1, "total": 3, "stage": "training", "process": 2**80}
    (tmp_path / PROGRESS_FILE).write_text(json.dumps(told))
    assert "1 of 3 rounds" in live_part([tmp_path])


def test_deep_and_long_files_and_pipes_are_left_out(tmp_path):
    path = tmp_path / PROGRESS_FILE
    path.write_text("[" * 100_000)
    assert progress_in(tmp_path) == []
    told = {"time": time.time(), "done": 1, "total": 3, "stage": "training"}
    path.write_text(json.dumps(told | {"more": "x" * 5_000_000}))
    assert progress_in(tmp_path) == []
    path.unlink()
    os.mkfifo(path)
    reads = threading.Thread(target=progress_in, args=(tmp_path,), daemon=True)
    reads.start()
    reads.join(20)
    assert not reads.is_alive()


def test_a_change_of_stage_is_announced_and_nothing_else(tmp_path):
    (tmp_path / "run").mkdir()
    told = ProgressFile(tmp_path / "run", {"data": "d", "method": "mrmtl"})

    def announced():
        part = live_part([tmp_path])
        assert 'class="headline" role=' not in part
        return re.search(r'data-stages="([^"]*)"', part).group(1)

    assert announced() == "Nothing is being trained"
    told.stage("training")
    told.trained(1, 3, 0.5)
    first = announced()
    assert first == "d, mrmtl (run): training"
    told.trained(3, 3, 0.4)
    assert announced() == first
    told.stage("choosing")
    assert announced() != first


def broken(folders):
    raise ZeroDivisionError("<b>secret</b>")


@pytest.mark.parametrize("debug", [False, True])
def test_whatever_goes_wrong_is_answered_with_a_sentence(tmp_path, monkeypatch, capfd, debug):
    with served(tmp_path, debug=debug) as server:
        monkeypatch.setattr("silodp.report.server.live_part", broken)
        for path in ("", "live"):
            status, _, text = asked(server, f"/{server.token}/{path}")
            assert status == 500
            assert 'id="live"' in text
            assert "This could not be shown (ZeroDivisionError): run silodp serve again" in text
            assert "secret" not in text
        assert ("Traceback" in capfd.readouterr().err) == debug
        monkeypatch.undo()
        assert asked(server, f"/{server.token}/")[0] == 200


def test_silent_connections_do_not_pile_up(tmp_path):
    before = threading.active_count()  # other tests leave some behind
    with served(tmp_path) as server:
        silent = [socket.create_connection((HOST, server.server_port)) for _ in range(MOST_AT_ONCE)]
        try:
            status = wait_for(lambda: asked(server, f"/{server.token}/")[0] == 503)
            assert status, "one more should have been refused"
            assert threading.active_count() - before < MOST_AT_ONCE + 20
        finally:
            for one in silent:
                one.close()
        assert wait_for(lambda: asked(server, f"/{server.token}/")[0] == 200)


def wait_for(holds, seconds=20):
    """Whether it comes to hold in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


# What runs write


SHORT = {"method": "local", "silos": 3, "rounds": 4, "epsilon": 2}


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
    silodp.run(**SHORT, out=tmp_path / "a", reporter=looks)
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
        silodp.run(**SHORT, out=tmp_path, reporter=looks)
    assert looks.seen
    assert not (tmp_path / PROGRESS_FILE).exists()


@pytest.mark.parametrize("price", [0, 0.2])
def test_metrics_that_have_a_price_are_not_shown(tmp_path, monkeypatch, price):
    monkeypatch.setattr("silodp.base.progress_file._SECONDS_BETWEEN", 0)
    looks = Looks(tmp_path)
    silodp.run(out=tmp_path, reporter=looks, metric_share=price, evaluate_every=1, **SHORT)
    shown = [told["metrics"] for told in looks.seen if told["metrics"]]
    assert bool(shown) == (price == 0)


def test_a_tuned_run_tells_no_times(tmp_path):
    """They would tell the number of trials."""
    looks = Looks(tmp_path)
    common = {"data": "synthetic", "silos": 2, "rounds": 3, "epsilon": 3.0}
    silodp.tune(grid={"lam": [0.1, 1.0]}, out=tmp_path, reporter=looks, **common)
    assert looks.seen
    for told in looks.seen:
        assert told["total"] in (None, 2, 100)
        assert not {"began", "seconds", "seconds_left"} & told.keys()


def test_progress_of_a_sweep_counts_runs(tmp_path):
    inner = Reporter()
    with kept_progress(tmp_path, inner, {"sweep": "mine"}) as told:
        told.swept(3.5, 8, None)
        (seen,) = progress_in(tmp_path)
        assert (seen["done"], seen["total"]) == (3.5, 8)
        assert "3.5 of 8 runs" in live_part([tmp_path])
    assert progress_in(tmp_path) == []


class Clock:
    """Stands still until it is moved."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("silodp.base.progress_file.time.time", lambda: self.now)


def test_time_left_counts_what_this_process_did(tmp_path, monkeypatch):
    """A run that is resumed at round 900 of 1,000 is not done 900 times as fast."""
    clock = Clock(monkeypatch)
    told = ProgressFile(tmp_path, {})
    told.stage("compiling")
    clock.now += 60
    told.stage("training")
    clock.now += 2
    told.trained(901, 1000, 0.5)
    (seen,) = progress_in(tmp_path)
    assert seen["seconds_left"] is None  # how long a round takes is not known yet
    clock.now += 20
    told.trained(911, 1000, 0.5)
    (seen,) = progress_in(tmp_path)
    assert seen["seconds_left"] == pytest.approx(2 * 89)


def test_time_left_of_a_sweep_that_goes_on(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    told = ProgressFile(tmp_path, {"sweep": "mine"})
    told.swept(80, 100, None)
    clock.now += 30
    for stage in ("calibrating noise", "compiling", "training"):
        told.stage(stage)
        told.calibrated(3, 4)
        (seen,) = progress_in(tmp_path)
        assert (seen["done"], seen["total"]) == (80, 100)  # runs, whatever goes on within one
    told.trained(5, 10, 0.5)
    clock.now += 30
    told.swept(82, 100, None)
    (seen,) = progress_in(tmp_path)
    assert seen["seconds_left"] == pytest.approx(30 * 18)


def test_metrics_that_are_not_finite_are_not_kept(tmp_path):
    """A run that diverges is still one to look at."""
    told = ProgressFile(tmp_path, {})
    told.stage("training")
    for done, metric in enumerate((0.5, 1e17, math.inf, -math.inf, math.nan), start=1):
        told.trained(done, 5, metric)
    (seen,) = progress_in(tmp_path)
    assert seen["metrics"] == [[1, 0.5], [2, 1e17]]
    assert "inf" not in (tmp_path / PROGRESS_FILE).read_text()
    assert "test metric 1e+17" in live_part([tmp_path])


def test_a_folder_that_cannot_be_written_stops_no_run(tmp_path):
    told = ProgressFile(tmp_path / "gone" / "away", {})
    told.stage("training")
    told.trained(1, 2, 0.5)
    assert list(tmp_path.iterdir()) == []


def test_many_metrics_are_thinned(tmp_path):
    told = ProgressFile(tmp_path, {})
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
    command = interruptible(sys.executable, "-m", "silodp", "serve", tmp_path, "--json")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            lines = [child.stdout.readline() for _ in range(3)]
            address = json.loads("".join(lines))["address"]
            port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/(.+)/", address).groups()
            connection = http.client.HTTPConnection(HOST, int(port), timeout=30)
            connection.request("GET", f"/{token}/")
            assert "the best of 3 methods" in connection.getresponse().read().decode()
            connection.close()
        finally:
            child.send_signal(signal.SIGINT)
            out, error = child.communicate(timeout=60)
    assert child.returncode == 0, error
    assert "Traceback" not in error
    assert token not in error
    assert out == ""
