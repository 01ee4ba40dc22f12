"""A site whose network fails, and comes back: what both sides say, and what the site pays."""

import json
import selectors
import socket
import threading
import time

import pytest
from site_processes import Processes, free_port, wait_for_round, wait_until

from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.storage import read_ledger
from silodp.results.result import read_result
from silodp.sites.federation_setup import is_finished, progress_of
from silodp.sites.flare.jobs import registered
from silodp.sites.flare.processes import SITE_PID, start_site, stop
from silodp.sites.flare.submission import run_job
from silodp.sites.job_at_site import RESULTS
from silodp.sites.membership.members import read_members
from silodp.sites.membership.site import MEMBERSHIP_FILE
from silodp.sites.site_setup import site_status

pytestmark = pytest.mark.slow
ROUNDS = 250


class Cable:
    """Carries what a site and the server say, until it is cut: then nothing, and nobody is told."""

    def __init__(self, to):
        self.port, self._to, self.whole = free_port(), to, True
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                call, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(call,), daemon=True).start()

    def _carry(self, call):
        with call, socket.create_connection(("127.0.0.1", self._to)) as onward:
            both = selectors.DefaultSelector()
            both.register(call, selectors.EVENT_READ, onward)
            both.register(onward, selectors.EVENT_READ, call)
            while True:
                for key, _ in both.select(0.2):
                    if not self.whole:
                        time.sleep(0.1)
                        continue
                    try:
                        content = key.fileobj.recv(1 << 16)
                        if not content:
                            return
                        key.data.sendall(content)
                    except OSError:
                        return

    def close(self):
        self._server.close()


def reached_at(site, host, port):
    """What the site's name service and the router before it would do: its server is found there."""
    path = site / MEMBERSHIP_FILE
    content = json.loads(path.read_text())
    content["server"] |= {"host": host, "port": port}
    path.write_text(json.dumps(content))


@pytest.fixture
def federation(tmp_path):
    """Its server is not to be reached by its public name from its own machine."""
    options = {"rounds": ROUNDS, "deadline": 4, "method": "fedavg", "host": "coordinator.invalid"}
    made = Processes(tmp_path, **options)
    made.port = read_members(made.fed).bind[1]
    for own in made.sites.values():
        reached_at(own, "localhost", made.port)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_site_that_is_cut_off_says_so_and_is_taken_in_again(federation):
    south = federation.sites["south"]
    cable = Cable(federation.port)
    stop(south / SITE_PID)
    reached_at(south, "127.0.0.1", cable.port)
    assert start_site(south, wait=60)
    job, said, failed = federation.proposal.job(), [], []

    def strike():
        try:
            wait_for_round(federation.fed, job, 20)
            cable.whole = False
            wait_until(lambda: not site_status(south)["connected"])
            status = site_status(south)
            assert status["level"] == 2
            assert "not connected since" in status["problems"][0]
            wait_until(lambda: "south" not in registered(federation.fed))
            cable.whole, mended = True, time.monotonic()
            wait_until(lambda: site_status(south)["connected"])
            said.append(f"back after {time.monotonic() - mended:.1f} s")
        except BaseException as error:
            failed.append(error)
            cable.whole = True
            raise

    striker = threading.Thread(target=strike)
    striker.start()
    progress = run_job(
        federation.fed,
        job,
        federation.proposal.sites,
        patience=30.0,
        report=lambda progress: None,
        say=said.append,
    )
    striker.join()
    cable.close()
    print(said)
    assert not failed
    assert is_finished(progress, federation.proposal.sites)
    answered = progress_of(federation.fed, job)["answered"]
    assert answered["north"] == answered["east"] == ROUNDS
    assert 20 <= answered["south"] < ROUNDS
    assert any("south is back" in words for words in said)
    took_part = read_result(south / RESULTS / job).privacy[0]
    # The answer that was under way when the cable was cut is one of the site's, and of no round.
    assert answered["south"] <= took_part["rounds"] <= answered["south"] + 2
    assert took_part["of_rounds"] == ROUNDS
    charged = account_of(read_ledger(south / "ledger", "south")).runs[job].charged
    assert took_part["rounds"] <= charged <= ROUNDS
