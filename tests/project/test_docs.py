"""The pages say what is so: links lead somewhere, commands and names exist, the site builds."""

import ast
import contextlib
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from names import is_in_package

import silodp
from silodp.cli import app

ROOT = Path(__file__).parents[2]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    EXAMPLES / "README.md",
    *sorted(DOCS.glob("*.md")),
]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

# Of other programs, which our pages show beside our own.
FOREIGN_OPTIONS = {"--full", "--quick"}  # of benchmarks


@dataclass(frozen=True)
class Block:
    """A block of code: its language (empty if it is indented, or if none is given), its lines."""

    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Fenced and indented blocks of code."""
    blocks, indented, fenced, language = [], [], None, ""
    before = ""
    for line in [*page.read_text(encoding="utf-8").splitlines(), ""]:
        fence = re.match(r"\s*```(\w*)", line)
        if fence and fenced is None:
            fenced, language = [], fence[1]
        elif fence:
            blocks.append(Block(language, "\n".join(fenced or [])))
            fenced = None
        elif fenced is not None:
            fenced.append(line)
        elif line.startswith("    ") and (indented or not before.strip()):
            indented.append(line[4:])
        elif line.strip() and indented:
            blocks.append(Block("", "\n".join(indented)))
            indented = []
        before = line
    return blocks + ([Block("", "\n".join(indented))] if indented else [])


def text_of(page: Path) -> str:
    """What is not in fences."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def commands_of(page: Path) -> list[str]:
    """Every call of `silodp` in the page's blocks, and between backticks."""
    found = []
    for block in blocks_of(page):
        if block.language in ("", "bash", "sh", "console"):
            joined = re.sub(r"\\\n\s*", " ", block.text)
            found += [line.strip() for line in joined.splitlines() if _is_call(line)]
    prose = re.sub(r"^    .*$", "", text_of(page), flags=re.MULTILINE)
    found += [code for code in re.findall(r"`([^`\n]+)`", prose) if _is_call(code)]
    return found


def _is_call(line: str) -> bool:
    return re.match(r"\s*(\$ )?silodp [a-z-]", line) is not None


@cache
def top() -> Any:
    return typer.main.get_command(app)


def complaint(line: str) -> str | None:
    """Why this is no call that the command line knows; None if it is one."""
    words = shlex.split(line.removeprefix("$ "), comments=True)[1:]
    command, path = top(), "silodp"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        word = words.pop(0)
        if word not in command.commands:
            return f"{path} has no command {word!r}"
        command, path = command.commands[word], f"{path} {word}"
    options = {name: option for option in command.params for name in option.opts}
    places = sum(1 if p.nargs == 1 else 99 for p in command.params if is_argument(p))
    given = []
    while words:
        word = words.pop(0)
        if word in (">", "|", "&&"):
            break
        if word in ("...", "-h", "--help") or word.startswith("[OPTION"):
            continue
        if not word.startswith("--"):
            given.append(word)
            continue
        name, _, value = word.partition("=")
        if name not in options:
            return f"{path} has no option {name}"
        if not options[name].is_flag and not value and words:
            words.pop(0)
    if len(given) > places:
        return f"{path} takes {places} arguments, not {given}"
    return None


def is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def all_options() -> set[str]:
    def below(command: Any) -> set[str]:
        names = {name for parameter in command.params for name in parameter.opts}
        return names.union(*(map(below, getattr(command, "commands", {}).values())))

    return below(top()) | {"--help", "-h"}


@every_page
def test_every_command_of_a_page_is_one(page):
    wrong = {line: complaint(line) for line in commands_of(page)}
    assert {line: why for line, why in wrong.items() if why} == {}


@every_page
def test_every_option_that_a_page_names_is_one(page):
    named = set(re.findall(r"`(--[a-z][a-z-]*)", text_of(page)))
    assert named - all_options() - FOREIGN_OPTIONS == set()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("silodp run --data school --epsilon 6 ...", None),
        ("silodp data check patients.csv --silo-column hospital  # a comment", None),
        ("silodp runn --data school", "silodp has no command 'runn'"),
        ("silodp data chek x.csv", "silodp data has no command 'chek'"),
        ("silodp run --lamda 1", "silodp run has no option --lamda"),
        ("silodp data check a.csv b.csv", "silodp data check takes 1 arguments"),
    ],
)
def test_a_wrong_command_is_found(line, why):
    assert (complaint(line) or "").startswith(why or "")
    assert (complaint(line) is None) == (why is None)


def test_commands_are_found_on_pages():
    assert len(commands_of(ROOT / "README.md")) >= 5
    assert "silodp federation demo --sites 4" in commands_of(DOCS / "sites.md")


@every_page
def test_python_and_toml_of_a_page_can_be_read(page):
    for block in blocks_of(page):
        if block.language == "python":
            ast.parse(block.text)
        if block.language == "toml":
            tomllib.loads(block.text)


@every_page
def test_names_of_silodp_in_python_blocks_exist(page):
    for block in blocks_of(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "silodp":
                    assert hasattr(silodp, node.attr), node.attr


def anchors_of(page: Path) -> set[str]:
    """The anchors that a git host and mkdocs give headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


@every_page
def test_every_link_of_a_page_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors_of(aim), f"{target}: no such heading"


@every_page
def test_every_test_that_a_page_names_is_there(page):
    named = re.findall(r"`(tests/[\w/]+\.py)`", text_of(page))
    assert [path for path in named if not (ROOT / path).exists()] == []


def nav_pages(nav: Any) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(nav_pages, parts))


def site_settings() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def test_every_page_has_its_place_in_the_nav():
    assert nav_pages(site_settings()["nav"]) == {page.name for page in DOCS.glob("*.md")}


def test_every_public_name_is_in_the_reference():
    reference = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", reference, re.M)}
    assert listed - {"theory", "sklearn"} == set(silodp.__all__)


def test_every_command_has_its_row_in_the_guide():
    guide = (DOCS / "guide.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `silodp ([a-z]+)", guide, re.MULTILINE))
    assert told == set(top().commands)


def test_every_example_is_listed():
    text = (DOCS / "examples.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\(\.\./examples/([\w/]+\.(?:py|ipynb))\)", text))
    there = [*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("*.ipynb")]
    assert told == {str(path.relative_to(EXAMPLES)) for path in there}


def names_in_the_notation() -> list[str]:
    """All that stands between backticks in the columns of our names."""
    lines = (DOCS / "notation.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and "---" not in line]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_notation_names_what_exists():
    names = names_in_the_notation()
    assert len(names) > 40
    missing = [name for name in names if not name_exists(name)]
    assert missing == []


def name_exists(name: str) -> bool:
    """Whether this is an option, a call, a file of the project, or a name in the package."""
    if name.startswith("--"):
        return name.split()[0].split("=")[0] in all_options()
    if name.startswith("silodp "):
        return complaint(name) is None
    if "/" in name:
        return (ROOT / "src" / "silodp" / name).exists()
    return name.startswith("silodp.") and is_in_package(name.removesuffix("()"))


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("--lam", True),
        ("--lamda", False),
        ("silodp.Policy.epsilon", True),
        ("silodp.Policy.epsilom", False),
        ("silodp.theory.lambda_star", True),
        ("methods/mrmtl.py", True),
        ("methods/mrmtl2.py", False),
        ("lambda_star", False),
    ],
)
def test_names_are_told_apart(name, there):
    assert name_exists(name) == there


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it, into a folder of its own."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    # A process of its own: the builder's parts warn, and warnings are errors in tests.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_builds_and_holds_every_page(site):
    for page in DOCS.glob("*.md"):
        assert (site / f"{page.stem}.html").stat().st_size > 5_000
    assert "--silo-column" in (site / "cli.html").read_text(encoding="utf-8")
    assert "custom_model" in (site / "api.html").read_text(encoding="utf-8")
    assert (site / "examples" / "own_data.html").exists()


def test_the_site_asks_nobody_else_for_anything(site):
    """Links may lead elsewhere; what a page loads by itself may not."""
    tags = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*", re.IGNORECASE)
    for page in site.rglob("*.html"):
        for tag in tags.findall(page.read_text(encoding="utf-8")):
            if 'rel="canonical"' not in tag:
                assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", tag), tag
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text("utf-8"))


def test_the_site_is_read_and_searched_from_a_folder(site):
    """No server, no network: the browser's every request and complaint is watched."""
    pytest.importorskip("playwright")
    from browser import chromium, opened
    from playwright.sync_api import TimeoutError

    with chromium() as browser, opened(browser, (site / "index.html").as_uri()) as page:
        page.get_by_role("link", name="The first ten minutes").first.click()
        page.wait_for_url("**/tutorial.html")
        box = page.locator("input.md-search__input").first
        found = page.locator("a.md-search-result__link").first
        # What is typed before the index is read is not looked for: on a busy machine, type again.
        for _ in range(20):
            box.fill("")
            box.press_sequentially("provisioned")
            with contextlib.suppress(TimeoutError):
                found.wait_for(timeout=5_000)
                break
        found.click()
        page.wait_for_url("**/sites.html*")
