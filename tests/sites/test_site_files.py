import math
import os
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silodp.base.errors import SilodpError
from silodp.privacy.policy import PUBLIC, Policy
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_files import SiteConfig, read_site, write_site

SHORT = """
site = "north"
[data]
path = "records.csv"
[policy]
epsilon = 3
delta = 1e-5
"""
LONG = """
site = "north"
keys = "test"
[data]
url_env = "NORTH_URL"
query = "select * from visits"
test_fraction = 0.3
seed = 7
id_column = "visit"
[policy]
epsilon = 3
delta = 1e-5
lifetime_epsilon = 8
lifetime_delta = 1e-4
relation = "replace-one"
subject = "who"
public = ["record count", "class list"]
records = 100
tell_noise = false
[ledger]
path = "kept/ledger"
"""


def site(folder, text):
    (folder / "site.toml").write_text(text, encoding="utf-8")
    return folder


def refused(words, folder):
    with pytest.raises(SilodpError, match=words) as error:
        read_site(folder)
    message = str(error.value)
    assert message.endswith((".", "?"))
    assert "\n" not in message
    return message


# --- what is read


def test_defaults(tmp_path):
    assert read_site(site(tmp_path, SHORT)) == SiteConfig(
        folder=tmp_path,
        site="north",
        data=DataAtSite(folder=tmp_path, path=Path("records.csv")),
        policy=Policy(3, 1e-5),
        ledger=tmp_path / "ledger",
        tell_noise=True,
        test_fraction=0.2,
        seed=0,
        keys="os",
    )


def test_everything(tmp_path):
    config = read_site(str(site(tmp_path, LONG)))
    assert config == SiteConfig(
        folder=tmp_path,
        site="north",
        data=DataAtSite(folder=tmp_path, url_env="NORTH_URL", query="select * from visits"),
        policy=Policy(
            3,
            1e-5,
            8,
            1e-4,
            relation="replace-one",
            subject="who",
            public=("record count", "class list"),
            records=100,
        ),
        ledger=tmp_path / "kept" / "ledger",
        tell_noise=False,
        test_fraction=0.3,
        seed=7,
        id_column="visit",
        keys="test",
    )


def test_absolute_paths(tmp_path):
    text = SHORT.replace("records.csv", "/data/a.csv") + '[ledger]\npath = "/kept/ledger"'
    config = read_site(site(tmp_path, text))
    assert config.data.folder / config.data.path == Path("/data/a.csv")
    assert config.ledger == Path("/kept/ledger")


# --- what is written


def test_what_is_written(tmp_path):
    folder = tmp_path / "a" / "north"
    data = DataAtSite(folder=folder, path=Path("records.csv"))
    path = write_site(folder, "north", data, Policy(3, 1e-5))
    assert path == folder / "site.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(folder) == ["site.toml"]
    assert read_site(folder) == read_site(site(folder, SHORT))


def test_a_query_keeps_its_lines(tmp_path):
    query = "select *\nfrom visits\n\twhere ward = 'a\\b' -- \"all\"\n"
    data = DataAtSite(folder=tmp_path, url="sqlite:///a.db", query=query)
    path = write_site(tmp_path, "north", data, Policy(3, 1e-5))
    assert query in path.read_text()
    assert read_site(tmp_path).data == data


def test_a_file_is_not_written_over(tmp_path):
    data = DataAtSite(path=Path("a.csv"))
    path = write_site(tmp_path, "north", data, Policy(3, 1e-5))
    with pytest.raises(SilodpError, match="'north' has a file already"):
        write_site(tmp_path, "north", data, Policy(1, 1e-5))
    assert read_site(tmp_path).policy.epsilon == 3
    path.chmod(0o644)
    write_site(tmp_path, "north", data, Policy(1, 1e-5), overwrite=True)
    assert read_site(tmp_path).policy.epsilon == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_read_is_not_written(tmp_path):
    data = DataAtSite(path=Path("a.csv"))
    for words, change in (
        ("test_fraction", {"test_fraction": 1.0}),
        ("Seed -1", {"seed": -1}),
        ("keys is 'none': use", {"keys": "none"}),
        ("tell_noise is 1", {"tell_noise": 1}),
        ("no records are named", {"data": DataAtSite()}),
        ("site is '': give", {"site": ""}),
        ("\\[ledger\\]: path is ''", {"ledger": ""}),
    ):
        given = {"site": "north", "data": data, "policy": Policy(3, 1e-5), **change}
        with pytest.raises(SilodpError, match=f"^{tmp_path}/site.toml: .*{words}"):
            write_site(tmp_path, **given)
        assert os.listdir(tmp_path) == []
    with pytest.raises(SilodpError, match=r"'north'.*text that cannot be written"):
        write_site(tmp_path, "north", DataAtSite(path=Path("a\udc80")), Policy(3, 1e-5))


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "north").write_text("a file")
    with pytest.raises(SilodpError, match="'north' cannot be written"):
        write_site(tmp_path / "north", "north", DataAtSite(path=Path("a")), Policy(3, 1e-5))


# --- there and back

texts = st.text(st.characters(codec="utf-8"), max_size=20).filter(str.strip)
names = texts.filter(str.isprintable)
paths = texts.filter(lambda text: "\0" not in text)
budgets = st.floats(0, 100, exclude_min=True) | st.integers(1, 100) | st.just(math.inf)
deltas = st.floats(0, 1, exclude_min=True, exclude_max=True)
databases = st.builds(DataAtSite, url=texts, query=texts) | st.builds(
    DataAtSite, url_env=texts, query=texts
)


@st.composite
def policies(draw):
    epsilon, delta = draw(budgets), draw(deltas)
    return Policy(
        epsilon=epsilon,
        delta=delta,
        lifetime_epsilon=draw(st.none() | budgets.map(lambda more: max(more, epsilon))),
        lifetime_delta=draw(st.none() | deltas.map(lambda more: max(more, delta))),
        relation=draw(st.sampled_from(["add-remove", "replace-one"])),
        subject=draw(st.none() | texts),
        public=tuple(draw(st.lists(st.sampled_from(PUBLIC), unique=True))),
        records=draw(st.integers(1, 10**6)),
    )


@settings(deadline=None, max_examples=60)
@given(
    names,
    st.builds(DataAtSite, path=paths.map(Path)) | databases,
    policies(),
    st.fixed_dictionaries(
        {
            "ledger": paths,
            "source": st.none() | names,
            "tell_noise": st.booleans(),
            "test_fraction": st.floats(0.01, 0.99),
            "seed": st.integers(0, 2**32 - 1),
            "id_column": st.none() | names,
            "keys": st.sampled_from(["os", "test"]),
        }
    ),
)
def test_there_and_back(name, data, policy, more):
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        write_site(folder, name, data, policy, **more)
        config = read_site(folder)
    expected = SiteConfig(folder, name, replace(data, folder=folder), policy, **more)
    assert config == replace(expected, ledger=folder / more["ledger"])


# --- what is refused


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        ("the key 'polcy' is unknown: did you mean 'policy'", "[policy]", "[polcy]"),
        ("has no site: give", 'site = "north"', ""),
        ("site is 3: give", '"north"', "3"),
        ("site is ' ': give", '"north"', '" "'),
        ("site is 'a\\\\nb': give", '"north"', '"a\\nb"'),
        ("not valid TOML", "epsilon = 3", "epsilon = "),
        ("epsilon stands outside .* below \\[policy\\]", 'site = "north"', "epsilon = 1"),
        ("seed stands outside all tables: .* below \\[data\\]", "[data]", "seed = 1\n[data]"),
        ("keys is 'oss': use 'os'", "[data]", 'keys = "oss"\n[data]'),
        ("data is not a table", '[data]\npath = "records.csv"', "data = 3"),
        ("ledger is not a table", "[data]", 'ledger = "x"\n[data]'),
        ("'north': \\[data\\]: the key 'pth' is unknown: did you mean 'path'", "path", "pth"),
        ("'north': \\[data\\]: path is not text", '"records.csv"', "3"),
        ("'north': \\[data\\]: no records are named", 'path = "records.csv"', ""),
        ("'north': \\[data\\]: url is given, but no query", "path", "url"),
        ("'north': .*test_fraction is 2", "[policy]", "test_fraction = 2\n[policy]"),
        ("'north': .*seed is 'a'", "[policy]", 'seed = "a"\n[policy]'),
        ("'north': \\[data\\]: id_column is 3", "[policy]", "id_column = 3\n[policy]"),
        (
            "'north': \\[policy\\]: the key 'epsilo' is unknown: did you mean 'epsilon'",
            "epsilon",
            "epsilo",
        ),
        ("'north': \\[policy\\] has no epsilon: give", "epsilon = 3", ""),
        ("'north': \\[policy\\] has no delta: give", "delta = 1e-5", ""),
        ("'north': epsilon is -3", "epsilon = 3", "epsilon = -3"),
        ("'north': epsilon is 'x', which is not a number", "epsilon = 3", 'epsilon = "x"'),
        ("'north': delta is 2", "delta = 1e-5", "delta = 2"),
        ("'north': lifetime_epsilon is 1, below", "delta", "lifetime_epsilon = 1\ndelta"),
        ("'north': relation is 'replace': use", "delta", 'relation = "replace"\ndelta'),
        ("'north': public holds 'recrd count'", "delta", 'public = ["recrd count"]\ndelta'),
        ("'north': record count is not public", "delta", "public = []\ndelta"),
        ("'north': records is 0", "delta", "records = 0\ndelta"),
        ("'north': .*tell_noise is 'no': write true", "delta", 'tell_noise = "no"\ndelta'),
        ("'north': \\[ledger\\]: the key 'file'", "[data]", '[ledger]\nfile = "x"\n[data]'),
        ("'north': \\[ledger\\]: path is 3", "[data]", "[ledger]\npath = 3\n[data]"),
    ],
)
def test_refused(tmp_path, words, old, new):
    assert old in SHORT
    refused(words, site(tmp_path, SHORT.replace(old, new, 1)))


def test_files_that_cannot_be_read(tmp_path):
    refused("does not exist: give the folder", tmp_path)
    refused("does not exist", tmp_path / "none")
    (tmp_path / "site.toml").write_bytes(b"site = '\xff'")
    refused("not text: save it as UTF-8", tmp_path)
    (tmp_path / "site.toml").unlink()
    (tmp_path / "site.toml").mkdir()
    refused("cannot be read", tmp_path)


def test_a_password_is_not_repeated(tmp_path):
    url = 'url = "postgresql://reader:secret@host/db"'
    for change in (url, f"{url}\nquery = 3", f'{url}\nquery = "x"\nurl_env = "A"', f"{url} x"):
        message = refused(
            "site.toml", site(tmp_path, SHORT.replace('path = "records.csv"', change))
        )
        assert "secret" not in message
    good = SHORT.replace('path = "records.csv"', f'{url}\nquery = "select 1"')
    assert "secret" not in repr(read_site(site(tmp_path, good)))
