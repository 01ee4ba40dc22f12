"""What a consortium agrees on before anything is trained: a file, fed.toml, the same for all.

    name = "Four hospitals"
    sites = ["north", "south", "east", "west"]

    [server]                        # where sites find the coordinator
    host = "coordinator.example.org"
    port = 8102

    [training]                      # as `silodp run` has it; what is left out takes its default
    method = "ebmtl"
    rounds = 100
    batch_size = 32
    clip = 1.0

    [schema]                        # every column that is used, and what it may hold
    target = "readmitted"
    task = "binary"
    classes = ["no", "yes"]
    bounds = {age = [0, 120]}
    levels = {ward = ["medical", "surgical"]}

    [rules]
    deadline = 60                   # seconds that a site is waited for
    quorum = 3                      # sites without which nothing is merged; else all of them

Budgets are not in it: each site has its own.
"""

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from silodp.base.errors import SilodpError, one_of
from silodp.config.options import RunRequest, tagged
from silodp.data.tables.table import defaults_of
from silodp.methods import get_method
from silodp.models.model import MODELS
from silodp.runs.resolve import resolve
from silodp.sites.agreed_schema import AgreedSchema, agreed_schema

# The options of a run that all sites must have in common. Budgets, records and seeds are a site's
# own, and sampling is the one that is proven.
TRAINING = tagged("agreed")
_MOST_SITES = 1000
_JOB = re.compile(r"[0-9a-f]{16}-[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class Rules:
    """How the coordinator goes about it.

    Attributes:
      deadline: seconds that a site is waited for in a round.
      quorum: answers without which a round is not merged.
      largest_norm: of a site's message; a longer one is dropped.
    """

    deadline: float
    quorum: int
    largest_norm: float


@dataclass(frozen=True)
class Proposal:
    """What is agreed on.

    Attributes:
      name: of the federation.
      sites: in the order in which messages are merged.
      training: what `TRAINING` names, nothing left open.
      schema: of the records.
      rules: of the coordinator.
      seed: of the first model, which is public.
    """

    name: str
    sites: tuple[str, ...]
    training: Mapping[str, Any]
    schema: AgreedSchema
    rules: Rules
    seed: int = 0
    text: str = field(init=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "text", json.dumps(self.to_plain(), sort_keys=True))

    def to_plain(self) -> dict[str, Any]:
        """In plain JSON."""
        return {
            "name": self.name,
            "sites": list(self.sites),
            "training": dict(self.training),
            "schema": self.schema.to_plain(),
            "rules": asdict(self.rules),
            "seed": self.seed,
        }

    @property
    def digest(self) -> str:
        """What tells it from any other."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def job(self, run: int = 1) -> str:
        """The name of a run of it: the same every time, so that it can be gone on with."""
        return f"{self.digest[:16]}-{run}"

    @property
    def options(self) -> RunRequest:
        """What it asks of a run."""
        return RunRequest(
            data=self.name,
            preprocess="bounds",
            subject_column=self.schema.subject_column,
            evaluate_every=self.training["rounds"],
            **self.training,
        )


def is_job_of(name: Any, proposal: Proposal) -> bool:
    """Whether that is the name of a run of the proposal: nothing else becomes a folder's name."""
    given = isinstance(name, str) and _JOB.fullmatch(name)
    return bool(given) and name.startswith(f"{proposal.digest[:16]}-")


class FederationFile(NamedTuple):
    """What fed.toml says."""

    proposal: Proposal
    host: str
    port: int


def read_federation(path: Path) -> FederationFile:
    """Reads fed.toml; whatever is wrong with it is said here."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SilodpError(
            f"{path} cannot be read ({error.strerror or error}): check the path."
        ) from None
    except ValueError as error:
        raise SilodpError(f"{path} is not valid TOML ({error}): mend it there.") from None
    server = document.pop("server", {})
    _check_table(f"{path}: [server]", server, ("host", "port"))
    host, port = server.get("host", "localhost"), server.get("port", 8102)
    if not isinstance(host, str) or not host:
        raise SilodpError(f"{path}: [server] host is {host!r}: give the coordinator's host name.")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise SilodpError(f"{path}: [server] port is {port!r}: give a number from 1 to 65535.")
    return FederationFile(proposal_of(str(path), document), host, port)


def read_proposal(text: str, where: str = "The proposal") -> Proposal:
    """A proposal as it is sent; what is left open or unknown is refused."""
    try:
        document = json.loads(text)
    except ValueError:
        raise SilodpError(f"{where} is not JSON: get it anew from the coordinator.") from None
    proposal = proposal_of(where, document)
    if proposal.to_plain() != document:
        raise SilodpError(f"{where} leaves something open: get it anew from the coordinator.")
    return proposal


def proposal_of(where: str, document: Any) -> Proposal:
    """A proposal from plain values, each of which is checked; what is left open is filled in."""
    _check_table(where, document, ("name", "sites", "training", "schema", "rules", "seed"))
    name = document.get("name")
    if not isinstance(name, str) or not name or len(name) > 100 or not name.isprintable():
        raise SilodpError(f"{where}: name is {name!r}: give the federation a name.")
    sites = _sites(where, document.get("sites"))
    schema = agreed_schema(f"{where}: [schema]", document.get("schema", {}))
    seed = document.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise SilodpError(f"{where}: seed is {seed!r}: give a whole number from 0.")
    return Proposal(
        name=name,
        sites=sites,
        training=_training(where, document.get("training", {}), schema),
        schema=schema,
        rules=_rules(where, document.get("rules", {}), len(sites)),
        seed=seed,
    )


def first_difference(one: Proposal, other: Proposal) -> str:
    """The first field in which two proposals differ, in words."""
    for name, value in _flat(one.to_plain()).items():
        given = _flat(other.to_plain()).get(name)
        if given != value:
            return f"{name} is {given!r}, not {value!r}"
    return "they do not differ"


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = value
    return flat


def _check_table(where: str, table: Any, known: tuple[str, ...]) -> None:
    if not isinstance(table, Mapping):
        raise SilodpError(f"{where} is {table!r}: give a table.")
    for key in table:
        if key not in known:
            raise SilodpError(f"{where}: the key {key!r} is unknown: use {one_of(key, known)}.")


def _sites(where: str, names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
        raise SilodpError(f"{where}: sites are {names!r}: give a list of names.")
    if not 1 <= len(set(names)) == len(names) <= _MOST_SITES:
        raise SilodpError(f"{where}: sites are {names!r}: name each once, at least one.")
    return tuple(names)


def _training(where: str, table: Any, schema: AgreedSchema) -> dict[str, Any]:
    if isinstance(table, Mapping):
        for key in table:
            if key in tagged("site_own"):
                raise SilodpError(
                    f"{where}: [training] has {key}, which is each site's own: leave it out; a "
                    "site states it in its site.toml."
                )
    _check_table(f"{where}: [training]", table, TRAINING)
    request = RunRequest(**table)
    if request.method_options is not None and not isinstance(request.method_options, str):
        raise SilodpError(f"{where}: [training] method_options: give text, as name=number.")
    get_method(request.method)
    if request.model is not None and request.model not in MODELS:
        known = one_of(str(request.model), MODELS)
        raise SilodpError(f"{where}: [training] model is {request.model!r}: use {known}.")
    options = resolve(request, defaults_of(schema.task, "bounds"), None, schema.task)
    return {name: options.values[name] for name in TRAINING}


def _rules(where: str, table: Any, sites: int) -> Rules:
    _check_table(f"{where}: [rules]", table, ("deadline", "quorum", "largest_norm"))
    given = {"deadline": 60.0, "quorum": sites, "largest_norm": 1e6} | dict(table)
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise SilodpError(f"{where}: [rules] {name} is {value!r}: give a number above 0.")
    quorum = given["quorum"]
    if quorum != int(quorum) or quorum > sites:
        raise SilodpError(f"{where}: [rules] quorum is {quorum}: give 1 to {sites} sites.")
    return Rules(float(given["deadline"]), int(quorum), float(given["largest_norm"]))
