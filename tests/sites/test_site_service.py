"""What runs a site for years: units, containers, preflight, logs and folders that do not grow."""

import configparser
import json
import os
import shutil
import subprocess
from dataclasses import replace

import pytest
from site_folders import SITES, table
from site_processes import PASSPHRASE, fed_text, free_port

from silodp.base.errors import SilodpError
from silodp.base.version import own_version
from silodp.privacy.policy import Policy
from silodp.sites.connection import Connection
from silodp.sites.demo import let_in
from silodp.sites.federation_setup import set_up_federation
from silodp.sites.flare import hardening
from silodp.sites.membership import authority as authorities
from silodp.sites.membership.authority import open_authority
from silodp.sites.preflight import preflight
from silodp.sites.service import Service, unit_of, write_service
from silodp.sites.site_data import DataAtSite
from silodp.sites.site_setup import SiteSettings, consent_to, offered_proposal, set_up


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a service")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authorities, "_COST", 2**4)
        (folder / "fed.toml").write_text(fed_text(free_port(), 10, 30, 2, "fedavg"))
        made = set_up_federation(folder / "fed.toml", folder / "fed", PASSPHRASE)
        table(0).to_csv(folder / "records.csv", index=False)
        settings = SiteSettings(DataAtSite(path=folder / "records.csv"), Policy(4.0, 1e-3))
        own = set_up(made.invitations[0], folder / "north", settings)
        let_in(made.folder, open_authority(made.folder, PASSPHRASE), own)
    return own


def wrong(folder):
    return {one.what: one.words for one in preflight(folder) if not one.well}


def test_a_preflight_says_what_is_wrong_and_what_to_do(site, tmp_path):
    own = tmp_path / "north"
    shutil.copytree(site, own)
    found = wrong(own)
    assert set(found) == {"coordinator", "consent"}
    assert "nothing listens" in found["coordinator"]
    assert "site consent" in found["consent"]
    consent_to(own, offered_proposal(own, None))
    now = Connection(heard=1.0, clock=400 * 86400.0, version="0.0.9")
    now.write(own)
    found = wrong(own)
    assert set(found) == {"coordinator", "clock", "version"}
    replace(now, clock=1.0, version=own_version()).write(own)
    text = (own / "site.toml").read_text()
    (own / "site.toml").write_text(text.replace("records.csv", "gone.csv"))
    (own / "kit/startup/client.crt").unlink()
    found = wrong(own)
    assert set(found) == {"coordinator", "records", "certificate"}
    assert "site join" in found["certificate"]


def test_a_unit_runs_the_site_and_may_write_to_its_folders_only(site, tmp_path):
    odd = tmp_path / 'a "folder" of $HOME at 100%'
    unit = unit_of(Service("site", "north", odd, (tmp_path / "ledgers",)))
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.optionxform = str
    read.read_string(unit)
    service = read["Service"]
    assert service["ExecStart"].endswith('"--foreground"')
    assert r"a \"folder\" of $$HOME at 100%%" in service["ExecStart"]
    assert service["ProtectSystem"] == "strict"
    assert str(tmp_path / "ledgers") in service["ReadWritePaths"]
    files = write_service(Service("site", "north", site), tmp_path / "out")
    assert [path.name for path in files] == [
        "silodp-site-north.service",
        "silodp-site-north.Containerfile",
    ]
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", files[0]], capture_output=True, text=True, check=False
        )
        assert "Unknown" not in done.stderr, done.stderr
    command = [line for line in files[1].read_text().splitlines() if line.startswith("CMD ")]
    assert json.loads(command[0][4:]) == ["site", "start", str(site), "--foreground"]
    with pytest.raises(SilodpError, match="no unit can hold"):
        write_service(Service("site", "north", tmp_path / "a\nb"), tmp_path / "out")


def test_what_is_left_of_earlier_jobs_goes_at_the_next_start(site, tmp_path):
    own = tmp_path / "north"
    shutil.copytree(site, own)
    job = own / "kit" / "4894d541-b74d-4f9a-ab38-58e69ffb57c1"
    (job / "app").mkdir(parents=True)
    (own / "state").mkdir()
    log = own / "kit" / "audit.log"
    with log.open("wb") as file:
        file.truncate(hardening._LONGEST_LOG + 1)
    hardening.harden_site(own / "kit")
    assert not job.exists()
    assert (own / "state").exists()
    assert not log.exists()
    assert os.path.getsize(f"{log}.1") > hardening._LONGEST_LOG
    assert (own / "kit/startup/client.key").exists()


def test_commands_write_what_runs_them(site, tmp_path, cli):
    done = cli("site", "service", site, "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    done = cli("federation", "service", site.parent / "fed", "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == 4
    done = cli("site", "doctor", site, "--json")
    assert done.exit_code == 1
    assert {one["what"] for one in json.loads(done.stdout)} >= {"disk", "ledger", "records"}
    assert SITES[0] in (tmp_path / "silodp-site-north.service").read_text()
