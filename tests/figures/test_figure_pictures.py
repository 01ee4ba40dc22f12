"""Pictures of tables: their numbers by hand, what is drawn of them, and the files."""

import itertools
import math
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from silodp.base.errors import SilodpError
from silodp.figures.definition import PICTURES, Definition, Panel
from silodp.figures.looks import LOOKS, curve_name, in_order, look_of
from silodp.pictures.pictures import save_both

INF = math.inf


def setting(method, epsilon, *values, noise=1.5, metric="mse", **options):
    """The rows of a setting: a value for each seed, or for each round the values of seeds."""
    run = repr((method, epsilon, options))
    asked = {"run": run, "data": "d", "method": method, "epsilon": epsilon} | options
    rounds = values[0] if isinstance(values[0], dict) else {10: values}
    return [
        asked
        | {"seed": seed, "round": at, "metric": metric, "value": float(value)}
        | {"epsilon_spent": epsilon, "noise_multiplier": noise, "proven": True}
        for at, seeds in rounds.items()
        for seed, value in enumerate(seeds)
    ]


def table(*settings):
    return pd.DataFrame(list(itertools.chain(*settings)))


def define(picture, *panels, **more):
    own = tuple(Panel(name, name.upper(), {}) for name in panels or ("one",))
    return Definition("mine", "Title", "", "", picture, own, **more)


def module(picture):
    return import_module(f"silodp.figures.{picture}")


def points_of(picture, *settings, **more):
    return module(picture).numbers(define(picture, **more), {"one": table(*settings)})


def draw(picture, *settings, **more):
    """The figure, laid out; and its drawings."""
    figure = module(picture).draw(define(picture, **more), {"one": table(*settings)})
    figure.draw_without_rendering()
    return figure, [axes for axes in figure.axes if axes.axison]


def legend(figure):
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def lines(axes, curve):
    """What is plotted with the curve's colour and mark, as x and y; not the legend's."""
    look = look_of(curve)
    drawn = [
        (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in axes.get_lines()
        if (line.get_color(), line.get_marker()) == (look.colour, look.marker)
    ]
    return [line for line in drawn if line[0]]


@pytest.mark.parametrize(("metric", "lam"), [("mse", 1.0), ("accuracy", 0.1)])
def test_the_best_setting_by_hand(metric, lam):
    by_lam = {0.1: (4, 5, 9), 1.0: (1, 2, 6)}
    (point,) = points_of(
        "tradeoffs",
        setting("mrmtl", 2, *by_lam[0.1], lam=0.1, metric=metric),
        setting("mrmtl", 2, *by_lam[1.0], lam=1.0, metric=metric),
        # One diverged with a seed, and would be the best without it; two always did.
        setting("mrmtl", 2, 0.1, math.nan, 0.1, lam=3.0, metric=metric),
        setting("mrmtl", 2, 99, math.nan, 99, lam=4.0, metric=metric),
        setting("mrmtl", 2, INF, 0.1, 0.1, lam=5.0, metric=metric),
    ).to_dict(orient="records")
    assert (point["lam"], point["x"], point["epsilon"], point["seeds"]) == (lam, 2, 2, 3)
    assert point["mean"] == sum(by_lam[lam]) / 3
    # Both are 3 above and 2 and 1 below their means: (9 + 4 + 1) / 2, over 2 as of 3 seeds.
    assert point["std"] == pytest.approx(math.sqrt(7))
    assert point["standard_error"] == pytest.approx(math.sqrt(7 / 3))
    assert (point["panel"], point["curve"], point["metric"]) == ("one", "mrmtl", metric)


def test_each_curve_at_each_budget_has_its_own_best():
    points = points_of(
        "tradeoffs",
        *(setting("local", e, e, lr=0.1) + setting("local", e, 3, lr=0.3) for e in (1.0, 6.0, INF)),
        setting("ifca", 1.0, 5, lr=0.1, select_fraction=0.1),
        setting("ifca", 1.0, 4, lr=0.1, select_fraction=1.0),
        setting("fedavg", 1.0, math.nan, lr=0.1),
    )
    chosen = {(p["curve"], p["x"]): (p["mean"], p["lr"]) for p in points.to_dict("records")}
    assert chosen == {
        ("local", 1.0): (1, 0.1),
        ("local", 6.0): (3, 0.3),
        ("local", INF): (3, 0.3),
        ("ifca 10%", 1.0): (5, 0.1),
        ("ifca every round", 1.0): (4, 0.1),
    }


def test_tradeoffs_are_drawn_with_the_papers_names():
    plain, pulled = ("local", "fedavg", "finetune", "ebmtl"), ("ditto", "mocha", "mrmtl")
    figure, (axes,) = draw(
        "tradeoffs",
        *(setting(m, e, 1 / e, 2 / e) for m in plain for e in (1.0, 6.0, INF)),
        *(setting(m, 1.0, 3, 4, lam=1.0) for m in (*pulled, "meanpull")),
        setting("ifca", 1.0, 3, 4, select_fraction=0.1),
        setting("ifca", 1.0, 3, 4, select_fraction=1.0),
        setting("ifca+mrmtl", 1.0, 3, 4, select_fraction=0.05, lam=1.0),
    )
    star = r" ($\lambda^*$)"
    assert legend(figure) == [
        *("Local", "FedAvg", "Local finetuning", f"Ditto{star}", f"Mocha{star}", "IFCA (10%)"),
        *("IFCA (every round)", f"MR-MTL{star}", f"Mean-pull{star}", "EB-MTL (ours)"),
        f"MR-MTL (IFCA 5%){star}",
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "6", "none"]
    assert axes.get_ylabel() == "test MSE (lower is better)"
    # Budgets have places of equal width; without privacy stands apart, without a line to it.
    private, without = lines(axes, "fedavg")
    assert private == ([0, 1], [1.5, 0.25])
    assert without[0][0] > 2


def test_rows_of_methods_are_drawn_apart():
    both = [setting(m, 1.0, 3, 4) for m in ("local", "fedavg", "mrmtl")]
    rows = (("local", "fedavg"), ("mrmtl",))
    _, (left, right) = draw("tradeoffs", *both, rows=rows)
    assert [bool(lines(axes, "local")) for axes in (left, right)] == [True, False]
    assert [bool(lines(axes, "mrmtl")) for axes in (left, right)] == [False, True]
    assert [axes.get_title() for axes in (left, right)] == ["(a) ONE", "(b) ONE"]


def test_bumps_have_a_star_at_the_best_lambda():
    settings = [
        *(setting("mrmtl", 0.5, 9, 9, lam=lam, lr=0.3) for lam in (0.1, 1.0, 10.0)),
        *(setting("mrmtl", 0.5, v, v, lam=lam, lr=0.1) for lam, v in ((0.1, 5), (1.0, 2))),
        *(setting("mrmtl", INF, v, v, lam=lam, lr=0.1) for lam, v in ((0.1, 1), (1.0, 3))),
        setting("mrmtl", 0.5, 0, math.nan, lam=10.0, lr=0.1),
        setting("local", 0.5, 4, 6, lr=0.1),
    ]
    points = points_of("bumps", *settings).to_dict("records")
    assert {(p["epsilon"], p["x"]): (p["mean"], p["lr"]) for p in points if p["x"] == p["x"]} == {
        (0.5, 0.1): (5, 0.1),
        (0.5, 1.0): (2, 0.1),
        (0.5, 10.0): (9, 0.3),
        (INF, 0.1): (1, 0.1),
        (INF, 1.0): (3, 0.1),
    }
    assert [(p["epsilon"], p["x"]) for p in points if p["star"]] == [(0.5, 1.0), (INF, 0.1)]
    assert [(p["curve"], p["mean"]) for p in points if math.isnan(p["x"])] == [("local", 5)]
    figure, (axes,) = draw("bumps", *settings)
    stars = [line for line in axes.get_lines() if line.get_marker() == "*"]
    assert {(*line.get_xdata(), *line.get_ydata()) for line in stars} == {(0.1, 1.0), (1.0, 2.0)}
    assert lines(axes, "local") == [([0, 0.03, 1], [5, 5, 5])]
    assert legend(figure) == ["MR-MTL, non-private", "Local, private", "MR-MTL, private"]


def test_rounds_shows_all_rounds_of_what_is_best_in_the_end():
    settings = [
        setting("finetune", 1.0, {5: (9, 7), 10: (2, 4)}, lr=0.1, finetune_fraction=0.5),
        setting("finetune", 1.0, {5: (1, 1), 10: (5, 5)}, lr=0.3, finetune_fraction=0.5),
        setting("local", 1.0, {5: (6, 6), 10: (6, 8)}, lr=0.1),
        setting("local", INF, {5: (2, 2), 10: (1, 1)}, lr=0.1),
    ]
    points = points_of("rounds", *settings).to_dict("records")
    assert [(p["curve"], p["epsilon"], p["x"], p["mean"]) for p in points] == [
        *(("finetune", 1.0, 5, 8), ("finetune", 1.0, 10, 3)),
        *(("local", 1.0, 5, 6), ("local", 1.0, 10, 7)),
        *(("local", INF, 5, 2), ("local", INF, 10, 1)),
    ]
    figure, (axes,) = draw("rounds", *settings)
    assert lines(axes, "finetune") == [([5, 10], [8, 3])]
    assert lines(axes, "local") == [([5, 10], [2, 1]), ([5, 10], [6, 7])]
    start = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [list(line.get_xdata()) for line in start] == [[5, 5]]
    names = ["Local, non-private", "Local, private", "Local finetuning, private"]
    assert legend(figure) == names
    _, (ends, tuned) = draw("rounds", *settings, ends=True)
    assert not lines(ends, "finetune")
    assert len(lines(ends, "local")) == 2
    assert lines(tuned, "finetune") == lines(axes, "finetune")


def test_overhead_shows_noise_and_leaves_out_what_has_none():
    settings = [
        setting("local", 1.0, 3, 3, noise=2.0),
        setting("local", 4.0, 2, 2, noise=0.5),
        setting("ditto", 1.0, 5, 5, noise=2.5, lam=1.0),
        setting("ditto", 1.0, 4, 4, noise=2.75, lam=2.0),
        setting("local", INF, 1, 1, noise=0.0),
    ]
    points = points_of("overhead", *settings)
    assert points[["curve", "x", "mean", "noise_multiplier"]].to_numpy().tolist() == [
        ["local", 1.0, 3.0, 2.0],
        ["local", 4.0, 2.0, 0.5],
        ["ditto", 1.0, 4.0, 2.75],
    ]
    _, (above, below) = draw("overhead", *settings)
    assert lines(above, "local") == [([0, 1], [2.0, 0.5])]
    assert lines(above, "ditto") == [([0], [2.75])]
    assert lines(below, "local") == [([0, 1], [3.0, 2.0])]


def test_mask_levels_have_a_drawing_each():
    settings = [
        setting("local", 1.0, value, value, lr=lr, mask_ratio=mask, metric="accuracy")
        for mask, lr, value in ((0.0, 0.1, 0.5), (0.0, 0.3, 0.7), (0.2, 0.1, 0.6), (0.2, 0.3, 0.4))
    ]
    points = points_of("mask_levels", *settings)
    assert points[["mask_ratio", "lr", "mean"]].to_numpy().tolist() == [
        [0.0, 0.3, 0.7],
        [0.2, 0.1, 0.6],
    ]
    _, drawings = draw("mask_levels", *settings)
    assert [a.get_title() for a in drawings] == ["(a) no mask", "(b) masked 20 %"]
    assert [lines(axes, "local")[0][1] for axes in drawings] == [[0.7], [0.6]]


def of_all(seeds, epsilons):
    """Runs that any picture can be drawn of; with one seed there is no deviation."""
    options = {
        "local": {},
        "finetune": {"finetune_fraction": 0.5},
        "mrmtl": {"lam": 1.0},
        "ifca": {"select_fraction": 1.0},
    }
    return [
        setting(method, epsilon, {5: (3,) * seeds, 10: range(1, 1 + seeds)}, mask_ratio=0.1, **own)
        for method, own in options.items()
        for epsilon in epsilons
    ]


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize(
    ("seeds", "epsilons"), [(1, (1.0, 4.0, INF)), (2, (1.0,)), (1, (INF,)), (2, (1.0, 4.0))]
)
def test_few_seeds_and_budgets_are_drawn_as_well(picture, seeds, epsilons):
    settings = of_all(seeds, epsilons)
    if picture == "overhead" and epsilons == (INF,):
        with pytest.raises(SilodpError, match=r"^Figure 'mine': there is nothing to draw"):
            draw(picture, *settings)
        return
    figure, _ = draw(picture, *settings)
    shown = "Local finetuning" if picture == "rounds" else "MR-MTL"
    assert any(label.startswith(shown) for label in legend(figure))
    assert len(set(legend(figure))) == len(legend(figure))
    points = points_of(picture, *settings)
    assert set(points["std"].isna()) == {seeds == 1}


def test_without_privacy_nothing_is_drawn_twice():
    _, (axes,) = draw("bumps", *of_all(2, (INF,)))
    assert len(lines(axes, "mrmtl")) == 1


@pytest.mark.parametrize("picture", PICTURES)
def test_panels_without_results_are_left_out(picture):
    definition = define(picture, "one", "two", "three")
    sound = table(*of_all(2, (1.0, 4.0)))
    diverged = sound.assign(value=math.nan)
    known = {"two": sound, "three": diverged}
    assert set(module(picture).numbers(definition, known)["panel"]) == {"two"}
    figure, (alone, _) = module(picture).draw(definition, known), draw(picture, *of_all(2, (1, 4)))
    assert len(figure.axes) == len(alone.axes)
    for nothing, said in (({}, "no panel has results"), ({"one": diverged}, "nothing to draw")):
        with pytest.raises(SilodpError, match=said):
            module(picture).draw(definition, nothing)


def test_curves_are_told_apart_in_grey():
    known = [*LOOKS, "ifca 5%+local", "ifca 5%+mrmtl"]
    for one, other in itertools.combinations(map(look_of, known), 2):
        assert (one.line, one.marker) != (other.line, other.marker)
        # Where lines tell private from not, marks tell the method.
        if other.line != (0, (1, 1)):
            assert (one.marker, one.hollow) != (other.marker, other.hollow)
        assert one.label != other.label


def test_curves_have_names_and_an_order():
    assert curve_name("ifca", 0.1) == "ifca 10%"
    assert curve_name("ifca", 1.0) == "ifca every round"
    assert curve_name("ifca+mrmtl", 0.05) == "ifca 5%+mrmtl"
    assert curve_name("ifca") == "ifca"
    assert curve_name("mrmtl", math.nan) == "mrmtl"
    mixed = ["zeta", "ifca 5%+mrmtl", "ebmtl", "ifca 10%", "local", "ifca 5%+local", "local"]
    assert in_order(mixed) == ["local", "ifca 10%", "ebmtl", "zeta", *mixed[5:6], mixed[1]]
    assert look_of("zeta").label == "zeta"


@pytest.mark.parametrize("picture", PICTURES[:2])  # all are written by one function
def test_files_are_the_same_each_time(picture, tmp_path):
    settings = of_all(2, (1.0, INF))
    files = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        files.append([file.read_bytes() for file in _saved(picture, settings, folder)])
    assert files[0] == files[1]
    png, pdf = files[0]
    assert png.startswith(b"\x89PNG")
    assert len(png) > 10_000
    assert pdf.startswith(b"%PDF")
    # Fonts are embedded as TrueType, none as drawings of letters.
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"/CreationDate" not in pdf


def _saved(picture, settings, folder):
    written = save_both(draw(picture, *settings)[0], folder, "mine")
    assert written == [folder / "mine.png", folder / "mine.pdf"]
    return written


def test_bands_are_one_deviation_to_both_sides():
    _, (axes,) = draw("tradeoffs", *(setting("local", e, 1, 3) for e in (1.0, 4.0)))
    (band,) = axes.collections
    heights = np.unique(band.get_paths()[0].vertices[:, 1])
    np.testing.assert_allclose(heights, [2 - math.sqrt(2), 2 + math.sqrt(2)])
