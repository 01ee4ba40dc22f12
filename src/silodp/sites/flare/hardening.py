"""Settings of what FLARE may do: each party writes them into its own workspace.

A site does not take them from its kit, which the coordinator made.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from silodp.base.files import write_file

ADMIN = "admin@silodp.org"
ORG = "silodp"
CONTROLLER = "silodp.sites.flare.controller.SilodpController"
EXECUTOR = "silodp.sites.flare.executor.SilodpExecutor"
KIT_FILES = ("client.crt", "client.key", "fed_client.json", "rootCA.pem")

_FLARE_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_LOG = 10 << 20  # bytes

# Whatever is not named here is denied, and so is every other role.
_RIGHTS = ("submit_job", "manage_job", "download_job", "view")


def harden_site(kit: Path) -> None:
    """Writes the site's own settings into its workspace, and removes all others there."""
    _only(kit / "startup", KIT_FILES)
    shutil.rmtree(kit / "custom", ignore_errors=True)
    shutil.rmtree(kit / "local", ignore_errors=True)
    (kit / "local").mkdir(mode=0o700, parents=True)
    _write(kit / "local" / "resources.json", _site_resources())
    _write(kit / "local" / "authorization.json", _authorization())
    _write(kit / "local" / "log_config.json", _logging())
    (kit / "transfer").mkdir(mode=0o700, exist_ok=True)
    _tidy(kit)


def harden_server(server: Path, store: Path, removed: Iterable[str] = ()) -> None:
    """Writes the server's settings.

    Args:
      server: its workspace.
      store: where it keeps its jobs, an absolute path.
      removed: the sites that were removed for good, for FLARE's own list of them.
    """
    (server / "local").mkdir(mode=0o700, exist_ok=True)
    _tidy(server)
    # What is here are jobs that a server which was killed would list as running for ever.
    shutil.rmtree(store, ignore_errors=True)
    _write(server / "local" / "resources.json", _server_resources(store))
    _write(server / "local" / "authorization.json", _authorization())
    _write(server / "local" / "log_config.json", _logging())
    _write(server / "disabled_clients.json", {"disabled_clients": sorted(removed)})
    for name in ("jobs", "snapshots"):
        (store / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def _site_resources() -> dict[str, Any]:
    # FLARE sends the server every top-level key that it does not know: nothing private here.
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        # Of FLARE's 30 s for an answer to a sign of life: a cut is known sooner.
        "client": {"retry_timeout": 30, "compression": "Gzip", "maint_msg_timeout": 8.0},
        "components": [
            {
                "id": "resource_manager",
                "path": "nvflare.app_common.resource_managers."
                "gpu_resource_manager.GPUResourceManager",
                "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
            },
            {
                "id": "resource_consumer",
                "path": "nvflare.app_common.resource_consumers."
                "gpu_resource_consumer.GPUResourceConsumer",
                "args": {},
            },
            {
                "id": "process_launcher",
                "path": "silodp.sites.flare.launchers.SiteJobLauncher",
                "args": {},
            },
        ],
    }


def _server_resources(store: Path) -> dict[str, Any]:
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    components = {
        "job_scheduler": (
            "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
            {"max_jobs": 4},
        ),
        "job_manager": (
            "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
            {"uri_root": str(store / "jobs"), "job_store_id": "job_store"},
        ),
        "job_store": (storage, {}),
        "process_launcher": ("silodp.sites.flare.launchers.ServerJobLauncher", {}),
    }
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                # A site sends a sign of life every few seconds; FLARE's default is 10 minutes.
                "heart_beat_timeout": 60,
                "download_job_url": "http://download.server.com/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor."
            "StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": str(store / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            {"id": name, "path": path, "args": args} for name, (path, args) in components.items()
        ],
    }


def _authorization() -> dict[str, Any]:
    rights = dict.fromkeys(_RIGHTS, "any") | {
        "operate": "none",
        "clone_job": "none",
        "byoc": "none",
        "shell_commands": "none",
        "server-predeployed-flwr": "none",
    }
    return {"format_version": "1.0", "permissions": {"project_admin": rights}}


def _logging() -> dict[str, Any]:
    """Logs warnings to standard output only, which silodp keeps outside FLARE's workspace."""
    line = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    formatter = {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": line}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"baseFormatter": formatter},
        "handlers": {
            "consoleHandler": {
                "class": "logging.StreamHandler",
                "level": "DEBUG",
                "formatter": "baseFormatter",
                "stream": "ext://sys.stdout",
            }
        },
        "loggers": {"root": {"level": "WARNING", "handlers": ["consoleHandler"]}},
    }


def _tidy(workspace: Path) -> None:
    """Removes what earlier jobs of FLARE left in a workspace: silodp keeps nothing in there."""
    for path in workspace.iterdir():
        if path.is_dir() and _FLARE_JOB.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    rotate(workspace / "audit.log")


def rotate(log: Path) -> None:
    """Puts a log that has grown long aside, and the one before that away."""
    try:
        if log.stat().st_size > _LONGEST_LOG:
            os.replace(log, log.with_name(f"{log.name}.1"))
    except FileNotFoundError:
        return


def _only(folder: Path, names: Iterable[str]) -> None:
    """Removes from a folder all that has none of these names."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in names:
            path.unlink()


def _write(path: Path, value: dict[str, Any]) -> None:
    write_file(path, json.dumps(value, indent=1) + "\n")
