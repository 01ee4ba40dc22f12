"""What the report's page says of privacy: no more than is true."""

import math
from dataclasses import replace

from page_reader import page_of
from report_runs import UNPROVEN, made_up, write_federation, write_runs


def test_what_is_not_proven_is_said_where_one_looks(tmp_path):
    said = page_of(write_federation(tmp_path, unproven=(UNPROVEN,))).text
    assert "It is NOT proven for what the run did." in said
    assert f"Epsilon is not proven: {UNPROVEN}" in said
    assert "NOT proven, see below" in said
    assert "What follows would hold if epsilon were proven" in said


def test_without_privacy_nothing_is_promised(tmp_path):
    said = page_of(write_runs(tmp_path, made_up(epsilons=(math.inf,)))).text
    assert "Without privacy: nothing protects the records" in said
    assert "may find out with certainty" in said
    assert "Proven." not in said


def test_some_silos_without_a_budget_are_counted(tmp_path):
    said = page_of(write_runs(tmp_path, made_up(epsilons=(1.0, math.inf)))).text
    assert "3 silos have no privacy at all" in said


def test_epsilon_is_told_as_an_attackers_gain(tmp_path):
    said = page_of(write_runs(tmp_path, made_up(epsilons=(math.log(3),)))).text
    assert "Guessing blindly is right 50 times of 100." in said
    assert "is right at most 75.1 times of 100" in said  # 75 at delta 0, rounded up
    assert "finds at most 3.01 of 100" in said


def test_people_and_exchanges_have_their_own_words(tmp_path):
    result = made_up()
    mine = [{**p, "unit": "subject", "relation": "replace-one"} for p in result.privacy]
    said = page_of(write_runs(tmp_path, replace(result, privacy=mine))).text
    assert "Privacy of each person with all their records" in said
    assert "which of two given versions of a person took part" in said


def of_silos(result, **values):
    """The result with other promises, silo by silo."""
    return replace(
        result,
        privacy=[
            {**p, **{name: given[k] for name, given in values.items()}}
            for k, p in enumerate(result.privacy)
        ],
    )


def test_no_bound_is_promised_to_a_silo_without_privacy(tmp_path):
    result = made_up(silos=list("abc"), epsilons=(2.0, math.inf, 2.0))
    page = page_of(write_runs(tmp_path, result))
    assert "What this means for silo b, which has the weakest promise" in page.text
    assert "For the 2 silos with the strictest promise" in page.text
    assert "What this means for each silo" not in page.text
    assert "epsilon 2 or none" in page.text
    assert "proven" not in [word.lower() for word in page.words]  # no tile that says so
    labels = [one.get("data-label") for one in page.all("circle")]
    assert "b: no privacy at all" in labels


def test_the_weakest_promise_is_found_by_delta_too(tmp_path):
    result = of_silos(made_up(silos=list("ab"), epsilons=(1.0001, 1.0)), delta=[1e-6, 0.05])
    said = page_of(write_runs(tmp_path, result)).text
    assert "What this means for silo b, which has the weakest promise" in said
    assert "right at most 74.5 times of 100" in said


def test_promises_of_other_kinds_are_told_apart(tmp_path):
    kinds = ["add-remove", "replace-one"]
    result = of_silos(made_up(silos=list("ab"), epsilons=(1.0,)), relation=kinds)
    said = page_of(write_runs(tmp_path, result)).text
    assert "for each silo" not in said
    assert "whether one given record took part" in said
    assert "which of two given versions of a record took part" in said
    assert "recognises the second at most" in said


def test_noise_from_seeds_is_an_experiment(tmp_path):
    options = {"data": "x", "method": "mrmtl", "entropy": "seed"}
    write_runs(tmp_path, made_up(options=options), made_up("local", options=options))
    said = page_of(tmp_path).text
    assert "an experiment: noise from seeds" in said
    assert "This run is an experiment" in said
    assert "protects nobody" in said
    assert "these runs share their noise, so that together they promise nothing" in said
    assert "Proven." not in said


def test_noisy_metrics_are_called_noisy(tmp_path):
    result = made_up(options={"data": "x", "method": "mrmtl", "metric_share": 0.2})
    assert "Test metrics carry noise" in page_of(write_runs(tmp_path, result)).text
