"""`silodp plan`: what it prints, and that the run then does just that."""

import json

import pytest

from silodp.privacy.accounting.accountant import epsilon_of
from silodp.privacy.mechanisms.training import training_event

pytestmark = pytest.mark.usefixtures("kept_programs")

PLAN = ["--data", "synthetic", "--silos", "3", "--rounds", "10", "--epsilon", "3"]


def planned(cli, *more):
    done = cli("plan", *PLAN, *more, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plan_is_what_the_run_does(cli):
    plan = planned(cli)
    run = json.loads(cli("run", *PLAN, "--json", "--quiet").stdout)
    assert [silo["silo"] for silo in plan["silos"]] == [silo["silo"] for silo in run["per_silo"]]
    for before, after in zip(plan["silos"], run["privacy"], strict=True):
        for name in ("noise_multiplier", "epsilon", "sampling_rate", "steps", "delta"):
            assert before[name] == after[name]


def test_every_number_of_a_row_holds(cli):
    for silo in planned(cli)["silos"]:
        event = training_event(silo["noise_multiplier"], silo["sampling_rate"], silo["steps"])
        by = silo["epsilon_by_accountant"]
        delta = silo["delta"] * (1 if silo["records"] <= 8 * silo["batch"] else 0.999)
        assert by["pld"] == pytest.approx(epsilon_of(event, delta, "pld"))
        assert by["rdp"] == pytest.approx(epsilon_of(event, delta, "rdp"))
        assert silo["epsilon"] == min(by.values()) <= 3
        assert silo["noise_multiplier_rdp"] > silo["noise_multiplier"]
        (query,) = silo["queries"]
        assert (query["query"], query["share"]) == ("training", 1.0)


def test_shares_of_all_queries(cli):
    plan = planned(cli, "--method", "ifca", "--metric-share", "0.1")
    for silo in plan["silos"]:
        shares = {query["query"]: query["share"] for query in silo["queries"]}
        assert set(shares) == {"training", "selection", "metric"}
        assert sum(shares.values()) == pytest.approx(1)
        assert silo["epsilon"] <= 3


def test_replace_one_has_a_price_by_either_accountant(cli):
    for silo in planned(cli, "--relation", "replace-one")["silos"]:
        assert silo["epsilon_by_accountant"]["rdp"] > silo["epsilon_by_accountant"]["pld"]
        assert silo["noise_multiplier_rdp"] > silo["noise_multiplier"]


def test_someone_in_several_silos(cli):
    one, two, all_three = (
        planned(cli, "--max-silos-per-subject", m)["person"] for m in ("1", "2", "9")
    )
    assert one is None
    assert 3 < two["epsilon"] < 6
    assert two["delta"] == pytest.approx(2e-4)
    assert all_three["silos"] == 3
    assert two["epsilon"] < all_three["epsilon"] < 9


def test_table_and_picture(cli, tmp_path):
    done = cli("plan", *PLAN, "--out", tmp_path / "plan", "--max-silos-per-subject", "2")
    assert done.exit_code == 0
    for word in ("silo-01", "RDP noise", "Somebody who is in up to 2 silos", "add-remove"):
        assert word in done.stdout
    assert (tmp_path / "plan" / "epsilon.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert len(content["silos"]) == 3


def test_without_privacy(cli):
    plan = json.loads(cli("plan", *PLAN[:-1], "inf", "--json", "--quiet").stdout)
    assert plan["silos"][0]["epsilon"] == "inf"
    assert not plan["silos"][0]["proven"]
    assert cli("plan", *PLAN[:-1], "inf").exit_code == 0


def test_budget_beside_the_point(cli, sentence):
    assert "No privacy budget" in sentence(cli("plan", "--data", "synthetic"))


def test_a_policy_that_does_not_allow_it(cli, sentence, tmp_path):
    policies = tmp_path / "p.toml"

    def refused(text, *more):
        policies.write_text(text)
        return sentence(cli("plan", *PLAN, "--policies", policies, *more))

    private = "[silos.silo-01]\npublic = []\nrecords = 90\n"
    assert "--weights uniform" in refused(private)
    assert "'silo-01'" in refused(private)
    policies.write_text(private)
    plan = planned(cli, "--policies", policies, "--weights", "uniform")
    assert plan["silos"][0]["records"] == 90
    assert plan["silos"][0]["sampling_rate"] == pytest.approx(32 / 90)
    assert "--subject-column patient" in refused('[default]\nsubject = "patient"')
    assert "class list" in refused('[default]\npublic = ["record count"]', "--task", "binary")
    assert "at least 1/" in refused("[default]\ndelta = 0.5")


def test_doubtful_values_are_warned_about(cli):
    done = cli("plan", *PLAN[:-1], "30", "--delta", "1.2e-3")
    assert "n^-1.1" in done.stdout
    assert "above 10" in done.stdout


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(cli, sentence, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for command in ("plan", "audit"):
        for out in (file, file / "x"):
            assert "choose another" in sentence(cli(command, *PLAN, "--out", out))


def test_ends_of_the_range(cli, sentence, tmp_path):
    assert cli("plan", *PLAN[:-1], "inf", "--out", tmp_path / "a", "--quiet").exit_code == 0
    assert cli("plan", *PLAN[:-1], "1e-300", "--quiet").exit_code in (0, 2)
    policies = tmp_path / "p.toml"
    policies.write_text("[default]\nepsilon = " + "9" * 400)
    assert "beyond all numbers" in sentence(cli("plan", *PLAN, "--policies", policies))
    assert "--clip" in sentence(cli("plan", *PLAN, "--clip", "1e-40"))
    policies.write_text('[default]\nepsilon = 3\n[silos.silo-01]\nepsilon = "inf"')
    done = cli("plan", *PLAN[:-2], "--policies", policies, "--max-silos-per-subject", "2")
    assert "no guarantee" in done.stdout


def test_warnings_do_not_tell_a_private_count(cli, tmp_path):
    policies = tmp_path / "p.toml"
    policies.write_text("[silos.silo-03]\npublic = []\nrecords = 310\n[default]\ndelta = 1.5e-3")
    plan = planned(cli, "--policies", policies, "--weights", "uniform")
    assert plan["silos"][2]["records"] == 310  # it holds 600, too many for this delta
    assert plan["warnings"] == []


def test_names_cannot_command_the_terminal(cli, tmp_path):
    names = ("a[red]", "b\x1b[2J")
    rows = [f"{names[i % 2]},{i % 7},{i % 5}" for i in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["site,x,y", *rows]))
    asked = ("--data", tmp_path / "t.csv", "--silo-column", "site", "--target", "y")
    shown = cli("plan", *asked, "--task", "regression", "--epsilon", 3, "--rounds", 2).stdout
    assert "\x1b[2J" not in shown
    assert "a[red]" in shown
    assert r"b\x1b[2J" in shown
