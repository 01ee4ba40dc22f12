"""What the shell offers after Tab: the names that silodp knows. It never waits for JAX.

Where nothing is offered, shells offer files.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from silodp.config.choices import DATA_SETS, METHOD_GROUP, METHOD_NAMES, MODEL_NAMES, WARM_STARTS
from silodp.config.options import OPTIONS

Offer = Callable[[], list[str]]


def methods() -> list[str]:
    """Names of methods: built in, from installed packages, and warm starts."""
    announced = [point.name for point in entry_points(group=METHOD_GROUP)]
    return list(dict.fromkeys((*METHOD_NAMES, *announced, *WARM_STARTS)))


def data_sets() -> list[str]:
    """Names of the data sets."""
    return list(DATA_SETS)


def models() -> list[str]:
    """Names of the models."""
    return list(MODEL_NAMES)


def figures() -> list[str]:
    """Names of the figures, and the words `all` and `list`."""
    from silodp.figures.definition import names

    return [*sorted({*names(), "7"}), "all", "list"]


def scales() -> list[str]:
    """Names of the scales of figures."""
    from silodp.figures.definition import SCALES

    return list(SCALES)


def run_option(name: str) -> Offer | None:
    """What completes a run option: its choices or names; None if it takes anything."""
    offers = {"method": methods, "data": data_sets, "model": models}
    if choices := OPTIONS[name].choices:
        return lambda: list(choices)
    return offers.get(name)
