"""The report's page: what it says of runs and sweeps, and what it refuses."""

import json
import math
import os
import re

import numpy as np
import pytest
from page_reader import Reader, page_of
from report_runs import made_up, silo_names, write_federation, write_runs

from silodp.base.errors import SilodpError
from silodp.report import report_page, write_report

# A run


def test_the_answer_comes_first(tmp_path):
    page = page_of(write_federation(tmp_path))
    said = page.text
    assert "MR-MTL is the best of 3 methods: its test error of " in said
    assert "20 % lower (better) than that of local training (clear)" in said
    assert "Against local training, 6 silos gain and 0 lose" in said
    assert "20 % lower (better) than local training" in said
    assert "37 % lower (better) than FedAvg" in said or "38 % lower (better) than FedAvg" in said
    assert "epsilon 1 to 10, each silo its own, delta 0.0001. Proven." in said
    assert said.index("the best of 3") < said.index("Each silo's test metric")
    assert said.index("the best of 3") < said.index("All runs beside each other")


def test_a_loss_is_told_as_a_loss(tmp_path):
    worse = (made_up("local", scale=0.8), made_up("mrmtl", scale=1.0))
    said = page_of(write_runs(tmp_path, *worse)).text
    assert "Local training does better than MR-MTL (clear): its test error is" in said
    # Of 20 test records each; see test_report_verdict on silos with more.
    assert "Worse with MR-MTL than alone, which may be chance: hospital 0, hospital 1, " in said
    assert "25 % higher (worse) than local training" in said
    assert "clearly worse" in said


def test_accuracy_is_better_when_it_is_higher(tmp_path):
    more = {"metric": "accuracy"}
    runs = (made_up("local", scale=1.5, **more), made_up("mrmtl", scale=1.0, **more))
    said = page_of(write_runs(tmp_path, *runs)).text
    assert "MR-MTL is the best of 2 methods: its test accuracy of" in said
    assert re.search(r"[45]\.\d points higher \(better\) than local training", said)


def test_one_seed_says_that_it_may_be_chance(tmp_path):
    said = page_of(write_federation(tmp_path, seeds=1)).text
    assert "too few to tell it from chance" in said
    assert "than that of local training (may be chance: 1 seed)" in said
    assert "clear" not in said.lower().replace("not clearly the best", "")


def test_without_baselines_the_page_says_how_to_get_them(tmp_path):
    said = page_of(write_runs(tmp_path, made_up())).text
    assert "MR-MTL reaches a test error of" in said
    assert "--baselines" in said


def test_where_a_ledger_was_charged_baselines_are_no_remedy(tmp_path):
    result = made_up(options={"data": "x", "method": "mrmtl", "ledger": "ledgers"})
    said = page_of(write_runs(tmp_path, result)).text
    assert "charged to the same ledgers" in said
    assert "--baselines" not in said


def test_baselines_of_other_budgets_or_silos_are_not_taken(tmp_path):
    write_runs(tmp_path, made_up(), made_up("local", epsilons=(1.0, 3.0, 5.0)))
    assert "of 2 methods" not in page_of(tmp_path).text
    write_runs(tmp_path, made_up("local", silos=silo_names(5)))
    assert "of 2 methods" not in page_of(tmp_path).text
    # Calibration ends at slightly other values: still the same budget.
    write_runs(tmp_path, made_up("local", scale=1.25, epsilons=(0.9999, 2.9998, 9.9995)))
    assert "of 2 methods" in page_of(tmp_path).text


def test_baselines_of_other_data_are_not_taken(tmp_path):
    options = made_up().options
    write_runs(
        tmp_path,
        made_up(options=options | {"heterogeneity": 2.0}),
        made_up("local", options=options | {"heterogeneity": 0.01}),
    )
    page = page_of(tmp_path)
    assert "of 2 methods" not in page.text
    assert page.text.count("1 setting; 1 budget;") == 2  # nor do they share a table


def test_silos_are_drawn_with_the_largest_gain_first(tmp_path):
    alone = made_up("local")
    scales = (1.2, 3.0, 1.5, 1.1, 2.0, 4.0)
    for silo, scale in zip(alone.per_silo, scales, strict=True):
        silo |= {"mean": scale * silo["mean"], "per_seed": [scale * v for v in silo["per_seed"]]}
    write_runs(tmp_path, made_up(), alone)
    rows = re.findall(r'class="name"[^>]*>([^<]+)<', report_page([tmp_path]))
    names = [silo["silo"] for silo in alone.per_silo]
    expected = [names[place] for place in (5, 1, 4, 2, 0, 3)]
    assert [name for name in rows if name in names][: len(names)] == expected


def test_of_several_baselines_the_best_is_taken_and_named(tmp_path):
    for name, scale in (("bad", 3.0), ("good", 1.25)):
        made_up("local", scale=scale).write(tmp_path / name)
    made_up().write(tmp_path / "mine")
    for order in (["bad", "good", "mine"], ["mine", "good", "bad"]):
        said = Reader(report_page([tmp_path / name for name in order])).text
        assert "20 % lower (better) than local training" in said
        assert f"(from {tmp_path / 'good'})"[-20:] in said


def test_what_is_the_same_is_not_called_worse(tmp_path):
    write_runs(tmp_path, made_up(), made_up("local"))
    said = page_of(tmp_path).text
    assert "the same as local training" in said
    assert "No method is better than MR-MTL: its test error of" in said
    assert "Left behind" not in said
    assert "(worse)" not in said
    assert "perhaps by chance" not in said


def test_a_method_far_worse_stays_in_the_drawing(tmp_path):
    write_runs(tmp_path, made_up(), made_up("local", scale=8.0))
    page = page_of(tmp_path)
    paths = [one["d"] or "" for one in page.all("path") if one.get("class") == "line"]
    lines = [path for path in paths if "L" in path]
    assert len(lines) >= 4  # two methods, in two widths
    for line in lines:
        places = [float(place.split()[1]) for place in line[1:].split("L")]
        assert max(places) > 28  # some of it lies below the upper edge
    assert "read at its upper edge" in page.text


def test_runs_are_found_below_a_folder_but_not_within_runs(tmp_path):
    from silodp.report.inputs import runs_below

    made_up().write(tmp_path / "site" / "results" / "job")
    made_up("local").write(tmp_path / "site" / "results" / "job" / "baselines" / "local")
    made_up().write(tmp_path / "b")
    made_up().write(tmp_path / ".hidden")
    made_up().write(tmp_path / "too" / "far" / "down" / "there")
    assert runs_below(tmp_path) == [tmp_path / "b", tmp_path / "site" / "results" / "job"]
    assert runs_below(tmp_path / "b") == [tmp_path / "b"]


def test_baselines_kept_with_a_run_are_found(tmp_path):
    made_up().write(tmp_path / "run")
    made_up("local", scale=2.0).write(tmp_path / "run" / "baselines" / "local")
    said = page_of(tmp_path / "run").text
    assert "50 % lower (better) than local training" in said
    assert "has seen 2 runs of that epsilon each" in said  # seen together they cost more


def test_ebmtl_shows_shrinkage_and_relations(tmp_path):
    kept = {"silos": [{"silo": n, "epsilon": 1.0, "kept": 0.1 * k} for k, n in enumerate("abcd")]}
    relations = np.eye(4)
    learned = kept | {
        "groups": [],
        "summary": ["Silos keep little."],
        "relations": relations.tolist(),
    }
    result = made_up("ebmtl", silos=list("abcd"), learned=learned)
    page = page_of(write_runs(tmp_path, result))
    assert "Silos keep little." in page.text
    assert "How much each silo keeps of its own (shrinkage s_k)" in page.text
    assert "Who is alike" in page.text
    labels = [one.get("data-label") for one in page.all("circle")]
    assert "d keeps 30 % of its own (epsilon 1)" in labels


def test_clusters_are_listed(tmp_path):
    members = [{"silo": n, "cluster": 1 + (n == "c"), "agreement": 0.5} for n in "abc"]
    learned = {"clusters": members, "summary": ["Silos chose 2 of 2 clusters."]}
    said = page_of(write_runs(tmp_path, made_up("ifca", silos=list("abc"), learned=learned))).text
    assert "Cluster 1: a, b" in said
    assert "Cluster 2: c" in said


def test_saved_models_are_compared(tmp_path):
    models = {"w": np.array([[[1.0, 0.0], [1.0, 0.1], [-2.0, -0.1]]])}  # [seeds, silos, weights]
    result = made_up("mrmtl", silos=list("abc"), models=models, seeds=1)
    page = page_of(write_runs(tmp_path, result))
    labels = [one.get("data-label") or "" for one in page.all("circle")]
    assert any(re.fullmatch(r"[ab] and [ab]: (0\.99|1\.00)", label) for label in labels)
    assert any(re.fullmatch(r"(c and [ab]|[ab] and c): -1\.00", label) for label in labels)


def test_a_tuned_run_and_a_person_in_several_silos(tmp_path):
    person = {"silos": 2, "epsilon": 4.5, "delta": 2e-4}
    result = made_up(tuning={"grid": {"lam": [0.1, 1]}}, person=person)
    said = page_of(write_runs(tmp_path, result)).text
    assert "Hyperparameters were tuned" in said
    assert "up to 2 silos (with one record in each): epsilon 4.5 at delta 0.0002" in said


# Several runs, sweeps


def test_several_budgets_make_a_plot(tmp_path):
    for number, epsilon in enumerate((1.0, 4.0, math.inf)):
        for method, scale in (("local", 1.5), ("mrmtl", 1.0)):
            folder = tmp_path / f"{method}-{number}"
            made_up(method, scale=scale / (1 + number), epsilons=(epsilon,)).write(folder)
    page = page_of(tmp_path)
    assert "MR-MTL is ahead at every budget" in page.text
    toggles = [one for one in page.all("button") if "data-toggle" in one]
    assert len(toggles) >= 2
    labels = [one.get("data-label") or "" for one in page.all("circle")]
    assert any(label.startswith("MR-MTL, no privacy: ") for label in labels)


@pytest.fixture(scope="module")
def sweep_folder(tmp_path_factory):
    from silodp.sweeps.table import Row, Table

    folder = tmp_path_factory.mktemp("sweep") / "my <b>sweep"
    table = Table(folder, ["data", "method", "epsilon", "lam"])
    rows = []
    for method, scale in (("local", 2.0), ("mrmtl", 1.0)):
        for epsilon in (1.0, 3.0, math.inf):
            for lam in (0.1, 1.0) if method == "mrmtl" else (None,):
                options = {"data": "made up", "method": method, "epsilon": epsilon, "lam": lam}
                for seed in range(3):
                    value = scale * (1 + seed / 10) / (1 + min(epsilon, 9)) + (lam or 0) / 100
                    if lam == 1.0 and epsilon == 3.0:
                        value = math.nan
                    name = f"{method}-{epsilon}-{lam}"
                    rows.append(Row(name, options, seed, 5, "mse", value, epsilon, 1.0, True))
    table.add(rows)
    table.close()
    return folder


def test_a_sweep_shows_the_best_by_budget(sweep_folder):
    page = page_of(sweep_folder)
    assert "MR-MTL is ahead at every budget" in page.text
    assert "9 settings; 3 budgets; 1 of them diverged and have no mean." in page.text
    assert "this choice is not in epsilon" in page.text
    assert "my <b>sweep" in page.text  # as text
    assert not page.all("b")
    cells = [one.get("data-v") for one in page.all("td") if "data-v" in one]
    assert "0.551" in cells  # mrmtl at epsilon 1 with lambda 0.1: 1.1 / 2 + 0.001


def test_a_sweep_without_rows_is_refused(tmp_path):
    from silodp.sweeps.table import Table

    Table(tmp_path, ["method"]).close()
    with pytest.raises(SilodpError, match="no rows yet"):
        report_page([tmp_path])


def test_a_thousand_silos(tmp_path):
    """Names have no room; everything is in a table that can be searched."""
    page = page_of(write_federation(tmp_path / "many", silos=silo_names(1000)))
    assert "MR-MTL is the best of 3 methods" in page.text
    assert sum("data-filter" in one for one in page.all("input")) >= 1
    assert "hospital 999" in page.text
    # It grows no faster than the silos: each pair of them is nowhere compared or drawn.
    fewer = page_of(write_federation(tmp_path / "fewer", silos=silo_names(250)))
    assert len(page.elements) < 4.2 * len(fewer.elements)


# Bad input


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metric", "bleu"),
        ("per_silo", []),
        ("privacy", []),
        ("per_silo", [{"silo": 3}]),
        ("history", [{"round": "one"}]),
        ("test", {"mean": None, "std": 0.0, "per_seed": []}),
        ("assumptions", "none"),
        ("data", 7),
    ],
)
def test_results_that_are_none_are_refused_by_name(tmp_path, field, value):
    path = made_up().write(tmp_path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {field: value}))
    with pytest.raises(SilodpError, match=r"result\.json") as error:
        report_page([tmp_path])
    assert field in str(error.value)


def test_truncated_and_missing_results_are_refused(tmp_path):
    path = made_up().write(tmp_path)
    path.write_text(path.read_text()[:200])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SilodpError, match="is not valid JSON"):
        report_page([tmp_path])
    with pytest.raises(SilodpError, match="neither a finished run"):
        report_page([tmp_path / "empty"])


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(SilodpError, match="is not a file"):
        report_page([tmp_path])


def test_damaged_models_are_refused(tmp_path):
    models = {"w": np.zeros((1, 2, 2))}
    write_runs(tmp_path, made_up("mrmtl", silos=["a", "b"], models=models, seeds=1))
    write_runs(tmp_path, made_up("mrmtl", silos=["a", "b", "c"], seeds=1))
    with pytest.raises(SilodpError, match="not of the 3 silos"):
        report_page([tmp_path])
    path = tmp_path / "mrmtl" / "models.npz"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SilodpError, match=r"models\.npz cannot be read"):
        report_page([tmp_path])


def test_files_that_are_no_reports_are_not_overwritten(tmp_path):
    runs = write_federation(tmp_path / "runs")
    out = tmp_path / "page.html"
    out.write_text("my own")
    with pytest.raises(SilodpError, match="is no report"):
        write_report([runs], out)
    assert out.read_text() == "my own"
    write_report([runs], out, overwrite=True)
    first = out.read_text()
    write_report([runs], out, title="A new title")  # a report may be written anew
    assert out.read_text() != first
    with pytest.raises(SilodpError, match="is a folder"):
        write_report([runs], tmp_path)


def test_the_command_line(cli, tmp_path):
    runs = write_federation(tmp_path / "runs")
    out = tmp_path / "page.html"
    run = cli("report", runs, "--out", out, "--json")
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout) == {"report": str(out), "bytes": out.stat().st_size}
    assert out.read_text().startswith("<!DOCTYPE html>")
    run = cli("report", tmp_path / "nowhere", "--out", out)
    assert run.exit_code == 2
