"""Checks of the machine, of JAX on it, and of the terminal."""

import locale
import os
import shutil
import sys
import time
from collections.abc import Iterator

from silodp.doctor.findings import Finding

_LEAST_COLUMNS = 80
_LEAST_MEMORY = 2.0  # GB, of which JAX alone takes a third


def check_machine() -> Iterator[Finding]:
    """Checks cores and memory."""
    part = "machine"
    yield Finding(part, "cores", str(_cores()))
    memory = _memory()
    if memory is None:
        yield Finding(part, "memory", "unknown on this system")
        return
    whole, free = memory
    found = f"{whole:.1f} GB, {free:.1f} GB of it free"
    if whole < _LEAST_MEMORY:
        remedy = f"Large data will not fit: {_LEAST_MEMORY:g} GB or more are needed for them."
        yield Finding(part, "memory", found, "absent", remedy)
    else:
        yield Finding(part, "memory", found)


def _cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> tuple[float, float] | None:
    """Memory in GB, all of it and what is free now; None if unknown."""
    try:
        page = os.sysconf("SC_PAGE_SIZE") / 1e9
        return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page
    except (AttributeError, ValueError, OSError):
        return None


def check_jax() -> Iterator[Finding]:
    """Checks that JAX compiles a step and computes it right; names its devices."""
    part = "JAX"
    try:
        import jax
        import jax.numpy as jnp

        began = time.perf_counter()
        step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda v: jnp.sum((x @ v - 1) ** 2))(w))
        answer = float(step(jnp.zeros(2), jnp.eye(2))[0])
        seconds = time.perf_counter() - began
        devices = ", ".join(map(str, jax.devices()))
        precision = "double" if jnp.result_type(float) == jnp.float64 else "single"
    except Exception as error:  # any error at all is the finding
        what = " ".join(f"{type(error).__name__}: {error}".split())
        remedy = "pip install --force-reinstall 'jax[cpu]' in an environment of its own."
        yield Finding(part, "compiled step", f"fails ({what})", "problem", remedy)
        return
    yield Finding(part, "devices", devices)
    yield Finding(part, "arithmetic", f"{precision} precision (silodp trains in single)")
    if abs(answer - 0.2) < 1e-6:
        yield Finding(part, "compiled step", f"right, in {seconds:.2f} s with compiling")
    else:
        remedy = "pip install --force-reinstall 'jax[cpu]' in an environment of its own."
        yield Finding(part, "compiled step", f"gives {answer}, not 0.2", "problem", remedy)


def check_terminal() -> Iterator[Finding]:
    """Checks the encoding and the width of the terminal."""
    part = "terminal"
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    found = f"{encoding} (locale {locale.setlocale(locale.LC_CTYPE)})"
    if encoding.lower().replace("-", "") == "utf8":
        yield Finding(part, "encoding", found)
    else:
        remedy = "export PYTHONUTF8=1, else names and signs are printed as codes."
        yield Finding(part, "encoding", found, "absent", remedy)
    columns = shutil.get_terminal_size().columns
    if columns >= _LEAST_COLUMNS:
        yield Finding(part, "width", f"{columns} columns")
    else:
        remedy = f"Tables are made for {_LEAST_COLUMNS} columns or more: widen the window."
        yield Finding(part, "width", f"{columns} columns", "absent", remedy)
