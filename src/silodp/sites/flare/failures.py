"""The reason why a job stopped: noted by its process, read by whoever follows the job."""

from pathlib import Path

from silodp.base.files import write_file


def failure_file(folder: Path, job: str) -> Path:
    """The file in the federation's folder that holds the reason."""
    return folder / "state" / job / "stopped.txt"


def note_failure(folder: Path, job: str, reason: str) -> None:
    """Notes why the job stopped."""
    write_file(failure_file(folder, job), reason)


def forget_failure(folder: Path, job: str) -> None:
    """Removes the reason of an earlier attempt at this job."""
    failure_file(folder, job).unlink(missing_ok=True)


def noted_failure(folder: Path, job: str) -> str | None:
    """The reason, if one was noted."""
    try:
        return failure_file(folder, job).read_text("utf-8")
    except FileNotFoundError:
        return None
