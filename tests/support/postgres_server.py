"""A PostgreSQL server for one test, on a free port of this machine, gone afterwards."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
PASSWORD = "p@ss w%rd/1"


def binary(name: str) -> str | None:
    """The newest one where distributions put them, else the one on the path."""
    found = sorted(
        file for place in PLACES for file in Path("/").glob(f"{place.lstrip('/')}/{name}")
    )
    return str(found[-1]) if found else shutil.which(name)


def why_not() -> str:
    """Why no server can be started here; empty if one can."""
    if binary("initdb") is None or binary("postgres") is None:
        return "the binaries of PostgreSQL (initdb, postgres) are not here"
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return ""


def _other_user() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def server():
    """The port of a running server whose user "site" has the PASSWORD."""
    # Not in pytest's own folder, which no other user may enter.
    folder = Path(tempfile.mkdtemp(prefix="silodp-pg-"))
    other = _other_user() if os.geteuid() == 0 else None
    as_user = {}
    if other is not None:
        as_user = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
    process = None
    try:
        (folder / "password").write_text(PASSWORD)
        for path in (folder, folder / "password") if other is not None else ():
            os.chown(path, other.pw_uid, other.pw_gid)
        subprocess.run(
            [
                *(binary("initdb"), "-D", folder / "data", "-U", "site", "-E", "UTF8"),
                *("--locale=C", "--auth=scram-sha-256", "--no-sync"),
                f"--pwfile={folder / 'password'}",
            ],
            check=True,
            capture_output=True,
            cwd=folder,
            timeout=60,
            **as_user,
        )
        port = free_port()
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [
                    *(binary("postgres"), "-D", folder / "data", "-p", str(port), "-F"),
                    *("-h", "127.0.0.1", "-k", ""),
                ],
                stdout=log,
                stderr=log,
                cwd=folder,
                **as_user,
            )
        _wait(process, port, folder / "log")
        yield port
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen, port: int, log: Path) -> None:
    import psycopg

    for _ in range(200):
        if process.poll() is not None:
            break
        try:
            psycopg.connect(
                host="127.0.0.1", port=port, user="site", password=PASSWORD, dbname="postgres"
            ).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"PostgreSQL does not start: {log.read_text()}")
