"""docs/design.md says what happens: real runs pass through the functions that its walks name."""

import re
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from names import is_in_package
from site_folders import at_work, make_coordinator, make_sites, proposal

from silodp.privacy.mechanisms import training
from silodp.sites.coordinator import Coordinator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The page below that heading, up to the next one."""
    return re.split(r"^## ", PAGE.split(f"## {heading}\n")[1], maxsplit=1, flags=re.M)[0]


def steps_of(heading: str) -> list[list[str]]:
    """The functions that each numbered step of a walk names, in their order."""
    steps = re.split(r"^\d+\. ", section(heading), flags=re.M)[1:]
    # What follows the last step begins at the margin.
    steps[-1] = re.split(r"\n\n(?=\S)", steps[-1])[0]
    return [re.findall(r"`(silodp(?:\.\w+)+)`", step) for step in steps]


def functions_of(heading: str) -> list[str]:
    """Those of all steps."""
    return [name for names in steps_of(heading) for name in names]


@contextmanager
def first_calls():
    """Fills with the functions of silodp that are called within, in the order of first calls."""
    called: dict[str, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("silodp"):
            name = frame.f_code.co_qualname.replace(".<locals>", "")
            called.setdefault(f"{module}.{name}")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield called
    finally:
        sys.setprofile(before)


def check_passes(called: dict[str, None], steps: list[str]) -> None:
    """Fails unless all of these were called, each for the first time after the one before it."""
    missing = [name for name in steps if name not in called]
    assert missing == [], f"no call passes through {missing}"
    order = list(called)
    assert sorted(steps, key=order.index) == steps, "the steps come in another order"


def test_a_run_takes_the_steps_of_the_page(cli, tmp_path):
    asked = {"data": "synthetic", "silos": 2, "method": "fedavg", "rounds": 2, "epsilon": 3}
    given = [word for name, value in asked.items() for word in (f"--{name}", value)]
    with first_calls() as called:
        done = cli("run", *given, "--ledger", tmp_path / "ledgers", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    steps = functions_of("A run")
    assert len(steps) > 25
    check_passes(called, steps)


def test_a_site_takes_the_steps_of_the_page(tmp_path):
    wire = pytest.importorskip("silodp.sites.flare.wire")
    agreed = proposal(method="fedavg", rounds=2)
    coordinator = Coordinator(make_coordinator(tmp_path / "fed", agreed), agreed.job())

    def ask(workers) -> None:
        request = coordinator.next_request()
        assert request is not None
        replies = {}
        for site in coordinator.targets:
            reply = workers[site].answer(wire.to_request(wire.from_request(request)))
            replies[site] = wire.to_reply(wire.from_reply(reply))
        coordinator.receive(replies)

    with at_work(make_sites(tmp_path, agreed)) as workers:
        with first_calls() as joining:
            ask(workers)
        with first_calls() as called:
            ask(workers)
    assert coordinator.round == 1
    before = section("A site's round").split("\n1. ")[0]
    joins = [name for name in re.findall(r"`(silodp[\w.]+)`", before) if ".flare." not in name]
    assert len(joins) == 2
    check_passes(joining, joins)
    steps = functions_of("A site's round")
    assert len(steps) > 15
    check_passes(called, steps)


def test_steps_that_are_not_taken_or_come_in_another_order_are_found():
    called = dict.fromkeys(["silodp.a", "silodp.b", "silodp.c"])
    check_passes(called, ["silodp.a", "silodp.c"])
    with pytest.raises(AssertionError, match="no call passes through"):
        check_passes(called, ["silodp.a", "silodp.d"])
    with pytest.raises(AssertionError, match="another order"):
        check_passes(called, ["silodp.c", "silodp.a"])


def test_every_function_that_the_page_names_exists():
    """Those within functions are found by the walks alone."""
    inner = {name for heading in ("A run", "A site's round") for name in functions_of(heading)}
    named = set(re.findall(r"`(silodp(?:\.\w+)+)`", PAGE))
    missing = {name for name in named if not is_in_package(name)}
    assert missing <= inner
    assert {name.rpartition(".")[2] for name in missing} == {
        *("train_shared", "train_once", "noisy_sum", "whole_sum")
    }


def test_the_line_that_adds_noise_is_the_one_on_the_page():
    lines = re.findall(r"`(noise\.\w+ \* [^`]+)`", section("A run"))
    assert len(lines) == 2  # of a release, and of an experiment
    source = Path(training.__file__).read_text(encoding="utf-8")
    assert [source.count(line) for line in lines] == [1, 1]


def test_the_picture_has_the_layers_that_are_held():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one["type"] == "layers"]
    assert list(texts_of_picture("layer").values()) == layers


@pytest.mark.parametrize(("column", "heading"), [("run", "A run"), ("site", "A site's round")])
def test_the_picture_says_which_layers_a_walk_passes_through(column, heading):
    places = {
        package: y
        for y, layer in texts_of_picture("layer").items()
        for package in layer.split(" | ")
    }
    passed: dict[str, list[int]] = {}
    for number, names in enumerate(steps_of(heading), start=1):
        for y in {places[name.split(".")[1]] for name in names}:
            passed.setdefault(y, []).append(number)
    shown = {y: numbers_of(text) for y, text in texts_of_picture(column).items()}
    assert shown == passed


def texts_of_picture(kind: str) -> dict[str, str]:
    """By where they stand, from above: the rows of the picture."""
    picture = (ROOT / "docs" / "layers.svg").read_text(encoding="utf-8")
    return dict(re.findall(rf'class="{kind}"[^>]* y="(\d+)"[^>]*>([^<]+)<', picture))


def numbers_of(text: str) -> list[int]:
    """Of a text such as "1-3, 6"."""
    found = []
    for part in text.split(", "):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
