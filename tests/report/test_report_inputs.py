"""Odd files of others: whatever a folder holds, a report is made of it or says what is wrong."""

import copy
import io
import json
import math
import zipfile

import numpy as np
import pandas as pd
import pytest
from report_runs import made_up

import silodp
from silodp.base.arrays import arrays_content, read_all_arrays
from silodp.base.errors import SilodpError
from silodp.data.tables.columns import numbers
from silodp.report import report_page
from silodp.results.model_export.card import read_card
from silodp.results.result import MODELS_FILE, RESULT_FILE, read_models, read_result

pytestmark = pytest.mark.usefixtures("kept_programs")

HUGE = 10**400
RESULT = json.loads(json.dumps(made_up().as_json()))
SILOS = [silo["silo"] for silo in RESULT["per_silo"]]


def changed(*path, to):
    """The content of a result with another value at a place."""
    content = copy.deepcopy(RESULT)
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return content


def page_of(folder, content, **models):
    (folder / RESULT_FILE).write_text(json.dumps(content))
    if models:
        (folder / MODELS_FILE).write_bytes(arrays_content(models))
    return report_page([folder])


# Results


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *(((*place, "mean"), HUGE) for place in (("test",), ("per_silo", 0), ("history", 0))),
        *(((*place, "mean"), "inf") for place in (("test",), ("per_silo", 0), ("history", 0))),
        (("per_silo", 0, "mean"), 1e308),
        (("per_silo", 0, "std"), -1.0),
        (("per_silo", 0, "per_seed", 0), "inf"),
        (("per_silo", 0, "records"), HUGE),
        (("per_silo", 0, "records"), -5),
        (("per_silo", 0, "test_records"), 2.5),
        (("history", 0, "round"), "inf"),
        (("history", 0, "round"), -1),
        (("privacy", 0, "epsilon"), HUGE),
        (("privacy", 0, "epsilon"), -1.0),
        (("privacy", 0, "epsilon"), "-inf"),
        (("privacy", 0, "delta"), "inf"),
        (("privacy", 0, "delta"), 2.0),
        (("privacy", 0, "proven"), None),
        (("seconds", "total"), "inf"),
        (("seconds", "total"), HUGE),
        (("seconds", "total"), "long"),
        *(((name,), value) for name in ("learned", "tuning") for value in ([1], "words", 3)),
        *((("person",), value) for value in ([1], "words", 3, {}, {"silos": 2, "epsilon": None})),
        (("learned",), {"silos": 4, "groups": [], "summary": []}),
        (("learned",), {"silos": [], "groups": [], "summary": []}),
        (("learned",), {"silos": [{"silo": "a", "kept": None}], "groups": [], "summary": []}),
    ],
)
def test_odd_values_are_told(tmp_path, path, value):
    named = ".".join(str(key) for key in path).replace(".0", "[0]")
    with pytest.raises(SilodpError) as told:
        page_of(tmp_path, changed(*path, to=value))
    said = str(told.value)
    assert said.startswith(f"{tmp_path / RESULT_FILE}: {named}")
    assert said.endswith("run it again.")
    assert "\n" not in said


def test_a_number_that_python_does_not_write_is_told(tmp_path):
    """Nor read: of more than 4,300 digits it takes too long."""
    (tmp_path / RESULT_FILE).write_text('{"data": 1' + "0" * 5000 + "}")
    with pytest.raises(SilodpError, match="is not valid JSON"):
        report_page([tmp_path])


def test_infinite_budgets_are_shown(tmp_path):
    whole = changed("options", "epsilon", to="inf")
    for one in whole["privacy"]:
        one |= {"epsilon": "inf", "delta": 0.0, "proven": False}
    assert "Without privacy" in page_of(tmp_path, whole)


@pytest.mark.parametrize("name", ["inf", "-inf", "nan"])
def test_a_silo_may_have_the_name_of_a_number(tmp_path, name):
    result = made_up(silos=[name, "b"], epsilons=(math.inf, 2.0))
    learned = {
        "silos": [{"silo": name, "epsilon": math.inf, "kept": 0.5}],
        "groups": [[name, "b"]],
        "scales": [math.inf, 1.0],
    }
    made_up(silos=[name, "b"], epsilons=(math.inf, 2.0), learned=learned).write(tmp_path / "x")
    read = read_result(tmp_path / "x")
    assert read.learned == learned
    assert read.per_silo[0]["silo"] == name
    assert read.epsilons == [math.inf, 2.0]
    result.write(tmp_path / "y")
    assert f">{name}</th>" in report_page([tmp_path / "y"])  # a row of the table of silos


def test_options_that_may_be_infinite_are_read_as_such(tmp_path):
    options = {"data": "inf", "method": "mrmtl", "epsilon": math.inf, "lam": math.inf}
    options |= {"silo_lam": {"inf": math.inf, "b": 1.0}, "silo_column": "-inf"}
    tuning = {"grid": {"lam": [0.1, math.inf]}, "note": "inf"}
    made_up(options=options, tuning=tuning).write(tmp_path)
    read = read_result(tmp_path)
    assert read.options == options
    assert read.tuning == tuning


def test_deep_nesting_is_told(tmp_path):
    (tmp_path / RESULT_FILE).write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(SilodpError, match="is not valid JSON"):
        report_page([tmp_path])


def test_several_runs_with_odd_budgets_are_still_shown(tmp_path):
    for name, epsilon in (("a", HUGE), ("b", 0), ("c", -3), ("d", "x"), ("e", 2)):
        folder = tmp_path / name
        folder.mkdir()
        page_of(folder, changed("options", "epsilon", to=epsilon))
    assert "All runs beside each other" in report_page([tmp_path])
    nothing = copy.deepcopy(RESULT)
    for one in nothing["privacy"]:
        one["epsilon"] = 0
    page_of(tmp_path / "e", nothing)
    assert "All runs beside each other" in report_page([tmp_path])


# What was learned


@pytest.mark.parametrize(
    "relations",
    [
        [[1], [2, 3]],
        [[None] * 6] * 6,
        [["a"] * 6] * 6,
        [["inf"] * 6] * 6,
        [[1.0] * 6] * 5,
        [[HUGE] * 6] * 6,
        "words",
        {"a": 1},
        None,
    ],
)
def test_what_a_method_calls_relations_need_not_be_a_map(tmp_path, relations):
    assert "Who is alike" not in page_of(tmp_path, changed("learned", to={"relations": relations}))


def test_a_map_of_relations_is_drawn(tmp_path):
    relations = np.eye(6).tolist()
    assert "Who is alike" in page_of(tmp_path, changed("learned", to={"relations": relations}))


@pytest.mark.parametrize(
    "clusters", [6, [], "words", [[0, 1]], [{"silo": 1, "cluster": "a"}], [{"silo": "a"}], None]
)
def test_what_a_method_calls_clusters_need_not_be_ours(tmp_path, clusters):
    text = page_of(tmp_path, changed("learned", to={"clusters": clusters}))
    assert "Every silo" not in text


def test_clusters_are_listed(tmp_path):
    clusters = [{"silo": name, "cluster": 1, "agreement": 1.0} for name in SILOS]
    text = page_of(tmp_path, changed("learned", to={"clusters": clusters}))
    assert "Cluster 1" in text


@pytest.fixture(scope="module")
def one_silo(tmp_path_factory):
    """A genuine run of one silo alone, with its model."""
    out = tmp_path_factory.mktemp("one") / "run"
    asked = {"data": "synthetic", "silos": 1, "method": "ebmtl", "rounds": 2, "epsilon": 2}
    silodp.run(**asked, keep_models=True, out=out)
    return out


def test_a_run_of_one_silo_is_reported(one_silo):
    text = report_page([one_silo])
    assert "1 silo" in text
    assert "Who is alike" not in text


# Models


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"model": np.array([["a"] * 6] * 5)}, "is not of the 6 silos and 5 seeds"),
        ({"model": np.ones((5, 6, 2), complex)}, "does not hold numbers"),
        ({"a": np.ones((5, 6, 2)), "b": np.ones((4, 6, 2))}, "is not of the 6 silos and 5 seeds"),
        ({"a": np.ones((0, 6, 2))}, "is not of the 6 silos and 5 seeds"),
        ({"a": np.ones((5, 5, 2))}, "is not of the 6 silos and 5 seeds"),
        ({"a": np.float32(3)}, "is not of the 6 silos and 5 seeds"),
        ({"a": np.full((5, 6, 2), np.nan)}, "not finite"),
        ({"a": np.full((5, 6, 2), np.inf)}, "not finite"),
    ],
)
def test_odd_models_are_told(tmp_path, models, said):
    with pytest.raises(SilodpError, match=said) as told:
        page_of(tmp_path, RESULT, **models)
    assert str(tmp_path / MODELS_FILE) in str(told.value)
    assert "train again with --save-models" in str(told.value)


def test_a_plain_array_is_no_file_of_models(tmp_path):
    with (tmp_path / MODELS_FILE).open("wb") as file:
        np.save(file, np.ones((3, 6)))
    with pytest.raises(SilodpError, match=r"cannot be read.*: train again"):
        page_of(tmp_path, RESULT)


def test_models_are_compared(tmp_path):
    random = np.random.default_rng(0)
    models = {"model": random.normal(size=(5, 6, 3)).astype(np.float32), "silos": np.array(SILOS)}
    assert "Who is alike" in page_of(tmp_path, RESULT, **models)
    read = read_models(tmp_path)
    assert list(read) == ["model"]
    np.testing.assert_array_equal(read["model"], models["model"])


def test_arrays_by_columns_and_empty_ones_are_read(tmp_path):
    arrays = {"a": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "b": np.ones((2, 3, 0))}
    (tmp_path / "x.npz").write_bytes(arrays_content(arrays))
    read = read_all_arrays(tmp_path / "x.npz", "get it anew").arrays
    np.testing.assert_array_equal(read["a"], arrays["a"])
    assert read["b"].shape == (2, 3, 0)


def test_packed_models_are_not_unpacked(tmp_path):
    """Two megabytes could become gigabytes."""
    np.savez_compressed(tmp_path / MODELS_FILE, model=np.zeros((5, 6, 1000)))
    with pytest.raises(SilodpError, match="model is packed"):
        read_models(tmp_path)


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """A list of contents may name one place a thousand times: no more is read than the file has."""
    content = arrays_content({"model": np.zeros((5, 6, 1000))})
    end = content.rindex(b"PK\x05\x06")
    start = int.from_bytes(content[end + 16 : end + 20], "little")
    entry, times = content[start:end], 1000
    entries = entry * times
    tail = bytearray(content[end:])
    tail[8:10] = tail[10:12] = times.to_bytes(2, "little")
    tail[12:16] = len(entries).to_bytes(4, "little")
    (tmp_path / MODELS_FILE).write_bytes(content[:start] + entries + bytes(tail))
    with pytest.raises(SilodpError, match="model is longer than expected"):
        read_models(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        "(" * 90,
        "'''",
        "-" * 5000 + "1",
        "{'descr': 'O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
    ],
)
def test_odd_headers_are_told(tmp_path, header):
    head = header.encode().ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(4)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("model.npy", array)
    (tmp_path / MODELS_FILE).write_bytes(content.getvalue())
    with pytest.raises(SilodpError, match="cannot be read"):
        read_models(tmp_path)


# Tables of sweeps

COLUMNS = "run,method,epsilon,lr,seed,round,metric,value,epsilon_spent,noise_multiplier,proven\n"


def row(run="a", **cells):
    plain = {"method": "local", "epsilon": "1", "lr": "0.1", "seed": "0", "round": "1"}
    plain |= {"metric": "mse", "value": "0.5", "epsilon_spent": "1", "noise": "1", "proven": "True"}
    return ",".join([run, *(plain | cells).values()]) + "\n"


def page_of_sweep(folder, *rows):
    (folder / "results.csv").write_text(COLUMNS + "".join(rows))
    return report_page([folder])


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"metric": "rmsle"}, "metric is 'rmsle', not one of mse, mae, rmse, "),
        ({"metric": ""}, "metric is empty"),
        ({"epsilon": "0"}, "epsilon is 0, not a number above 0"),
        ({"epsilon": "-1"}, "epsilon is -1, not a number above 0"),
        ({"epsilon": "abc"}, "epsilon is 'abc', not a number above 0"),
        ({"epsilon": "1" + "0" * 400}, "epsilon is 1000000"),
        ({"epsilon_spent": "-1"}, "epsilon_spent is -1"),
        ({"epsilon": "", "epsilon_spent": ""}, "has neither epsilon nor epsilon_spent"),
        ({"value": "abc"}, "value is 'abc', not a number"),
        ({"method": ""}, "method is empty, not the name of a method"),
        ({"round": "x"}, "round is 'x', not a whole number"),
        ({"seed": "0.5"}, "seed is 0.5, not a whole number"),
        ({"proven": ""}, "proven is empty, not True or False"),
    ],
)
def test_odd_cells_are_told_with_their_line(tmp_path, cells, said):
    with pytest.raises(SilodpError) as told:
        page_of_sweep(tmp_path, row(), row("b", **cells))
    assert f"{tmp_path / 'results.csv'}: line 3" in str(told.value)
    assert said in str(told.value)


def test_a_method_is_no_number(tmp_path):
    with pytest.raises(SilodpError, match="line 2: method is 5"):
        page_of_sweep(tmp_path, row(method="5"))


def test_what_may_be_odd_is_shown(tmp_path):
    huge = "1" + "0" * 400
    rows = [row(lr=huge), row("b", epsilon="inf"), row("c", epsilon=""), row("d", value="inf")]
    text = page_of_sweep(tmp_path, *rows, row("e", value="1e308"), row("f", epsilon="3"))
    assert "2 of them diverged" in text


# Models that were taken home


def test_noisy_statistics_of_other_features_are_told(one_silo, tmp_path):
    (place,) = (one_silo / "models").iterdir()
    whole = json.loads((place / "card.json").read_text())
    whole["preparation"]["noisy_standardisation"] = {"mean": [1.0], "deviation": [1.0]}
    (tmp_path / "card.json").write_text(json.dumps(whole))
    with pytest.raises(SilodpError, match="noisy_standardisation is of 1 features, but the model"):
        read_card(tmp_path)


def test_a_whole_number_beyond_all_others_is_told():
    with pytest.raises(SilodpError, match="'age' holds 1 infinite or too large number "):
        numbers("north", "age", pd.Series([1, HUGE, 3], dtype=object))


@pytest.mark.parametrize("bad", ["abc", True, None])
def test_the_value_that_is_no_number_is_the_one_that_is_named(bad):
    with pytest.raises(SilodpError, match=f"'age' holds {bad!r}, which is not a number"):
        numbers("north", "age", pd.Series([44.1, 3, bad, 5], dtype=object))
    with pytest.raises(SilodpError, match="'age' holds 'a', which is not a number"):
        numbers("north", "age", pd.Series(["a", "b"]))
