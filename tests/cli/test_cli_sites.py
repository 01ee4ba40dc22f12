"""`silodp federation` and `silodp site` as people type them; no process is started here."""

import json
import shutil

import pytest
from site_folders import SITES, table
from site_processes import PASSPHRASE, fed_text

from silodp.sites.consents import consented
from silodp.sites.site_files import read_site


@pytest.fixture(autouse=True)
def passphrase(monkeypatch):
    monkeypatch.setenv("SILODP_PASSPHRASE", PASSPHRASE)


@pytest.fixture(scope="module")
def made(tmp_path_factory, cli):
    """The coordinator's folder."""
    folder = tmp_path_factory.mktemp("fed")
    (folder / "fed.toml").write_text(fed_text(8102, 10, 30, 2, "ebmtl"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILODP_PASSPHRASE", PASSPHRASE)
        done = cli("federation", "init", folder / "fed.toml", "--out", folder / "coordinator")
    assert done.exit_code == 0, done.stderr
    for site in SITES:
        assert f"{site}.invitation" in done.stdout
    return folder / "coordinator"


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.csv"
    table(0).to_csv(path, index=False)
    return path


BUDGET = ("--epsilon", "4", "--delta", "1e-3")


def test_a_site_is_set_up_from_its_kit(made, records, tmp_path, cli):
    own = tmp_path / "mine"
    given = ("--out", own, "--data", records, *BUDGET, "--lifetime-epsilon", "9", "--yes")
    done = cli("site", "init", made / "to-send" / "north.invitation", *given)
    assert done.exit_code == 0, done.stderr
    assert "Nothing was sent" in done.stdout
    assert "would spend epsilon 4" in " ".join(done.stdout.split())
    config = read_site(own)
    assert (config.site, config.policy.epsilon, config.policy.lifetime[0]) == ("north", 4, 9)
    assert (own / "site.toml").stat().st_mode & 0o077 == 0
    (agreed,) = consented(own)
    assert agreed.text == (made / "proposal.json").read_text()
    told = json.loads(cli("site", "status", own, "--json").stdout)
    assert (told["running"], told["spent"], told["jobs"]) == (False, 0, [])
    assert "no model yet" in cli("site", "models", own).stderr
    again = cli("site", "init", made / "to-send" / "north.invitation", *given)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert not list(tmp_path.glob(".*"))


def test_without_consent_nothing_is_agreed(made, records, tmp_path, cli):
    own = tmp_path / "mine"
    given = ("--out", own, "--data", records, *BUDGET)
    done = cli("site", "init", made / "to-send" / "north.invitation", *given, answers="\nn\n")
    assert done.exit_code == 0, done.stderr
    assert "No consent was given" in done.stdout
    assert consented(own) == []
    assert cli("site", "consent", own, "--yes").exit_code == 0
    assert len(consented(own)) == 1


def changed(column, value):
    return table(0).assign(**{column: value})


@pytest.mark.parametrize(
    ("frame", "given", "words"),
    [
        (table(0).drop(columns="ward"), BUDGET, "'ward'"),
        (changed("ward", "z"), BUDGET, "'ward'"),
        (changed("first", "many"), BUDGET, "'first'"),
        (changed("first", None), BUDGET, "'first'"),
        (table(0).head(0), BUDGET, "row"),
        (table(0), ("--epsilon", "0", "--delta", "1e-3"), "epsilon is 0"),
        (table(0), ("--epsilon", "-1", "--delta", "1e-3"), "epsilon is -1"),
        (table(0), ("--epsilon", "3", "--delta", "0.5"), "delta is 0.5"),
        (table(0), (), "--epsilon is missing"),
    ],
)
def test_what_does_not_fit_is_said(made, tmp_path, cli, frame, given, words):
    frame.to_csv(tmp_path / "records.csv", index=False)
    given = ("--out", tmp_path / "mine", "--data", tmp_path / "records.csv", *given, "--yes")
    done = cli("site", "init", made / "to-send" / "north.invitation", *given)
    assert done.exit_code == 2, done.stdout
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mine" / "consented").exists()


def test_a_question_that_nobody_answers(made, tmp_path, cli):
    invitation, out = made / "to-send" / "north.invitation", tmp_path / "site"
    done = cli("site", "init", invitation, "--out", out, answers="")
    assert done.exit_code == 2
    assert "nobody to answer" in done.stderr
    assert not out.exists()


def test_an_invitation_that_is_none(made, records, tmp_path, cli):
    whole = (made / "to-send" / "north.invitation").read_bytes()
    for name, content, words in (
        ("empty", b"", "no file of a federation"),
        ("text", b"no invitation", "no file of a federation"),
        ("kit.zip", b"PK\x03\x04", "a kit of an older silodp"),
        ("cut", whole[:-9], "cut"),
        ("altered", whole.replace(b"localhost", b"elsewhere"), "not as it was sent"),
    ):
        (tmp_path / name).write_bytes(content)
        done = cli("site", "init", tmp_path / name, "--data", records, *BUDGET, "--yes")
        assert done.exit_code == 2
        said = " ".join(done.stderr.split())
        assert words in said
        assert "ask the coordinator" in said


def test_a_site_is_let_in_renewed_added_and_removed(made, records, tmp_path, cli):
    """As people type it; the ledger that knows what was spent is the same all the time."""
    fed, own = tmp_path / "fed", tmp_path / "mine"
    shutil.copytree(made, fed)
    given = ("--out", own, "--data", records, *BUDGET, "--ledger", tmp_path / "ledgers", "--yes")
    done = cli("site", "init", fed / "to-send" / "north.invitation", *given)
    assert done.exit_code == 0, done.stderr
    assert "north.request" in done.stdout
    early = cli("site", "start", own)
    assert early.exit_code == 2
    assert "no certificate yet" in " ".join(early.stderr.split())
    ledger = cli("site", "status", own, "--json")
    before = json.loads(ledger.stdout)["ledger"]
    assert cli("site", "status", own, "--check").exit_code == 2
    request = own / "to-send" / "north.request"
    assert (
        "Nothing was approved" in cli("federation", "approve", fed, request, answers="n\n").stdout
    )
    done = cli("federation", "approve", fed, request, "--yes")
    assert done.exit_code == 0, done.stderr
    certificate = fed / "to-send" / "north.certificate"
    assert "Nothing was changed" in cli("site", "join", own, certificate, answers="n\n").stdout
    assert cli("site", "start", own).exit_code == 2
    assert cli("site", "join", own, certificate, "--yes").exit_code == 0
    # Renewed: by the key that it has, so nothing is asked.
    assert "Fingerprint of the new key" in cli("site", "renew", own).stdout
    done = cli("federation", "approve", fed, request)
    assert done.exit_code == 0, done.stderr
    assert cli("site", "join", own, certificate).exit_code == 0
    # Added: a newer proposal, to which this site consents; its ledger goes on.
    done = cli("federation", "add-site", fed, "west")
    assert done.exit_code == 0, done.stderr
    newer = fed / "to-send" / "proposal-2.proposal"
    done = cli("site", "consent", own, "--proposal", newer, "--yes")
    assert done.exit_code == 0, done.stderr
    (agreed,) = consented(own)
    assert agreed.sites == (*SITES, "west")
    state = json.loads(cli("site", "status", own, "--json").stdout)
    assert state["ledger"] == before
    assert state["certificate_until"] > "2026"
    # Removed: for good.
    assert cli("federation", "remove-site", fed, "north", "--yes").exit_code == 0
    done = cli("federation", "approve", fed, request, "--yes")
    assert done.exit_code == 2
    assert "removed for good" in " ".join(done.stderr.split())
    state = json.loads(cli("federation", "status", fed, "--json").stdout)
    assert list(state["removed"]) == ["north"]
    assert state["sites"]["north"]["state"].startswith("removed on 20")
    assert state["sites"]["west"]["state"] == "invited"
    assert "removed on 20" in cli("federation", "status", fed).stdout
    assert cli("federation", "status", fed, "--check").exit_code == 2


def test_the_passphrase_is_asked_for(made, tmp_path, cli, monkeypatch):
    monkeypatch.delenv("SILODP_PASSPHRASE")
    done = cli("federation", "add-site", made, "west")
    assert done.exit_code == 2
    assert "passphrase" in done.stderr
    monkeypatch.setenv("SILODP_PASSPHRASE", "some other words by lot")
    done = cli("federation", "add-site", made, "west")
    assert done.exit_code == 2
    assert "does not open" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('method = "ebmtl"', 'method = "ebmtle"', "ebmtle"),
        ("rounds = 10", "rounds = 0", "rounds"),
        ("rounds = 10", "epsilon = 3", "each site's own"),
        ("rounds = 10", "round = 10", "'round' is unknown"),
        ("quorum = 2", "quorum = 9", "quorum is 9"),
        ("deadline = 30", "deadline = -1", "deadline"),
        ("port = 8102", "port = 0", "port"),
        ('task = "regression"', 'task = "guess"', "guess"),
        ('"south"', '"north"', "name each once"),
        ('"south"', '"so uth"', "so uth"),
        ("[rules]", "[rules", "not valid TOML"),
    ],
)
def test_a_federation_that_cannot_be(tmp_path, cli, old, new, words):
    text = fed_text(8102, 10, 30, 2, "ebmtl")
    assert old in text
    (tmp_path / "fed.toml").write_text(text.replace(old, new))
    done = cli("federation", "init", tmp_path / "fed.toml")
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["fed.toml"]


def test_what_is_not_there_is_said(made, tmp_path, cli):
    for command in ("start", "status", "submit", "watch"):
        done = cli("federation", command, tmp_path)
        assert done.exit_code == 2
        assert "is no federation" in " ".join(done.stderr.split())
    for command in ("start", "status", "models", "ledger", "consent"):
        done = cli("site", command, tmp_path)
        assert done.exit_code == 2
        assert "site.toml" in done.stderr or "proposal.json" in done.stderr
    told = json.loads(cli("federation", "status", made, "--json").stdout)
    assert (told["running"], told["connected"], told["jobs"]) == (False, [], [])
    assert (told["state"], told["level"]) == ("down", 2)
    done = cli("federation", "submit", made, "--wait", "0.1")
    assert done.exit_code == 2
    assert "start the server first" in " ".join(done.stderr.split())
    assert "did not run" in cli("federation", "stop", made).stdout
