"""What each side says of its connection: connected, cut off and why, a second machine, versions."""

import errno
import socket
import ssl
import threading
import time
from dataclasses import replace

import pytest
from site_folders import make_sites, table
from site_processes import PASSPHRASE, fed_text, free_port
from site_requests import AGREED, asked, first_request, kinds

from silodp.base.errors import SilodpError
from silodp.base.version import own_version
from silodp.privacy.policy import Policy
from silodp.privacy.session import RunSession
from silodp.sites import job_at_site
from silodp.sites.connection import Connection, connection_at, write_connections
from silodp.sites.demo import let_in
from silodp.sites.federation_setup import set_up_federation
from silodp.sites.flare.probe import why_unreachable
from silodp.sites.flare.submission import Lost
from silodp.sites.health import DEGRADED, DOWN, WELL, federation_problems, level_of, site_problems
from silodp.sites.last_error import last_error
from silodp.sites.membership import authority as authorities
from silodp.sites.membership.authority import key_bytes, new_key, open_authority
from silodp.sites.membership.site import MEMBERSHIP_FILE
from silodp.sites.refusals import CANNOT
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_setup import SiteSettings, set_up


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation and its site north, which was let in; nothing runs."""
    folder = tmp_path_factory.mktemp("health")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authorities, "_COST", 2**4)
        (folder / "fed.toml").write_text(fed_text(free_port(), 10, 30, 2, "fedavg"))
        setup = set_up_federation(folder / "fed.toml", folder / "fed", PASSPHRASE)
        table(0).to_csv(folder / "records.csv", index=False)
        settings = SiteSettings(DataAtSite(path=folder / "records.csv"), Policy(4.0, 1e-3))
        own = set_up(setup.invitations[0], folder / "north", settings)
        authority = open_authority(setup.folder, PASSPHRASE)
        let_in(setup.folder, authority, own)
    return setup.folder, own, authority


def words(problems):
    return " | ".join(one.words for one in problems)


def test_a_site_that_was_cut_off_does_not_say_that_it_is_connected(made):
    _, own, _ = made
    now = Connection(pid=1, heard=time.time(), version=own_version(), clock=0.1)
    now.write(own)
    assert connection_at(own) == now
    assert level_of(site_problems(own, running=True)) == WELL
    replace(now, heard=time.time() - 300, trouble="the cable is out").write(own)
    found = site_problems(own, running=True)
    assert level_of(found) == DOWN
    assert "not connected since 20" in words(found)
    assert "the cable is out" in words(found)
    # A clock that was set back does not make an old sign of life a new one.
    replace(now, heard=time.time() + 300).write(own)
    assert level_of(site_problems(own, running=True)) == DOWN
    assert "does not run" in words(site_problems(own, running=False))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"clock": 400 * 86400.0}, "s apart: correct them"),
        ({"version": "0.0.9"}, "has silodp 0.0.9, here is"),
        ({"second": [time.time(), "10.0.0.9"]}, "another machine (10.0.0.9) tried to be"),
    ],
)
def test_both_sides_name_what_is_amiss(made, more, said):
    fed, own, _ = made
    now = Connection(pid=1, heard=time.time(), version=own_version(), clock=0.0)
    replace(now, **more).write(own)
    found = site_problems(own, running=True)
    assert (level_of(found), said in words(found)) == (DEGRADED, True)
    write_connections(fed, {"north": replace(now, **more)})
    assert said in words(federation_problems(fed, running=True))


def test_the_coordinator_says_who_is_missing(made):
    fed, _, _ = made
    now = Connection(heard=time.time(), version=own_version())
    write_connections(fed, {"north": now, "south": replace(now, heard=time.time() - 99)})
    found = federation_problems(fed, running=True)
    assert level_of(found) == DOWN
    assert "1 sites are connected, fewer than the quorum of 2" in words(found)
    assert "site 'south' is not connected since" in words(found)
    assert "site 'east' is not connected: approve its request" in words(found)
    assert "the server does not run" in words(federation_problems(fed, running=False))


def test_certificates_are_said_before_they_end(made, tmp_path):
    _, own, authority = made
    key = new_key()
    startup = tmp_path / "kit" / "startup"
    startup.mkdir(parents=True)
    (startup / "client.key").write_bytes(key_bytes(key))
    (tmp_path / MEMBERSHIP_FILE).write_bytes((own / MEMBERSHIP_FILE).read_bytes())
    assert "no certificate yet" in words(site_problems(tmp_path, running=False))
    (startup / "client.crt").write_text(authority.certificate("north", key.public_key(), days=20))
    assert "renew it (silodp site renew" in words(site_problems(tmp_path, running=False))


class Server:
    """Something that takes calls, with or without TLS."""

    def __init__(self, port, context=None):
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with self._socket:
            call, _ = self._socket.accept()
            with call:
                if self._context is None:
                    return
                try:
                    with self._context.wrap_socket(call, server_side=True) as secure:
                        secure.recv(1)
                except OSError:
                    return


def moved(own, tmp_path, port, host="localhost"):
    """The site, whose server is at this port."""
    startup = tmp_path / "kit" / "startup"
    startup.parent.mkdir()
    startup.symlink_to(own / "kit" / "startup")
    text = (own / MEMBERSHIP_FILE).read_text()
    at = f'"host": "{host}",\n  "port": {port}'
    before = text[text.index('"host"') : text.index("}")].rstrip()
    (tmp_path / MEMBERSHIP_FILE).write_text(text.replace(before, at))
    return tmp_path


def as_server(folder, authority, **more):
    """The context of a server with a certificate of this authority."""
    key = new_key()
    (folder / "server.key").write_bytes(key_bytes(key))
    hosts = more.pop("hosts", ("localhost", "127.0.0.1"))
    certificate = authority.certificate("localhost", key.public_key(), hosts=hosts, **more)
    (folder / "server.crt").write_text(certificate)
    (folder / "root.pem").write_text(authority.root_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "root.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


def test_why_the_coordinator_cannot_be_reached_is_found(made, tmp_path):
    _, own, authority = made
    port = free_port()
    site = moved(own, tmp_path, port)
    assert "nothing listens at localhost" in str(why_unreachable(site))
    other = authorities.make_authority(tmp_path / "other", "other", PASSPHRASE)
    for context, said in (
        (as_server(tmp_path, authority), None),
        (as_server(tmp_path, other), "is that of another authority"),
        (as_server(tmp_path, authority, hosts=("elsewhere",)), "a certificate for another name"),
    ):
        port = free_port()
        (tmp_path / str(port)).mkdir()
        site = moved(own, tmp_path / str(port), port)
        Server(port, context)
        why = why_unreachable(site)
        assert (why is None) if said is None else said in str(why)
    (tmp_path / "dns").mkdir()
    site = moved(own, tmp_path / "dns", port, "no-such-host.invalid")
    assert "is not known here" in str(why_unreachable(site))


def test_a_site_is_back_only_after_a_sign_of_life():
    """That it did not answer a round, and was heard before, is no return."""
    now = time.time()
    lost = Lost({}, {})
    before = {"north": Connection(heard=now)}
    assert lost.back(["north"], ["north"], before) == []
    assert lost.back([], ["north"], before) == []  # stopped: it is never heard again
    later = {"north": Connection(heard=now + 60)}
    assert lost.back([], [], later) == []
    assert lost.back([], ["north"], later) == ["north"]
    assert lost.back([], ["north"], {"north": Connection(heard=now + 8)}) == []  # and lost again
    assert lost.back([], ["north"], later) == ["north"]


def test_a_ledger_that_cannot_be_written_is_named_at_the_site_and_nowhere_else(
    tmp_path, monkeypatch
):
    folder = make_sites(tmp_path / "sites", AGREED)["north"]
    request = first_request(tmp_path)

    def denied(*args, **kwargs):
        raise SilodpError("The ledger cannot be written (read-only): check its permissions.")

    with monkeypatch.context() as patch:
        patch.setattr(RunSession, "pay", denied)
        (reply,) = asked(folder, request)
    assert (reply.status, reply.reason) == ("refused", CANNOT)
    assert kinds(folder) == ["opened", "policy", "reserve"]
    assert "check its permissions" in words(site_problems(folder, running=True))
    assert asked(folder, request)[0].status == "ok"


def test_a_full_disk_is_named_at_the_site_and_nowhere_else(tmp_path, monkeypatch, caplog):
    folder = make_sites(tmp_path / "sites", AGREED)["north"]
    request = first_request(tmp_path, kind="join")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "state"))

    with monkeypatch.context() as patch:
        patch.setattr(job_at_site, "save_state", full)
        (reply,) = asked(folder, request)
    assert (reply.status, reply.reason, reply.about, reply.arrays) == ("refused", CANNOT, {}, [])
    assert "No space left on device" in caplog.text
    noted = last_error(folder)
    assert noted is not None
    assert "No space left on device: see to the disk" in noted.words
    assert not (folder / "ledger").exists()
    assert "No space left" in words(site_problems(folder, running=True))
    (reply,) = asked(folder, request)
    assert reply.status == "ok"
    assert last_error(folder) is None
