"""The methods, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from silodp.errors import SilodpError, one_of
from silodp.methods.base import Method
from silodp.methods.fedavg import fedavg
from silodp.methods.finetune import finetune
from silodp.methods.ifca import ifca
from silodp.methods.local import local
from silodp.methods.mrmtl import mrmtl


@dataclass(frozen=True)
class MethodEntry:
    """A method as the command line knows it.

    Attributes:
      summary: one line for `silodp methods`.
      cost: what it asks of a silo's records, in words.
      build: options (by name) -> Method. Those in `options` may be traced numbers, others are not.
      options: the numbers that it takes and that may differ between the runs of a sweep.
      fixed: the options that shape the program or the schedule.
    """

    summary: str
    cost: str
    build: Callable[..., Method]
    options: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


METHODS: dict[str, MethodEntry] = {
    "local": MethodEntry(
        "each silo trains its own model; nothing is sent",
        "1 training pass a round",
        lambda rounds: local(),
    ),
    "fedavg": MethodEntry(
        "one shared model, the mean of all updates",
        "1 training pass a round",
        lambda rounds: fedavg(),
    ),
    "finetune": MethodEntry(
        "FedAvg for a fraction of the rounds, then each silo for itself",
        "1 training pass a round",
        lambda rounds, finetune_fraction: finetune(rounds, finetune_fraction),
        ("finetune_fraction",),
    ),
    "mrmtl": MethodEntry(
        "personal models pulled towards their mean with strength lambda",
        "1 training pass a round",
        lambda rounds, lam: mrmtl(lam),
        ("lam",),
    ),
    "ifca": MethodEntry(
        "clusters of silos: each chooses one of several models privately, and trains it",
        "1 training pass a round; 1 selection in each of the first rounds",
        lambda rounds, clusters, select_fraction: ifca(clusters, select_fraction),
        fixed=("clusters", "select_fraction"),
    ),
}


METHOD_OPTIONS = tuple(
    dict.fromkeys(o for entry in METHODS.values() for o in (*entry.options, *entry.fixed))
)


def get_method(name: str) -> MethodEntry:
    """The method of that name."""
    if name in METHODS:
        return METHODS[name]
    raise SilodpError(f"Method {name!r} is unknown: use {one_of(name, METHODS)}.")
