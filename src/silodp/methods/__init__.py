"""The methods, by name: ours, those of installed packages, and warm starts of either."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

from silodp.base.errors import SilodpError, meant
from silodp.config.choices import METHOD_GROUP
from silodp.methods.base import Method
from silodp.methods.ditto import ditto
from silodp.methods.ebmtl import Choices, ebmtl
from silodp.methods.entry import MethodEntry, merging
from silodp.methods.fedavg import fedavg
from silodp.methods.fewround import fewround
from silodp.methods.finetune import finetune
from silodp.methods.ifca import ifca
from silodp.methods.local import local
from silodp.methods.meanpull import meanpull
from silodp.methods.mocha import mocha
from silodp.methods.mrmtl import mrmtl
from silodp.methods.warm_start import warm_start

ONE_PASS = "1 training pass a round"
SELECTIONS = "1 selection in each of the first rounds"

METHODS: dict[str, MethodEntry] = {
    "ebmtl": MethodEntry(
        "personal models; how much each keeps of its own is learned from released updates",
        ONE_PASS,
        ebmtl,
        own=Choices()._asdict(),
        pulls=False,
        in_clusters=False,
        in_trials=False,
    ),
    "fewround": MethodEntry(
        "personal linear models in one to five messages of a silo, with nothing to tune",
        "1 message a round, no training pass",
        lambda rounds, messages, model: fewround(rounds, model),
        fixed=("messages",),
        pulls=False,
        in_clusters=False,
        in_trials=False,
        in_messages=True,
    ),
    "local": MethodEntry(
        "each silo trains its own model; nothing is sent",
        ONE_PASS,
        lambda rounds: local(),
        pulls=False,
        sends=False,
    ),
    "fedavg": merging(
        MethodEntry(
            "one shared model, the mean of all updates",
            ONE_PASS,
            lambda rounds, server: fedavg(server),
            pulls=False,
        )
    ),
    "finetune": merging(
        MethodEntry(
            "FedAvg for a fraction of the rounds, then each silo for itself",
            ONE_PASS,
            lambda rounds, finetune_fraction, server: finetune(rounds, finetune_fraction, server),
            ("finetune_fraction",),
            of_silo=("finetune_fraction",),
            pulls=False,
        )
    ),
    "mrmtl": merging(
        MethodEntry(
            "personal models pulled towards their mean with strength lambda",
            ONE_PASS,
            lambda rounds, lam, server: mrmtl(lam, server),
            ("lam",),
            of_silo=("lam",),
        )
    ),
    "meanpull": merging(
        MethodEntry(
            "personal models pulled to their mean after each round: lambda inf is FedAvg exactly",
            ONE_PASS,
            lambda rounds, lam, server: meanpull(lam, server),
            ("lam",),
            of_silo=("lam",),
            infinite=("lam",),
            pulls=False,
        )
    ),
    "ditto": merging(
        MethodEntry(
            "a shared model by FedAvg, and personal models pulled towards it",
            "2 training passes a round (--shared-passes, --personal-passes)",
            lambda rounds, **options: ditto(**options),
            ("lam",),
            ("shared_passes", "personal_passes"),
            of_silo=("lam",),
            regulariser="proximal",
        )
    ),
    "mocha": MethodEntry(
        "personal models pulled by learned relations between silos; convex models only",
        ONE_PASS,
        lambda rounds, lam: mocha(lam),
        ("lam",),
        of_silo=("lam",),
        convex=True,
        in_clusters=False,
    ),
    "ifca": merging(
        MethodEntry(
            "clusters of silos: each chooses one of several models privately, and trains it",
            f"{ONE_PASS}; {SELECTIONS}",
            ifca,
            fixed=("clusters", "select_fraction"),
            pulls=False,
            in_clusters=False,
        )
    ),
}
ALIASES = {"hypcluster": "ifca"}
# METHODS may be added to, as in a notebook: those are not held by our tests.
_OURS = dict(METHODS)


def get_method(name: str) -> MethodEntry:
    """The method of that name; `ifca+NAME` is that method after a warm start."""
    first, plus, second = (ALIASES.get(part, part) for part in name.partition("+"))
    if not plus:
        return _found(name, first)
    if first != "ifca" or "+" in second:
        raise SilodpError(
            f"Method {name!r}: only ifca can go before another method: use one of "
            f"{', '.join(warm_starts())}."
        )
    return _warm_started(name, _found(name, second))


def _found(request: str, name: str) -> MethodEntry:
    """The method of that name, which is (a part of) the request."""
    if name in METHODS:
        return METHODS[name]
    found = announced()
    if name in found:
        return load(found[name])
    known = warm_starts() if "+" in request else [*METHODS, *ALIASES, *found, *warm_starts()]
    raise SilodpError(f"Method {request!r} is unknown: {meant(request, known, most=20)}")


def is_ours(name: str) -> bool:
    """Whether all of the method is held by tests of our own."""
    parts = [ALIASES.get(part, part) for part in name.split("+")]
    return all(part in METHODS and METHODS[part] is _OURS.get(part) for part in parts)


def announced() -> dict[str, EntryPoint]:
    """The methods of installed packages, by name, not loaded; ours go first where one is taken."""
    taken = (*METHODS, *ALIASES)
    points = entry_points(group=METHOD_GROUP)
    return {point.name: point for point in points if point.name not in taken}


def load(point: EntryPoint) -> MethodEntry:
    """A method of an installed package."""
    what = f"Method {point.name!r} of an installed package ({point.value})"
    try:
        entry = point.load()
    except (Exception, SystemExit) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise SilodpError(
            f"{what} cannot be loaded ({type(error).__name__}: {why}): mend or uninstall that "
            "package."
        ) from error
    if not isinstance(entry, MethodEntry):
        raise SilodpError(
            f"{what} is of type {type(entry).__name__}: it must be a silodp.MethodEntry."
        )
    return entry


def warm_starts(entries: Mapping[str, MethodEntry] = METHODS) -> list[str]:
    """The names of the methods that can follow IFCA, as a user gives them."""
    return [f"ifca+{name}" for name, entry in entries.items() if entry.in_clusters]


def _warm_started(name: str, entry: MethodEntry) -> MethodEntry:
    """The method after IFCA, within its clusters."""
    if not entry.in_clusters:
        raise SilodpError(
            f"Method {name!r}: what follows cannot go on within clusters: use one of "
            f"{', '.join(warm_starts())}."
        )
    clustering = METHODS["ifca"]

    def build(rounds: int, **options) -> Method:
        def of(one: MethodEntry) -> dict:
            return {n: v for n, v in options.items() if n in (*one.option_names, *one.own)}

        first = clustering.build(rounds=rounds, **of(clustering))
        return warm_start(rounds, first, entry.build(rounds=rounds, **of(entry)))

    return replace(
        entry,
        summary=f"IFCA for the first rounds; then within its clusters: {entry.summary}",
        cost=f"{entry.cost}; {SELECTIONS}",
        build=build,
        options=tuple(dict.fromkeys((*entry.options, *clustering.options))),
        fixed=tuple(dict.fromkeys((*entry.fixed, *clustering.fixed))),
        in_clusters=False,
        sends=True,
    )


METHOD_OPTIONS = tuple(dict.fromkeys(o for entry in METHODS.values() for o in entry.option_names))
