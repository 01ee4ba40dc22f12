"""One process at a time for a job at a site, and for the noise of a charge."""

import fcntl
import time
from pathlib import Path
from typing import IO

from silodp.sites.refusals import BusyRefusal

# Seconds to wait for a process that was at work on the job: it may be about to end.
PATIENCE = 20.0


def only_one(path: Path, patience: float | None = None) -> IO[str]:
    """Locks the file until it is closed; refuses if another process holds it.

    Two processes that answer for one job could answer a round twice, in two ways.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    lock = path.open("w")
    end = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            if time.monotonic() > end:
                lock.close()
                raise BusyRefusal("another process of the site is at work on this job") from None
        time.sleep(0.2)
