"""`silodp doctor`: what it finds where all is well, and what it says where it is not."""

import json
import os
from importlib.metadata import PackageNotFoundError, metadata, version

import pytest
from packaging.requirements import Requirement

from silodp import doctor
from silodp.config.choices import DATA_SETS
from silodp.doctor import machine, packages, places


def by_name(findings):
    return {finding.name: finding for finding in findings}


@pytest.fixture
def installed(monkeypatch):
    """Pretends that a package is there in another version, or (None) that it is not there."""

    def pretend(**versions):
        def found(name):
            told = versions.get(name.replace("-", "_"), version(name))
            if told is None:
                raise PackageNotFoundError(name)
            return told

        monkeypatch.setattr(packages, "version", found)

    return pretend


# --- the command


def test_a_sound_installation(cli):
    done = cli("doctor", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["sound"] is True
    assert {one["part"] for one in told["findings"]} == {
        *("packages", "extras", "machine", "JAX", "data", "folders", "terminal"),
    }
    assert {"Python", "silodp", "jax", "cores", "synthetic", "results"} <= {
        one["name"] for one in told["findings"]
    }
    for one in told["findings"]:
        assert one["found"]
        assert one["state"] in ("fine", "absent")


def test_in_words(cli):
    done = cli("doctor")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("All that silodp needs is here.\n")


def test_what_is_wrong_is_told_and_exit_code_1(cli, installed):
    installed(jax="0.4.1")
    for args in ((), ("--json",), ("--quiet",)):
        done = cli("doctor", *args)
        assert done.exit_code == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("Wrong: jax: 0.4.1 (needs ")
        assert "pip install 'jax" in line
    assert done.stdout == ""
    assert json.loads(cli("doctor", "--json").stdout)["sound"] is False


def test_results_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_text("")
    done = cli("doctor", "--out", tmp_path / "file" / "runs")
    assert done.exit_code == 1
    assert "is a file" in done.stderr
    assert "--out" in done.stderr


# --- packages and extras


def test_every_requirement_is_looked_at():
    found = by_name(doctor.check_packages())
    asked = {
        Requirement(text).name
        for text in metadata("silodp").get_all("Requires-Dist")
        if "extra ==" not in text
    }
    assert set(found) == {"Python", "silodp", *asked}
    assert all(finding.state == "fine" for finding in found.values())


def test_package_that_is_missing(installed):
    installed(optax=None)
    found = by_name(doctor.check_packages())["optax"]
    assert found.state == "problem"
    assert found.found.startswith("not installed")
    assert found.remedy.startswith("pip install 'optax")


def test_python_that_is_too_old(monkeypatch):
    monkeypatch.setattr("platform.python_version", lambda: "3.9.1")
    found = by_name(doctor.check_packages())["Python"]
    assert found.state == "problem"
    assert found.remedy == "Make an environment with Python >=3.11."


def test_every_extra_is_looked_at():
    found = by_name(doctor.check_extras())
    assert set(found) == set(metadata("silodp").get_all("Provides-Extra"))


def test_extra_that_is_not_here(installed):
    installed(pyarrow=None)
    found = by_name(doctor.check_extras())
    assert found["parquet"].state == "absent"
    assert found["parquet"].found == "lacks pyarrow"
    assert found["parquet"].remedy == "pip install 'silodp[parquet]'"
    assert "pyarrow" in found["dev"].found  # which asks for silodp[parquet,...]
    assert found["digits"].state == "fine"


def test_extra_of_a_requirement(installed):
    installed(grpcio=None)
    assert "grpcio" in list(packages.unmet(Requirement("ray[client]>=2")))


def test_versions_that_do_not_fit(installed):
    installed(scikit_learn="0.1")
    found = by_name(doctor.check_extras())["digits"]
    assert "(0.1 is installed)" in found.found


# --- machine


def test_jax_that_fails(monkeypatch):
    def broken(*_):
        raise RuntimeError("no\nbackend")

    monkeypatch.setattr("jax.jit", broken)
    (found,) = machine.check_jax()
    assert found.state == "problem"
    assert found.found == "fails (RuntimeError: no backend)"
    assert found.remedy


def test_jax_that_is_wrong(monkeypatch):
    monkeypatch.setattr("jax.jit", lambda step: lambda *given: step(*given) + 1)
    found = by_name(machine.check_jax())["compiled step"]
    assert found.state == "problem"


def test_memory(monkeypatch):
    monkeypatch.setattr(machine, "_memory", lambda: (1.0, 0.5))
    assert by_name(machine.check_machine())["memory"].state == "absent"
    monkeypatch.setattr(machine, "_memory", lambda: None)
    assert by_name(machine.check_machine())["memory"].state == "fine"


def test_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert by_name(machine.check_terminal())["width"].state == "absent"


# --- places


def test_data_sets(monkeypatch, tmp_path):
    monkeypatch.setenv("SILODP_DATA", str(tmp_path / "nowhere"))
    found = by_name(doctor.check_data(tmp_path))
    assert {*DATA_SETS} <= set(found)
    assert found["school"].state == "absent"
    assert found["school"].remedy == "silodp data get school"
    assert found["adni"].remedy == "silodp data show adni"
    assert found["synthetic"].found == "needs no file"
    (tmp_path / "school.mat").write_bytes(b"")
    assert by_name(doctor.check_data(tmp_path))["school"].found == f"in {tmp_path}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_cache_that_cannot_be_written(monkeypatch, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    monkeypatch.setenv("SILODP_CACHE", str(locked))
    found = by_name(places.check_folders(tmp_path))
    assert found["cache"].state == "problem"
    assert "SILODP_CACHE" in found["cache"].remedy
