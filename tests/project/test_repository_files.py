"""What lies in the repository's own folder for people and tools: changelog, citation, hooks."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What a change is called in https://keepachangelog.com.
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def releases() -> dict[str, list[str]]:
    """Each heading of the changelog, with the kinds of changes below it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.M)[1:]
    return {
        heading: re.findall(r"^### (.+)$", body, flags=re.M)
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }


def test_the_changelog_goes_by_release_and_kind():
    unreleased, *released = releases()
    assert unreleased == "Unreleased"
    versions = [heading.split(" ")[0] for heading in released]
    assert PROJECT["version"] in versions
    assert versions == sorted(versions, key=lambda v: [int(n) for n in v.split(".")], reverse=True)
    for kinds in releases().values():
        assert kinds == [kind for kind in KINDS if kind in kinds]


def test_the_citation_is_one_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # all that must be
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= paper.keys()
    assert all({"family-names", "given-names"} == author.keys() for author in paper["authors"])


def test_hooks_run_what_make_lint_runs_and_fetch_nothing():
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (local,) = settings["repos"]
    assert local["repo"] == "local"
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in local["hooks"]}
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nlint:")[1].split("\n\n")[0]
    assert tools == set(re.findall(r"\$\(BIN\)/(\S+)", lint))
    assert all(hook["language"] == "system" for hook in local["hooks"])
