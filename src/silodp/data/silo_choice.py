"""Which silos of a data set take part: by name, or by how many records they have.

A choice by name is made by people. One by record counts goes by public numbers alone, so that it
tells nothing that is secret; where a silo's policy keeps its count to itself, it is refused.
"""

from collections.abc import Mapping
from dataclasses import replace

from silodp.base.errors import SilodpError, meant
from silodp.config.data_options import DataOptions
from silodp.data.federation import Federation, Silo
from silodp.data.problems import Fault, as_one


def chosen_silos(counts: Mapping[str, int], options: DataOptions) -> tuple[str, ...]:
    """The silos that take part, in the order given.

    Args:
      counts: of each silo, its public number of records (of subjects, where they are protected).
      options: the data options; `only_silos`, `exclude_silos` and `min_records` matter here.
    """
    only, excluded = options.only_silos or (), options.exclude_silos or ()
    unknown = [
        Fault(f"{option}: silo {name!r}", "is unknown", meant(name, counts).rstrip("."), silo=name)
        for option, names in (("only_silos", only), ("exclude_silos", excluded))
        for name in names
        if name not in counts
    ]
    if unknown:
        raise as_one(unknown)
    if both := [name for name in only if name in excluded]:
        raise SilodpError(
            f"Silo {both[0]!r} is in both only_silos and exclude_silos: name it in one of them."
        )
    least = options.min_records or 0
    chosen = tuple(
        name
        for name, count in counts.items()
        if (not only or name in only) and name not in excluded and count >= least
    )
    if not chosen:
        most = max(counts.values(), default=0)
        why = f"the largest has {most} records" if most < least else "all are left out"
        raise SilodpError(
            f"No silo is left of {len(counts)} ({why}): change only_silos, exclude_silos or "
            "min_records."
        )
    return chosen


def leave_out(federation: Federation, options: DataOptions) -> Federation:
    """The federation with the silos that were chosen, and the names of the others."""
    counts = {silo.name: _public_total(silo) for silo in federation.silos}
    chosen = chosen_silos(counts, options)
    return replace(
        federation,
        silos=tuple(silo for silo in federation.silos if silo.name in chosen),
        left_out=tuple(name for name in counts if name not in chosen),
    )


def _public_total(silo: Silo) -> int:
    """Units that the silo has for training and testing together."""
    if silo.expected is not None:
        return silo.expected.max_count
    return silo.train.units + silo.test.units
