"""Real processes and mutual TLS: the models of a simulation, and what follows a kill."""

import threading
import time

import psutil
import pytest
from site_models import models_of, same_models, simulated
from site_processes import processes_of, running, wait_for_round

from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.storage import read_ledger
from silodp.results.result import read_result
from silodp.sites.federation_setup import is_finished, progress_of
from silodp.sites.flare.processes import SERVER_PID, SITE_PID, start_server, start_site, stop
from silodp.sites.flare.submission import run_job
from silodp.sites.job_at_site import RESULTS


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with running(tmp_path_factory.mktemp("federation")) as found:
        yield found


def submitted(federation, run):
    """Trains to the end; what was said on the way."""
    said = []
    told = run_job(
        federation.fed,
        federation.proposal.job(run),
        federation.proposal.sites,
        patience=30.0,
        report=lambda told: None,
        say=said.append,
    )
    assert is_finished(told, federation.proposal.sites), (told, said)
    return said


@pytest.mark.slow
def test_it_gives_the_models_of_a_simulation(federation, tmp_path):
    federation.use_keys("test")
    submitted(federation, 1)
    agreed = federation.proposal
    same_models(federation.sites, agreed, simulated(federation.sites, agreed), tmp_path)
    told = progress_of(federation.fed, agreed.job())
    print(f"{told['seconds'] / told['rounds']:.3f} s a round")


def kill(process):
    process.kill()
    psutil.wait_procs([process], timeout=10)


def kill_job_of_site(federation):
    """FLARE goes on without it, or ends its job; silodp takes it in again."""
    kill(processes_of(federation.sites["south"], jobs=True)[0])


def kill_site(federation):
    """As if its machine were lost, and came back."""
    for process in processes_of(federation.sites["south"], jobs=False):
        kill(process)
    for process in processes_of(federation.sites["south"], jobs=True):
        process.wait(30)  # it ends with its parent
    stop(federation.sites["south"] / SITE_PID)
    assert start_site(federation.sites["south"])


def kill_coordinator(federation):
    for jobs in (False, True):
        for process in processes_of(federation.fed, jobs=jobs):
            kill(process)
    stop(federation.fed / SERVER_PID)
    start_server(federation.fed)


def killed_and_gone_on_with(federation, run, harm, number):
    """Kills in the midst of a job; checks that it comes to its end and that all was paid once."""
    federation.use_keys("os")
    job = federation.proposal.job(run)
    failed = []

    def strike():
        try:
            wait_for_round(federation.fed, job, number)
            time.sleep(0.05)  # in the midst of a round
            harm(federation)
        except BaseException as error:
            failed.append(error)
            raise

    striker = threading.Thread(target=strike)
    striker.start()
    said = submitted(federation, run)
    striker.join()
    assert not failed
    for site, folder in federation.sites.items():
        ledger = read_ledger(folder / "ledger", site)
        own = [entry.kind for entry in ledger.entries if entry.run == job]
        assert own == ["reserve", *["charge"] * (len(own) - 2), "close"]
        charged = account_of(ledger).runs[job]
        took_part = read_result(folder / RESULTS / job).privacy[0]["rounds"]
        assert took_part <= charged.charged <= charged.rounds
    assert len(models_of(federation.sites, federation.proposal, job)) == 3
    return said


@pytest.mark.slow
def test_a_job_goes_on_after_a_sites_process_is_killed(federation):
    killed_and_gone_on_with(federation, 2, kill_job_of_site, 2)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [kill_job_of_site, kill_site, kill_coordinator])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_whatever_is_killed(federation, harm, number):
    run = 100 + 10 * number + [kill_job_of_site, kill_site, kill_coordinator].index(harm)
    killed_and_gone_on_with(federation, run, harm, number)
