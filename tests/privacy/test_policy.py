import math
from dataclasses import FrozenInstanceError

import pytest

from silodp.base.errors import SilodpError
from silodp.privacy.policy import Policy, check_declared, check_delta, concerns
from silodp.privacy.policy_files import read_policies

SILOS = ("North clinic", "South clinic", "Harbour")


@pytest.fixture
def read(tmp_path):
    def read(text, given=None, silos=SILOS):
        path = tmp_path / "policies.toml"
        path.write_text(text, encoding="utf-8")
        return read_policies(path, silos, given)

    return read


def test_policy_is_checked_and_frozen():
    policy = Policy(3, 1e-5)
    assert (policy.epsilon, policy.delta) == (3.0, 1e-5)
    assert isinstance(policy.epsilon, float)
    assert Policy(math.inf, 0.5).epsilon == math.inf
    with pytest.raises(FrozenInstanceError):
        policy.epsilon = 4  # type: ignore[misc]


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, -math.inf, True, None, "three"])
def test_epsilon_out_of_range(epsilon):
    with pytest.raises(SilodpError, match="epsilon"):
        Policy(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 2, math.nan, math.inf, "inf", None])
def test_delta_out_of_range(delta):
    with pytest.raises(SilodpError, match="delta"):
        Policy(3, delta)


def test_the_silo_is_named_but_not_kept():
    with pytest.raises(SilodpError, match="Silo 'Harbour': epsilon is -1"):
        Policy(-1, 1e-5, silo="Harbour")
    assert Policy(1, 1e-5, silo="Harbour") == Policy(1, 1e-5)


def test_own_then_default_then_command_line(read):
    policies = read(
        """
        [default]
        epsilon = 3

        [silos."North clinic"]
        epsilon = 1

        [silos.Harbour]
        epsilon = 0.5
        delta = 1e-6
        """,
        {"epsilon": 8, "delta": 1e-4},
    )
    assert policies == (Policy(1, 1e-4), Policy(3, 1e-4), Policy(0.5, 1e-6))


def test_an_empty_file_leaves_the_command_line(read):
    assert read("", {"epsilon": 8, "delta": 1e-4}) == (Policy(8, 1e-4),) * 3
    assert read("[default]\nepsilon = 3", {"delta": 1e-4}) == (Policy(3, 1e-4),) * 3
    with pytest.raises(SilodpError, match="Silo 'North clinic': delta is 2"):
        read("[default]\nepsilon = 3", {"delta": 2})


@pytest.mark.parametrize("written", ["inf", '"inf"', "+inf"])
def test_no_privacy_may_be_asked_for(read, written):
    assert read(f"[default]\nepsilon = {written}\ndelta = 0.1")[0].epsilon == math.inf


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default]\nepsilon = 3", ["'North clinic' has no delta", "[default]", "--delta"]),
        ("[default]\ndelta = 1e-3", ["'North clinic' has no epsilon"]),
        ("[default]\nepsilom = 3", ["[default]", "field 'epsilom'", "did you mean 'epsilon'?"]),
        ("[default]\ncolour = 3", ["field 'colour'", "known are 'epsilon', 'delta'"]),
        ("[defaults]\nepsilon = 3", ["table 'defaults'", "did you mean 'default'?"]),
        ('[silos."Nort clinic"]\nepsilon = 1', ["silo 'Nort clinic'", "'North clinic'"]),
        ("[silos.Xyz]\nepsilon = 1", ["silo 'Xyz'", "known are 'North clinic'"]),
        ('[silos."Harbour"]\nepsilon = "3"', ['[silos."Harbour"]', "epsilon is '3'", "quotes"]),
        ("[silos.Harbour]\ndelta = 1.5", ['[silos."Harbour"]', "delta is 1.5", "1e-5"]),
        ("[silos.Harbour]\nepsilon = 0", ["epsilon is 0", "above 0"]),
        ("[silos.Harbour]\nepsilon = true", ["epsilon is True", "not a number"]),
        ("[silos.Harbour]\nepsilon = nan", ["epsilon is nan"]),
        ('[default]\nepsilon = 3\ndelta = "inf"', ["delta is 'inf'"]),
        ("silos = 3", ["silos must be tables"]),
        ("default = 3", ["[default] must be a table"]),
        ("[silos]\nHarbour = 3", ['[silos."Harbour"] must be a table']),
        ("[silos.North clinic]\nepsilon = 1", ["not valid TOML: fix line 1 (", "quotes"]),
        ("epsilon = " + "9" * 5000, ["not valid TOML"]),
        ("epsilon = 3", ["epsilon stands outside all tables", "[default]", "folder"]),
    ],
)
def test_errors_name_the_file_the_place_and_the_remedy(read, text, words):
    with pytest.raises(SilodpError) as error:
        read(text)
    assert "policies.toml" in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_missing_or_unreadable_file(tmp_path):
    with pytest.raises(SilodpError, match="does not exist: check the path"):
        read_policies(tmp_path / "none.toml", SILOS)
    with pytest.raises(SilodpError, match="holds no policy"):
        read_policies(tmp_path, SILOS)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SilodpError, match="not text"):
        read_policies(tmp_path / "binary.toml", SILOS)


def test_a_folder_holds_a_file_for_each_silo(tmp_path):
    (tmp_path / "default.toml").write_text("epsilon = 3\ndelta = 1e-4")
    (tmp_path / "North clinic.toml").write_text(
        'epsilon = 1\nlifetime_epsilon = 4\nrelation = "replace-one"\nsubject = "patient"'
    )
    north, south, harbour = read_policies(tmp_path, SILOS)
    assert south == harbour == Policy(3, 1e-4)
    assert (north.epsilon, north.delta, north.lifetime) == (1, 1e-4, (4, 1e-4))
    assert (north.relation, north.subject, north.unit) == ("replace-one", "patient", "subject")
    (tmp_path / "Nort clinic.toml").write_text("epsilon = 1")
    with pytest.raises(SilodpError, match="silo 'Nort clinic' is unknown: did you mean 'North"):
        read_policies(tmp_path, SILOS)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('relation = "swap"', ["relation is 'swap'", "'replace-one'", "'add-remove'"]),
        ('public = "record count"', ["public is 'record count'", "give a list"]),
        ('public = ["records"]', ["public holds 'records'", "'record count'"]),
        ("records = 0", ["records is 0", "at least 1"]),
        ("records = 1.5", ["records is 1.5"]),
        ('subject = ""', ["subject is ''", "name of a column"]),
        ("lifetime_epsilon = -1", ["lifetime_epsilon is -1", "above 0"]),
        ("lifetime_delta = 3", ["lifetime_delta is 3"]),
        ("lifetime_epsilon = 2", ["lifetime_epsilon is 2", "below the epsilon of a single run"]),
        ("lifetime_delta = 1e-9", ["lifetime_delta is 1e-09", "below the delta"]),
        ("public = []", ["record count is not public", "records = 100"]),
    ],
)
def test_every_field_is_checked(read, line, words):
    with pytest.raises(SilodpError) as error:
        read(f"[default]\nepsilon = 3\ndelta = 1e-4\n{line}")
    for word in words:
        assert word in str(error.value)


def test_what_is_counted_on_when_the_count_is_private():
    private = Policy(3, 1e-4, public=(), records=100)
    assert not private.count_is_public
    assert [private.counted(n) for n in (99, 100, 150)] == [100] * 3
    # Neighbours under replace-one have as many records.
    assert Policy(3, 1e-4, public=(), relation="replace-one").counted(150) == 150
    assert Policy(3, 1e-4).counted(150) == 150


def test_what_is_not_declared_public_is_not_used():
    policy = Policy(3, 1e-4, public=("record count", "label range"))
    check_declared("Harbour", policy, ("label range",))
    with pytest.raises(SilodpError, match=r"'Harbour'.*feature bounds.*add 'feature bounds'"):
        check_declared("Harbour", policy, ("label range", "feature bounds"))


def test_an_unreasonable_delta_is_refused_and_a_doubtful_one_is_not_passed_over():
    check_delta("a", Policy(3, 1e-3), 999)
    with pytest.raises(SilodpError, match=r"'a': delta is 0\.001, at least 1/1000 for"):
        check_delta("a", Policy(3, 1e-3), 1000)
    check_delta("a", Policy(math.inf, 0.5), 1000)
    assert concerns(["a", "b"], [Policy(3, 1e-4)] * 2, [100, 200]) == []
    (one,) = concerns(["a", "b", "c"], [Policy(3, 1e-4)] * 3, [100, 6000, 9000])
    assert "'b' and 1 other" in one
    assert "n^-1.1" in one
    (one,) = concerns(["a"], [Policy(11, 1e-4)], [100])
    assert "epsilon is above 10" in one
    assert concerns(["a"], [Policy(math.inf, 0.5)], [100]) == []
