"""The report's page on ledgers: what was spent, what is left, in words."""

import pytest
from page_reader import Reader
from report_runs import made_up, write_runs

import silodp
from silodp.base.errors import SilodpError
from silodp.privacy.ledger.standing import remaining
from silodp.report import report_page
from silodp.report.ledger_section import ledgers_section, read_ledgers


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledgers")
    common = {"data": "synthetic", "silos": 2, "rounds": 3, "lifetime_epsilon": 6.0}
    for method, epsilon in (("local", 1.0), ("fedavg", 2.0)):
        silodp.run(method=method, epsilon=epsilon, delta=1e-4, ledger=folder, **common)
    return folder


def test_a_ledger_in_words(ledgers):
    page = Reader(report_page([], ledger=ledgers, silo="silo-01"))
    assert "2 runs spent epsilon " in page.text
    assert "of the 6 that this silo allows in its lifetime, for each record" in page.text
    assert "The chain of entries is intact." in page.text
    assert "Reserved for 3 rounds: local on synthetic" in page.text
    assert "Charged for round 1" in page.text
    assert "Closed: finished; whatever was not charged is given back" in page.text
    assert "silo-02" not in page.text
    spent = remaining(ledgers, "silo-01")
    assert f"spent epsilon {spent['spent_epsilon']:.3g} of" in page.text
    assert f"one more release of epsilon {spent['remaining_epsilon']:.3g}." in page.text
    assert "One more run like the last would take" in page.text
    assert spent["head"] in page.text


def test_a_run_beside_its_ledgers_shows_what_is_left(ledgers, tmp_path):
    names = ["silo-01", "silo-02"]
    page = Reader(report_page([write_runs(tmp_path, made_up(silos=names))], ledger=ledgers))
    assert "What each silo has spent of its lifetime allowance" in page.text
    assert "No ledger was given" not in page.text


def test_a_damaged_ledger_is_refused(ledgers, tmp_path):
    import shutil

    shutil.copytree(ledgers, tmp_path / "copy")
    path = next((tmp_path / "copy").glob("*.ledger"))
    content = bytearray(path.read_bytes())
    place = content.index(b"fedavg")
    content[place : place + 6] = b"FEDAVG"
    path.write_bytes(bytes(content))
    with pytest.raises(SilodpError):
        report_page([], ledger=tmp_path / "copy")


def test_beyond_its_allowance_a_ledger_promises_nothing(ledgers):
    """Not by this program, which refuses; but a ledger may come from elsewhere."""
    found = read_ledgers(ledgers, "silo-01")
    broken = {"spent_epsilon": 6.5, "broken": [{"epsilon": 6.0, "delta": 1e-4}]}
    left = {"silo-01": remaining(ledgers, "silo-01") | broken}
    said = Reader(ledgers_section(found, left, with_bars=True)).text
    assert "spent MORE than can be promised of the 6 that this silo allows" in said
    assert "unless all of them were planned beforehand" in said
    assert "however they were chosen, it is epsilon 6.5" in said


def test_a_lifetime_that_was_changed_since_is_said_so(ledgers):
    found, left = read_ledgers(ledgers, "silo-01"), remaining(ledgers, "silo-01")
    for changed in (False, True):
        told = {"silo-01": left | {"changed": changed}}
        said = Reader(ledgers_section(found, told, with_bars=True)).text
        assert ("changed after something had been charged" in said) == changed


def test_many_ledgers_are_folded_but_for_their_state(ledgers):
    found = read_ledgers(ledgers, None)
    left = {ledger.silo: remaining(ledgers, ledger.silo) for ledger in found}
    few = ledgers_section(found, left, with_bars=True)
    many = ledgers_section([*found, *found], left, with_bars=True)
    words = "Silo silo-01: what that could tell an attacker, runs and entries"
    assert words not in few
    assert many.count(words) == 2
    for article in many.split("<article>")[1:]:
        seen, kept = article.split("<details>", 1)
        assert "2 runs spent epsilon" in seen
        assert "The chain of entries is intact" in kept


def test_an_unknown_silo_and_nothing_at_all_are_refused(ledgers, tmp_path):
    with pytest.raises(SilodpError, match="'nobody' has no ledger"):
        report_page([], ledger=ledgers, silo="nobody")
    with pytest.raises(SilodpError, match="nothing to report on"):
        report_page([])
    with pytest.raises(SilodpError, match="--silo chooses one of the ledgers"):
        report_page([tmp_path], silo="a")


def test_ledgers_of_other_silos_are_said_to_be(ledgers, tmp_path):
    said = Reader(report_page([write_runs(tmp_path, made_up())], ledger=ledgers)).text
    assert "The ledgers that were given are not of these silos." in said
    assert "No ledger was given" not in said
    assert "What each silo has spent of its lifetime allowance" in said
