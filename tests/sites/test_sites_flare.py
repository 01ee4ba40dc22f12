"""The layer over NVIDIA FLARE: kits, wire, processes, and real jobs over mutual TLS."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import pytest
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from site_processes import PASSPHRASE, allow_all, wait_until

from silodp.base.errors import SilodpError
from silodp.sites.connection import connections
from silodp.sites.flare import controller, guard, hardening, jobs, kits, processes, wire
from silodp.sites.flare.doorkeeper import Doorkeeper
from silodp.sites.flare.executor import INTERNAL, SilodpExecutor
from silodp.sites.membership.authority import make_authority, open_authority
from silodp.sites.membership.documents import Address, Invitation, key_id
from silodp.sites.membership.members import (
    Members,
    changed_members,
    read_members,
    write_members,
)
from silodp.sites.membership.site import STARTUP, _read_key, join_with, read_membership
from silodp.sites.protocol import Reply, Request

SITES = ["site-1", "site-2", "Klinik_3"]
ARRAYS = [
    [],
    [np.float32(2.5)],
    [np.array([True, False]), np.array([[1, -2]], np.int32)],
    [np.array([2**32 - 1], np.uint32), np.zeros((0, 3), np.float32)],
    [np.array([np.nan, np.inf], np.float32), np.arange(6.0).reshape(2, 3).T],
    [np.random.default_rng(0).normal(size=(1000, 1001)).astype(np.float32)],
]


def same(left, right):
    return len(left) == len(right) and all(
        np.asarray(a).dtype == b.dtype
        and np.shape(a) == b.shape
        and np.asarray(a).tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("arrays", ARRAYS, ids=len)
def test_requests_and_replies_arrive_as_they_were_sent(arrays):
    request = Request("train", "job ü", '{"a": 1}', 7, arrays)
    there = wire.to_request(wire.from_request(request))
    assert (there.kind, there.job, there.proposal, there.round) == ("train", "job ü", '{"a": 1}', 7)
    assert same(arrays, there.arrays)
    assert wire.to_request(wire.from_request(replace(request, shown={"a": "b"}))).shown == {
        "a": "b"
    }
    reply = Reply("refused", "spent", {"deep": [1, {"x": None}]}, arrays)
    back = wire.to_reply(wire.from_reply(reply))
    assert (back.status, back.reason, back.about) == ("refused", "spent", reply.about)
    assert same(arrays, back.arrays)
    assert all(array.flags.writeable for array in back.arrays)


def spoilt(change):
    """A reply as it travels, with something wrong."""
    shareable = wire.from_reply(Reply("ok", "", {}, [np.zeros(3, np.float32)]))
    change(shareable["silodp"])
    return shareable


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        Shareable(),
        wire.from_request(Request("join", "j", "{}")),
        spoilt(lambda packed: packed.update(words="{")),
        spoilt(lambda packed: packed.update(words="[]")),
        spoilt(lambda packed: packed.update(words=b"{}")),
        spoilt(lambda packed: packed.update(words='{"status":"fine","reason":"","about":{}}')),
        spoilt(lambda packed: packed.update(words='{"status":"ok","reason":1,"about":{}}')),
        spoilt(lambda packed: packed.update(words='{"status":"ok","reason":"","about":[]}')),
        spoilt(lambda packed: packed.update(words='{"status":["ok"],"reason":"","about":{}}')),
        spoilt(lambda packed: packed.update(arrays={})),
        spoilt(lambda packed: packed.update(more=1)),
        spoilt(lambda packed: packed["arrays"].append(np.zeros(2))),
        spoilt(lambda packed: packed["arrays"][0].update(dtype="object")),
        spoilt(lambda packed: packed["arrays"][0].update(dtype=["float32"])),
        spoilt(lambda packed: packed["arrays"][0].update(shape=[4])),
        spoilt(lambda packed: packed["arrays"][0].update(shape=[-3])),
        spoilt(lambda packed: packed["arrays"][0].update(shape=[True, 3])),
        spoilt(lambda packed: packed["arrays"][0].update(bytes="x" * 12)),
    ],
)
def test_what_is_no_reply_is_refused(wrong):
    with pytest.raises(SilodpError, match="reply is unreadable"):
        wire.to_reply(wrong)
    assert controller.read(wrong).status == "refused"
    assert "unreadable" in controller.read(wrong).reason


def test_what_is_no_request_is_refused():
    for words in (
        '{"kind":"spy","job":"j","proposal":"","round":0}',
        '{"kind":"join","job":1,"proposal":"","round":0}',
        '{"kind":"join","job":"j","proposal":"","round":-1}',
        '{"kind":"join","job":"j","proposal":"","round":true}',
    ):
        shareable = wire.from_request(Request("join", "j", "{}"))
        shareable["silodp"]["words"] = words
        with pytest.raises(SilodpError, match="request is unreadable"):
            wire.to_request(shareable)
    with pytest.raises(SilodpError, match="cannot be sent"):
        wire.from_reply(Reply("ok", "", {}, [np.array(["text"])]))


def test_an_error_of_the_sites_flare_is_that_sites_refusal():
    told = controller.read(make_reply(ReturnCode.EXECUTION_EXCEPTION))
    assert told.status == "refused"
    assert "unreadable" in told.reason


def test_an_error_at_the_site_stays_there(tmp_path, monkeypatch, caplog):
    class Worker:
        def __init__(self, folder):
            assert folder == tmp_path

        def answer(self, request):
            raise RuntimeError("SECRET")

    class Workspace:
        def get_root_dir(self):
            return str(tmp_path / "kit")

    module = type(sys)("silodp.sites.worker")
    module.SiteWorker = Worker
    monkeypatch.setitem(sys.modules, "silodp.sites.worker", module)
    context = FLContext()
    context.set_prop(FLContextKey.WORKSPACE_OBJECT, Workspace(), private=True)
    request = wire.from_request(Request("train", "j", "{}"))
    told = SilodpExecutor().execute("silodp", request, context, Signal())
    assert wire.to_reply(told) == Reply("refused", INTERNAL)
    assert "SECRET" not in repr(dict(told))
    assert "SECRET" in caplog.text


def test_flare_still_has_what_silodp_relies_on():
    assert hasattr(WFCommServer(), "_task_check_period")
    site = {type(one).__name__ for one in ClientRequestProcessors.request_processors}
    assert site >= guard.SITE_COMMANDS
    assert {"ShellCommandProcessor", "ConfigureJobLogProcessor"} <= site - guard.SITE_COMMANDS
    job = {type(one).__name__ for one in AdminCommands.commands}
    assert job >= guard.JOB_COMMANDS


def test_a_job_is_json_alone_and_names_silodp_only(tmp_path):
    place = jobs.job_folder(tmp_path, "job 1", SITES)
    files = [path for path in place.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json"}
    server = json.loads((place / "app/config/config_fed_server.json").read_text())
    assert [one["args"] for one in server["workflows"]] == [{"job": "job 1"}]
    client = json.loads((place / "app/config/config_fed_client.json").read_text())
    assert [one["executor"]["args"] for one in client["executors"]] == [{}]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation's folder, as it is before its server is started."""
    folder = tmp_path_factory.mktemp("made") / "a federation"
    coordinator(folder)
    return folder


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def coordinator(folder):
    """The coordinator's part of a federation without a proposal."""
    port = free_port()
    server = Address("tests", "localhost", "localhost", port)
    write_members(folder, Members(server, ("127.0.0.1", port)))
    authority = make_authority(folder, "tests", PASSPHRASE)
    kits.make_coordinator(folder, authority, read_members(folder))
    kits.configure_server(folder, read_members(folder), free_port())
    return authority


def member(folder, authority, name, site):
    """A site's folder, let in by the coordinator."""
    at = read_members(folder).server
    join_with(Invitation(authority.federation, name, authority.root_pem, at, "", 1), site)
    key = _read_key(site / STARTUP / "client.key").public_key()
    with changed_members(folder) as members:
        certificate = authority.certificate(name, key)
        members.take(name, key_id(key), certificate, proven=False)
    (site / STARTUP / "client.crt").write_text(certificate)


def test_the_server_keeps_its_jobs_in_the_federations_folder(made):
    text = (made / "server/local/resources.json").read_text()
    assert "/tmp/nvflare" not in text
    assert str(made / "server-store" / "jobs") in text
    assert "log_receiver" not in text


def test_the_administrator_is_let_in_on_the_coordinators_machine_only(made):
    """A stolen administrator's key is of no use elsewhere."""
    (server,) = json.loads((made / "server/startup/fed_server.json").read_text())["servers"]
    admin = json.loads((made / "admin/startup/fed_admin.json").read_text())["admin"]
    assert server["admin_host"] == admin["host"] == "127.0.0.1"
    assert server["admin_port"] == admin["port"] != read_members(made).bind[1]


def test_where_a_server_listens_is_apart_from_its_public_name(made, tmp_path):
    folder = tmp_path / "fed"
    shutil.copytree(made, folder)
    with changed_members(folder) as members:
        members.server = Address("tests", "public.example.org", "public.example.org", 443)
        members.bind = ("0.0.0.0", 8102)
    kits.configure_server(folder, read_members(folder), 9000)
    (server,) = json.loads((folder / "server/startup/fed_server.json").read_text())["servers"]
    assert server["service"]["target"] == "0.0.0.0:8102"
    assert server["identity"] == "public.example.org"


@pytest.mark.parametrize("name", ["", "a b", "ü", "a.b", "-a", "a/b", "..", "x" * 64, "server"])
def test_names_that_flare_cannot_carry_are_refused(name):
    with pytest.raises(SilodpError, match="site name"):
        kits.check_site_names([name], "localhost")


def test_a_name_is_given_once():
    for names in (["a", "A"], ["coordinator"]):
        with pytest.raises(SilodpError, match="twice"):
            kits.check_site_names(names, "coordinator")


def test_whatever_came_into_a_kit_later_is_removed(made, tmp_path):
    folder = tmp_path / "fed"
    shutil.copytree(made, folder)
    authority = open_authority(folder, PASSPHRASE)
    member(folder, authority, "site-1", tmp_path / "site")
    kit = tmp_path / "site" / "kit"
    for name in ("custom/x.py", "local/custom/x.py", "startup/evil__p_resources.json"):
        (kit / name).parent.mkdir(parents=True, exist_ok=True)
        (kit / name).write_text("{}")
    (kit / "local/resources.json").write_text("{}")
    evil = {"components": [{"id": "evil", "path": "os.system", "args": {}}]}
    (kit / "startup/fed_client.json").write_text(json.dumps(evil))
    kits.configure_site(kit, read_membership(tmp_path / "site"))
    hardening.harden_site(kit)
    assert not list(kit.rglob("x.py"))
    assert not list(kit.rglob("evil*"))
    assert "evil" not in (kit / "startup/fed_client.json").read_text()
    assert sorted(path.name for path in (kit / "startup").iterdir()) == [
        "client.crt",
        "client.key",
        "fed_client.json",
        "rootCA.pem",
    ]
    resources = json.loads((kit / "local/resources.json").read_text())
    assert resources["class_allow_list"] == ["silodp.sites.flare.executor.SilodpExecutor"]
    assert resources["allow_log_streaming"] is False
    assert not any("log" in one["id"] for one in resources["components"])
    rights = json.loads((kit / "local/authorization.json").read_text())["permissions"]
    assert list(rights) == ["project_admin"]
    assert rights["project_admin"]["byoc"] == rights["project_admin"]["shell_commands"] == "none"


@pytest.fixture
def door(made, tmp_path):
    """A doorkeeper, and a member that it lets in."""
    folder = tmp_path / "fed"
    shutil.copytree(made, folder)
    member(folder, open_authority(folder, PASSPHRASE), "site-1", tmp_path / "site")
    key = key_id(_read_key(tmp_path / "site" / STARTUP / "client.key").public_key())
    return Doorkeeper(folder), folder, key


def test_only_the_approved_key_is_let_in_until_it_is_removed(door):
    keeper, folder, key = door
    assert keeper.why_not("site-1", key, connected=False) is None
    keeper.came("site-1", key, "token")
    assert keeper.goes_on("site-1", "token")
    for name, other in (("site-1", "0" * 64), ("site-2", key), ("site-2", "0" * 64)):
        assert "not let in" in keeper.why_not(name, other, connected=False)
    assert not keeper.goes_on("site-1", "another token")
    assert not keeper.goes_on("site-2", "token")
    # A server that was restarted takes up the same session, and no other.
    again = Doorkeeper(folder)
    assert again.goes_on("site-1", "token")
    assert not again.goes_on("site-1", "another token")
    # Removed: at the next sign of life.
    with changed_members(folder) as members:
        members.remove("site-1", "today")
    assert not keeper.goes_on("site-1", "token")
    assert not again.goes_on("site-1", "token")
    assert "not let in" in keeper.why_not("site-1", key, connected=False)


def test_a_second_machine_with_the_same_key_is_named_and_shut_out(door):
    keeper, folder, key = door
    keeper.came("site-1", key, "token")
    assert keeper.heard("site-1", "1.0", 0.0) is None
    why = keeper.why_not("site-1", key, connected=True, address="10.0.0.9")
    assert "somebody is connected" in why
    assert connections(folder)["site-1"].second is None  # it may be the same, begun anew
    assert keeper.goes_on("site-1", "token")  # the site that was there goes on
    assert keeper.heard("site-1", "1.0", 0.0)[1] == "10.0.0.9"  # and is told
    assert connections(folder)["site-1"].second[1] == "10.0.0.9"  # as is the coordinator


def test_a_site_that_was_killed_and_begun_anew_is_no_second_machine(door):
    keeper, folder, key = door
    keeper.came("site-1", key, "token")
    assert keeper.why_not("site-1", key, connected=True) is not None
    assert keeper.why_not("site-1", key, connected=False) is None  # nobody was heard since
    keeper.came("site-1", key, "token 2")
    assert keeper.heard("site-1", "1.0", 0.0) is None
    assert connections(folder)["site-1"].second is None
    assert not keeper.goes_on("site-1", "token")


def test_what_a_site_sends_does_not_break_the_server(door):
    keeper, folder, _ = door
    for odd in (None, 3, "x" * 1000, ["x"], {"x": 1}, float("nan")):
        keeper.heard("site-1", odd, odd)
    keeper.heard("site-1", "1", 5.0)
    keeper._write(at_once=True)
    assert connections(folder)["site-1"].version == "1"


def test_a_later_process_of_the_same_number_is_not_taken_for_ours(tmp_path):
    pidfile = tmp_path / "site.pid"
    assert not processes.is_running(pidfile)
    me = psutil.Process()
    note = {"pid": me.pid, "started": me.create_time(), "workspace": str(tmp_path)}
    pidfile.write_text(json.dumps(note))
    assert processes.is_running(pidfile)
    pidfile.write_text(json.dumps(note | {"started": me.create_time() - 5}))
    assert not processes.is_running(pidfile)
    # Were it taken for ours, this would end the tests.
    assert not processes.stop(pidfile)
    pidfile.write_text("{")
    assert not processes.is_running(pidfile)
    assert not processes.stop(pidfile)


def test_stopping_ends_children_in_sessions_of_their_own(tmp_path):
    child = "import time; time.sleep(60)"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        one = psutil.Process(process.pid)
        (grandchild,) = one.children()
        note = {"pid": one.pid, "started": one.create_time(), "workspace": str(tmp_path)}
        (tmp_path / "x.pid").write_text(json.dumps(note))
        assert processes.stop(tmp_path / "x.pid")
        process.wait(10)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "x.pid").exists()


def test_without_a_server_the_remedy_is_said(made, tmp_path):
    with pytest.raises(SilodpError, match="start the server first"):
        jobs.registered(made)
    with pytest.raises(SilodpError, match="start the server first"):
        jobs.registered(tmp_path)
    with pytest.raises(SilodpError, match=r"members\.json does not exist"):
        processes.start_server(tmp_path)
    with pytest.raises(SilodpError, match="silodp site init"):
        processes.start_site(tmp_path)


class Federation:
    """A server and its sites as real processes, with stand-ins for what they do in a job."""

    def __init__(self, root):
        self.folder = root / "a federation"
        self.sites = {site: root / "sites" / site for site in SITES}
        authority = coordinator(self.folder)
        for site, own in self.sites.items():
            member(self.folder, authority, site, own)

    def start(self):
        processes.start_server(self.folder)
        with ThreadPoolExecutor() as pool:
            up = pool.map(lambda folder: processes.start_site(folder, 60), self.sites.values())
            assert all(up)

    def stop(self):
        for folder in self.sites.values():
            processes.stop(folder / processes.SITE_PID)
        processes.stop(self.folder / processes.SERVER_PID)

    def plan(self, **more):
        plan = {"targets": SITES, "deadline": 30, "rounds": 20, "quorum": 1, "size": 28} | more
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def fault(self, site, **what):
        (self.sites[site] / "fault.json").write_text(json.dumps(what))

    def run(self, job="job-1", **more):
        self.plan(**more)
        flare_job = jobs.submit(self.folder, job, SITES)
        try:
            jobs.follow(self.folder, job, flare_job, poll=0.3, timeout=120)
        finally:
            self.seen = json.loads((self.folder / "seen.json").read_text())
        return self.seen


@pytest.fixture
def federation(tmp_path, monkeypatch):
    """Runs until the test is over."""
    fakes = str(Path(__file__).parents[1] / "support" / "site_fakes")
    source = str(Path(jobs.__file__).parents[3])
    before = [path for path in [os.environ.get("PYTHONPATH")] if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([fakes, source, *before]))
    made = Federation(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_job_runs_across_real_processes(federation):
    """One job: all answer; one fails, one is late, and the others go on; nothing leaks."""
    assert jobs.registered(federation.folder) == sorted(SITES)
    federation.fault("site-1", do="raise", round=12)
    federation.fault("site-2", do="sleep", seconds=8, round=15)
    seen = federation.run(deadline=2, rounds=20)
    told = [one["told"] for one in seen["seen"]]
    assert [len(one) for one in told] == [3] * 13 + [2] * 2 + [1] * 5
    assert told[12]["site-1"] == ["refused", INTERNAL]
    assert "site-2" not in told[15]
    assert seen["state"] == 20
    # Being late costs the deadline once.
    assert [time >= 2 for time in seen["times"]].count(True) <= 2  # and the first round, perhaps
    # One process for each site, from the first round to the last.
    assert all(len({one["pids"][site] for one in seen["seen"][:12]}) == 1 for site in SITES)
    print("median seconds a round", median(seen["times"][1:12]))
    root = federation.folder.parent
    leaks = [path for path in root.rglob("*") if path.is_file() and b"SECRET" in path.read_bytes()]
    assert leaks == [federation.sites["site-1"] / processes.SITE_LOG]
    federation.stop()
    left = [str(root) in " ".join(process.cmdline()) for process in running()]
    assert not any(left)


def running():
    for process in psutil.process_iter():
        try:
            process.cmdline()
        except psutil.Error:
            continue
        yield process


@pytest.mark.slow
def test_a_lost_site_a_quorum_code_and_commands(federation):
    """What goes wrong, one after the other on the same federation."""
    # Too few are left: the reason arrives where the job is followed.
    federation.fault("site-1", do="refuse", round=2)
    with pytest.raises(SilodpError, match="stopped: Only 2 sites are left"):
        federation.run(quorum=3, rounds=4)
    (federation.sites["site-1"] / "fault.json").unlink()
    # A job with code is refused; whether by the server or by the sites is not told apart here.
    with pytest.raises(SilodpError, match="FAILED_TO_RUN"):
        run_with_code(federation)
    # A server that lets its administrator do anything still cannot command a site.
    processes.stop(federation.folder / processes.SERVER_PID)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kits, "harden_server", allow_all)
        processes.start_server(federation.folder)
    wait_until(lambda: jobs.registered(federation.folder) == sorted(SITES))
    with jobs._session(federation.folder) as session:
        for command in ("cat site-1 local/resources.json", "pwd site-1", "report_env site-1"):
            assert "invalid_request" in str(session.api.do_command(command))
        session.api.do_command("shutdown client site-1")
    time.sleep(3)
    assert processes.is_running(federation.sites["site-1"] / processes.SITE_PID)
    # A job of a later start of the server; a site that went away costs nothing.
    processes.stop(federation.sites["site-1"] / processes.SITE_PID)
    seen = federation.run("job-2", rounds=3, deadline=20)
    assert {len(one["told"]) for one in seen["seen"]} == {2}
    assert max(seen["times"][1:]) < 20
    # A job can be ended.
    federation.plan(rounds=10000)
    flare_job = jobs.submit(federation.folder, "job-3", SITES)
    wait_until(lambda: jobs.status(federation.folder, flare_job) == "RUNNING")
    jobs.abort(federation.folder, flare_job)
    with pytest.raises(SilodpError, match="was aborted"):
        jobs.follow(federation.folder, "job-3", flare_job, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["job", "site"])
def test_a_killed_process_costs_the_others_one_deadline(federation, which):
    """The process of the job at a site, or that of the site itself."""
    federation.plan(rounds=80, deadline=3)
    flare_job = jobs.submit(federation.folder, "job-1", SITES)
    seen = federation.folder / "seen.json"
    wait_until(lambda: seen.exists() and len(rounds(seen)) > 5)
    pid = rounds(seen)[0]["pids"]["site-1"]
    if which == "site":
        pid = json.loads((federation.sites["site-1"] / processes.SITE_PID).read_text())["pid"]
    psutil.Process(pid).kill()
    jobs.follow(federation.folder, "job-1", flare_job, poll=0.3, timeout=120)
    answers = [len(one["told"]) for one in rounds(seen)]
    assert len(answers) == 80
    # A job's process sees that its parent is gone only after some seconds.
    assert answers[-1] == 2 or which == "site"
    slow = [time for time in json.loads(seen.read_text())["times"][1:] if time > 2.9]
    assert len(slow) == 3 - answers[-1]


def rounds(path):
    try:
        return json.loads(path.read_text())["seen"]
    except ValueError:  # half written
        return []


def run_with_code(federation):
    aside = federation.folder / "aside"
    aside.mkdir()
    place = jobs.job_folder(aside, "evil", SITES)
    (place / "app" / "custom").mkdir()
    (place / "app" / "custom" / "evil.py").write_text("raise SystemExit")
    allow_all(federation.folder / "server", federation.folder / "server-store")
    with jobs._session(federation.folder) as session:
        flare_job = session.submit_job(str(place.resolve()))
    jobs.follow(federation.folder, "evil", flare_job, timeout=60)
