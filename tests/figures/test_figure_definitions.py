"""Definitions of figures: what each trains at which scale, and what is refused."""

from pathlib import Path

import pytest

from silodp.base.errors import SilodpError
from silodp.figures.definition import SCALES, load, names, parse
from silodp.methods import get_method
from silodp.sweeps import sweep_of

LAMS = [0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]
LRS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]


def test_every_figure_of_the_paper_is_defined():
    """But for Figure 7, which trains nothing."""
    assert set(names()) >= {
        *("2", "3", "4", "5", "6", "adni", "finetuning", "large-budgets", "school-splits"),
        *("bumps-vehicle", "bumps-school", "bumps-cifar10", "school"),
    }


def tuned(sweep, option):
    """The values that are tried for methods that have the option."""
    points = [point.options for point in sweep.points]
    if option == "lam":
        points = [one for one in points if "lam" in get_method(one.method).option_names]
    return sorted({getattr(one, option) for one in points})


@pytest.mark.parametrize("name", names())
def test_scales_grow_and_the_papers_has_its_grid(name):
    definition = load(name)
    for panel in definition.panels:
        where = f"{name}, {panel.name}"
        paper, quick = (sweep_of(panel.at(scale), where, Path()) for scale in ("paper", "quick"))
        hour = paper if panel.hour is None else sweep_of(panel.at("hour"), where, Path())
        assert 0 < quick.runs <= hour.runs <= paper.runs
        # Smaller scales show the same columns, or columns of how much smaller they are.
        smaller = {"rounds", "silos", "density", "model"}
        assert set(paper.columns) <= set(hour.columns) <= set(paper.columns) | smaller
        assert set(paper.columns) <= set(quick.columns) <= set(paper.columns) | smaller
        assert {len(point.seeds) for point in paper.points} == {3 if name == "adni" else 5}
        lams, lrs = tuned(paper, "lam"), tuned(paper, "lr")
        if lams and definition.paper:
            assert (lams, lrs) == (LAMS, LRS)
        elif lams:  # ours: of the same grid
            assert set(lams) <= set(LAMS)
            assert set(lrs) <= set(LRS)
        else:
            assert len(lrs) == 1, "tunes a learning rate, but no lambda"


def test_rows_name_methods_that_are_trained():
    for definition in map(load, names()):
        swept = [sweep for panel in definition.panels for sweep in _parts(panel.sweep)]
        methods = {method for part in swept for method in _listed(part.get("method", []))}
        shown = {method for row in definition.rows for method in row}
        assert not shown or shown == methods


def _parts(sweep):
    return [sweep, *sweep.get("grid", ())]


def _listed(value):
    return value if isinstance(value, list) else [value]


HEAD = 'title = "t"\npaper = ""\ncaption = "c"\npicture = "tradeoffs"\n'
PANEL = '[[panels]]\nname = "a"\ntitle = "A"\n'
SWEEP = '[panels.sweep]\ndata = "synthetic"\nmethod = "local"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "captoin = 3\n" + PANEL + SWEEP, "'captoin' is unknown: did you mean 'caption'"),
        (HEAD + "picture = = 3", "is not valid TOML: fix line"),
        (HEAD.replace("tradeoffs", "tradeof") + PANEL + SWEEP, "use 'tradeoffs'"),
        (HEAD, "panels is missing"),
        (HEAD.replace('title = "t"\n', "") + PANEL + SWEEP, "title is missing"),
        (HEAD + "panels = []\n", "give one or more"),
        (HEAD + PANEL, "panel 'a': sweep is missing"),
        (HEAD + 2 * (PANEL + SWEEP), "panels are ['a', 'a']"),
        (HEAD + PANEL + "scale = 3\n" + SWEEP, "panel 'a': the key 'scale' is unknown"),
        (HEAD + PANEL + SWEEP + "lamm = 3\n", "did you mean 'lam'"),
        (HEAD + PANEL + SWEEP + "lam = []\n", "lam is an empty list"),
        (HEAD + PANEL + SWEEP + "[panels.quick]\nlr = []\n", "quick: lr is an empty list"),
        (HEAD + PANEL + SWEEP + "[panels.hour]\nlrr = 1\n", "hour: 'lrr' is no option"),
        (
            HEAD + PANEL + SWEEP + "lam = 1\n[[panels.sweep.grid]]\nlam = [1, 2]\n",
            "'lam' stands in the sweep and in a part of it",
        ),
        (
            HEAD + PANEL + SWEEP + '[panels.quick]\nmethod = ["local", "fedavg"]\n',
            "quick: the sweep has no method 'fedavg': keep some of local",
        ),
        (HEAD + PANEL + SWEEP.replace('data = "synthetic"\n', ""), "data is missing"),
        (HEAD + PANEL + SWEEP.replace('method = "local"\n', ""), "method is missing"),
    ],
)
def test_definitions_that_are_wrong_are_refused(text, said):
    with pytest.raises(SilodpError, match=r"^Figure 'mine'") as refused:
        parse("mine", text)
    assert said in str(refused.value)
    assert str(refused.value).endswith((".", "?"))


def test_unknown_names_and_scales_are_told_the_closest():
    with pytest.raises(SilodpError, match="use 'bumps-school', "):
        load("bump-school")
    with pytest.raises(SilodpError, match="use 'quick', "):
        load("5").panels[0].at("quik")


def test_panels_share_what_stands_above_them_and_smaller_scales_replace_it():
    text = """
        [sweep]
        data = "synthetic"
        lr = [0.1, 0.3]
        [[sweep.grid]]
        method = ["local", "fedavg"]
        [[sweep.grid]]
        method = "mrmtl"
        lam = [0.5, 2]
        [quick]
        lr = 0.1
        rounds = 4
        lam = [1]
        [[panels]]
        name = "a"
        title = "A"
        [[panels]]
        name = "b"
        title = "B"
        [panels.sweep]
        data = "digits"
        [panels.quick]
        method = ["fedavg"]
        rounds = 2
        """
    one, other = parse("mine", HEAD + text).panels
    assert one.at("hour") == one.at("paper") == dict(one.sweep)
    assert other.at("paper")["data"] == "digits"
    assert one.at("quick") == {
        "data": "synthetic",
        "lr": 0.1,
        "rounds": 4,
        "grid": [{"method": ["local", "fedavg"]}, {"method": "mrmtl", "lam": [1]}],
    }
    assert other.at("quick") == {
        "data": "digits",
        "lr": 0.1,
        "rounds": 2,
        "grid": [{"method": ["fedavg"]}],
    }
    # What is replaced at one scale is as it was at the others.
    assert one.at(SCALES[0])["lr"] == [0.1, 0.3]
