"""The answer in words: what is clear, what may be chance, and whether anything beats no skill."""

from dataclasses import replace

import numpy as np
import pytest
from page_reader import page_of
from report_runs import made_up, with_no_skill, write_runs

import silodp
from silodp.report.verdict import listed, verdict
from silodp.results.result import summary

NAMED = {"options": {"data": "x", "method": "ebmtl", "epsilon": 3.0}}


def test_a_model_without_skill_is_called_so(tmp_path):
    """All silos "gain" over local training, which is worse than nothing."""
    alone = made_up("local", scale=80.0)
    own = with_no_skill(made_up("ebmtl", scale=1.0), 0.98)
    said = verdict(own, [alone]).headline
    assert said.startswith("No model beats the constant prediction: test error 0.103")
    assert "EB-MTL, the best of 2 methods" in said
    page = page_of(write_runs(tmp_path, alone, own)).text
    assert "No model beats the constant prediction" in page
    assert "do better with" not in page


def test_a_gain_that_nobody_could_use_is_none():
    own = with_no_skill(made_up("ebmtl"), 1.02)
    said = verdict(own).headline
    assert said.startswith("No model beats the constant prediction by more than 2.0 %: ")


def test_a_gain_that_may_be_chance_is_no_skill():
    own = with_no_skill(made_up("ebmtl"), 1.3, low=-0.01)
    said = verdict(own).headline
    assert said.startswith("No model clearly beats the constant prediction: ")
    assert said.endswith("the difference may be chance, with 120 test records.")


def test_skill_is_told_with_its_size():
    own = with_no_skill(made_up("ebmtl"), 2.0)
    assert "50 % lower (better) than the constant prediction." in verdict(own).headline


def test_a_loss_to_fedavg_is_the_headline():
    own = with_no_skill(made_up("ebmtl", metric="accuracy", scale=1.5), 0.5)
    other = with_no_skill(made_up("fedavg", metric="accuracy"), 0.5)
    said = verdict(own, [made_up("local", metric="accuracy", scale=2.0), other])
    assert said.headline.startswith("FedAvg does better than EB-MTL (clear): its test accuracy is")
    assert "5.2 points higher (better) than that of EB-MTL" in said.headline
    assert "; it is the best of 3 methods. FedAvg clearly beats always answering" in said.headline


def few(result, per_silo=2):
    """The result with so many test records in each silo, and one in the last."""
    silos = [silo | {"test_records": per_silo} for silo in result.per_silo[:-1]]
    return replace(result, per_silo=[*silos, result.per_silo[-1] | {"test_records": 1}])


def jittered(result, size=0.2):
    """The result with seeds that vary by as much: means stay about the same."""
    random = np.random.default_rng(1)
    values = [v * (1 + size * random.normal()) for v in result.test["per_seed"]]
    return replace(result, test=summary(np.array(values)))


def test_a_loss_that_may_be_chance_has_no_winner():
    own = with_no_skill(made_up("mrmtl"), 2.0)
    said = verdict(own, [jittered(with_no_skill(made_up("fedavg", scale=0.9), 2.2))]).headline
    assert said.startswith("No method is clearly best of 2: test error")
    assert " may be chance. FedAvg clearly beats the constant prediction (" in said


def test_a_lead_that_may_be_chance_is_not_called_the_best():
    own = with_no_skill(made_up("mrmtl"), 2.0)
    others = [jittered(made_up("fedavg", scale=1.05)), made_up("local", scale=1.5)]
    said = verdict(own, others).headline
    assert said.startswith("MR-MTL is not clearly the best of 3 methods: its test error of")
    assert "than that of FedAvg (may be chance), and 33 % lower (better) than" in said
    assert "local training (clear)." in said


def test_differences_of_rounding_are_none():
    own, alone = made_up("mrmtl"), made_up("local", scale=1 - 1e-8)
    assert verdict(own, [alone]).headline.startswith("No method is better than MR-MTL: ")
    other = made_up("fedavg", scale=1 + 1e-8)
    assert "the same as that of FedAvg" in verdict(own, [other]).headline


def test_no_silo_is_clearly_left_behind_by_a_few_records(tmp_path):
    """Seeds share test records: what looks clear over seeds is not where these are few."""
    alone, own = made_up("local"), with_no_skill(made_up("mrmtl", scale=1.2), 0.5)
    many = verdict(few(own, 30), [few(alone, 30)]).left_behind
    assert "Clearly worse with MR-MTL than alone: hospital 0, hospital 1" in many[0]
    assert verdict(few(own, 9), [few(alone, 9)]).left_behind == [
        "Worse with MR-MTL than alone, which may be chance: "
        + ", ".join(silo["silo"] for silo in own.per_silo)
        + ".",
        "Worse with MR-MTL than the constant prediction, which may be chance: "
        + ", ".join(silo["silo"] for silo in own.per_silo)
        + ".",
    ]
    page = page_of(write_runs(tmp_path, few(alone, 9), few(own, 9))).text
    assert "their test records are too few for any of it to be clear" in page
    assert "% (clear)" not in page, "the table of silos"


def test_of_equal_methods_none_is_the_best():
    own = with_no_skill(made_up("mrmtl"), 0.98)
    said = verdict(own, [made_up("local")]).headline
    assert "with MR-MTL, than which none of 2 methods is better, and" in said


def test_equal_silos_neither_gain_nor_lose(tmp_path):
    page = page_of(write_runs(tmp_path, made_up("local"), made_up("mrmtl"))).text
    assert "Against local training, no silo gains or loses." in page


def test_accuracy_shows_the_recall_that_it_hides():
    """0.951 where always "no" has 0.938 sounds well; 0.196 of those that matter are found."""
    own = with_no_skill(made_up("ebmtl", metric="accuracy", scale=0.5), 0.93)
    recall = own.metrics[0] | {"metric": "recall", "no_skill": None}
    recall["test"] = recall["test"] | {"mean": 0.196}
    own = replace(own, metrics=[*own.metrics, recall])
    (beside,) = verdict(own).more
    assert "always answering the most common class has" in beside
    assert beside.endswith('its recall is 19.6 % (of "yes").')


def test_eleven_test_records_may_be_chance():
    own, alone = few(with_no_skill(made_up("mrmtl"), 2.0)), few(made_up("local", scale=2.0))
    said = verdict(own, [alone])
    assert "may be chance, with 11 test records" in said.headline
    assert "All of it rests on 11 test records: differences may be chance." in said.more
    older = verdict(replace(own, metrics=[]), [alone])  # which knows of no skill
    assert "(may be chance: 11 test records)" in older.headline


def test_a_difference_of_zero_is_no_gain():
    own, alone = made_up("mrmtl"), made_up("local")
    said = verdict(own, [alone])
    assert said.headline.startswith("No method is better than MR-MTL: ")
    assert "the same as that of local training" in said.headline
    assert said.left_behind == []


def test_silos_left_behind_are_named():
    own, alone = with_no_skill(made_up("mrmtl"), 2.0), made_up("local", scale=1.2)
    behind = own.per_silo[3] | {"per_seed": [10 * v for v in own.per_silo[3]["per_seed"]]}
    behind, enough = (silo | {"test_records": 30} for silo in (behind, own.per_silo[4]))
    own = replace(own, per_silo=[*own.per_silo[:3], behind, enough, *own.per_silo[5:]])
    entry = own.metrics[0]
    worse = entry["per_silo"][4] | {"mean": 0.5, "interval": [0.4, 0.6], "no_skill": 0.3}
    chance = entry["per_silo"][5] | {"mean": 0.35, "interval": [0.2, 0.6], "no_skill": 0.3}
    too_few = entry["per_silo"][2] | {"mean": 0.5, "interval": [0.4, 0.6], "no_skill": 0.3}
    silos = [*entry["per_silo"][:2], too_few, entry["per_silo"][3], worse, chance]
    entry = entry | {"per_silo": silos}
    own = replace(own, metrics=[entry])
    assert verdict(own, [alone]).left_behind == [
        "Clearly worse with MR-MTL than alone: hospital 3.",
        "Clearly worse with MR-MTL than the constant prediction: hospital 4.",
        "Worse with MR-MTL than the constant prediction, which may be chance: hospital 2, "
        "hospital 5.",
    ]


def test_silos_whose_names_are_numbers_are_not_taken_for_counts():
    assert listed(["2", "1.0", "north"]) == "'2', '1.0', north"
    assert listed([f"s{n}" for n in range(8)]) == "s0, s1, s2, s3, s4, s5 and 2 more (8 silos)"


def test_errors_are_told_in_the_targets_own_unit(tmp_path):
    own = with_no_skill(made_up("ebmtl"), 2.0)
    mae = own.metrics[0] | {"metric": "mae"}
    problem = (own.problem or {}) | {"target": "los", "unit": 30.0}
    own = replace(own, metrics=[*own.metrics, mae], problem=problem)
    (said,) = verdict(own).more
    assert said == (
        'In the unit of "los" itself, EB-MTL has MAE 3.1 (the constant prediction: 6.21).'
    )


def test_silos_that_were_left_out_are_named_in_words(tmp_path):
    own = replace(made_up("ebmtl"), left_out=["7", *(f"ward {n}" for n in range(20))])
    said = page_of(write_runs(tmp_path, own)).text
    assert "Left out, 21 silos: '7', ward 0, ward 1, ward 2, ward 3, ward 4 and 15 more." in said


def test_amounts_are_told_as_people_write_them():
    own = with_no_skill(made_up("ebmtl"), 2.0)
    mae = own.metrics[0] | {"metric": "mae"}
    problem = (own.problem or {}) | {"target": "price", "unit": 800_000.0}
    (said,) = verdict(replace(own, metrics=[*own.metrics, mae], problem=problem)).more
    assert "has MAE 82,700 (the constant prediction: 165,000)" in said


def test_budgets_calibrated_to_one_number_are_one(tmp_path):
    runs = (
        made_up("mrmtl", epsilons=(2.996, 2.9991, 2.9999)),
        made_up("local", scale=1.2, epsilons=(2.997, 2.9995, 2.9998)),
    )
    said = page_of(write_runs(tmp_path, *runs)).text
    assert "epsilon 3, delta" in said
    assert "each silo its own" not in said
    assert "1 budget" in said


def test_columns_target_and_purpose_stand_on_top(tmp_path):
    options = {"data": "x", "method": "ebmtl", "purpose": "Plan beds <b>"}
    own = with_no_skill(made_up("ebmtl", options=options), 2.0)
    said = page_of(write_runs(tmp_path, own)).text
    assert "Plan beds <b>" in said
    assert said.index("Plan beds") < said.index("EB-MTL reaches")
    assert said.index("age, sex") < said.index("EB-MTL reaches")
    assert "exact: stays in the silo" in said


@pytest.mark.parametrize(
    "wrong",
    [
        {"metric": "bleu"},
        {"release": "maybe"},
        {"per_silo": []},
        {"test": {"mean": 1.0, "std": 0.0, "per_seed": [1.0], "interval": None}},
        {"no_skill": "none"},
        {"release": "noisy"},
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, wrong):
    own = with_no_skill(made_up("ebmtl"), 2.0)
    own = replace(own, metrics=[own.metrics[0] | wrong])
    with pytest.raises(silodp.SilodpError, match=r"result.json: metrics\[0\]"):
        page_of(write_runs(tmp_path, own))


def test_a_run_and_its_report_say_the_same(cli, tmp_path):
    """Features say nothing here: the last words of the command and the page's headline say so."""
    rng = np.random.default_rng(0)
    lines = ["silo,x,y"] + [
        f"{'ab'[n % 2]},{x:.4f},{y:.4f}" for n, (x, y) in enumerate(rng.normal(size=(400, 2)))
    ]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    said = cli(
        *("run", "--data", str(tmp_path / "table.csv"), "--silo-column", "silo", "--target", "y"),
        *("--method", "local", "--rounds", "3", "--epsilon", "1", "--out", str(tmp_path / "run")),
    ).stdout
    page = page_of(tmp_path / "run").text
    (headline,) = [line for line in said.splitlines() if line.startswith("No model ")]
    assert "beats the constant prediction" in headline
    assert headline in page


def test_skill_that_accuracy_does_not_show_is_told():
    own = with_no_skill(made_up("ebmtl", metric="accuracy"), 1.0)
    auc = own.metrics[0] | {"metric": "auc"}
    auc["test"] = auc["test"] | {"mean": 0.844, "per_seed": [0.84, 0.85, 0.84, 0.85, 0.84]}
    flat = {"mean": 0.5, "std": 0.0, "per_seed": [0.5] * 5}
    auc["no_skill"] = flat | {"gain": {"mean": 0.344, "low": 0.3, "high": 0.4}}
    own = replace(own, metrics=[*own.metrics, auc])
    said = verdict(own)
    assert said.headline.startswith("No model beats always answering the most common class: ")
    assert said.more == [
        "EB-MTL has learned something all the same, as others show: AUC 0.844 (0.5 without)."
    ]
