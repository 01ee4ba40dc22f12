"""What a run of few messages says of its models: in its result, its sentences and its report."""

import math

import numpy as np
import pytest
from browser import DESKTOP, PHONE, barriers, chromium, opened
from federations import small
from report_runs import EVIL, made_up, silo_names, write_runs

import silodp
from silodp.report import write_report
from silodp.report.findings_part import has_findings
from silodp.report.verdict import verdict
from silodp.results.few_messages import INTERVAL
from silodp.results.result import read_result


@pytest.fixture(scope="module")
def result():
    """A run on three silos of a made-up federation."""
    return silodp.run(
        federation=small(sizes=(60, 80, 70), d=3), method="fewround", epsilon=4, delta=1e-5
    )


def findings(silos, features=("age", "ward"), fallback=None, more=True):
    """What such a run may have found."""
    random = np.random.default_rng(0)
    shape = (len(silos), len(features))
    extra = {
        name: {"epsilon": epsilon, "prediction_error": part}
        for name, epsilon, part in (("message", 1.2, 0.4), ("budget", 2.0, 0.3))
    }
    told = np.where(np.eye(len(silos)) > 0, 1.0, np.nan)
    told[0, 1] = told[1, 0] = -0.6
    relations = [[None if math.isnan(one) else one for one in row] for row in told.tolist()]
    return {
        "findings": {
            "unit": '"days"',
            "prediction_unit": "",
            "fallback": fallback,
            "features": [
                {
                    "feature": name,
                    "change": "0 to 100",
                    "per_own": 0.01,
                    "mean": 2.0,
                    "mean_error": 0.5,
                    "spread": 0.7,
                    "chance": 0.0001,
                    "differs": True,
                }
                for name in features
            ],
            "silos": [
                {
                    "silo": silo,
                    "fallback": "pooled" if fallback else None,
                    "kept": 0.4,
                    "prediction_error": 0.5,
                    "outcome_error": 1.5,
                    "more": extra if more else {},
                }
                for silo in silos
            ],
            "effects": random.normal(size=shape).tolist(),
            "effect_errors": np.full(shape, 0.3).tolist(),
        },
        "relations": relations,
        "summary": ["Predictions are as sure as they are."],
    }


def page_of(folder, *results):
    path = folder / "page.html"
    write_report([write_runs(folder, *results)], path)
    return path.read_text()


def test_numbers_are_in_the_units_of_columns_and_target(tmp_path):
    """Those of a table with public bounds: effects are those of the saved models."""
    rows = np.random.default_rng(0)
    age, sex = rows.uniform(20, 80, 300), rows.integers(0, 2, 300)
    days = np.clip(5 + 0.1 * (age - 50) + 4 * sex + rows.normal(size=300), 0, 30)
    lines = ["ward,age,sex,days"] + [
        f"w{n % 3},{a:.1f},{'fm'[s]},{d:.1f}"
        for n, (a, s, d) in enumerate(zip(age, sex, days, strict=True))
    ]
    (tmp_path / "stays.csv").write_text("\n".join(lines))
    (tmp_path / "schema.toml").write_text(
        '[bounds]\nage = [0, 100]\n[levels]\nsex = ["f", "m"]\n[target]\nrange = [0, 30]\n'
    )
    result = silodp.run(
        data=str(tmp_path / "stays.csv"),
        silo_column="ward",
        target="days",
        schema=tmp_path / "schema.toml",
        method="fewround",
        epsilon=100,
        delta=1e-5,
        keep_models=True,
    )
    found = result.learned["findings"]
    assert found["unit"] == '"days"'
    names = [one["feature"] for one in found["features"]]
    by_name = dict(zip(names, found["features"], strict=True))
    assert by_name["age"]["change"] == "0 to 100"
    assert by_name["sex=m"]["change"] == "yes"
    assert by_name["age"]["mean"] == pytest.approx(10, abs=2)
    assert by_name["age"]["mean"] * by_name["age"]["per_own"] == pytest.approx(0.1, abs=0.02)
    assert by_name["sex=m"]["mean"] - by_name["sex=f"]["mean"] == pytest.approx(4, abs=1)
    # A number from 0 to 100 is one from -1 to 1 for the model, whose 1 is 30 days.
    own = np.asarray(result.models)[0] * 30
    place = names.index("age")
    np.testing.assert_allclose([row[place] for row in found["effects"]], 2 * own[:, place], 1e-4)
    assert found["silos"][0]["outcome_error"] == pytest.approx(1.0, abs=0.6)


def test_log_odds_of_two_classes_are_those_of_the_models():
    federation = small("binary", sizes=(200, 150), d=3)
    result = silodp.run(
        federation=federation, method="fewround", epsilon=20, delta=1e-5, keep_models=True
    )
    found = result.learned["findings"]
    assert found["unit"].startswith("log-odds")
    np.testing.assert_allclose(found["effects"], np.asarray(result.models)[0][:, :-1], rtol=1e-4)
    assert all(0 < silo["prediction_error"] < 50 for silo in found["silos"])


def test_of_several_classes_frequencies_are_told():
    result = silodp.run(
        federation=small("multiclass", sizes=(80, 60)), method="fewround", epsilon=5, delta=1e-5
    )
    found = result.learned["findings"]
    for silo in found["silos"]:
        assert sum(silo["frequencies"]) == pytest.approx(1, abs=1e-5)  # they are rounded
        assert silo["error"] > 0
    assert "frequencies are known to within" in result.learned["summary"][0]


def test_more_brings_more_and_costs_more(result):
    for silo, spent in zip(result.learned["findings"]["silos"], result.epsilons, strict=True):
        message, budget = silo["more"]["message"], silo["more"]["budget"]
        assert budget["prediction_error"] < message["prediction_error"] < silo["prediction_error"]
        assert spent < message["epsilon"] < budget["epsilon"]
        # 1/z^2 rises by 35 %, the share of the last of three messages.
        assert message["epsilon"] == pytest.approx(1.18 * spent, rel=0.03)


def test_without_privacy_nothing_more_can_be_had():
    result = silodp.run(federation=small(), method="fewround", epsilon=math.inf)
    assert all(silo["more"] == {} for silo in result.learned["findings"]["silos"])
    assert has_findings(result)


def test_why_it_fell_back_is_in_the_headline():
    hopeless = silodp.run(
        federation=small(sizes=(30, 40)), method="fewround", epsilon=0.01, delta=1e-5
    )
    assert hopeless.learned["findings"]["fallback"] == "constant"
    assert "The budget buys no more than the mean of all" in verdict(hopeless).headline
    names = silo_names(3)
    pooled = made_up("fewround", silos=names, learned=findings(names, fallback="pooled"))
    assert (
        "over all features together, no difference between silos could be seen"
        in verdict(pooled).headline
    )
    alone = made_up("fewround", silos=["a"], learned=findings(["a", "b"], fallback="pooled"))
    assert "It is the mean model of all silos" in verdict(alone).headline


def test_it_is_the_same_when_read_again(tmp_path, result):
    result.write(tmp_path)
    assert read_result(tmp_path).learned == result.learned


def test_the_page_has_charts_tables_and_what_is_not_told(tmp_path):
    names = silo_names(4)
    page = page_of(tmp_path, made_up("fewround", silos=names, learned=findings(names)))
    assert "How sure the models are" in page
    assert "Predictions are as sure as they are." in page
    assert "not told apart by what was released" in page
    assert f"± {INTERVAL * 0.5:.3g}" in page
    assert "below&nbsp;0.1&nbsp;% (clear)" in page
    assert "hospital 2: what features do, beside the mean model" in page


def test_a_site_has_a_page_on_its_own_model(tmp_path):
    """Where nothing is known of other silos."""
    learned = findings(["north", "south"])
    found = learned["findings"]
    for one in found["features"]:
        one |= {"spread": None, "chance": None, "differs": None}
    for name in ("silos", "effects", "effect_errors"):
        found[name] = found[name][:1]
    page = page_of(tmp_path, made_up("fewround", silos=["north"], learned=learned))
    assert "north: what features do, beside the mean model" in page
    assert "if this silo alone had it" in page
    assert "between silos" not in page


@pytest.mark.parametrize(
    "change",
    [
        {"findings": "something else"},
        {"findings": {"features": [], "silos": []}},
        {"findings": {"classes": [], "mean": [0.5], "silos": [{"silo": "x"}]}},
    ],
)
def test_what_another_method_calls_findings_is_not_shown(tmp_path, change):
    page = page_of(tmp_path, made_up("fewround", learned=change))
    assert "How sure the models are" not in page


def test_findings_of_other_silos_are_not_shown(tmp_path):
    page = page_of(tmp_path, made_up("fewround", learned=findings(silo_names(2))))
    assert "How sure the models are" not in page


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("findings")
    features = tuple(f"{name} {n}" for name in EVIL for n in range(4))
    silos = list(EVIL)
    run = made_up("fewround", silos=silos, learned=findings(silos, features))
    return write_report([write_runs(folder, run)], folder / "page.html").as_uri()


def test_in_a_browser_it_fits_keeps_nobody_out_and_prints(address):
    with chromium() as browser:
        for size in (PHONE, DESKTOP):
            with opened(browser, address, viewport=size) as page:
                page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
                assert barriers(page) == []
                assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        with opened(browser, address) as page:
            page.emulate_media(media="print")
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            heights = "[...document.querySelectorAll('.plot svg')].map("
            heights += "one => one.getBoundingClientRect().height)"
            assert max(page.evaluate(heights)) < 900
