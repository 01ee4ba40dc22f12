"""JAX set up for this machine: all cores at work, and programs that are compiled once."""

import contextlib
import hashlib
import os
import platform
from pathlib import Path

import jax

from silodp.base.cache import cache_dir

SECONDS_WORTH_KEEPING = 0.5


def prepare_jax(cores: int | None = None) -> None:
    """Gives JAX one CPU device a core (all, or `cores` of them) and a folder for programs.

    Runs are spread over devices; with a single one most cores would idle. If JAX is running
    already, its devices are what there is. What the user has set is left alone.
    """
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores or len(os.sched_getaffinity(0)))
    if cores:
        jax.local_devices()  # started now: who asks for all of them later gets these
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(_program_folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SECONDS_WORTH_KEEPING)


def _program_folder() -> Path:
    """A folder for this kind of processor: a home folder may be shared by unlike machines."""
    kind = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        about = {line for line in lines if line.startswith(("model name", "flags"))}
        kind += "".join(sorted(about))
    return cache_dir() / "programs" / hashlib.sha256(kind.encode()).hexdigest()[:16]
