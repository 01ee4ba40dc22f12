"""One ledger for each data source of a site, whichever federations use it."""

import json
import stat
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from site_folders import make_sites, proposal, table
from site_processes import PASSPHRASE, fed_text
from site_requests import first_request

from silodp.base.errors import SilodpError
from silodp.privacy.ledger.account import account_of
from silodp.privacy.ledger.charging import allow
from silodp.privacy.ledger.standing import remaining
from silodp.privacy.ledger.storage import ledger_paths, read_ledger
from silodp.privacy.policy import Policy
from silodp.results.result import read_result
from silodp.sites.consents import consent
from silodp.sites.job_at_site import RESULTS
from silodp.sites.protocol import Request
from silodp.sites.refusals import LOST, SPENT
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_files import read_site, write_site
from silodp.sites.sources import (
    SOURCES_FILE,
    Claim,
    identity_of,
    known_sources,
    ledgers_dir,
    names_of,
)
from silodp.sites.worker import INTERNAL, SiteWorker

pytestmark = pytest.mark.usefixtures("kept_programs")

BUDGET = ("--epsilon", "4", "--delta", "1e-3")
FIRST = proposal(method="local", rounds=2)
# Another consortium, in which the same site has another name.
SECOND = proposal(sites=("harbour", "hill"), method="local", rounds=3)


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "visits.csv"
    table(0).to_csv(path, index=False)
    return path


def member(folder, site, agreed, records, lifetime=4.0, delta=1e-3, source="visits"):
    """A site's folder in one federation, on a source that others may use too."""
    data = DataAtSite(path=records.absolute())
    claim = Claim(ledgers_dir(), source, identity_of(site, data))
    claim.make()
    policy = Policy(4.0, 1e-3, lifetime_epsilon=lifetime, lifetime_delta=delta)
    write_site(folder, site, data, policy, ledger=ledgers_dir(), source=source)
    consent(folder, agreed)
    return folder


def joined(folder, agreed, run=1):
    with closing(SiteWorker(folder)) as worker:
        return worker.answer(Request("join", agreed.job(run), agreed.text, 0, []))


def trained(folder, agreed, run=1, number=0):
    """Asked for a round, as the first thing."""
    told = first_request(folder, agreed)
    with closing(SiteWorker(folder)) as worker:
        return worker.answer(replace(told, job=agreed.job(run), round=number))


def ledger():
    """The only one that there is."""
    assert len(ledger_paths(ledgers_dir())) == 1
    return read_ledger(ledgers_dir(), "visits")


def test_two_federations_on_one_table_have_one_lifetime(records, tmp_path):
    """Each has its own folder, kit and name of the site; what is spent adds up."""
    one = member(tmp_path / "one", "north", FIRST, records)
    other = member(tmp_path / "other", "harbour", SECOND, records)
    assert joined(one, FIRST).status == "ok"
    told = remaining(ledgers_dir(), "visits")
    assert told["spent_epsilon"] == 0
    assert told["reserved_share"] > 0.9
    reply = joined(other, SECOND)
    assert (reply.status, reply.reason) == ("refused", SPENT)
    assert remaining(ledgers_dir(), "visits") == told
    assert list(account_of(ledger()).runs) == [FIRST.job()]
    assert not (one / "ledger").exists()
    assert not (other / "ledger").exists()


def test_charges_go_to_the_source_and_results_keep_the_sites_name(records, tmp_path):
    own = member(tmp_path / "other", "harbour", SECOND, records, lifetime=9)
    with closing(SiteWorker(own)) as worker:
        request = first_request(own, SECOND)
        for number in range(3):
            told = Request("train", SECOND.job(), SECOND.text, number, request.arrays)
            assert worker.answer(told).status == "ok"
        assert worker.answer(Request("finish", SECOND.job(), SECOND.text, 3, request.arrays))
    (silo,) = read_result(own / RESULTS / SECOND.job()).per_silo
    assert silo["silo"] == "harbour"
    entries = ledger().entries
    assert [entry.kind for entry in entries] == [
        *("opened", "policy", "reserve"),
        *["charge"] * 3,
        "close",
    ]
    about = entries[2].body["about"]
    assert (about["site"], about["data"]) == ("harbour", SECOND.name)


def test_both_at_once_never_exceed_the_lifetime(records, tmp_path, monkeypatch):
    """Budget for one of two that join at the same moment, some times over."""
    for number in range(4):
        place = tmp_path / str(number)
        monkeypatch.setenv("SILODP_LEDGERS", str(place / "ledgers"))
        pairs = [
            (member(place / "one", "north", FIRST, records), FIRST),
            (member(place / "other", "harbour", SECOND, records), SECOND),
        ]
        replies, ready = [], threading.Barrier(2)

        def join(folder, agreed, replies=replies, ready=ready):
            ready.wait()
            replies.append(joined(folder, agreed))

        threads = [threading.Thread(target=join, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert sorted((one.status, one.reason) for one in replies) == [
            ("ok", ""),
            ("refused", SPENT),
        ]
        told = remaining(ledgers_dir(), "visits")
        assert (told["runs"], told["spent_epsilon"]) == (1, 0)


@pytest.mark.parametrize("generous_first", [True, False])
def test_of_two_lifetimes_the_stricter_holds(records, tmp_path, generous_first):
    """Whichever charges first: neither federation can spend what the other's policy forbids."""
    generous = member(tmp_path / "one", "north", FIRST, records, lifetime=20)
    strict = member(tmp_path / "other", "harbour", SECOND, records, lifetime=5)
    order = [(generous, FIRST), (strict, SECOND)]
    order = order if generous_first else order[::-1]
    assert joined(*order[0]).status == "ok"
    reply = joined(*order[1])
    assert (reply.status, reply.reason) == ("refused", SPENT)
    told = remaining(ledgers_dir(), "visits")
    assert told["spent_epsilon"] <= 4
    assert told["lifetime_epsilon"] == (20 if generous_first else 5)
    # The generous one, which came first, may go on; once the strict one is charged, no more.
    allow(ledgers_dir(), "visits", 20)
    if not generous_first:
        assert joined(generous, FIRST).status == "ok"
        return
    assert joined(generous, FIRST, run=2).status == "ok"
    assert joined(strict, SECOND, run=2).reason == SPENT


def test_a_stricter_lifetime_is_written_down_and_stays(records, tmp_path):
    generous = member(tmp_path / "one", "north", FIRST, records, lifetime=20, delta=1e-3)
    strict = member(tmp_path / "other", "harbour", SECOND, records, lifetime=8, delta=2e-3)
    assert joined(strict, SECOND).status == "ok"
    assert joined(generous, FIRST).status == "ok"
    # Less of each number than either said: that keeps to both.
    bodies = [entry.body for entry in ledger().entries if entry.kind == "policy"]
    said = [(body["epsilon"], body["delta"]) for body in bodies]
    assert said == [(8, 2e-3), (8, 1e-3)]
    assert trained(generous, FIRST).status == "ok"  # else its reservation is given back
    assert joined(generous, FIRST, run=2).reason == SPENT
    assert remaining(ledgers_dir(), "visits")["spent_epsilon"] <= 8


def test_a_job_of_the_same_name_in_another_folder_is_not_gone_on_with(records, tmp_path):
    """Else it would draw other noise under a charge that paid for one."""
    one = member(tmp_path / "one", "north", FIRST, records, lifetime=50)
    two = member(tmp_path / "two", "north", FIRST, records, lifetime=50)
    with pytest.MonkeyPatch.context() as patch:
        # It has saved its secret when the other reserves.
        patch.setattr("silodp.privacy.session.reserve_all", lambda *_, **__: 1 / 0)
        assert joined(two, FIRST).reason == INTERNAL
    assert joined(one, FIRST).status == "ok"
    # What the other reserved is not its to give back, though it has a state of that name.
    assert joined(two, FIRST, run=3).status == "ok"
    assert trained(one, FIRST).status == "ok"
    reply = joined(two, FIRST)
    assert (reply.status, reply.reason) == ("refused", LOST)
    assert joined(one, FIRST).status == "ok"
    assert joined(two, FIRST, run=2).status == "ok"
    assert remaining(ledgers_dir(), "visits")["open_runs"] == [FIRST.job(), FIRST.job(2)]


def test_folders_without_a_source_are_as_they_were(tmp_path):
    own = make_sites(tmp_path, FIRST)["north"]
    assert read_site(own).source is None
    assert joined(own, FIRST).status == "ok"
    assert remaining(own / "ledger", "north")["runs"] == 1
    assert not ledgers_dir().exists()
    # Its own people may loosen it, as ever.
    text = (own / "site.toml").read_text()
    (own / "site.toml").write_text(text + "lifetime_epsilon = 9\n")
    assert joined(own, FIRST, run=2).status == "ok"
    assert remaining(own / "ledger", "north")["lifetime_epsilon"] == 9


def test_an_older_folder_comes_to_share_its_ledger(invitations, tmp_path, cli):
    """By the site's name as the source's: what was spent stays spent."""
    own = make_sites(tmp_path, FIRST)["north"]
    assert joined(own, FIRST).status == "ok"
    (own / "proposal.json").write_text(FIRST.text)
    text = (own / "site.toml").read_text() + "lifetime_epsilon = 20\n"
    (own / "site.toml").write_text(text + '\n[ledger]\npath = "ledger"\nsource = "north"\n')
    assert joined(own, FIRST, run=2).status == "refused"
    allow(own / "ledger", "north", 20)
    assert cli("site", "consent", own, "--yes").exit_code == 0
    assert joined(own, FIRST, run=2).status == "ok"
    more = ("--ledger", own / "ledger", "--lifetime-epsilon", "20", "--yes")
    done, said = init(cli, invitations[0], tmp_path / "other", own / "records.csv", *more)
    assert done.exit_code == 0, said
    assert read_site(tmp_path / "other").source == "north"
    assert "These records are source 'north'" in said


def test_records_of_another_source_are_not_charged(records, tmp_path, caplog):
    """Whoever edits site.toml to read another table looks at the plan again."""
    own = member(tmp_path / "one", "north", FIRST, records)
    moved = tmp_path / "moved.csv"
    moved.write_bytes(records.read_bytes())
    text = (own / "site.toml").read_text()
    (own / "site.toml").write_text(text.replace("visits.csv", "moved.csv"))
    reply = joined(own, FIRST)
    assert (reply.status, reply.reason) == (
        "refused",
        "the site's records or policy do not allow this",
    )
    assert not list(ledgers_dir().glob("*.ledger"))
    Claim(ledgers_dir(), "visits", f"file:{moved}").make()
    assert joined(own, FIRST).status == "ok"


# What sources are


def test_a_file_is_known_by_any_path_that_leads_to_it(records, tmp_path, monkeypatch):
    link = tmp_path / "link.csv"
    link.symlink_to(records)
    (tmp_path / "below").mkdir()
    ways = [(Path(), records), (tmp_path, Path("visits.csv")), (Path(), link)]
    ways += [(tmp_path / "below", Path("../visits.csv"))]
    found = {identity_of("north", DataAtSite(folder=f, path=p)) for f, p in ways}
    assert found == {f"file:{records.resolve()}"}


def test_a_database_is_known_without_its_users(tmp_path, monkeypatch):
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("NORTH_URL", "postgresql://other:secret@DB.example.org/stays")
    same = [
        DataAtSite(url="postgresql+psycopg://ann:pw@db.example.org:5432/stays", query="a"),
        DataAtSite(url="postgresql://db.example.org/stays?sslmode=require&password=x", query="b"),
        DataAtSite(url_env="NORTH_URL", query="c"),
    ]
    assert {identity_of("north", one) for one in same} == {"postgresql://db.example.org:5432/stays"}
    (tmp_path / "a.db").touch()
    data = DataAtSite(folder=tmp_path, url="sqlite:///a.db", query="select 1")
    assert identity_of("north", data) == f"sqlite:{tmp_path.resolve() / 'a.db'}"


def test_ledgers_are_of_the_host_and_not_of_a_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("SILODP_LEDGERS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert ledgers_dir() == tmp_path / "silodp" / "ledgers"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ledgers_dir() == tmp_path / ".local" / "share" / "silodp" / "ledgers"


def test_sources_are_kept_for_the_sites_eyes_only():
    Claim(ledgers_dir(), "visits", "file:/a").make()
    Claim(ledgers_dir(), "visits", "file:/b").make()
    Claim(ledgers_dir(), "visits", "file:/a").make()
    assert known_sources(ledgers_dir()) == {"visits": ["file:/a", "file:/b"]}
    assert names_of(ledgers_dir(), "file:/b") == ["visits"]
    assert stat.S_IMODE((ledgers_dir() / SOURCES_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(ledgers_dir().stat().st_mode) == 0o700


def test_many_that_claim_at_once_all_get_their_names():
    claims = [Claim(ledgers_dir(), f"source {n}", f"file:/{n}") for n in range(20)]
    threads = [threading.Thread(target=claim.make) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert known_sources(ledgers_dir()) == {one.name: [one.identity] for one in claims}


def test_a_known_file_gets_no_second_name_unasked():
    Claim(ledgers_dir(), "visits", "file:/a").make()
    with pytest.raises(SilodpError, match="is known as source 'visits'"):
        Claim(ledgers_dir(), "stays", "file:/a").make()
    Claim(ledgers_dir(), "stays", "file:/a", apart_from=("visits",)).make()
    assert names_of(ledgers_dir(), "file:/a") == ["visits", "stays"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (text, "it is not made again")
            for text in ("", "[]", "{}", '{"format": 1, "sources": {"a": 1}}')
        ),
        ('{"format": 2, "sources": {}}', "has format 2"),
    ],
)
def test_damaged_sources_are_refused_and_not_made_again(text, words):
    ledgers_dir().mkdir(parents=True)
    (ledgers_dir() / SOURCES_FILE).write_text(text)
    with pytest.raises(SilodpError, match=words):
        Claim(ledgers_dir(), "visits", "file:/a").make()
    assert (ledgers_dir() / SOURCES_FILE).read_text() == text


# As people type it


@pytest.fixture(scope="module")
def invitations(tmp_path_factory, cli):
    """To two federations; in both there is a site called north."""
    folders = []
    for number in (1, 2):
        folder = tmp_path_factory.mktemp(f"fed{number}")
        (folder / "fed.toml").write_text(fed_text(8102, 10 * number, 30, 2, "local"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SILODP_PASSPHRASE", PASSPHRASE)
            done = cli("federation", "init", folder / "fed.toml", "--out", folder / "coordinator")
        assert done.exit_code == 0, done.stderr
        folders.append(folder / "coordinator" / "to-send" / "north.invitation")
    return folders


def init(cli, kit, out, records, *more, answers=None):
    given = ("--out", out, "--data", records, *BUDGET, *more)
    done = cli("site", "init", kit, *given, answers=answers)
    return done, " ".join((done.stdout + done.stderr).split())


def test_a_second_federation_finds_the_ledger_and_asks(invitations, records, tmp_path, cli):
    done, said = init(cli, invitations[0], tmp_path / "one", records, answers="\ny\n")
    assert done.exit_code == 0, said
    assert "own name for these records [visits]" in said
    config = read_site(tmp_path / "one")
    assert (config.source, config.ledger) == ("visits", ledgers_dir())
    agreed = (tmp_path / "one" / "proposal.json").read_text()
    with closing(SiteWorker(tmp_path / "one")) as worker:
        from silodp.sites.proposal import read_proposal

        job = read_proposal(agreed).job()
        assert worker.answer(Request("join", job, agreed, 0, [])).status == "ok"

    done, said = init(cli, invitations[1], tmp_path / "two", records, answers="n\n")
    assert done.exit_code == 0, said
    assert "These records are source 'visits'" in said
    assert "epsilon 0 is spent of 4 at delta 0.001" in said
    assert "% is reserved" in said
    assert "Nothing was made" in said
    assert not (tmp_path / "two").exists()

    # By a script, and through another path: the same ledger, of which nothing is left.
    link = tmp_path / "link.csv"
    link.symlink_to(records)
    done, said = init(cli, invitations[1], tmp_path / "two", link, "--yes")
    assert done.exit_code == 2
    assert "nothing else fits beside it" in said
    done, said = init(
        cli, invitations[1], tmp_path / "three", records, "--yes", "--lifetime-epsilon", "50"
    )
    assert done.exit_code == 2
    assert "nothing else fits beside it" in said
    # Unless its people allow more, in so many words.
    more = ("--silo", "visits", "--lifetime-epsilon", "9")
    assert "may spend epsilon 9" in cli("ledger", "allow", ledgers_dir(), *more).stdout
    done = cli("site", "consent", tmp_path / "three", "--yes")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code == 0, said
    assert "of source 'visits' of 9 at delta 0.001, epsilon 0 is spent so far" in said
    assert "a stricter allowance than site.toml" in said
    told = json.loads(cli("site", "status", tmp_path / "three", "--json").stdout)
    assert (told["source"], told["lifetime"]) == ("visits", 9)
    assert told["ledger"] == str(ledger_paths(ledgers_dir())[0])
    assert (told["spent"], told["open_runs"]) == (0, [job])
    shown = " ".join(cli("site", "status", tmp_path / "three").stdout.split())
    assert "source visits" in shown
    entries = json.loads(cli("site", "ledger", tmp_path / "three", "--json").stdout)["silos"]
    assert [one["silo"] for one in entries] == ["visits"]


def test_a_name_that_is_taken_is_asked_about(invitations, records, tmp_path, cli):
    assert init(cli, invitations[0], tmp_path / "one", records, "--yes")[0].exit_code == 0
    (tmp_path / "new").mkdir()
    export = tmp_path / "new" / "visits.csv"
    export.write_bytes(records.read_bytes())
    # A script must say which it is.
    done, said = init(cli, invitations[1], tmp_path / "two", export, "--yes")
    assert (done.exit_code, "--source is missing" in said) == (2, True)
    done, said = init(cli, invitations[1], tmp_path / "two", export, answers="visits\nn\n")
    assert "Sources that are known here: 'visits'" in said
    assert "moved or exported again? Both then share its ledger" in said
    assert not (tmp_path / "two").exists()
    done, said = init(cli, invitations[1], tmp_path / "two", export, "--source", "visits", "--yes")
    assert done.exit_code == 0, said
    assert known_sources(ledgers_dir()) == {"visits": [f"file:{records}", f"file:{export}"]}


def test_known_records_get_a_second_name_from_a_person_alone(invitations, records, tmp_path, cli):
    assert init(cli, invitations[0], tmp_path / "one", records, "--yes")[0].exit_code == 0
    done, said = init(cli, invitations[1], tmp_path / "two", records, "--source", "stays", "--yes")
    assert done.exit_code == 2
    assert "is known as source 'visits'" in said
    done, said = init(
        cli, invitations[1], tmp_path / "two", records, "--source", "stays", answers="\n"
    )
    assert "about other people, than 'visits'?" in said
    assert not (tmp_path / "two").exists()
    answers = "y\ny\n"
    done, said = init(
        cli, invitations[1], tmp_path / "two", records, "--source", "stays", answers=answers
    )
    assert done.exit_code == 0, said
    assert read_site(tmp_path / "two").source == "stays"


def test_site_toml_that_reads_another_source_is_refused(invitations, records, tmp_path, cli):
    assert init(cli, invitations[0], tmp_path / "one", records, "--yes")[0].exit_code == 0
    other = tmp_path / "labs.csv"
    other.write_bytes(records.read_bytes())
    # A script must say that these are other records: they might have been exported again.
    done, said = init(cli, invitations[1], tmp_path / "two", other, "--yes")
    assert (done.exit_code, "not known here, and 'visits' are" in said) == (2, True)
    done, said = init(cli, invitations[1], tmp_path / "two", other, "--source", "labs", "--yes")
    assert done.exit_code == 0, said
    text = (tmp_path / "two" / "site.toml").read_text()
    (tmp_path / "two" / "site.toml").write_text(text.replace("labs.csv", "visits.csv"))
    done = cli("site", "consent", tmp_path / "two", "--yes")
    assert done.exit_code == 2
    assert "use the source 'visits'" in " ".join(done.stderr.split())


def test_ledgers_elsewhere(invitations, records, tmp_path, cli):
    more = ("--ledger", tmp_path / "kept", "--source", "St Mary's visits", "--yes")
    done, said = init(cli, invitations[0], tmp_path / "one", records, *more)
    assert done.exit_code == 0, said
    config = read_site(tmp_path / "one")
    assert (config.ledger, config.source) == (tmp_path / "kept", "St Mary's visits")
    assert not ledgers_dir().exists()
