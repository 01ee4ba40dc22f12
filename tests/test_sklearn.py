"""The estimators are scikit-learn's kind, with a model and a privacy statement for each silo."""

import doctest
import inspect
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import silodp
from silodp.base.errors import SilodpError

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from silodp.sklearn import SiloClassifier, SiloRegressor

pytestmark = pytest.mark.usefixtures("kept_programs")

INF = float("inf")
# The checks are about the interface: without privacy, alone, and on few rounds.
CHECKED = {"epsilon": INF, "method": "local", "rounds": 20}
FEW = {"method": "fedavg", "rounds": 3, "delta": 1e-3, "bounds": (0, 1)}


@parametrize_with_checks([SiloRegressor(**CHECKED, lr=0.2), SiloClassifier(**CHECKED, lr=0.5)])
def test_what_scikit_learn_expects_of_estimators(estimator, check):
    """All of it: no check is expected to fail."""
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(90, 2))
    return x, x @ [3.0, -1.0], np.repeat(["north", "south", "west"], 30)


def test_each_row_goes_to_the_model_of_its_silo(rows):
    x, y, silos = rows
    model = SiloRegressor(epsilon=2, target_range=(-1, 3), **FEW | {"method": "local"})
    assert model.fit(x, y, groups=silos) is model
    said = model.predict(x, groups=silos)
    for silo in model.silos_:
        own = silos == silo
        features = model.result_.model(silo).predict(2 * x[own] - 1)
        np.testing.assert_allclose(said[own], features.values, rtol=1e-5)
    assert not np.allclose(said[:30], model.predict(x[:30], groups=["south"] * 30))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x, groups=silos), said)
    assert model.score(x, y, groups=silos) == pytest.approx(
        1 - np.mean((y - said) ** 2) / np.var(y)
    )


def test_privacy_is_said_for_each_silo(rows):
    x, y, silos = rows
    model = SiloRegressor(epsilon=2, target_range=(-1, 3), **FEW).fit(x, y, groups=silos)
    assert model.privacy_.keys() == {"north", "south", "west"}
    for own in model.privacy_.values():
        assert 1.9 < own["epsilon"] <= 2
        assert own["delta"] == 1e-3
        assert own["experiment"]
        assert not own["unproven"]
    # All rows are for training: their number is what epsilon is worked out for.
    assert [one["records"] for one in model.result_.per_silo] == [30, 30, 30]
    assert model.result_.unmeasured == list(model.silos_)
    # What is taken from the rows is not covered.
    learned = SiloRegressor(epsilon=2, **FEW | {"bounds": None}).fit(x, y, groups=silos)
    (north, *_) = learned.privacy_.values()
    assert len(north["unproven"]) == 2


def test_a_release_is_proven_where_all_is_declared(rows, tmp_path):
    x, y, silos = rows
    model = SiloRegressor(epsilon=2, target_range=(-1, 3), ledger=tmp_path, **FEW)
    model.fit(x, y, groups=silos)
    assert all(own["proven"] for own in model.privacy_.values())
    with pytest.raises(SilodpError, match="lifetime allowance"):
        model.fit(x, y, groups=silos)


def test_classes_are_those_given(rows):
    x, _, silos = rows
    y = np.where(x[:, 0] > 0.5, "yes", "no")
    model = SiloClassifier(epsilon=INF, lr=1.0, **FEW | {"rounds": 20}).fit(x, y, groups=silos)
    assert model.classes_.tolist() == ["no", "yes"]
    proba = model.predict_proba(x, groups=silos)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    said = model.predict(x, groups=silos)
    assert (said == model.classes_[proba.argmax(axis=1)]).all()
    assert model.score(x, y, groups=silos) == np.mean(said == y) > 0.8
    assert not hasattr(SiloClassifier(epsilon=INF, model="svm"), "predict_proba")
    # Declared, they may lack rows.
    three = SiloClassifier(epsilon=2, classes=["no", "perhaps", "yes"], **FEW)
    assert three.fit(x, y, groups=silos).predict_proba(x, groups=silos).shape == (90, 3)
    assert not any(own["unproven"] for own in three.privacy_.values())


def test_it_goes_into_a_pipeline_and_is_cloned(rows):
    x, y, silos = rows
    model = SiloRegressor(epsilon=3, random_state=1, **FEW | {"bounds": None})
    assert clone(model).get_params() == model.get_params()
    steps = make_pipeline(StandardScaler(), model)
    said = steps.fit(x, y, siloregressor__groups=silos).predict(x, groups=silos)
    same = clone(steps).fit(x, y, siloregressor__groups=silos).predict(x, groups=silos)
    np.testing.assert_array_equal(said, same)
    other = clone(model).set_params(random_state=2).fit(x, y, groups=silos)
    assert other.result_.options["first_seed"] != steps[-1].result_.options["first_seed"]


def test_a_column_may_name_the_silo(rows):
    """So that what hands on X alone, and would drop groups, trains a model for each silo."""
    x, y, silos = rows
    frame = pd.DataFrame(x, columns=pd.Index(["a", "b"])).assign(hospital=silos)
    given = FEW | {"target_range": (-1, 3), "random_state": 1}
    by_groups = SiloRegressor(epsilon=2, **given).fit(frame[["a", "b"]], y, groups=silos)
    by_column = SiloRegressor(epsilon=2, silo="hospital", **given)
    found = GridSearchCV(by_column, {"rounds": [3]}, cv=KFold(2, shuffle=True)).fit(frame, y)
    assert found.best_estimator_.silos_ == ("north", "south", "west")
    assert found.best_estimator_.feature_names_in_.tolist() == ["a", "b"]
    said = by_groups.predict(frame[["a", "b"]], groups=silos)
    np.testing.assert_array_equal(found.predict(frame), said)
    by_place = SiloRegressor(epsilon=2, silo=2, **given).fit(frame.to_numpy(), y)
    np.testing.assert_array_equal(by_place.predict(frame.to_numpy()), said)
    with pytest.raises(SilodpError, match=r"'hospitl', which X does not have: did you mean"):
        clone(by_column).set_params(silo="hospitl").fit(frame, y)
    with pytest.raises(SilodpError, match="groups name silos as well"):
        by_column.fit(frame, y, groups=silos)


def test_what_cannot_be_is_said(rows):
    x, y, silos = rows
    fitted = SiloRegressor(epsilon=3, target_range=(-1, 3), **FEW).fit(x, y, groups=silos)
    for given, words in (
        (lambda: SiloRegressor().fit(x, y), r"epsilon is not given: .*for no privacy"),
        (lambda: fitted.predict(x), "3 silos were trained on.*give groups"),
        (lambda: fitted.predict(x, groups=["east"] * 90), "'east' was not among.*'west'"),
        (lambda: fitted.predict(x, groups=["west"]), "groups has 1 names for 90 rows"),
        (lambda: SiloRegressor(3).fit(x, np.ones(90)), "y is 1 in all rows"),
        (lambda: SiloRegressor(3, bounds=(0, 1)).fit(x, y), "declare target_range"),
        (lambda: SiloRegressor(3, bounds=[(0, 1)] * 3).fit(x, y), r"bounds has shape \(3, 2\)"),
        (lambda: SiloRegressor(3, options={"rounds": 3}).fit(x, y), "rounds is a parameter"),
        (lambda: SiloRegressor(3, options={"data": "school"}).fit(x, y), "--data says how"),
        (lambda: SiloClassifier(3).fit(x, ["a"] * 90), "y is of one class"),
        (lambda: SiloClassifier(3, classes=["b", "c"]).fit(x, ["a"] * 90), "'a', which is not"),
    ):
        with pytest.raises(SilodpError, match=words):
            given()


def test_other_options_are_taken_and_single_silos_have_no_name(rows):
    x, y, _ = rows
    given = FEW | {"bounds": None, "options": {"sampling": "shuffle"}}
    model = SiloRegressor(epsilon=3, **given).fit(x, y)
    assert model.result_.options["sampling"] == "shuffle"
    assert model.silos_ == ("all",)
    assert model.predict(x).shape == (90,)


@pytest.mark.parametrize("estimator", [SiloRegressor, SiloClassifier])
def test_the_example_of_an_estimator_runs(estimator):
    text = inspect.getdoc(estimator) or ""
    names = {estimator.__name__: estimator}
    example = doctest.DocTestParser().get_doctest(text, names, estimator.__name__, None, None)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_without_scikit_learn_it_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None; import silodp\n"
        "try: import silodp.sklearn\n"
        "except silodp.SilodpError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'silodp[sklearn]'" in done.stdout
    assert silodp.__all__
