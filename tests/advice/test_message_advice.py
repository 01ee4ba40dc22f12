"""What budgets buy in few messages: predicted from public numbers alone, and how that fits."""

import json
import math

import numpy as np
import pytest
from federations import small

import silodp
from silodp import SilodpError, advise_messages
from silodp.advice.messages import TIMES
from silodp.methods.fewround.constants import MESSAGE_SHARES

BUDGET = {"epsilon": 1.0, "delta": 1e-4}


def test_more_of_everything_buys_more():
    advice = advise_messages(records=[100] * 20, parameters=9, **BUDGET)
    for number in MESSAGE_SHARES:
        for end in range(2):
            bought = [advice.at(number, times)[end] for times in TIMES]
            assert bought == sorted(bought)
    assert advice.at(1).low < advice.at(3).low < advice.at(3).high
    larger = advise_messages(records=[400] * 20, parameters=9, **BUDGET)
    wider = advise_messages(records=[100] * 20, parameters=40, **BUDGET)
    for end in range(2):
        assert wider.at(3)[end] < advice.at(3)[end] < larger.at(3)[end]


def test_without_privacy_all_can_be_had():
    advice = advise_messages(records=[2000] * 20, parameters=9, epsilon=math.inf)
    assert advice.at(3).low > 0.95
    assert not any("Twice" in sentence for sentence in advice.sentences)


def test_what_was_measured_on_school_is_within_what_is_predicted():
    """Of docs/fewround.md: 139 silos of 88 records on average, 28 features."""
    records = np.linspace(17, 160, 139).astype(int).tolist()
    found = {
        1: {0.5: 0.25, 1: 0.48, 2: 0.74, 4: 0.83, 10: 0.93},
        3: {0.25: 0.56, 0.5: 0.79, 1: 0.88, 2: 0.94, 4: 0.96, 10: 0.98},
    }
    for messages, by_epsilon in found.items():
        for epsilon, share in by_epsilon.items():
            advice = advise_messages(
                records=records, parameters=29, epsilon=epsilon, delta=1e-3, messages=messages
            )
            low, high = advice.at(messages)
            assert low <= share <= high


def test_a_guess_of_how_far_silos_differ_narrows_the_range():
    def width(**guess):
        low, high = advise_messages(records=[80] * 30, parameters=8, **BUDGET, **guess).at(3)
        return high - low

    assert width(tau=0.03) < width()
    alike = advise_messages(records=[80] * 30, parameters=8, **BUDGET, tau=0.0)
    apart = advise_messages(records=[80] * 30, parameters=8, **BUDGET, tau=0.15)
    assert apart.at(3).high < alike.at(3).high


def test_silos_have_their_own_budgets(tmp_path):
    policies = tmp_path / "policies.toml"
    policies.write_text(
        "[default]\nepsilon = 0.5\ndelta = 1e-4\n[silos.north]\nepsilon = 4\ndelta = 1e-4\n"
    )
    advice = advise_messages(
        records={"north": 100, "south": 100, "west": 100}, parameters=4, policies=policies
    )
    by_name = {silo["silo"]: silo for silo in advice.silos}
    assert by_name["north"]["epsilon"] == 4
    assert by_name["north"]["low"] > by_name["south"]["low"]
    assert "Epsilon 0.5 to 4" in advice.sentences[0]


def test_secret_counts_have_no_say(tmp_path):
    policies = tmp_path / "policies.toml"
    policies.write_text("[default]\nepsilon = 2\ndelta = 1e-5\npublic = []\nrecords = 300\n")
    advice = [
        advise_messages(federation=small(sizes=sizes, d=3), policies=policies)
        for sizes in ((20, 30), (200, 90))
    ]
    assert advice[0].silos == advice[1].silos
    assert [silo["records"] for silo in advice[0].silos] == [300, 300]


def test_no_record_has_a_say():
    federation = small(sizes=(20, 30), d=3)
    silos = tuple(
        silodp.Silo(one.name, silodp.Records(0 * one.train.x, 0 * one.train.y), one.test)
        for one in federation.silos
    )
    other = silodp.Federation("made up", silos, federation.task)
    one = advise_messages(federation=federation, **BUDGET)
    assert one.overall == advise_messages(federation=other, **BUDGET).overall


def test_two_classes():
    advice = advise_messages(federation=small("binary", sizes=(400, 300), d=3), **BUDGET)
    assert 0 <= advice.at(3).low < advice.at(3).high <= 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"records": [50, 60]}, "--parameters is missing or below 2"),
        ({"records": [50], "parameters": 3, "messages": 4}, "--messages is 4: give 1, 2, 3 or 5"),
        ({"records": [50], "parameters": 3, "method": "ebmtl"}, "--method is ebmtl"),
        ({"records": [50], "parameters": 3, "tau": -1.0}, "--tau is -1.0"),
        ({"records": [50], "parameters": 3, "clip": 1.0}, "has no training passes"),
        ({}, "Advice is for given silos"),
        ({"federation": small("multiclass")}, "has another target"),
    ],
)
def test_what_is_refused(options, said):
    with pytest.raises(SilodpError, match=said):
        advise_messages(**BUDGET, **options)


def test_through_the_command_line(cli, tmp_path):
    done = cli(
        *("advise", "--records", "north=120,south=80", "--parameters", "7", "--messages", "3"),
        *("--epsilon", "0.5", "--delta", "1e-4", "--out", str(tmp_path)),
    )
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Epsilon 0.5 in 3 messages is predicted to buy" in said
    assert "Nothing was spent" in said
    assert "north" in said
    content = json.loads((tmp_path / "advice.json").read_text())
    assert content["silos"][0]["records"] == 120
    assert (tmp_path / "advice.png").stat().st_size > 10_000
    asked = ("advise", "--records", "50,60", "--parameters", "7", "--messages", "3")
    printed = cli(*asked, "--epsilon", "0.5", "--delta", "1e-4", "--json")
    assert json.loads(printed.stdout)["messages"] == 3
    refused = cli(*asked, "--epsilon", "1", "--estimate-epsilon", "0.1")
    assert refused.exit_code == 2
    assert "--estimate-epsilon" in refused.stderr


def test_many_silos_are_drawn_by_their_records(tmp_path):
    from silodp.pictures.messages_picture import draw_message_advice

    records = np.random.default_rng(0).integers(20, 400, 60).tolist()
    advice = advise_messages(records=records, parameters=7, **BUDGET)
    assert draw_message_advice(advice, tmp_path / "a.png").stat().st_size > 10_000
