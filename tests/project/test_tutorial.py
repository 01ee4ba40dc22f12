"""The tutorial, done as it stands: files are written, commands run, sentences checked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FILES = ("schema.toml", "policies.toml", "patients.toml")  # in the order of the page
REFUSED = "this run does not fit its lifetime allowance"


def steps() -> list[tuple[str, str]]:
    """("file", content) and ("command", line), in the order of the page."""
    pattern = r"```toml\n(.*?)```|^    ((?:python|silodp) [^\n]*)$"
    found = re.finditer(pattern, TEXT, re.DOTALL | re.MULTILINE)
    return [("file", step[1]) if step[1] else ("command", step[2]) for step in found]


def test_the_page_is_read_as_it_is_meant():
    assert [kind for kind, _ in steps()].count("file") == len(FILES)
    assert sum(line.startswith("silodp") for kind, line in steps() if kind == "command") >= 9


@pytest.mark.slow
def test_a_newcomer_gets_through(tmp_path):
    def run(line: str) -> subprocess.CompletedProcess:
        line = line.replace("python ", f"{sys.executable} ", 1).replace(
            "examples/", f"{ROOT}/examples/"
        )
        line = re.sub(r"^silodp ", f"{sys.executable} -m silodp ", line)
        return subprocess.run(
            line, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    names = iter(FILES)
    for kind, text in steps():
        if kind == "file":
            (tmp_path / next(names)).write_text(text)
            continue
        if "new-patients.csv" in text:
            rows = (tmp_path / "patients.csv").read_text().splitlines()[:4]
            known = [row.rpartition(",")[0] for row in rows]  # all but the days
            (tmp_path / "new-patients.csv").write_text("\n".join(known) + "\n")
        done = run(text)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"

    headline = "EB-MTL is the best of 3 methods: its test error of "
    assert headline in TEXT
    assert headline in (tmp_path / "compare.html").read_text(encoding="utf-8")
    again = run("silodp run --config patients.toml --ledger ledgers --out runs/again")
    assert again.returncode == 2
    assert REFUSED in again.stderr
    assert REFUSED in TEXT
