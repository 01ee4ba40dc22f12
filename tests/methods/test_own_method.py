"""A method of one's own: found by name, run, its cost accounted; and what goes wrong, said."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from federations import small

import silodp
from silodp.engines.job import Job
from silodp.methods import METHODS, get_method
from silodp.methods.fedavg import fedavg
from silodp.methods.server import AVERAGE
from silodp.models.model import get_model
from silodp.privacy.mechanisms.queries import PassNoise

PACKAGE = Path(__file__).parents[2] / "examples" / "own_method"
BROKEN = """
absent = no_such_module:entry
gone = math:no_such_thing
exits = leaves:entry
number = math:pi
"""
RUN = {"rounds": 4, "batch_size": 16, "lr": 0.1, "epsilon": math.inf, "seeds": 1}
SMALL = ("--data", "synthetic", "--silos", "2", "--rounds", "2", "--epsilon", "3")


def installed(folder, points):
    """A folder as pip leaves it behind, with these entry points."""
    about = folder / "mixture-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mixture\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[silodp.methods]\n{points}\n")
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The example and some broken methods, as if installed; their folder."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "leaves.py").write_text("import sys\nsys.exit('I am a script')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PACKAGE)
        patch.syspath_prepend(installed(folder, "mixture = mixture:entry" + BROKEN))
        yield folder


def models(method, **options):
    return silodp.run(
        federation=small(sizes=(40, 40)), method=method, keep_models=True, **RUN | options
    ).models


def test_the_package_announces_what_the_test_does():
    assert 'mixture = "mixture:entry"' in (PACKAGE / "pyproject.toml").read_text()
    lines = (PACKAGE / "mixture.py").read_text().splitlines()
    assert len(lines) < 50
    assert [line for line in lines if "import" in line] == ["import jax", "import silodp"]


def test_it_is_run_by_name_from_the_command_line(cli, package, tmp_path):
    options = ("--method", "mixture", "--method-options", "alpha=0.7", *SMALL)
    done = cli("run", *options, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "mixture (alpha 0.7)" in done.stdout
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["options"]["method_options"] == "alpha=0.7"
    assert all(silo["unproven"] == [] for silo in result["privacy"])


def test_methods_lists_it_and_shows_what_is_broken(package, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    done = cli("methods")
    assert done.exit_code == 0, done.stderr
    rows, name = {}, ""
    for line in done.stdout.splitlines():
        name = line.split()[0] if line[1:2].strip() else name  # a method's first line
        rows[name] = rows.get(name, "") + line
    assert {"mrmtl", "mixture", "absent", "gone", "exits", "number"} <= set(rows)
    assert "2 training passes a round" in rows["mixture"]
    assert "--method-options alpha=0.5" in rows["mixture"]
    assert "ModuleNotFoundError" in rows["absent"]
    assert "ifca+mixture" in done.stdout


def test_its_cost_is_that_of_two_passes(package):
    def noise(method, **options):
        options = RUN | {"epsilon": 4} | options
        (plans,) = silodp.plan(federation=small(sizes=(40, 40)), method=method, **options).plans
        return [(plan.noise_multiplier, plan.statement()["steps"]) for plan in plans]

    assert noise("mixture") == noise("ditto") == noise("local", rounds=2 * RUN["rounds"])
    assert all(two[0] > one[0] for two, one in zip(noise("mixture"), noise("local"), strict=True))


def test_one_end_is_local_training(package):
    np.testing.assert_array_equal(models("mixture", method_options={"alpha": 1}), models("local"))


def test_the_other_end_is_fedavg(package):
    """Where both get the same answers: in a run, the shared model's pass is another one."""
    from mixture import mixture

    start = silodp.Start(jnp.zeros(3), jnp.zeros(2, jnp.uint32), 0, 2)
    shared = []
    for method in (mixture(0.0, AVERAGE), fedavg(AVERAGE)):
        server, silo = method.init(start)
        for _ in range(2):
            queries = silodp.Queries(
                lambda params: 0.5 * params + 1, None, PassNoise(0.0, 0.0, 0.0, 0.0)
            )
            silo, message = method.local(silo, method.broadcast(server), queries)
            server = method.merge(server, jnp.stack([message, 3 * message]), jnp.ones(2) / 2)
        shared.append(method.personal(silo, method.broadcast(server)))
    np.testing.assert_array_equal(*shared)
    assert shared[0][0] == 2  # 0 -> 2 -> 2 + 2 * (0.5 * 2 + 1 - 2)


def test_it_follows_ifca_and_takes_a_server_optimiser(package):
    options = {"select_fraction": 0.5, "server_optimiser": "fedavgm", "method_options": "alpha=0"}
    result = silodp.run(federation=small(sizes=(40, 40)), method="ifca+mixture", **RUN | options)
    assert np.isfinite(result.mean)
    passes, steps = 2, 40 // 16
    assert result.privacy[0]["steps"] == RUN["rounds"] * passes * steps


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("beta=1", "has no option 'beta': known are 'alpha'"),
        ("alpha=2", "alpha is 2.0: give a number from 0 to 1"),
        ("alpha", "'alpha' is ''"),
        ("alpha=", "'alpha' is ''"),
        ("alpha=much", "'alpha' is 'much'"),
        ("alpha=nan", "'alpha' is 'nan'"),
        ("=1", "'' is '1'"),
        ("", "'' is ''"),
        ("alpha=0.1,alpha=0.2", "given twice"),
        ("alpha=0.1,", "'' is ''"),
    ],
)
def test_wrong_options_of_it(package, cli, sentence, given, said):
    text = sentence(cli("plan", "--method", "mixture", "--method-options", given, *SMALL))
    assert "--method-options" in text
    assert said in text


def test_methods_without_options_of_their_own_take_none(cli, sentence):
    text = sentence(cli("plan", "--method", "fedavg", "--method-options", "alpha=1", *SMALL))
    assert "method 'fedavg' has no option 'alpha': leave it out" in text


@pytest.mark.parametrize("value", ["much", None, math.nan, [1]])
def test_options_as_a_dictionary_are_numbers(package, value):
    with pytest.raises(silodp.SilodpError, match="--method-options: 'alpha'"):
        models("mixture", method_options={"alpha": value})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent", "cannot be loaded (ModuleNotFoundError: No module named 'no_such_module')"),
        ("gone", "cannot be loaded (AttributeError"),
        ("exits", "cannot be loaded (SystemExit: I am a script)"),
        ("number", "is of type float: it must be a silodp.MethodEntry"),
        ("ifca+absent", "Method 'absent' of an installed package (no_such_module:entry)"),
        ("mixtur", "is unknown: did you mean 'mixture'"),
    ],
)
def test_broken_methods_are_refused_when_asked_for(package, cli, sentence, name, said):
    assert said in sentence(cli("plan", "--method", name, *SMALL))


def test_broken_methods_do_not_hinder_others(package, cli):
    assert cli("plan", "--method", "mrmtl", *SMALL, "--quiet").exit_code == 0


def test_a_name_of_ours_stays_ours(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(installed(tmp_path, "fedavg = math:pi\nhypcluster = math:pi"))
    assert get_method("fedavg").summary == "one shared model, the mean of all updates"
    assert get_method("hypcluster") is get_method("ifca")


def test_methods_that_call_themselves_alike_are_told_apart():
    """Else one would be run by the other's compiled program."""
    local = METHODS["local"]

    def mine(**options):
        return local.build(**options)

    def told(entry):
        model = get_model("linear", "regression", (3,))
        return Job(model, entry, rounds=2, weights=np.ones(2) / 2).identity

    assert told(local) == told(replace(local))
    assert told(replace(local, build=mine)) != told(local)
