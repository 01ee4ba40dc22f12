"""Tuning within each silo's policy: the pivot protocol, and its costs beside other ways."""

from silodp.tuning.tune import tune

__all__ = ["tune"]
