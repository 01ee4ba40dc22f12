"""A federation by files: three sites and a coordinator, who have nothing but what they send."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from exchanges import Users, altered, fed_text, flipped
from site_folders import SITES, make_coordinator, make_sites, run_in_one_process
from site_models import models_of

from silodp.base.errors import SilodpError
from silodp.results.result import read_result
from silodp.sites import job_at_site
from silodp.sites.coordinator import LEARNED_FILE, STATE
from silodp.sites.exchange import demo, site_folder
from silodp.sites.exchange.coordinator_rounds import CoordinatorJob
from silodp.sites.exchange.keys import KEY_FILE, make_key
from silodp.sites.exchange.signed_file import Heading, Received, signed_file
from silodp.sites.job_at_site import RESULTS
from silodp.sites.job_lock import only_one
from silodp.sites.messages import packed_reply, packed_request, unpacked_request
from silodp.sites.protocol import Reply
from silodp.sites.site_setup import site_models


@pytest.fixture(scope="module")
def joined(cli, tmp_path_factory):
    """All sites have joined; nothing is asked yet."""
    users = Users.begin(cli, tmp_path_factory.mktemp("joined"), quorum=2)
    users.all_join()
    return users


@pytest.fixture(scope="module")
def asked(joined, tmp_path_factory):
    """The first round is asked."""
    users = joined.copied(tmp_path_factory.mktemp("asked") / "users")
    users.ask("round-1")
    return users


@pytest.fixture(scope="module")
def answered(asked, tmp_path_factory):
    """North and south have answered the first round; nothing is merged."""
    users = asked.copied(tmp_path_factory.mktemp("answered") / "users")
    for site in ("north", "south"):
        users.answer(question(users, site))
    return users


def question(users, site, when="round-1"):
    return users.fed / "to-send" / f"{site}.{when}.ask"


def reply_of(users, site, when="round-1"):
    return users.sites[site] / "to-send" / f"{site}.{when}.answer"


def numbers(path):
    """The arrays in a file of a site."""
    return [array["bytes"] for one in Received(path, "").messages for array in one["arrays"]]


# --- the same numbers


@pytest.mark.parametrize(
    "training",
    [
        {"method": "fedavg"},
        {"method": "fewround", "messages": 2},
        pytest.param({"method": "ebmtl"}, marks=pytest.mark.slow),
        pytest.param({"method": "mocha", "metric_share": 0.2}, marks=pytest.mark.slow),
        pytest.param({"method": "ifca+ditto", "statistics_share": 0.2}, marks=pytest.mark.slow),
    ],
    ids=lambda training: training["method"],
)
def test_files_give_the_numbers_of_a_network(cli, tmp_path, training):
    """With the same keys: every model to the last bit, after many commands and one job."""
    users = Users.begin(cli, tmp_path / "files", **training)
    users.all_join(keys="test")
    for when in ("round-1", "round-2", "last"):
        said = users.merge(*map(users.answer, users.ask(when).values()))
    assert "Every site has its model" in said
    agreed = users.coordinator.proposal
    folders = make_sites(tmp_path / "net", agreed, keys="test")
    run_in_one_process(make_coordinator(tmp_path / "net" / "fed", agreed), folders, agreed)
    by_file, by_network = models_of(users.sites, agreed), models_of(folders, agreed)
    for site in SITES:
        assert by_file[site].keys() == by_network[site].keys()
        for name, array in by_file[site].items():
            np.testing.assert_array_equal(array, by_network[site][name])
        one, other = (read_result(f[site] / RESULTS / agreed.job()) for f in (users.sites, folders))
        assert one.mean == other.mean
        assert one.learned == other.learned
        if training["method"] == "fewround":  # what a site can tell of its own model
            (own,) = one.learned["findings"]["silos"]
            assert own["silo"] == site
            assert own["prediction_error"] > 0
            assert own["more"]["message"]["epsilon"] > one.epsilons[0]
        (model,) = site_models(users.sites[site])
        assert (model["rounds"], model["of_rounds"]) == (2, 2)
    told = json.loads(users.done("status", users.fed, "--json"))
    assert told["jobs"][0]["finished"] == list(SITES)
    assert told["jobs"][0]["waiting"] == []
    done = cli("exchange", "ask", users.fed)
    assert done.exit_code == 2
    assert "--run 2" in done.stderr


def test_what_the_method_learned_is_written_in_the_end(joined, tmp_path):
    users = joined.copied(tmp_path / "users")
    for when in ("round-1", "round-2", "last"):
        users.merge(*map(users.answer, users.ask(when).values()))
    path = users.fed / STATE / users.coordinator.proposal.job() / LEARNED_FILE
    assert not path.exists()  # fedavg finds nothing out
    assert all(users.kinds(site)[-1] == "close" for site in SITES)
    assert all(users.kinds(site).count("charge") == 2 for site in SITES)
    # Another run is more than the lifetime: an answer of its own kind.
    again = users.cli("exchange", "ask", users.fed, "--run", "2")
    assert again.exit_code == 0, again.stderr
    before = users.kinds("north")
    done = users.cli(
        "exchange", "answer", users.sites["north"], question(users, "north", "run-2.round-1")
    )
    assert done.exit_code == 2
    assert "budget spent" in done.stderr
    assert users.kinds("north") == before
    refusal = reply_of(users, "north", "run-2.round-1")
    said = users.done("merge", users.fed, refusal, "--run", "2")
    assert "refuses round 1 of 2: budget spent" in said
    wrong = users.cli("exchange", "merge", users.fed, refusal)
    assert wrong.exit_code == 2
    assert "--run 2" in wrong.stderr


# --- what a site refuses, and pays nothing for


def refused(users, site, path, sentence):
    """The sentence of a site that refuses a file; nothing is charged, and nothing written."""
    before = users.kinds(site), sorted((users.sites[site] / "to-send").iterdir())
    words = sentence(users.cli("exchange", "answer", users.sites[site], path))
    assert (users.kinds(site), sorted((users.sites[site] / "to-send").iterdir())) == before
    return words


def test_no_byte_of_a_question_can_be_another(asked, tmp_path):
    site, path = asked.site("north"), question(asked, "north")
    for place in range(0, path.stat().st_size, 3):
        with pytest.raises(SilodpError, match=r": (have|give|answer) "):
            site.answer(altered(path, tmp_path, flipped(place)))
    assert asked.kinds("north") == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flipped(-1), "not as it was sent"),
        (lambda content: content[:-1], "not as it was sent"),
        (lambda content: content[:500], "not as it was sent"),
        (lambda content: content[:20], "not as it was sent"),
        (lambda content: content + b"\0", "not as it was sent"),
        (lambda content: b"", "no file of an exchange"),
        (lambda content: b"PK\3\4" + content, "no file of an exchange"),
        (lambda content: content.replace(b" 1\n", b" 2\n", 1), "has format 2"),
        (lambda content: content.replace(b"\n", b"\r\n"), "no file of an exchange"),
    ],
)
def test_an_altered_question_is_refused(asked, tmp_path, sentence, change, words):
    path = altered(question(asked, "north"), tmp_path, change)
    assert words in refused(asked, "north", path, sentence)


def test_a_question_for_another_is_refused(asked, tmp_path, sentence, cli):
    words = refused(asked, "north", question(asked, "south"), sentence)
    assert "is for site 'south', and this is 'north'" in words
    # Under the right name, too.
    renamed = altered(question(asked, "south"), tmp_path, lambda content: content)
    renamed = renamed.rename(tmp_path / "north.round-1.ask")
    assert "is for site 'south'" in refused(asked, "north", renamed, sentence)
    own_join = asked.sites["north"] / "to-send" / "north.join"
    assert "is from a site" in refused(asked, "north", own_join, sentence)
    # The very same proposal, sent around a second time: another coordinator's key.
    other = Users.begin(cli, tmp_path / "other", quorum=2)
    invitation = other.fed / "to-send" / "north.invitation"
    assert "another federation" in refused(asked, "north", invitation, sentence)
    assert "cannot be read" in refused(asked, "north", tmp_path / "nowhere", sentence)


def forged(users, path, into, key, **changed):
    """A question with another content, signed by whoever has the key."""
    one = Received(path, "")
    request = replace(unpacked_request(one.messages[0]), **changed)
    heading = replace(one.heading, **{k: v for k, v in changed.items() if k in ("job", "round")})
    content = signed_file(key, heading, one.about, [packed_request(request)])
    return altered(path, into, lambda _: content)


def test_a_forged_question_is_refused(asked, tmp_path, sentence):
    path = question(asked, "north")
    stranger = forged(asked, path, tmp_path, make_key(tmp_path / "stranger"))
    assert "by somebody else" in refused(asked, "north", stranger, sentence)
    # The coordinator itself, with something that the site has not agreed on.
    key = asked.coordinator._key
    version = forged(asked, path, tmp_path, key, version="0.0.1")
    assert "the same version" in refused(asked, "north", version, sentence)
    other = forged(asked, path, tmp_path, key, proposal="{}")
    assert "something else" in refused(asked, "north", other, sentence)
    job = forged(asked, path, tmp_path, key, job="../../elsewhere")
    assert "something else" in refused(asked, "north", job, sentence)


def test_an_older_question_is_refused(answered, tmp_path, sentence):
    users = answered.copied(tmp_path / "users")
    users.merge(reply_of(users, "north"), reply_of(users, "south"), "--now")
    first, charged = question(users, "north"), users.kinds("north")
    # Until the next is answered it is only the same question again.
    users.answer(first)
    assert users.kinds("north") == charged
    # East was not merged, and may take part again.
    users.answer(users.ask("round-2")["north"])
    assert "which is over at this site" in refused(users, "north", first, sentence)
    late = users.cli("exchange", "merge", users.fed, reply_of(users, "north"))
    assert late.exit_code == 2
    assert "merged already" in late.stderr


# --- paid once, answered as often as it takes


def test_a_lost_file_is_written_again(asked, tmp_path, cli, sentence):
    users = asked.copied(tmp_path / "users")
    path = question(users, "north")
    before = path.read_bytes()
    path.unlink()
    assert "--again" in sentence(cli("exchange", "ask", users.fed))
    assert not path.exists()
    assert users.ask("round-1", "--again")["north"].read_bytes() == before
    answer = users.answer(path)
    first, charged = answer.read_bytes(), users.kinds("north")
    assert charged == ["opened", "policy", "reserve", "charge"]
    answer.unlink()
    assert users.answer(path).read_bytes() == first
    assert users.kinds("north") == charged
    # The join file, too.
    join = users.sites["north"] / "to-send" / "north.join"
    first = join.read_bytes()
    join.unlink()
    users.done("answer", users.sites["north"], users.fed / "to-send" / "north.invitation")
    assert join.read_bytes() == first


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("where", ["before the state is kept", "before the answer is written"])
def test_killed_after_it_paid_a_site_goes_on(asked, tmp_path, monkeypatch, where):
    users = asked.copied(tmp_path / "users")
    path, lost = question(users, "north"), []
    module, name = {
        "before the state is kept": (job_at_site, "save_state"),
        "before the answer is written": (site_folder, "write_file"),
    }[where]
    proper = getattr(module, name)

    def killed(place, content, *more, **named):
        if name == "save_state" and content["round"] < 0:  # as it joins
            return proper(place, content, *more, **named)
        if name == "save_state":
            lost.extend(array.tobytes() for array in more[0]["message"])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(Killed):
            users.site("north").answer(path)
    charged = users.kinds("north")
    assert charged == ["opened", "policy", "reserve", "charge"]
    assert not reply_of(users, "north").exists()
    answer = users.answer(path)
    assert users.kinds("north") == charged
    if lost:  # what it had worked out is what it says now
        assert numbers(answer) == lost


def test_a_refusal_does_not_take_the_place_of_an_answer(answered, tmp_path, sentence, monkeypatch):
    """Neither one that will pass, nor one for good: what was paid for can still be sent."""
    users = answered.copied(tmp_path / "users")
    path, answer = question(users, "north"), reply_of(users, "north")
    before, own = answer.read_bytes(), users.sites["north"]
    (lock,) = own.glob("state/*/lock")
    monkeypatch.setattr("silodp.sites.job_lock.PATIENCE", 0.0)
    with only_one(lock):
        words = sentence(users.cli("exchange", "answer", own, path))
    assert "wait for it, and answer again" in words
    records = users.folder / "north.csv"
    records.write_text(records.read_text().replace("?", "??").replace("1.", "2."))
    words = sentence(users.cli("exchange", "answer", own, path))
    assert "has answered it before" in words
    assert answer.read_bytes() == before
    # A refusal that nothing was answered before is a file, and a later answer takes its place.
    east = users.sites["east"]
    text = (east / "site.toml").read_text()
    (east / "site.toml").write_text(text.replace("east.csv", "gone.csv"))
    assert "mend that and answer again" in sentence(
        users.cli("exchange", "answer", east, question(users, "east"))
    )
    refusal = reply_of(users, "east")
    assert "refuses round 1 of 2" in users.merge(refusal, reply_of(users, "north"))
    (east / "site.toml").write_text(text)
    users.answer(question(users, "east"))
    said = users.merge(refusal, reply_of(users, "south"))
    assert "Merged" in said


def test_the_coordinator_killed_while_it_merges_goes_on(answered, tmp_path, monkeypatch):
    users = answered.copied(tmp_path / "users")
    answers = [reply_of(users, site) for site in ("north", "south")]

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("silodp.sites.coordinator.Coordinator.receive", killed)
        with pytest.raises(Killed):
            CoordinatorJob(users.coordinator).merge(answers, now=True)
    # The answers are kept: none has to be given again.
    assert "Merged: round 1 of 2" in users.merge("--now")
    assert CoordinatorJob(users.coordinator).round == 1


# --- what the coordinator refuses


def not_taken(users, sentence, *files):
    """The sentence of a coordinator who refuses files, and takes none."""
    before = CoordinatorJob(users.coordinator).answered(), users.coordinator.joined()
    words = sentence(users.cli("exchange", "merge", users.fed, *files))
    assert (CoordinatorJob(users.coordinator).answered(), users.coordinator.joined()) == before
    return words


def test_no_byte_of_an_answer_can_be_another(answered, tmp_path):
    job, path = CoordinatorJob(answered.coordinator), reply_of(answered, "north")
    for place in range(path.stat().st_size):
        with pytest.raises(SilodpError, match=r": (have|give|leave|merge|if|ask) "):
            job.merge([altered(path, tmp_path, flipped(place))])
    assert job.answered() == []


def test_what_is_not_an_answer_to_the_round_is_refused(answered, tmp_path, sentence, cli):
    good, path = reply_of(answered, "south"), reply_of(answered, "north")
    cut = altered(path, tmp_path, lambda content: content[:-1])
    # One that is not right, and none is taken.
    assert "not as it was sent" in not_taken(answered, sentence, good, cut)
    words = not_taken(answered, sentence, question(answered, "north"))
    assert "is from a coordinator" in words
    other = Users.begin(cli, tmp_path / "other", quorum=2)
    join = other.join("north")
    assert "another federation" in not_taken(answered, sentence, good, join)
    words = sentence(cli("exchange", "merge", other.fed, path))
    assert "another federation" in words
    assert "FILES are missing" in sentence(cli("exchange", "merge", answered.fed))


def as_site(users, signer, into, **changed):
    """The site's answer with another heading or other messages, signed by the site."""
    path = reply_of(users, signer)
    one = Received(path, "")
    messages = changed.pop("messages", one.messages)
    content = signed_file(users.site(signer)._key, replace(one.heading, **changed), {}, messages)
    return altered(path, into, lambda _: content)


def test_a_site_cannot_answer_for_another_or_for_another_round(answered, tmp_path, sentence):
    for changed, words in [
        ({"site": "east"}, "by somebody else"),
        ({"site": "nobody"}, "not as it was sent"),
        ({"round": 1}, "round 1 of 2 is not merged yet"),
        ({"job": answered.coordinator.proposal.job(7)}, "--run 7"),
        ({"job": "../elsewhere-7"}, "not as it was sent"),
        ({"messages": []}, "not as it was sent"),
    ]:
        made = as_site(answered, "north", tmp_path, **changed)
        assert words in not_taken(answered, sentence, made), changed


def test_a_second_answer_is_not_taken_instead_of_the_first(answered, tmp_path, sentence):
    users = answered.copied(tmp_path / "users")
    first = reply_of(users, "north")
    assert "No answer to round 1 of 2 yet: south, east" in users.merge(first)
    users.merge(first)  # the same once more is no harm
    second = as_site(users, "north", tmp_path / "changed", messages=[packed_reply(Reply("ok"))])
    assert "another answer" in not_taken(users, sentence, second)
    assert "another answer" in not_taken(users, sentence, second, reply_of(users, "south"))


def test_below_the_quorum_nothing_is_merged(answered, tmp_path, sentence):
    users = answered.copied(tmp_path / "users")
    said = not_taken_but_kept(users, sentence, reply_of(users, "north"))
    assert "has 1 answers of 3, but the quorum is 2" in said
    assert "Merged: round 1 of 2" in users.merge(reply_of(users, "south"), "--now")


def not_taken_but_kept(users, sentence, *files):
    words = sentence(users.cli("exchange", "merge", users.fed, *files, "--now"))
    assert CoordinatorJob(users.coordinator).round == 0
    return words


@pytest.mark.parametrize("numbers", [np.full(3, np.inf, np.float32), np.zeros((2, 2), np.int32)])
def test_numbers_that_do_not_fit_are_not_taken(answered, tmp_path, sentence, numbers):
    """Taken, they would stand in the way of the site's right answer, and of a quorum."""
    users = answered.copied(tmp_path / "users")
    reply = Reply("ok", about={"round": 0}, arrays=[numbers])
    messages = [packed_reply(Reply("ok")), packed_reply(reply)]
    hostile = as_site(users, "north", tmp_path / "changed", messages=messages)
    assert "cannot be merged" in not_taken(users, sentence, hostile, reply_of(users, "south"))
    said = users.merge(reply_of(users, "north"), reply_of(users, "south"), "--now")
    assert "Merged: round 1 of 2" in said


# --- who joins


def test_a_site_that_has_not_joined_is_not_asked(cli, tmp_path, sentence):
    users = Users.begin(cli, tmp_path / "users", quorum=2)
    users.merge(users.join("north"))
    words = sentence(cli("exchange", "ask", users.fed))
    assert "south, east: not joined yet" in words
    assert "--now" not in words
    users.merge(users.join("south"))
    assert "--now" in sentence(cli("exchange", "ask", users.fed))
    said = users.done("ask", users.fed, "--now")
    assert "without east" in said
    assert not question(users, "east").exists()
    # Who comes late is asked as well.
    users.merge(users.join("east"))
    users.done("ask", users.fed, "--again")
    assert question(users, "east").exists()


def test_another_key_for_a_site_is_a_matter_for_people(joined, tmp_path, sentence):
    users = joined.copied(tmp_path / "users")
    known = users.coordinator.joined()["north"]
    public = make_key(tmp_path / "stranger").public_key()
    assert public.public_bytes_raw().hex() != known
    heading = Heading("join", users.coordinator.federation, "north")
    key = make_key(tmp_path / "stranger")
    about = {"public": key.public_key().public_bytes_raw().hex()}
    path = tmp_path / "north.join"
    path.write_bytes(signed_file(key, heading, about))
    assert "ask the site by phone" in not_taken(users, sentence, path)
    # One that is not signed with the key that it brings.
    path.write_bytes(signed_file(make_key(tmp_path / "other"), heading, about))
    assert "not as it was sent" in not_taken(users, sentence, path)


def test_without_consent_there_is_no_answer(cli, tmp_path, sentence):
    users = Users.begin(cli, tmp_path / "users", quorum=2)
    users.join("north")
    own = users.sites["north"]
    for path in (*(own / "consented").iterdir(), own / "to-send" / "north.join"):
        path.unlink()
    invitation = users.fed / "to-send" / "north.invitation"
    assert "site consent" in sentence(cli("exchange", "answer", own, invitation))
    assert not (own / "to-send" / "north.join").exists()
    done = cli("site", "consent", own, "--yes")
    assert done.exit_code == 0
    assert "exchange answer" in done.stdout
    users.done("answer", own, invitation)
    assert (own / "to-send" / "north.join").exists()


def test_private_keys_stay_and_are_for_their_owners_alone(joined):
    for folder in (joined.fed, *joined.sites.values()):
        path = folder / "exchange" / KEY_FILE
        assert path.stat().st_mode & 0o077 == 0
        assert folder.stat().st_mode & 0o077 == 0
        secret = b"".join(path.read_bytes().splitlines()[1:-1])
        for sent in folder.glob("to-send/*"):
            assert secret not in sent.read_bytes()
    told = json.loads(joined.done("status", joined.sites["north"], "--json"))
    fed = json.loads(joined.done("status", joined.fed, "--json"))
    assert told["coordinator"] == fed["fingerprint"]
    assert told["fingerprint"] == fed["sites"]["north"]


@pytest.mark.parametrize("command", ["ask", "merge", "status", "answer"])
def test_another_folder_is_refused(cli, tmp_path, sentence, command):
    more = [tmp_path / "file"] if command in ("merge", "answer") else []
    words = sentence(cli("exchange", command, tmp_path, *more))
    assert "give the folder" in words


def test_a_folder_that_is_there_is_kept(joined, sentence, cli):
    key = (joined.fed / "exchange" / KEY_FILE).read_bytes()
    again = cli("exchange", "init", joined.folder / "fed.toml", "--out", joined.fed)
    assert "is there already" in sentence(again)
    assert (joined.fed / "exchange" / KEY_FILE).read_bytes() == key
    invitation = joined.fed / "to-send" / "north.invitation"
    assert "silodp exchange join" in sentence(cli("exchange", "init", invitation))


# --- hostile files


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"round": ' + b"9" * 5000 + b"}",
        b'{"what": "ask", "federation": 1, "site": "", "job": "", "round": 0, "about": {}, '
        b'"messages": []}',
        *(
            b'{"what": "ask", "federation": "", "site": "", "job": "", "round": 0, "about": {}, '
            b'"messages": ' + messages + b"}"
            for messages in (
                b"7",
                b"[7]",
                b'[{"arrays": 7}]',
                b'[{"arrays": [{"bytes": -1}]}]',
                b'[{"arrays": [{"bytes": 1000000000000}]}]',
                b'[{"arrays": [{"bytes": true}]}]',
            )
        ),
    ],
)
def test_a_head_that_is_none_is_refused(tmp_path, head):
    path = tmp_path / "file"
    path.write_bytes(b"silodp exchange 1\n" + b"0" * 128 + b"\n" + head + b"\n")
    with pytest.raises(SilodpError, match="not as it was sent"):
        Received(path, "send it again")


def test_a_file_says_the_same_only_in_one_way(tmp_path):
    """Digits in capitals would be the same signature, and another file."""
    key, path = make_key(tmp_path / "key"), tmp_path / "file"
    path.write_bytes(signed_file(key, Heading("join", "f", "north"), {}))
    public = key.public_key().public_bytes_raw().hex()
    assert Received(path, "").is_by(public)
    first, digits, rest = path.read_bytes().split(b"\n", 2)
    path.write_bytes(b"\n".join((first, digits.upper(), rest)))
    assert not Received(path, "").is_by(public)


# --- the rest


def test_a_person_sees_what_a_file_holds(answered, cli, sentence, tmp_path):
    path = reply_of(answered, "north")
    held = json.loads(answered.done("show", path, "--json"))
    assert (held["what"], held["site"], held["round"]) == ("answer", "north", 0)
    joining, work = held["messages"]
    assert len(joining.pop("ledger")) == 64
    assert joining == {"status": "ok", "reason": "", "finished": False, "arrays": []}
    flat = np.array(work["arrays"][0]["numbers"], np.float32)
    assert flat.tobytes() == numbers(path)[0]
    said = answered.done("show", question(answered, "north"))
    assert "message: kind train" in said
    assert '"sites": ["north", "south", "east"]' in said
    invitation = answered.done("show", answered.fed / "to-send" / "north.invitation")
    assert "public: " in invitation
    assert "round" not in invitation.split("proposal: ")[0]
    assert "no file of an exchange" in sentence(cli("exchange", "show", answered.fed / "fed.toml"))


def test_scripts_read_json(answered, tmp_path):
    users = answered.copied(tmp_path / "users")
    answer = users.done("answer", users.sites["north"], question(users, "north"), "--json")
    told = json.loads(answer)
    assert (told["kind"], told["model"]) == ("train", None)
    assert 0 < told["spent"] < 4
    told = json.loads(users.done("merge", users.fed, told["file"], "--json"))
    assert (told["round"], told["merged"], told["waiting"]) == (0, False, ["south", "east"])
    told = json.loads(users.done("merge", users.fed, reply_of(users, "south"), "--now", "--json"))
    assert (told["merged"], told["finished"]) == (True, False)
    assert told["sites"]["east"] == "no answer by file"
    told = json.loads(users.done("ask", users.fed, "--json"))
    assert (told["round"], told["rounds"], len(told["files"])) == (1, 2, 3)


def test_the_demo_says_every_step(tmp_path):
    said = []
    rows = demo.run_demo(tmp_path / "demo", 1, said.append)
    text = "\n".join(said)
    assert "gives the same file, and pays 0 more" in text
    assert "not as it was sent" in text
    assert [row["files"] for row in rows] == [3, 3, 3]
    assert all(0 < row["spent"] <= row["epsilon"] * 1.001 for row in rows)


def test_no_server_is_needed_to_exchange_files():
    """Nor what carries messages over a network, nor what looks after processes and databases."""
    block = "import sys; sys.modules.update(dict.fromkeys(['nvflare', 'psutil', 'sqlalchemy']))"
    code = f"{block}; import silodp.sites.exchange.demo"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_messages_do_not_use_is_refused(tmp_path, cli):
    text = fed_text(method="fewround").replace('"fewround"', '"fewround"\nlr = 0.1')
    (tmp_path / "fed.toml").write_text(text)
    done = cli("exchange", "init", tmp_path / "fed.toml", "--out", tmp_path / "fed")
    assert done.exit_code == 2
    assert "[training] --lr: method 'fewround' has no training passes" in done.stderr
    assert not (tmp_path / "fed").exists()
