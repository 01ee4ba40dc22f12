"""A method as the command line knows it: what it is called by, what it costs, what it takes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from silodp.base.errors import SilodpError, meant
from silodp.config.choices import Regulariser
from silodp.methods.base import Method
from silodp.methods.server import SERVER_OPTIMISERS, ServerOptimiser


@dataclass(frozen=True)
class MethodEntry:
    """A method by name.

    Attributes:
      summary: one line for `silodp methods`.
      cost: what it asks of a silo's records, in words.
      build: options (by name) -> Method. Those in `options` may be traced numbers, others are not.
      options: the numbers that it takes and that may differ between the runs of a sweep.
      fixed: the options that shape the program or the schedule.
      own: options that only this method has (`--method-options`), with their defaults.
      of_silo: which of `options` a silo may have a value of its own of: used in `local` and
        `personal` alone.
      infinite: which of `options` may be infinite.
      regulariser: where the pull towards another model goes, unless the user says.
      pulls: whether training passes may be pulled towards a model; else `regulariser` does nothing.
      convex: whether it is for convex models only.
      sends: whether silos send anything.
      in_clusters: whether it can follow IFCA, in each cluster by itself; it cannot if shapes depend
        on `Start.silos`.
      in_messages: whether silos are asked for messages (`MessageQueries`) and not for training
        passes. It then runs on the host, in double precision, for models that are linear, and
        `build` takes the model's name too, as `model`.
      in_trials: whether what a silo tries by itself (`silodp tune`) changes the model that it uses.

    Examples:
      >>> from silodp.methods.fedavg import fedavg
      >>> entry = silodp.MethodEntry(
      ...     summary="FedAvg under another name",
      ...     cost="1 training pass a round",
      ...     build=lambda rounds, server: fedavg(server),
      ... )
      >>> entry.sends, entry.options
      (True, ())
    """

    summary: str
    cost: str
    build: Callable[..., Method]
    options: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)
    of_silo: tuple[str, ...] = ()
    infinite: tuple[str, ...] = ()
    regulariser: Regulariser = "outside"
    pulls: bool = True
    convex: bool = False
    sends: bool = True
    in_clusters: bool = True
    in_trials: bool = True
    in_messages: bool = False

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of the run options that it takes."""
        return (*self.options, *self.fixed)

    def traced_values(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The numbers that may differ between runs, out of the values of a run's options."""
        return {name: self._value(values, name) for name in self.options}

    def fixed_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The other options."""
        own_options = read_method_options(values["method_options"])
        for name in own_options:
            if name not in self.own:
                known = meant(name, self.own) if self.own else "leave it out."
                raise SilodpError(
                    f"--method-options: method {values['method']!r} has no option {name!r}: {known}"
                )
        fixed = {name: self._value(values, name) for name in self.fixed}
        if self.in_messages:  # what they take of the budget hangs on what is predicted
            fixed["model"] = values["model"]
        return fixed | dict(self.own) | own_options

    def _value(self, values: Mapping[str, Any], name: str) -> Any:
        if name not in values:
            raise SilodpError(
                f"Method {values['method']!r}: runs have no option {name!r}: an option that only "
                "this method has belongs into `own` of its MethodEntry."
            )
        return values[name]


def merging(entry: MethodEntry) -> MethodEntry:
    """The entry of a method that merges updates: built with `server`, of the user's choice.

    Examples:
      >>> from silodp.methods.fedavg import fedavg
      >>> entry = silodp.merging(
      ...     silodp.MethodEntry("FedAvg", "1 pass a round", lambda rounds, server: fedavg(server))
      ... )
      >>> entry.option_names
      ('server_lr', 'server_optimiser', 'server_momentum')
    """

    def build(*, server_optimiser, server_momentum, server_lr, **options) -> Method:
        optimiser = SERVER_OPTIMISERS[server_optimiser](server_lr, server_momentum)
        return entry.build(server=ServerOptimiser(optimiser), **options)

    return replace(
        entry,
        build=build,
        options=(*entry.options, "server_lr"),
        fixed=(*entry.fixed, "server_optimiser", "server_momentum"),
    )


def read_method_options(given: object) -> dict[str, float]:
    """'a=1,b=2' as a dictionary."""
    if given is None:
        return {}
    if not isinstance(given, str | Mapping):
        raise SilodpError(
            f"--method-options is {given!r}: give name=number, such as alpha=0.5, or a dictionary."
        )
    if isinstance(given, str):
        pairs = [part.partition("=")[::2] for part in given.split(",")]
    else:
        pairs = list(given.items())
    values = {}
    for written, value in pairs:
        name = written.strip().replace("-", "_")
        try:
            values[name] = float(value)
        except (TypeError, ValueError):
            values[name] = math.nan
        if not name or math.isnan(values[name]):
            raise SilodpError(
                f"--method-options: {written.strip()!r} is {value!r}: give name=number, such as "
                "alpha=0.5."
            )
    if len(values) < len(pairs):
        raise SilodpError("--method-options: an option is given twice: give it once.")
    return values
