"""Progress in a notebook: one line that is written anew, by what IPython has for it."""

import math
import sys
import time
from typing import Any

from silodp.base.progress import Reporter

_SECONDS_BETWEEN = 0.3


def usual_reporter() -> Reporter:
    """What listens where the caller named nobody: a line in a notebook, and nobody elsewhere."""
    return NotebookProgress() if _in_notebook() else Reporter()


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookProgress(Reporter):
    """Shows the stage, what is done of it, and the latest test metric, in one line."""

    def __init__(self):
        self._handle: Any = None
        self._stage, self._written = "", 0.0

    def stage(self, name: str) -> None:
        """Shows that another stage begins."""
        self._stage = name
        self._show(name, at_once=True)

    def calibrated(self, done: int, total: int) -> None:
        """Shows the silos whose noise is calibrated."""
        self._show(f"{self._stage}: {done} of {total} silos", at_once=done >= total)

    def trained(self, done: int, total: int, metric: float) -> None:
        """Shows the rounds done, and the latest metric where there is one."""
        known = f", test metric {metric:.4g}" if math.isfinite(metric) else ""
        self._show(f"{self._stage}: {done} of {total} rounds{known}", at_once=done >= total)

    def swept(self, done: float, total: int, current: str | None) -> None:
        """Shows the runs done."""
        self._show(f"{math.floor(done)} of {total} runs", at_once=done >= total)

    def _show(self, line: str, at_once: bool) -> None:
        now = time.monotonic()
        if now - self._written < _SECONDS_BETWEEN and not at_once:
            return
        self._written = now
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        content = {"text/plain": line}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
