"""Many runs from one file: a grid over any options, one tidy table, resumable after any end."""

from silodp.sweeps.grid import Sweep, read_sweep, sweep_of
from silodp.sweeps.sweeping import run_sweep
from silodp.sweeps.table import read_table

__all__ = ["Sweep", "read_sweep", "read_table", "run_sweep", "sweep_of"]
