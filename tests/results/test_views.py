"""Results, plans and federations as lines, tables in notebooks, and DataFrames; logs of MLflow."""

import contextlib
import json
import math
import sys
import types

import pytest
from federations import small
from handovers import RUN, patients
from report_runs import EVIL, made_up

import silodp
from silodp.base.errors import SilodpError
from silodp.base.html_table import MOST_ROWS
from silodp.base.notebook_progress import NotebookProgress, usual_reporter
from silodp.results.model_export.in_memory import card_of_silo
from silodp.results.model_export.markdown_card import escaped, markdown_card


def test_a_result_is_a_line_and_a_table():
    result = made_up(silos=["north", "south"], epsilons=(1.0, 3.0))
    line = repr(result)
    assert "\n" not in line
    assert len(line) < 300
    for word in ("mrmtl", "made up", "test MSE", "2 silos, 5 seeds", "epsilon 1 to 3"):
        assert word in line
    frame = result.to_frame()
    assert frame.index.tolist() == ["north", "south"]
    assert frame["mse"].tolist() == [silo["mean"] for silo in result.per_silo]
    assert frame["epsilon"].tolist() == [1.0, 3.0]
    assert frame["records"].tolist() == [100, 101]
    assert "(proven)" in line
    assert result._repr_html_().count("<tr>") == 3


def test_what_is_not_private_or_not_tested_is_said():
    assert "Not private" in made_up(epsilons=(math.inf,))._repr_html_()
    experiment = silodp.run(federation=small(), method="fedavg", epsilon=3, rounds=2)
    assert "(an experiment)" in repr(experiment)
    assert "noise comes from a seed" in experiment._repr_html_()
    result = made_up(silos=["a"])
    nothing = {"mean": None, "std": None, "per_seed": [None] * 5}
    result.per_silo[0].update(nothing)
    result.test.update(nothing)
    assert "not tested" in repr(result)
    assert "not a number" not in result._repr_html_()


def test_names_from_elsewhere_break_no_page():
    for page in (
        made_up(silos=list(EVIL), unproven=(EVIL[0],))._repr_html_(),
        silodp.Federation(
            EVIL[0],
            tuple(
                silodp.Silo(name, silo.train, silo.test)
                for name, silo in zip(EVIL, small(sizes=(5,) * len(EVIL)).silos, strict=True)
            ),
            "regression",
            uncovered=(EVIL[1],),
        )._repr_html_(),
    ):
        for mark in ("<script", "<img", "<b>", "\x1b", "\u202e"):
            assert mark not in page


def test_long_tables_are_cut():
    page = made_up(silos=[f"silo {k}" for k in range(MOST_ROWS + 5)])._repr_html_()
    assert page.count("<tr>") == MOST_ROWS + 1
    assert "and 5 more rows" in page


def test_a_plan_and_a_federation():
    prepared = silodp.plan(federation=small(), method="fedavg", epsilon=3, rounds=2)
    assert "fedavg on small: 3 silos, 1 setting, 2 rounds, epsilon 3" in repr(prepared)
    frame = prepared.to_frame()
    assert frame["records"].tolist() == [40, 70, 55]
    assert frame["epsilon"].max() <= 3
    assert prepared._repr_html_().count("<tr>") == 4
    (federation,) = prepared.federations
    assert repr(federation) == (
        "Federation(small: regression, 3 silos, 165 to train on, features 4)"
    )
    assert federation._repr_html_().count("<tr>") == 4


def test_results_of_a_sweep_are_one_table():
    results = [made_up(epsilons=(epsilon,)) for epsilon in (1.0, 3.0)]
    for lam, result in enumerate(results):
        result.options["lam"] = lam
    frame = silodp.to_frame(results)
    assert frame["lam"].tolist() == [0, 1]
    assert frame["epsilon"].tolist() == [1.0, 3.0]
    assert "rounds" not in frame.columns  # all have the same
    assert silodp.to_frame([]).empty


@pytest.fixture(scope="module")
def trained():
    frame = patients(silos=("no_rth|", "<b>south"))
    return silodp.fit(
        frame,
        silo="site",
        target="ill",
        ignore=["score", "grade"],
        purpose="bed|planning",
        metrics="accuracy,brier",
        **RUN,
    )


def test_all_that_was_measured_is_in_the_frame(trained):
    frame = trained.to_frame()
    for entry in trained.metrics:
        for silo in entry["per_silo"]:
            row = frame.loc[silo["silo"]]
            assert row[entry["metric"]] == pytest.approx(silo["mean"], rel=1e-5)
            assert row[f"{entry['metric']}_no_skill"] == pytest.approx(silo["no_skill"])
    assert {"accuracy", "brier"} < set(frame.columns)


def test_what_is_kept_back_beside_a_noisy_metric_is_not_in_the_frame():
    result = silodp.run(
        federation=small("binary"),
        method="fedavg",
        epsilon=3,
        rounds=2,
        metric_share=0.2,
        metrics="accuracy,auc",
    )
    assert "auc" not in result.to_frame().columns


def test_the_card_for_people_says_what_the_other_says(trained):
    card = card_of_silo(trained, 1)
    text = markdown_card(card)
    assert text.startswith("# Model of no\\_rth\\|\n")
    assert f"(sha256 `{card['model']['sha256']}`)" in text
    assert "the class of ill" in text
    assert "- Classes: no, yes" in text
    for sentence in (*card["privacy"]["meaning"], card["test"]["meaning"]):
        assert escaped(sentence) in text
    for reason in card["privacy"]["unproven"]:
        assert f"- Not proven: {escaped(reason)}" in text
    assert f"{card['test']['records']} test records" in text
    assert f"no skill: {100 * card['test']['no_skill']:.3g}" in text
    assert "What it is for, in the words of the run: bed\\|planning" in text
    assert "not proven" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(card["preparation"]["columns"])
    assert "<b>" not in markdown_card(card_of_silo(trained, 0)).replace("\\<b\\>", "")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("# big", "\\# big"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("0.5 one-sided", "0.5 one-sided"),
        ("[a](b)", "\\[a\\](b)"),
        ("a|b\nc", "a\\|b\\\\nc"),
        ("https://x www.y.z a@b", "https\\://x www\\.y.z a\\@b"),
        ("&lt;`code`", "\\&lt;\\`code\\`"),
    ],
)
def test_markdown_is_shown_letter_by_letter(name, shown):
    assert escaped(name) == shown


class FakeMlflow(types.ModuleType):
    """Records what it is called with; knows what silodp makes use of."""

    def __init__(self):
        super().__init__("mlflow")
        self.calls, self.active = [], None
        self.own = types.SimpleNamespace(info=types.SimpleNamespace(run_id="of this run"))
        for name in ("log_params", "set_tags", "log_metric", "log_text", "log_dict"):
            setattr(self, name, self._noting(name))

    def _noting(self, name):
        return lambda *args, **more: self.calls.append((name, args, more))

    def active_run(self):
        return self.active

    @contextlib.contextmanager
    def start_run(self, run_name):
        self.calls.append(("start_run", (run_name,), {}))
        yield self.own


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def test_a_result_is_logged_to_mlflow(trained, mlflow):
    assert silodp.log_to_mlflow(trained) == "of this run"
    by_name = {}
    for name, args, more in mlflow.calls:
        by_name.setdefault(name, []).append((args, more))
    assert by_name["start_run"] == [(("mrmtl on frame",), {})]
    ((params,), _) = by_name["log_params"][0]
    assert params["rounds"] == "3"
    assert all(len(value) <= 500 for value in params.values())
    numbers = {args[0]: args[1] for args, _ in by_name["log_metric"]}
    assert numbers["test_accuracy"] == trained.mean
    assert numbers["epsilon_max"] == max(trained.epsilons)
    texts = {args[1]: args[0] for args, _ in by_name["log_text"]}
    assert {"silos.csv", "privacy.md"} < texts.keys()
    assert "<b\\>south" in texts["privacy.md"]
    assert len([path for path in texts if path.startswith("cards/")]) == 2
    ((content, path), _) = by_name["log_dict"][0]
    assert path == "result.json"
    assert json.loads(json.dumps(content))["method"] == "mrmtl"


def test_the_active_run_is_used_and_infinity_left_out(mlflow):
    mlflow.active = mlflow.own
    silodp.log_to_mlflow(made_up(epsilons=(math.inf,)))
    called = [name for name, _, _ in mlflow.calls]
    assert "start_run" not in called
    logged = [args[0] for name, args, _ in mlflow.calls if name == "log_metric"]
    assert "epsilon_max" not in logged
    assert "test_mse" in logged
    with pytest.raises(SilodpError, match="a run of MLflow is active"):
        silodp.log_to_mlflow(made_up(), run_name="another")


def test_without_mlflow_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(SilodpError, match="pip install mlflow"):
        silodp.log_to_mlflow(made_up())


class Notebook(types.ModuleType):
    """IPython as a kernel has it, as far as a line of progress needs it."""

    def __init__(self, kernel):
        super().__init__("IPython")
        self.lines, self.kernel = [], kernel
        self.display = types.ModuleType("IPython.display")
        self.display.display = self._display  # pyright: ignore[reportAttributeAccessIssue]

    def get_ipython(self):
        return types.SimpleNamespace(kernel=self.kernel)

    def _display(self, content, raw, display_id):
        assert raw
        assert display_id
        self.lines.append(content["text/plain"])
        return self

    def update(self, content, raw):
        self.lines.append(content["text/plain"])


def test_a_notebook_shows_one_line_of_progress(monkeypatch):
    notebook = Notebook(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook.display)
    assert isinstance(usual_reporter(), NotebookProgress)
    silodp.run(federation=small(), method="fedavg", epsilon=3, rounds=2)
    assert notebook.lines[0] == "loading data"
    assert any("3 of 3 silos" in line for line in notebook.lines)
    assert "2 of 2 rounds, test metric" in notebook.lines[-1]


def test_elsewhere_nothing_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", Notebook(kernel=None))
    assert not isinstance(usual_reporter(), NotebookProgress)
    monkeypatch.delitem(sys.modules, "IPython")
    assert not isinstance(usual_reporter(), NotebookProgress)
