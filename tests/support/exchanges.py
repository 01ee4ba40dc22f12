"""Three sites and a coordinator who send each other files, in four folders, by the command line."""

import shutil
from pathlib import Path

from site_folders import SITES, schema, site_text, table

from silodp.methods import get_method
from silodp.privacy.ledger.storage import exists, read_ledger
from silodp.sites.exchange.coordinator_folder import CoordinatorFolder
from silodp.sites.exchange.site_folder import ExchangeSite
from silodp.sites.site_files import _toml, read_site

BUDGET = (
    "--epsilon",
    "4",
    "--delta",
    "1e-3",
    "--lifetime-epsilon",
    "5",
    "--lifetime-delta",
    "1e-2",
)


def fed_text(rounds=2, method="fedavg", quorum=3, **training):
    """A fed.toml without a server, of the records of `site_folders`."""
    passes = f'rounds = {rounds}\nbatch_size = 16\nlr = 0.1\nweights = "uniform"'
    lines = [
        'name = "by file"',
        f"sites = {_toml(list(SITES))}",
        f'[training]\nmethod = "{method}"',
        *([] if get_method(method).in_messages else [passes]),
        *(f"{name} = {_toml(value)}" for name, value in training.items()),
        f"[rules]\nquorum = {quorum}",
        "[schema]",
    ]
    for key, value in schema().items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} = {_toml(own)}" for name, own in value.items())
            lines.append(f"{key} = {{{value}}}")
        else:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


class Users:
    """A coordinator and three sites, each with a folder of its own.

    Attributes:
      folder: around all of them.
      fed: the coordinator's.
      sites: each site's, by its name.
    """

    def __init__(self, cli, folder):
        self.cli, self.folder, self.fed = cli, folder, folder / "coordinator"
        self.sites = {site: folder / f"at-{site}" for site in SITES}

    @classmethod
    def begin(cls, cli, folder, **fed):
        """The coordinator has invited, and nobody has joined."""
        users = cls(cli, folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fed.toml").write_text(fed_text(**fed))
        users.done("init", folder / "fed.toml", "--out", users.fed)
        return users

    def copied(self, folder):
        """The same users in another place, with ledgers of their own."""
        folder.mkdir(parents=True)
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        for path in (*folder.rglob("site.toml"), *folder.rglob("sources.json")):
            path.write_text(path.read_text().replace(str(self.folder), str(folder)))
        return Users(self.cli, folder)

    def done(self, *args):
        """What the command prints; it must do what it is asked for."""
        done = self.cli("exchange", *args)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def join(self, site, keys="os"):
        """The site's join file."""
        own, data = self.sites[site], self.folder / f"{site}.csv"
        table(SITES.index(site)).to_csv(data, index=False)
        invitation = self.fed / "to-send" / f"{site}.invitation"
        given = ("--out", own, "--data", data, "--source", site, "--ledger", f"{own}-ledgers")
        self.done("join", invitation, *given, *BUDGET, "--yes")
        if keys == "test":
            (own / "site.toml").write_text(site_text(site, "test", data=f'path = "{data}"'))
        return own / "to-send" / f"{site}.join"

    def all_join(self, keys="os"):
        self.done("merge", self.fed, *(self.join(site, keys) for site in SITES))

    def ask(self, when, *more):
        """The coordinator's files by site; `when` is round-1, round-2, ..., last."""
        self.done("ask", self.fed, *more)
        return {site: self.fed / "to-send" / f"{site}.{when}.ask" for site in SITES}

    def answer(self, question):
        """The answer to a file, by the site that it is named after."""
        site, when = question.name.split(".", 1)
        self.done("answer", self.sites[site], question)
        return self.sites[site] / "to-send" / f"{site}.{when.removesuffix('ask')}answer"

    def merge(self, *files):
        return self.done("merge", self.fed, *files)

    def kinds(self, site):
        """The kinds of the entries in the site's ledger."""
        config = read_site(self.sites[site])
        if not exists(config.ledger, config.ledger_name):
            return []
        return [e.kind for e in read_ledger(config.ledger, config.ledger_name).entries]

    def site(self, name):
        return ExchangeSite(self.sites[name])

    @property
    def coordinator(self):
        return CoordinatorFolder(self.fed)


def altered(path, into: Path, change):
    """A copy of the file with other content."""
    into.mkdir(exist_ok=True)
    copy = into / path.name
    copy.write_bytes(change(path.read_bytes()))
    return copy


def flipped(place):
    """Changes one bit of the byte at the place."""

    def change(content):
        changed = bytearray(content)
        changed[place] ^= 1
        return bytes(changed)

    return change
