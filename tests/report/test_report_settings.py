"""The report's page tells how to do it again, in a command that does."""

import json

from federations import small
from page_reader import page_of
from report_runs import made_up, write_runs

import silodp
from silodp.report.settings_part import command_of


def test_settings_versions_and_the_command_are_there(tmp_path):
    result = made_up(options={"data": "my data.csv", "method": "mrmtl", "lam": 0.3, "lr": None})
    page = page_of(write_runs(tmp_path, result))
    assert "silodp run --data 'my data.csv' --method mrmtl --lam 0.3" in page.text
    assert result.versions["jax"] in page.text


def test_the_command_gives_the_same_options_again(cli):
    """Given to the command line again, it asks for what the result says was asked for."""
    result = silodp.run(data="synthetic", silos=3, rounds=2, epsilon=2.5, method="mrmtl", lam=0.25)
    words = command_of(result).split()
    run = cli(*words[1:], "--json")
    assert run.exit_code == 0, run.output
    again = json.loads(run.stdout)
    assert again["options"] == result.as_json()["options"]
    assert again["test"] == result.as_json()["test"]


def test_secret_noise_and_sites_are_not_passed_off_as_repeatable(tmp_path):
    options = {"data": "x", "method": "mrmtl", "entropy": "os"}
    said = page_of(write_runs(tmp_path, made_up(options=options))).text
    assert "Its noise is drawn again" in said
    history = made_up().history[-1:]
    result = made_up(options=options | {"engine": "sites"}, silos=["north"], history=history)
    said = page_of(write_runs(tmp_path, result)).text
    assert "Trained across sites" in said
    assert "silodp run" not in said
    assert "The test metric was worked out once: MR-MTL, round 10:" in said


def test_a_result_puts_no_other_words_into_the_command():
    result = made_up(options={"data": "x", "overwrite": True, "out": "/", "lam": 0.5})
    assert command_of(result) == "silodp run --data x --method mrmtl --lam 0.5"


def test_the_command_of_a_tuned_run_tunes(cli):
    common = {"data": "synthetic", "silos": 2, "rounds": 2, "epsilon": 3.0}
    result = silodp.tune(grid={"lam": [0.1, 1.0]}, trials=2.0, **common)
    command = command_of(result)
    assert command.startswith("silodp tune --data synthetic --method mrmtl")
    assert "--try lam=0.1,1.0 --trials 2.0 --eta 0.0 --score noisy" in command
    run = cli(*command.split()[1:], "--json")
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["test"] == result.as_json()["test"]


def test_records_from_python_have_no_command(tmp_path):
    common = {"epsilon": 3.0, "delta": 1e-4, "rounds": 2, "batch_size": 8, "lr": 0.1, "clip": 1.0}
    result = silodp.run(federation=small(), method="local", **common)
    said = page_of(write_runs(tmp_path, result)).text
    assert "Run from Python" in said
    assert "silodp run" not in said
