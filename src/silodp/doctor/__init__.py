"""Whether an installation can do its work, and what to do where it cannot."""

from silodp.doctor.findings import Finding, State
from silodp.doctor.machine import check_jax, check_machine, check_terminal
from silodp.doctor.packages import check_extras, check_packages
from silodp.doctor.places import check_data, check_folders

__all__ = [
    "Finding",
    "State",
    "check_data",
    "check_extras",
    "check_folders",
    "check_jax",
    "check_machine",
    "check_packages",
    "check_terminal",
]
