"""What the shell offers after Tab: the names that silodp knows. It never waits for JAX.

Where nothing is offered, shells offer files.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from silodp.config.choices import DATA_SETS, METHOD_GROUP, METHOD_NAMES, MODEL_NAMES, WARM_STARTS
from silodp.config.options import OPTIONS

Offer = Callable[[], list[str]]


def methods() -> list[str]:
    """Ours, those of installed packages, and warm starts."""
    announced = [point.name for point in entry_points(group=METHOD_GROUP)]
    return list(dict.fromkeys((*METHOD_NAMES, *announced, *WARM_STARTS)))


def data_sets() -> list[str]:
    """The data sets that have a name."""
    return list(DATA_SETS)


def models() -> list[str]:
    """The models."""
    return list(MODEL_NAMES)


def figures() -> list[str]:
    """The figures, and what else `silodp figure` takes for one."""
    from silodp.figures.definition import names

    return [*sorted({*names(), "7"}), "all", "list"]


def scales() -> list[str]:
    """The scales of figures."""
    from silodp.figures.definition import SCALES

    return list(SCALES)


def run_option(name: str) -> Offer | None:
    """What a run option takes, if that is one of a few words."""
    known = {"method": methods, "data": data_sets, "model": models}
    if choices := OPTIONS[name].choices:
        return lambda: list(choices)
    return known.get(name)
