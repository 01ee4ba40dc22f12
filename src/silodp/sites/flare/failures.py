"""Why a job stopped: noted by the job's own process, read by whoever follows the job."""

import os
from pathlib import Path


def failure_file(folder: Path, job: str) -> Path:
    """Where the reason is noted, in the federation's folder."""
    return folder / "state" / job / "stopped.txt"


def note_failure(folder: Path, job: str, reason: str) -> None:
    """Notes why the job stopped."""
    path = failure_file(folder, job)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(reason, "utf-8")
    os.replace(part, path)


def forget_failure(folder: Path, job: str) -> None:
    """Removes the reason of an earlier attempt at this job."""
    failure_file(folder, job).unlink(missing_ok=True)


def noted_failure(folder: Path, job: str) -> str | None:
    """The reason, if one was noted."""
    try:
        return failure_file(folder, job).read_text("utf-8")
    except FileNotFoundError:
        return None
