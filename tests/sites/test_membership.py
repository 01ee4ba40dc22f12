"""Who belongs to a federation: invitations, requests, certificates, proposals, and attacks."""

import json
import shutil
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from nvflare.lighter.utils import Identity, generate_cert
from site_folders import table
from site_processes import PASSPHRASE, fed_text

from silodp.base.errors import SilodpError
from silodp.privacy.policy import Policy
from silodp.sites.consents import consented, superseded
from silodp.sites.federation_setup import add_sites, renew_coordinator, set_up_federation
from silodp.sites.membership import authority as authorities
from silodp.sites.membership import coordinator, site
from silodp.sites.membership.authority import new_key, open_authority
from silodp.sites.membership.documents import (
    Address,
    CertificateRequest,
    SiteCertificate,
    certificate_of,
    key_id,
    public_pem,
    signed,
)
from silodp.sites.membership.members import changed_members, read_members
from silodp.sites.proposal import Proposal
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_setup import SiteSettings, consent_to, offered_proposal, set_up
from silodp.sites.sources import Claim


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation's folder, its authority, and three sites that were let in."""
    patch = pytest.MonkeyPatch()
    patch.setattr(authorities, "_COST", 2**4)
    folder = tmp_path_factory.mktemp("federation")
    (folder / "fed.toml").write_text(fed_text(8102, 10, 30, 2, "fedavg"))
    setup = set_up_federation(folder / "fed.toml", folder / "fed", PASSPHRASE)
    table(0).to_csv(folder / "records.csv", index=False)
    yield setup
    patch.undo()


class Federation:
    """A copy of a federation, for a test to change."""

    def __init__(self, folder, made):
        self.fed = folder / "fed"
        shutil.copytree(made.folder, self.fed)
        self.authority = open_authority(self.fed, PASSPHRASE)
        self.folder, self.data = folder, made.folder.parent / "records.csv"

    def site(self, name="north"):
        invitation = self.fed / "to-send" / f"{name}.invitation"
        settings = SiteSettings(DataAtSite(path=self.data), Policy(4.0, 1e-3))
        return set_up(invitation, self.folder / name, settings)

    def approved(self, own, **more):
        request = coordinator.read_request(self.fed, site.write_request(own), **more)
        return coordinator.approve(self.fed, self.authority, request, **more)

    def let_in(self, own, **more):
        return site.take_certificate(own, self.approved(own, **more))

    def key(self, own):
        return key_id(site._read_key(own / site.STARTUP / site.KEY_FILE).public_key())

    def is_let_in(self, own, key=None):
        return read_members(self.fed).is_let_in("north", key or self.key(own))


@pytest.fixture
def federation(made, tmp_path):
    return Federation(tmp_path, made)


def private_keys(folder):
    return [
        path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    ]


def test_no_sites_key_is_ever_at_the_coordinator(federation):
    own = federation.site()
    federation.let_in(own)
    names = {path.relative_to(federation.fed).as_posix() for path in private_keys(federation.fed)}
    assert names == {"server/startup/server.key", "admin/startup/client.key", "authority/key.json"}
    assert b"ENCRYPTED" in (federation.fed / "authority/key.json").read_bytes()
    assert [path.name for path in private_keys(own)] == ["client.key"]
    for path in [*private_keys(federation.fed), *private_keys(own)]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for sent in (*(federation.fed / "to-send").iterdir(), *(own / "to-send").iterdir()):
        assert b"PRIVATE" not in sent.read_bytes()
    assert site.certificate_at(own) is not None
    site.check_certificate_at(own)


def test_the_passphrase_opens_the_authority_and_no_other_does(federation, tmp_path):
    with pytest.raises(SilodpError, match="passphrase does not open"):
        open_authority(federation.fed, "four other words by lot")
    for short in ("", "short", "aaaaaaaaaaaaaaaaaaaa"):
        with pytest.raises(SilodpError, match="too short"):
            authorities.check_passphrase(short)
    # Another authority's key under a passphrase of one's own lets nobody in.
    authorities.make_authority(tmp_path / "other", "other", "a passphrase of my own")
    path = federation.fed / "authority" / "key.json"
    path.write_bytes((tmp_path / "other" / "authority" / "key.json").read_bytes())
    with pytest.raises(SilodpError, match="is not the key of"):
        open_authority(federation.fed, "a passphrase of my own")


def test_a_lost_certificate_is_issued_again_and_changes_nothing(federation):
    own = federation.site()
    federation.let_in(own)
    before = federation.key(own)
    assert coordinator.read_request(federation.fed, site.write_request(own)).known
    federation.let_in(own)
    assert federation.key(own) == before
    assert read_members(federation.fed).sites["north"].former == []


def test_a_renewed_key_takes_the_place_of_the_one_before(federation):
    own = federation.site()
    federation.let_in(own)
    before, ledger = federation.key(own), (own / "site.toml").read_bytes()
    path = site.renew(own)
    assert site.renew(own).read_bytes() != b""  # once more: the same key waits
    request = coordinator.read_request(federation.fed, path)
    assert request.proven
    sent = coordinator.approve(federation.fed, federation.authority, request)
    # The site goes on with what it has, until it comes with the new key.
    assert federation.is_let_in(own, before)
    site.check_certificate_at(own)
    assert federation.key(own) == before
    site.take_certificate(own, sent)
    after = federation.key(own)
    assert after == request.key != before
    assert not (own / "next").exists()
    with changed_members(federation.fed) as members:
        assert members.is_new("north", after)
        members.turn("north")
    assert federation.is_let_in(own, after)
    assert not federation.is_let_in(own, before)
    assert (own / "site.toml").read_bytes() == ledger


def test_a_killed_site_takes_its_certificate_again(federation):
    own = federation.site()
    federation.let_in(own)
    path = site.renew(own)
    request = coordinator.read_request(federation.fed, path)
    sent = coordinator.approve(federation.fed, federation.authority, request)
    # As if it had ended between the key and the certificate.
    (own / site.STARTUP / site.KEY_FILE).write_bytes((own / "next" / "client.key").read_bytes())
    with pytest.raises(SilodpError, match="not that of the key beside it"):
        site.check_certificate_at(own)
    site.take_certificate(own, sent)
    site.check_certificate_at(own)


def test_a_stolen_key_is_shut_out_by_a_replacement_and_never_comes_back(federation):
    own = federation.site()
    federation.let_in(own)
    stolen, replayed = federation.key(own), (own / "to-send" / "north.request").read_bytes()
    # The thief's own key, by a request that nothing stands behind.
    thief = new_key()
    own_request = CertificateRequest(
        federation.authority.federation, "north", public_pem(thief.public_key())
    )
    path = federation.folder / "thief.request"
    path.write_bytes(signed(thief, own_request))
    with pytest.raises(SilodpError, match="not by the key of it"):
        coordinator.read_request(federation.fed, path)
    # The site makes a new one; a person says that the old one is stolen.
    request = coordinator.read_request(federation.fed, site.renew(own), replace=True)
    site.take_certificate(
        own, coordinator.approve(federation.fed, federation.authority, request, replace=True)
    )
    assert not federation.is_let_in(own, stolen)
    assert federation.is_let_in(own)
    # The first request, replayed; also by somebody who is asked to replace.
    path.write_bytes(replayed)
    for replaces in (False, True):
        with pytest.raises(SilodpError, match="was replaced"):
            coordinator.read_request(federation.fed, path, replace=replaces)


def test_a_lost_key_is_replaced_on_a_persons_word(federation):
    own = federation.site()
    federation.let_in(own)
    lost = federation.key(own)
    (own / site.STARTUP / site.KEY_FILE).unlink()
    path = site.renew(own)
    with pytest.raises(SilodpError, match="If it has lost its key"):
        coordinator.read_request(federation.fed, path)
    request = coordinator.read_request(federation.fed, path, replace=True)
    sent = coordinator.approve(federation.fed, federation.authority, request, replace=True)
    site.take_certificate(own, sent)
    assert federation.is_let_in(own)
    assert not federation.is_let_in(own, lost)


def test_a_request_looked_at_is_the_one_that_is_approved(federation):
    own = federation.site()
    path = site.write_request(own)
    request = coordinator.read_request(federation.fed, path)
    other = new_key()
    content = CertificateRequest(
        federation.authority.federation, "north", public_pem(other.public_key())
    )
    path.write_bytes(signed(other, content))
    with pytest.raises(SilodpError, match="changed meanwhile"):
        coordinator.approve(federation.fed, federation.authority, request)
    assert read_members(federation.fed).sites == {}


def test_one_sites_key_is_no_other_sites(federation):
    north, south = federation.site("north"), federation.site("south")
    federation.let_in(north)
    federation.let_in(south)
    key = site._read_key(north / site.STARTUP / site.KEY_FILE)
    content = CertificateRequest(
        federation.authority.federation, "south", public_pem(key.public_key())
    )
    path = federation.folder / "both.request"
    path.write_bytes(signed(key, content))
    with pytest.raises(SilodpError, match="is that of 'north'"):
        coordinator.read_request(federation.fed, path, replace=True)


def test_who_was_removed_does_not_come_back(federation):
    own = federation.site()
    federation.let_in(own)
    coordinator.remove(federation.fed, "north")
    assert not federation.is_let_in(own)
    for ask in (lambda: site.write_request(own), lambda: site.renew(own)):
        with pytest.raises(SilodpError, match="removed for good"):
            coordinator.read_request(federation.fed, ask(), replace=True)
    with pytest.raises(SilodpError, match="removed for good"):
        coordinator.invite(federation.fed, federation.authority, ["north"])
    with pytest.raises(SilodpError, match="removed for good"):
        coordinator.remove(federation.fed, "north")
    before = coordinator.newest_proposal(federation.fed)
    again = replace(before, seed=5)
    with pytest.raises(SilodpError, match="removed for good"):
        coordinator.propose(federation.fed, federation.authority, again)
    with pytest.raises(SilodpError, match="no site 'nobody'"):
        coordinator.remove(federation.fed, "nobody")


def foreign(federation, own, **more):
    """A certificate document for the site's key, with something else than it should have."""
    key = site._read_key(own / site.STARTUP / site.KEY_FILE).public_key()
    by = more.pop("by", federation.authority)
    name = more.pop("name", "north")
    public = more.pop("public", key)
    content = SiteCertificate(
        more.pop("of", federation.authority.federation),
        "north",
        by.certificate(name, public),
        read_members(federation.fed).server,
        9,
    )
    path = federation.folder / "foreign.certificate"
    path.write_bytes(more.pop("signer", by).sign(replace(content, **more)))
    return path


def test_a_foreign_approval_is_refused(federation, tmp_path):
    own = federation.site()
    other = authorities.make_authority(tmp_path / "other", "other", PASSPHRASE)
    mine = federation.authority
    with pytest.raises(SilodpError, match="not as it was sent"):
        site.take_certificate(own, foreign(federation, own, by=other))
    cases = {
        "another authority or name": {"by": other, "signer": mine},
        "of another federation": {"of": other.federation},
        "for another key": {"public": new_key().public_key()},
        "is for site 'south'": {"site": "south"},
        "server": {"server": Address("x", "h", "no host", 1)},
    }
    for words, more in cases.items():
        with pytest.raises(SilodpError, match=words):
            site.take_certificate(own, foreign(federation, own, **more))
    with pytest.raises(SilodpError, match="another authority or name"):
        site.take_certificate(own, foreign(federation, own, name="south"))
    assert site.certificate_at(own) is None
    with pytest.raises(SilodpError, match="has no certificate yet"):
        site.check_certificate_at(own)


def test_an_older_certificate_brings_no_older_address_back(federation):
    own = federation.site()
    sent = federation.approved(own)
    before = sent.read_bytes()
    site.take_certificate(own, sent)
    (moved,) = renew_coordinator(federation.fed, PASSPHRASE, host="new.example.org", port=9000)
    site.take_certificate(own, moved)
    at = site.read_membership(own).server
    assert (at.host, at.port, at.identity) == ("new.example.org", 9000, "localhost")
    sent.write_bytes(before)
    with pytest.raises(SilodpError, match="older than what this site has"):
        site.take_certificate(own, sent)
    certificate = federation.fed / "server" / "startup" / "server.crt"
    assert b"CERTIFICATE" in certificate.read_bytes()
    assert read_members(federation.fed).bind == ("127.0.0.1", 8102)


def test_an_altered_document_is_refused_whichever_byte_it_is(federation):
    own = federation.site()
    sent = federation.approved(own)
    whole = sent.read_bytes()
    for place in range(0, len(whole), 97):
        altered = bytearray(whole)
        altered[place] ^= 1
        sent.write_bytes(bytes(altered))
        with pytest.raises(SilodpError):
            site.take_certificate(own, sent)
    for size in (0, 10, 300, len(whole) - 2):
        sent.write_bytes(whole[:size])
        with pytest.raises(SilodpError):
            site.take_certificate(own, sent)
    for text in (b"PK\x03\x04", b"silodp federation 2\nx\n{}\n", b"[" * 10**5):
        sent.write_bytes(text)
        with pytest.raises(SilodpError):
            site.take_certificate(own, sent)
    sent.write_bytes(whole)
    site.take_certificate(own, sent)


def test_keys_of_other_kinds_are_refused(federation):
    pem = ed25519.Ed25519PrivateKey.generate().public_key()
    text = pem.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    content = CertificateRequest(federation.authority.federation, "north", text)
    path = federation.folder / "odd.request"
    path.write_bytes(signed(new_key(), content))
    with pytest.raises(SilodpError, match="key of another kind"):
        coordinator.read_request(federation.fed, path)
    own = federation.site()
    with pytest.raises(SilodpError, match="is a request, not a certificate"):
        site.take_certificate(own, site.write_request(own))
    with pytest.raises(SilodpError, match="is a invitation, not a certificate"):
        site.take_certificate(own, federation.fed / "to-send" / "north.invitation")


def test_an_invitation_of_somebody_else_shows_another_fingerprint(federation, made, tmp_path):
    """Whoever replaces it on its way can make one that fits in itself: people compare."""
    (tmp_path / "again.toml").write_text(fed_text(8102, 10, 30, 2, "fedavg"))
    theirs = set_up_federation(tmp_path / "again.toml", None, PASSPHRASE)
    invited, _ = site.read_invitation(theirs.invitations[0])
    assert site.authority_fingerprint(invited) == theirs.fingerprint != made.fingerprint
    # A request to one federation is none to the other.
    own = federation.site()
    with pytest.raises(SilodpError, match="another federation"):
        coordinator.read_request(theirs.folder, site.write_request(own))


def newer(federation, number):
    """A further proposal, as the file that sites get."""
    before = coordinator.newest_proposal(federation.fed)
    files, _ = coordinator.propose(
        federation.fed, federation.authority, replace(before, seed=number)
    )
    return files[0]


def test_a_new_proposal_supersedes_and_an_older_one_does_not_come_back(federation):
    own = federation.site()
    federation.let_in(own)
    consent_to(own, offered_proposal(own, None))
    (first,) = consented(own)
    second, third = newer(federation, 2), newer(federation, 3)
    consent_to(own, offered_proposal(own, third))
    assert [one.seed for one in consented(own)] == [3]
    assert [one.digest for one in superseded(own)] == [first.digest]
    # Signed by the authority, and older than what was consented to since: a downgrade.
    with pytest.raises(SilodpError, match="has consented to proposal 3 since"):
        offered_proposal(own, second)
    assert offered_proposal(own, None).number == 3
    assert coordinator.numbered_proposal(federation.fed, 2).seed == 2
    assert coordinator.newest_proposal(federation.fed).seed == 3


def test_a_proposal_that_the_authority_did_not_sign_is_refused(federation, tmp_path):
    own = federation.site()
    path = newer(federation, 2)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'\\"seed\\": 2', b'\\"seed\\": 4'))
    assert path.read_bytes() != whole
    with pytest.raises(SilodpError, match="not as it was sent"):
        offered_proposal(own, path)
    (tmp_path / "plain.json").write_text(coordinator.newest_proposal(federation.fed).text)
    with pytest.raises(SilodpError, match="no file of a federation"):
        offered_proposal(own, tmp_path / "plain.json")


def test_a_site_is_added_without_touching_others(federation):
    own = federation.site()
    federation.let_in(own)
    key, certificate = federation.key(own), (own / site.STARTUP / "client.crt").read_bytes()
    added = add_sites(federation.fed, ["west"], PASSPHRASE)
    assert (added.number, added.new) == (2, ["south", "east", "west"])  # those were not let in yet
    proposal = coordinator.newest_proposal(federation.fed)
    assert proposal.sites == ("north", "south", "east", "west")
    assert federation.is_let_in(own, key)
    assert (own / site.STARTUP / "client.crt").read_bytes() == certificate
    west = federation.site("west")
    federation.let_in(west)
    assert offered_proposal(west, None).number == 2
    # Jobs of the proposal before can still be gone on with.
    job = coordinator.numbered_proposal(federation.fed, 1).job()
    found = coordinator.proposal_of_job(federation.fed, lambda one: one.job() == job)
    assert isinstance(found, Proposal)
    assert found.sites == ("north", "south", "east")
    with pytest.raises(SilodpError, match="has site 'west' already"):
        add_sites(federation.fed, ["west"], PASSPHRASE)
    with pytest.raises(SilodpError, match="not allowed"):
        add_sites(federation.fed, ["we st"], PASSPHRASE)


def old_folder(federation, own):
    """The federation and its site as version 0.1.0 made them, with all keys at the first."""
    key = authorities.new_key()
    now = datetime.now(UTC)
    root = generate_cert(
        Identity("processes"), Identity("processes"), key, key.public_key(), ca=True,
        not_valid_before=now,
    )  # fmt: skip
    old = {"root_cert": pem_of(root), "root_pri_key": authorities.key_bytes(key).decode()}
    certificates = {}
    for name in ("north", "south", "east"):
        theirs = authorities.new_key()
        made = generate_cert(
            Identity(name, "silodp"), Identity("processes"), key, theirs.public_key()
        )
        old[name] = {"cert": pem_of(made), "pri_key": authorities.key_bytes(theirs).decode()}
        certificates[name] = pem_of(made), authorities.key_bytes(theirs)
    fed = federation.fed
    for path in ("authority", "proposals", "to-send"):
        shutil.rmtree(fed / path)
    (fed / "members.json").unlink()
    state = fed / "provision" / "processes" / "state" / "cert.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps(old))
    (fed / "kits").mkdir()
    (fed / "kits" / "north.zip").write_bytes(certificates["north"][1])
    server = {"name": "processes", "service": {"target": "localhost:8102", "scheme": "grpc"}}
    (fed / "server/startup/fed_server.json").write_text(json.dumps({"servers": [server]}))
    startup = own / site.STARTUP
    (startup / "client.crt").write_text(certificates["north"][0])
    (startup / "client.key").write_bytes(certificates["north"][1])
    (startup / "rootCA.pem").write_text(pem_of(root))
    client = {"servers": [server | {"identity": "localhost"}], "client": {"fqsn": "north"}}
    (startup / "fed_client.json").write_text(json.dumps(client))
    (own / site.MEMBERSHIP_FILE).unlink()


def pem_of(certificate):
    return certificate.public_bytes(Encoding.PEM).decode()


def test_a_federation_of_the_release_before_is_taken_over(federation):
    """Its site goes on with what it has, and can have a key of its own from then on."""
    own = federation.site()
    old_folder(federation, own)
    with pytest.raises(SilodpError, match="federation renew` takes it over"):
        read_members(federation.fed)
    before = (own / "site.toml").read_bytes()
    renew_coordinator(federation.fed, PASSPHRASE)
    names = {path.relative_to(federation.fed).as_posix() for path in private_keys(federation.fed)}
    assert names == {"server/startup/server.key", "admin/startup/client.key", "authority/key.json"}
    assert federation.is_let_in(own)
    site.check_certificate_at(own)
    assert site.read_membership(own).server.port == 8102
    federation.authority = open_authority(federation.fed, PASSPHRASE)
    request = coordinator.read_request(federation.fed, site.renew(own))
    assert request.proven
    sent = coordinator.approve(federation.fed, federation.authority, request)
    site.take_certificate(own, sent)
    assert federation.is_let_in(own)
    consent_to(own, offered_proposal(own, newer(federation, 2)))
    assert (own / "site.toml").read_bytes() == before


def test_clocks_and_dates_are_said(federation, monkeypatch):
    own = federation.site()
    certificate = certificate_of(
        (federation.fed / "server" / "startup" / "server.crt").read_bytes(), own
    )
    assert site.why_not_valid(certificate) is None

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + cls.off

    for days, words in ((400, "was valid until"), (-400, "is valid from")):
        Clock.off = timedelta(days=days)
        with monkeypatch.context() as patch:
            patch.setattr(site, "datetime", Clock)
            assert words in site.why_not_valid(certificate)
            assert "this machine's clock says" in site.why_not_valid(certificate)


def test_members_that_are_damaged_let_nobody_in(federation):
    path = federation.fed / "members.json"
    whole = json.loads(path.read_text())
    for change in ({"format": 2}, {"sites": {"north": {}}}, {"bind": []}, {"server": {}}):
        path.write_text(json.dumps(whole | change))
        with pytest.raises(SilodpError):
            read_members(federation.fed)


def test_a_folder_and_its_ledger_are_made_apart(federation, tmp_path):
    """Ledgers inside of the folder that is made would go with it."""
    invitation = federation.fed / "to-send" / "north.invitation"
    claim = Claim(tmp_path / "own" / "ledgers", "visits", "file:x")
    settings = SiteSettings(DataAtSite(path=federation.data), Policy(4.0, 1e-3), claim=claim)
    with pytest.raises(SilodpError, match="choose another --ledger"):
        set_up(invitation, tmp_path / "own", settings)
    assert not (tmp_path / "own").exists()
