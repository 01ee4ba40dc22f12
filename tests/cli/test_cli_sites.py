"""`silodp federation` and `silodp site` as people type them; no process is started here."""

import json
import zipfile

import pytest
from site_folders import SITES, table
from site_processes import fed_text

from silodp.sites.consents import consented
from silodp.sites.site_files import read_site


@pytest.fixture(scope="module")
def made(tmp_path_factory, cli):
    """The coordinator's folder."""
    folder = tmp_path_factory.mktemp("fed")
    (folder / "fed.toml").write_text(fed_text(8102, 10, 30, 2, "ebmtl"))
    done = cli("federation", "init", folder / "fed.toml", "--out", folder / "coordinator")
    assert done.exit_code == 0, done.stderr
    for site in SITES:
        assert f"{site}.zip" in done.stdout
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
    done = cli("site", "init", made / "kits" / "north.zip", *given)
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
    again = cli("site", "init", made / "kits" / "north.zip", *given)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert not list(tmp_path.glob(".*"))


def test_without_consent_nothing_is_agreed(made, records, tmp_path, cli):
    own = tmp_path / "mine"
    given = ("--out", own, "--data", records, *BUDGET)
    done = cli("site", "init", made / "kits" / "north.zip", *given, answers="\nn\n")
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
    done = cli("site", "init", made / "kits" / "north.zip", *given)
    assert done.exit_code == 2, done.stdout
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mine" / "consented").exists()


def test_a_kit_that_is_no_kit(made, records, tmp_path, cli):
    for name, content in (("empty.zip", b""), ("text.zip", b"no zip")):
        (tmp_path / name).write_bytes(content)
        done = cli("site", "init", tmp_path / name, "--data", records, *BUDGET, "--yes")
        assert done.exit_code == 2
        assert "ask the coordinator" in " ".join(done.stderr.split())
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("../../outside.txt", "x")
    done = cli("site", "init", tmp_path / "odd.zip", "--data", records, *BUDGET, "--yes")
    assert done.exit_code == 2
    assert "out of its folder" in " ".join(done.stderr.split())


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
    assert told == {"running": False, "connected": [], "jobs": []}
    done = cli("federation", "submit", made, "--wait", "0.1")
    assert done.exit_code == 2
    assert "start the server first" in " ".join(done.stderr.split())
    assert "did not run" in cli("federation", "stop", made).stdout
