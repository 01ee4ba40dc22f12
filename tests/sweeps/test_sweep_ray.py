"""Sweeps on a Ray cluster: one is started for these tests, in processes of its own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from interruptible import interruptible
from site_processes import free_port

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.sweeps import ray_cluster, ray_connection, read_table, run_sweep, sweep_of
from silodp.sweeps.ray_connection import Connection

FILE = """
data = "synthetic"
silos = 3
rounds = 4
seeds = 2
epsilon = 2
method = ["local", "fedavg"]
clip = [0.5, 1.0]
"""


class Cluster:
    """A head with two cores; whoever connects needs the token in `env`."""

    def __init__(self, folder):
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex()}
        self.env = os.environ | token | {"RAY_USAGE_STATS_ENABLED": "0"}
        self.address = f"127.0.0.1:{free_port()}"
        self.client_address = f"ray://127.0.0.1:{free_port()}"
        args = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            "--port=" + self.address.rpartition(":")[2],
            "--ray-client-server-port=" + self.client_address.rpartition(":")[2],
            *("--min-worker-port=0", "--max-worker-port=0"),
            *("--num-cpus=2", "--object-store-memory=80000000"),
            *("--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"),
        ]
        self._said = folder / "said"
        with self._said.open("w") as said:
            self._head = psutil.Popen(
                args, cwd=folder, env=self.env, stdout=said, stderr=said, start_new_session=True
            )

    def wait(self):
        said = self._said.read_text
        until(lambda: "Ray runtime started" in said() or self._head.poll() is not None, said)
        assert self._head.poll() is None, said()

    def training(self):
        """The processes of workers that are at a chunk."""
        found = set()
        for process in self._head.children(recursive=True):
            try:
                if process.cmdline()[:1] == ["ray::_train"]:
                    found.add(process.pid)
            except psutil.Error:
                continue
        return found

    def stop(self):
        everything = [self._head, *self._head.children(recursive=True)]
        self._head.terminate()
        for process in psutil.wait_procs(everything, timeout=10)[1]:
            process.kill()


def until(true, shown=lambda: "", seconds=100):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it does not come: {shown()}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster():
    # Not in pytest's own folder: paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        started = Cluster(Path(folder))
        try:
            started.wait()
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("sweep")
    (made / "grid.toml").write_text(FILE)
    return made


@contextmanager
def on_ray(cluster, file, out):
    """A sweep that goes on, in a process of its own."""
    process = subprocess.Popen(
        interruptible(
            *(sys.executable, "-m", "silodp", "sweep", file, "--out", out),
            *("--ray", cluster.address),
        ),
        env=cluster.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def ran(cluster, folder):
    """The table of the whole sweep, and the workers that were seen at work."""
    out, workers = folder / "rayed", set()
    with on_ray(cluster, folder / "grid.toml", out) as process:
        while process.poll() is None:
            workers |= cluster.training()
            time.sleep(0.02)
        said = process.communicate()
    assert process.returncode == 0, said
    return out, workers


def assert_same(one, other):
    """A worker has one device, and this process one a core: sums are rounded otherwise."""
    one, other = read_table(one), read_table(other)
    np.testing.assert_allclose(one["value"], other["value"], rtol=1e-5)
    assert one.drop(columns="value").equals(other.drop(columns="value"))


def test_the_table_is_that_of_a_sweep_without_ray(ran, folder, cli):
    done = cli("sweep", folder / "grid.toml", "--out", folder / "plain", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert_same(ran[0], folder / "plain")


def test_all_workers_take_part(ran):
    assert len(ran[1]) == 2


def test_a_finished_sweep_needs_no_cluster(ran, folder, cli):
    address = f"127.0.0.1:{free_port()}"
    done = cli("sweep", folder / "grid.toml", "--out", ran[0], "--quiet", "--ray", address)
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_killed_it_goes_on_and_the_table_is_the_same(cluster, ran, folder, tmp_path, command):
    """kill -9 of the driver; on one and the same cluster, numbers are the same to the last bit."""
    table = tmp_path / "results.csv"
    with on_ray(cluster, folder / "grid.toml", tmp_path) as process:
        until(lambda: table.exists() and table.read_text().count("\n") > 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    whole = (ran[0] / "results.csv").read_bytes()
    assert table.read_bytes().count(b"\n") < whole.count(b"\n"), "killed too late"
    args = ("--out", tmp_path, "--quiet", "--ray", cluster.client_address)
    done = command("sweep", folder / "grid.toml", *args, env=cluster.env)
    assert done.returncode == 0, done.stderr
    assert table.read_bytes() == whole


@pytest.mark.slow
def test_interrupted_it_ends_in_a_sentence_and_workers_stop(cluster, tmp_path):
    file = tmp_path / "long.toml"
    file.write_text(FILE.replace("rounds = 4", "rounds = 1000000"))
    with on_ray(cluster, file, tmp_path / "out") as process:
        until(cluster.training)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted. What is finished is kept" in said
    assert "Traceback" not in said
    until(lambda: not cluster.training())


OWN = """
data = "patients.csv"
silo_column = "clinic"
target = "score"
schema = "schema.toml"
rounds = 2
batch_size = [8, 100000]
policies = "policies"
method = "mrmtl"
silo_lam = "lambdas.toml"
"""


@pytest.mark.slow
def test_what_a_sweep_names_is_read_here_and_what_a_worker_refuses_is_said_here(
    cluster, tmp_path, command, cli, sentence, monkeypatch
):
    """Of records, schema, policies and lambdas workers have neither the files nor the folder."""
    random = np.random.default_rng(0)
    rows = [f"{'ABC'[n % 3]},{random.random():.3f},{random.random():.3f}" for n in range(120)]
    (tmp_path / "patients.csv").write_text("\n".join(["clinic,age,score", *rows]) + "\n")
    (tmp_path / "schema.toml").write_text("[bounds]\nage = [0, 1]\n[target]\nrange = [0, 1]\n")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "default.toml").write_text("epsilon = 3\ndelta = 1e-3\n")
    (tmp_path / "policies" / "B.toml").write_text("epsilon = 1\n")
    (tmp_path / "lambdas.toml").write_text("C = 0.5\n")
    (tmp_path / "own.toml").write_text(OWN)
    args = ("sweep", "own.toml", "--quiet", "--out")
    on_cluster = ("rayed", "--ray", cluster.address)
    said = sentence(command(*args, *on_cluster, cwd=tmp_path, env=cluster.env))
    monkeypatch.chdir(tmp_path)
    assert said == sentence(cli(*args, "plain"))
    assert "fewer than the batch size 100000" in said
    assert "What is finished is kept" in said
    assert_same("rayed", "plain")
    kept = read_table("rayed")
    assert set(kept["batch_size"]) == {8}
    assert set(kept["policies"]) == {"policies"}


def test_no_cluster_is_told_at_once(folder, tmp_path, cli, sentence):
    address = f"127.0.0.1:{free_port()}"
    done = cli("sweep", folder / "grid.toml", "--out", tmp_path, "--quiet", "--ray", address)
    said = sentence(done)
    assert said.startswith(f"Error: No Ray cluster answers at '{address}' (Connection refused)")


def test_something_else_that_listens_is_no_cluster(folder, tmp_path, cli, sentence, monkeypatch):
    monkeypatch.setattr(ray_connection, "SECONDS_TO_ANSWER", 2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        done = cli("sweep", folder / "grid.toml", "--out", tmp_path, "--quiet", "--ray", address)
    assert "(nothing for 2 seconds): start one with" in sentence(done)


@pytest.mark.parametrize("address", ["", "local", "host", "host:port", "ray://host", "a:1:2"])
def test_what_is_no_address_is_refused(address, folder, tmp_path, cli, sentence):
    args = ("--out", tmp_path, "--quiet", "--ray", address)
    said = sentence(cli("sweep", folder / "grid.toml", *args))
    assert said.startswith(f"Error: --ray is '{address}': give the address of a Ray cluster")


def test_without_ray_the_remedy_is_named(folder, tmp_path, cli, sentence, monkeypatch):
    monkeypatch.setattr(
        ray_connection, "find_spec", lambda name: None if name == "ray" else find_spec(name)
    )
    args = ("--out", tmp_path, "--quiet", "--ray", "auto")
    assert "pip install 'silodp[ray]'" in sentence(cli("sweep", folder / "grid.toml", *args))


class LostError(Exception):
    """In place of Ray's own."""


class TaskError(LostError):
    """The same."""


class FakeRay:
    """Tasks are done in this process, as they are waited for; `ends` says how some of them end."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=TaskError)

    def __init__(self, ends=()):
        self.ends, self.put_objects, self.tasks, self.alive = list(ends), [], {}, True

    def remote(self, **_):
        def start(*args):
            self.tasks[name := f"task {len(self.tasks)}"] = args
            return name

        return lambda function: SimpleNamespace(remote=lambda *args: start(lambda: function(*args)))

    def put(self, loaded):
        self.put_objects.append(loaded)
        return loaded

    def cluster_resources(self):
        return {"CPU": 1.0}

    def wait(self, names, timeout):
        return ([], names) if not self.alive else (names[:1], names[1:])

    def get(self, name):
        (task,) = self.tasks[name]
        if self.ends and (end := self.ends.pop(0)) is not None:
            raise end
        return task()


@pytest.fixture
def fake(monkeypatch):
    ray = FakeRay()

    @contextmanager
    def connected(_):
        yield Connection(ray, "127.0.0.1", free_port())

    monkeypatch.setattr(ray_cluster, "connected", connected)
    monkeypatch.setattr(Connection, "is_alive", lambda _: ray.alive)
    return ray


class Told(Reporter):
    def __init__(self):
        self.done, self.stages = [], Counter()

    def swept(self, done, total, chunk):
        self.done.append(done)

    def stage(self, name):
        self.stages[name] += 1


def asked(**more):
    content = {"data": "synthetic", "silos": 3, "rounds": 2, "epsilon": 2, "method": "local"}
    return sweep_of(content | more, "the file", Path())


def test_records_are_sent_once_and_progress_follows_the_chunks(fake, tmp_path):
    """In the order of the file, each chunk would have other records than the one before."""
    told = Told()
    sweep = asked(clip=[0.5, 1.0], heterogeneity=[0.1, 0.2])
    table = run_sweep(sweep, tmp_path, ray="here", reporter=told)
    assert len(table) == 4
    assert len(fake.put_objects) == 2
    assert told.done == [0, 1, 2, 3, 4]
    assert told.stages["loading data"] == 2
    assert told.stages["3 chunks sent to 1 cores of Ray"] == 2


def test_a_chunk_whose_worker_was_lost_is_tried_again(fake, tmp_path):
    fake.ends = [LostError("killed"), None, LostError("killed")]
    assert len(run_sweep(asked(clip=[0.5, 1.0]), tmp_path, ray="here")) == 2
    assert len(fake.tasks) == 4


def test_a_chunk_that_no_worker_survives_is_given_up(fake, tmp_path):
    fake.ends = [LostError("the worker died\nof memory.")] * 3
    with pytest.raises(SilodpError, match=r"worker of the Ray cluster failed \(of memory\):"):
        run_sweep(asked(), tmp_path, ray="here")
    assert len(fake.tasks) == 3


def test_a_fault_on_a_worker_is_not_tried_again_and_the_others_are_kept(fake, tmp_path):
    fake.ends = [TaskError("Traceback\n  somewhere\nModuleNotFoundError: No module 'silodp'")]
    with pytest.raises(SilodpError, match=r"local on synthetic: .*No module 'silodp'\)"):
        run_sweep(asked(clip=[0.5, 1.0]), tmp_path, ray="here")
    assert len(fake.tasks) == 2
    assert len(read_table(tmp_path)) == 1


def test_a_cluster_that_is_gone_is_told(fake, tmp_path):
    fake.alive = False
    with pytest.raises(SilodpError, match=r"^The Ray cluster is gone"):
        run_sweep(asked(), tmp_path, ray="here")


def test_a_worker_with_another_version_is_refused(fake, tmp_path, monkeypatch):
    here = ray_cluster.versions()
    monkeypatch.setattr(ray_cluster, "versions", iter([here, here | {"jax": "0.0.1"}]).__next__)
    with pytest.raises(SilodpError, match=rf"has jax 0.0.1, but {here['jax']} is needed"):
        run_sweep(asked(), tmp_path, ray="here")


@pytest.mark.parametrize(
    "said", ["does not exist", "does not exist: check", "'x', which is not a number"]
)
def test_errors_about_files_name_them_as_the_user_does(fake, tmp_path, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "default.toml").write_text('epsilon = "x"\n')
    name, file = {
        "does not exist": ("silo_lam", "none.toml"),
        "does not exist: check": ("policies", "none.toml"),
    }.get(said, ("policies", "folder"))
    sweep = asked(method="mrmtl", **{name: str(tmp_path / file)})
    with pytest.raises(SilodpError, match=said) as refused:
        run_sweep(sweep, tmp_path / "out", ray="here")
    assert str(tmp_path / file) in str(refused.value)
