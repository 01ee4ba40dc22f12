"""The silos that advice is for: record counts and budgets, from data or from bare counts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from silodp.base.errors import SilodpError
from silodp.base.progress import Reporter
from silodp.base.text import numbered
from silodp.config.options import RunRequest
from silodp.data import registry as datasets
from silodp.data.federation import Federation
from silodp.data.tasks import USUAL_TASK
from silodp.models.model import get_model
from silodp.privacy.policy import Policy
from silodp.runs.prepare import Data, check_unit, load, policies_of
from silodp.runs.resolve import ResolvedOptions, resolve

_MOST_COUNTED = 10**12


@dataclass(frozen=True)
class Advised:
    """The input of advice: everything but the spread."""

    data: str | None
    names: tuple[str, ...]
    records: tuple[int, ...]  # as far as they are public
    policies: tuple[Policy, ...]
    options: ResolvedOptions
    parameters: int
    federation: Federation | None

    @property
    def clip(self) -> float:
        """The largest norm of a record's contribution."""
        return self.options.clip

    @property
    def weights(self) -> np.ndarray:
        """Weights of silos in the common model, as a run would merge them; [silos]."""
        records = np.array(self.records, float)
        return records if self.options.request.weights == "records" else np.ones_like(records)


def silos_of_data(
    request: RunRequest, data: Data | None, parameters: int | None, reporter: Reporter
) -> Advised:
    """The silos of a data set; only the number of their records is used."""
    federations, defaults, _ = load(replace(request, seeds=1), data, reporter)
    federation = federations[0]
    options = resolve(request, defaults, None, federation.task)
    policies = policies_of(options, federation.names, federation.by_subject, federation.left_out)
    for name, policy in zip(federation.names, policies, strict=True):
        check_unit(name, policy, request, federation)
    if parameters is None:
        parameters = _model_size(options.model_name, federation)
    counts = zip(federation.public_counts.tolist(), policies, strict=True)
    return Advised(
        federation.name,
        federation.names,
        tuple(policy.counted(n) for n, policy in counts),
        policies,
        options,
        parameters,
        federation,
    )


def silos_of_counts(request: RunRequest, counts: dict[str, int], parameters: int | None) -> Advised:
    """Silos given by their record counts alone."""
    options = resolve(request, datasets.defaults_of(USUAL_TASK), None, USUAL_TASK)
    names = tuple(counts)
    policies = policies_of(options, names, by_subject=False)
    pairs = zip(counts.values(), policies, strict=True)
    known = tuple(policy.counted(n) for n, policy in pairs)
    return Advised(None, names, known, policies, options, parameters or 1, None)


def _model_size(name: str, federation: Federation) -> int:
    model = get_model(name, federation.task, federation.input_shape, federation.num_classes)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def named_counts(given: str | Sequence[int] | Mapping[str, int]) -> dict[str, int]:
    """Each silo's record count, by its name; silos without one are numbered."""
    if isinstance(given, str):
        given = _parsed(given)
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        pairs = [(numbered("silo", i, len(given)), n) for i, n in enumerate(given)]
    if not pairs:
        raise SilodpError("--records is empty: give each silo's record count, as in 120,80,400.")
    for name, n in pairs:
        check_count(f"--records: silo {name!r}", n)
    return dict(pairs)


def _parsed(text: str) -> list[int] | dict[str, int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    named = [part.rpartition("=") for part in parts]
    if not any(equals for _, equals, _ in named):
        return [_whole(part) for part in parts]
    counts: dict[str, int] = {}
    for (name, _, n), part in zip(named, parts, strict=True):
        name = name.strip()
        if not name:
            raise SilodpError(f"--records: {part!r} has no name: name every silo, or none.")
        if name in counts:
            raise SilodpError(f"--records names silo {name!r} twice: give each a name of its own.")
        counts[name] = _whole(n)
    return counts


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SilodpError(
            f"--records: {text.strip()!r} is not a whole number: give record counts, as in "
            "120,80,400 or north=120,south=80."
        ) from None


def check_count(what: str, value: Any) -> None:
    """Refuses a value that is not a count of at least 1."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 1 <= value <= _MOST_COUNTED:
        raise SilodpError(
            f"{what} is {value!r}: give a whole number from 1 to {_MOST_COUNTED:.0e}."
        )
