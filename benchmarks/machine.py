"""What the numbers were measured on, and processes of their own for those that need one."""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def describe() -> dict[str, Any]:
    """Cores, processor, versions, and how busy the machine is."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 2),
        "versions": {
            "python": platform.python_version(),
            **{name: found for name in _PACKAGES if (found := _version(name))},
        },
    }


_PACKAGES = ("silodp", "jax", "jaxlib", "numpy", "torch", "opacus")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "?")


def peak_memory() -> int:
    """The most bytes of memory that this process has held."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        # Second choice: on Linux it starts from the peak of the parent, which may be larger.
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_child(module: str, *arguments: str, cache: Path | None = None) -> tuple[float, Any]:
    """Runs `python -m module` and gives its wall-clock seconds and the JSON on its last line.

    Args:
      module: to run.
      *arguments: of it.
      cache: folder for silodp's cache, in place of the user's.
    """
    # A cache of compiled programs would make a cold start warm.
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    if cache is not None:
        environment["SILODP_CACHE"] = str(cache)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])
