"""docs/ebmtl.md and the code name the same equations."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "ebmtl.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "silodp" / "methods" / "ebmtl"
CODE = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py")}
# At the end of a line of a block of formulas.
NUMBERED = [int(number) for number in re.findall(r"^ {4,}.*\S {3,}\((\d+)\)$", PAGE, re.MULTILINE)]


def cited(text):
    return {int(number) for number in re.findall(r"\beq\. (\d+)\b", text)}


def test_equations_are_numbered_in_the_order_of_the_page():
    assert len(NUMBERED) > 20
    assert list(range(1, len(NUMBERED) + 1)) == NUMBERED


def test_the_code_cites_the_equations_of_the_page_and_all_of_them():
    assert set.union(*map(cited, CODE.values())) == set(NUMBERED)


def test_every_step_of_a_round_says_which_equation_it_is():
    """Each line of `merge` that calls a step of another module cites one."""
    body = CODE["server.py"].split("\ndef merge(")[1]
    imported = re.findall(
        r"^from silodp\.methods\.ebmtl\.\w+ import (.*)$", CODE["server.py"], re.M
    )
    names = {name for line in imported for name in line.split(", ") if name.islower()}
    called = {name for name in names if f"{name}(" in body}
    assert len(called) >= 9
    for line in body.splitlines():
        if any(f"{name}(" in line for name in called):
            assert cited(line), line


def test_letters_of_the_page_are_those_of_the_code():
    for letter in (
        "U",
        "Ubar",
        "wbar",
        "D",
        "V",
        "T",
        "tau2",
        "s2",
        "Dhat",
        "w",
        "v",
        "g",
        "p",
        "z",
    ):
        assert re.search(rf"(?<![\w]){letter}(?:_\w+)?\b", PAGE), letter
        assert any(re.search(rf"\b{letter}\b(?: =|:)", text) for text in CODE.values()), letter
