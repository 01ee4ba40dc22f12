"""docs/stability.md says what is so: numbers of formats, and what becomes of other numbers."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from report_runs import made_up

from silodp.base.errors import SilodpError
from silodp.base.progress_file import PROGRESS_FILE
from silodp.engines.checkpoint import CHECKPOINT_FILE, CheckpointFolder, load
from silodp.report.live import progress_in
from silodp.results.result import RESULT_FILE, read_result

PAGE = Path(__file__).parents[2] / "docs" / "stability.md"


def numbers_on_the_page() -> dict[str, int]:
    """Where each format's number is held, and which one the page names."""
    rows = re.findall(r"^\|.*\| (\d+) \| `(silodp[\w.]+)` \|", PAGE.read_text("utf-8"), re.M)
    return {place: int(number) for number, place in rows}


def test_every_format_has_the_number_that_the_page_names():
    named = numbers_on_the_page()
    assert len(named) == 11
    for place, number in named.items():
        module, _, constant = place.rpartition(".")
        assert getattr(importlib.import_module(module), constant) == number, place


def write_result(folder, **changed):
    content = made_up().as_json() | changed
    content = {name: value for name, value in content.items() if value != "absent"}
    (folder / RESULT_FILE).write_text(json.dumps(content))


def test_a_result_says_its_format_and_one_without_is_read(tmp_path):
    assert made_up().as_json()["format"] == 2
    write_result(tmp_path, format="absent")
    assert read_result(tmp_path).test == made_up().test
    write_result(tmp_path)
    assert read_result(tmp_path).test == made_up().test


@pytest.mark.parametrize("number", [3, 0, "1", None])
def test_a_result_of_another_format_is_refused(tmp_path, number):
    write_result(tmp_path, format=number)
    with pytest.raises(SilodpError, match=r"has format .*: use a newer silodp\."):
        read_result(tmp_path)


def write_checkpoint(folder, **changed):
    """One after a round, with other entries in what it says about itself."""
    place = CheckpointFolder(folder, overwrite=True)
    place.begin("of a run")
    place.open()
    place.save(0, 1, [np.zeros(1)], [np.ones(2)])
    path = folder / CHECKPOINT_FILE
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"])) | changed
    about = {name: value for name, value in about.items() if value != "absent"}
    np.savez(path, allow_pickle=False, **arrays | {"about": np.array(json.dumps(about))})


def test_a_checkpoint_without_a_number_is_gone_on_with(tmp_path):
    write_checkpoint(tmp_path, format="absent")
    found = load(tmp_path)
    assert found is not None
    assert found.round == 1


def test_a_checkpoint_of_another_format_is_refused_and_kept(tmp_path):
    write_checkpoint(tmp_path, format=2)
    with pytest.raises(SilodpError, match=r"has format 2.*go on with the version that wrote it"):
        CheckpointFolder(tmp_path, resume=True)
    assert (tmp_path / CHECKPOINT_FILE).exists()


@pytest.mark.parametrize(("told", "shown"), [({}, 1), ({"format": 1}, 1), ({"format": 2}, 0)])
def test_progress_of_another_format_is_left_out(tmp_path, told, shown):
    (tmp_path / PROGRESS_FILE).write_text(json.dumps({"time": 1.0, "done": 1} | told))
    assert len(progress_in(tmp_path)) == shown
