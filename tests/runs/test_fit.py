"""A DataFrame is trained on as a file of the same rows is, and its models predict."""

import numpy as np
import pandas as pd
import pytest
from handovers import AGE, DECLARED, RUN, TARGETS, WARD, loaded_from_memory, patients

import silodp
from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter

IGNORED = [name for name in TARGETS if name != "score"]


def of_table(frame, **more):
    return silodp.fit(frame, silo="site", target="score", ignore=IGNORED, **RUN | more)


@pytest.fixture(scope="module")
def frame():
    return patients()


@pytest.fixture(scope="module")
def result(frame):
    return of_table(frame, **DECLARED, target_range=(-50, 150))


def test_a_frame_is_what_its_file_is(frame, tmp_path):
    path = tmp_path / "patients.csv"
    frame.to_csv(path, index=False)
    asked = {"silo_column": "site", "target": "score", "ignore": IGNORED}
    of_file = silodp.run(data=str(path), **RUN, **asked)
    shuffled = frame.set_axis(np.arange(len(frame)) // 2)  # an index is no matter
    of_frame = of_table(shuffled)
    assert of_frame.test == of_file.test
    assert of_frame.privacy == of_file.privacy
    assert of_frame.options == of_file.options | {
        "data": of_frame.options["data"],
        "ignore": IGNORED,
    }
    one, other = (
        silodp.Federation.from_frame(table, silo="site", target="score", ignore=IGNORED)
        for table in (frame, shuffled)
    )
    for own, others in zip(one.silos, other.silos, strict=True):
        np.testing.assert_array_equal(own.train.x, others.train.x)


def test_what_is_declared_is_covered(result, frame):
    assert not result.unproven
    assert any("levels" in reason for reason in of_table(frame, rounds=1).unproven)


def test_each_row_is_predicted_by_its_own_silo(result, frame):
    said = result.predict(frame)
    assert said.index.equals(frame.index)
    assert said.name == "score"
    for silo, loaded in zip(("north", "south"), loaded_from_memory(result), strict=True):
        own = (frame["site"] == silo).to_numpy()
        np.testing.assert_array_equal(said[own], loaded.predict(frame[own]).values)
        assert result.model(silo).card == loaded.card
    assert not np.allclose(
        result.model("north").predict(frame).values, result.model("south").predict(frame).values
    )


def test_rows_with_missing_values_are_predicted_too(frame):
    holes = frame.assign(dose=frame["dose"].where(frame.index > 3))
    said = of_table(holes, drop_missing=True, rounds=1).predict(holes)
    assert not said.isna().any()


def test_what_is_given_twice_or_not_there_is_said(result, frame):
    for given, words in (
        ({"data": "school"}, "a frame was given"),
        ({"silo_column": "site"}, "given by silo="),
        ({"bound": {}}, "'bound' is unknown"),
    ):
        with pytest.raises(SilodpError, match=words):
            of_table(frame, **given)
    with pytest.raises(SilodpError, match=r"silo names the column 'ste'.*did you mean 'site'"):
        silodp.fit(frame, silo="ste", target="score", **RUN)
    with pytest.raises(SilodpError, match="is a list: give a DataFrame"):
        silodp.fit([1], silo="site", target="score", **RUN)
    with pytest.raises(SilodpError, match=r"'bound' is unknown: did you mean 'bounds'"):
        silodp.Federation.from_frame(frame, silo="site", target="score", bound={})
    with pytest.raises(SilodpError, match="No privacy budget"):
        of_table(frame, epsilon=None)
    with pytest.raises(SilodpError, match="'souht' is unknown: did you mean 'south'"):
        result.model("souht")
    with pytest.raises(SilodpError, match="'east' is unknown"):
        result.predict(frame.assign(site="east"))
    with pytest.raises(SilodpError, match="holds no models"):
        silodp.run(data="synthetic", silos=2, **RUN).model("silo-01")


def test_other_tables_are_turned_into_one_of_pandas(frame):
    class Other:
        columns: tuple[str, ...] = ()

        def to_pandas(self):
            return frame

    one = silodp.Federation.from_frame(Other(), silo="site", target="score", ignore=IGNORED)
    assert one.names == ("north", "south")


def test_columns_without_a_name_are_refused(frame):
    unnamed = pd.concat([frame, frame[["dose"]]], axis=1)
    with pytest.raises(SilodpError, match=r"The frame: the column name 'dose' is used more"):
        silodp.Federation.from_frame(unnamed, silo="site", target="score")
    assert {AGE, WARD} <= set(frame.columns)


def test_the_metric_shown_last_is_that_of_the_result():
    """Silos of different sizes: weighted by their test records, as in the result."""

    class Last(Reporter):
        metric = None

        def trained(self, done, total, metric):
            self.metric = metric

    last = Last()
    result = silodp.run(
        data="synthetic", silos=4, method="fedavg", epsilon=3, rounds=2, reporter=last
    )
    assert last.metric == pytest.approx(result.mean)
