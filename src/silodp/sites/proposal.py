"""The proposal that a federation agrees on before training: a file, fed.toml, the same for all.

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
    deadline = 60                   # seconds to wait for a site
    quorum = 3                      # fewest sites to merge messages of; else all of them

Budgets are not in it: each site has its own.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from silodp.base.documents import check_keys, declared, decode, json_of, read_toml
from silodp.base.errors import SilodpError, one_of
from silodp.config.options import RunRequest, tagged
from silodp.data.tables.table import defaults_of
from silodp.methods import get_method
from silodp.models.metrics import mean_metric, metric_for
from silodp.models.model import MODELS
from silodp.runs.requests import with_method, without_effect
from silodp.runs.resolve import resolve
from silodp.sites.agreed_schema import AgreedSchema, agreed_schema

# The options of a run that all sites must have in common. Budgets, records and seeds are a site's
# own, and sampling is the one that is proven.
TRAINING = tagged("agreed")
# Left out where not given: proposals from before there was such an option keep their digest.
_WHERE_GIVEN = tagged("agreed_if_given")
_MOST_SITES = 1000
_JOB = re.compile(r"[0-9a-f]{16}-[1-9][0-9]{0,5}")


def _is_positive(value: float) -> bool:
    return 0 < value < math.inf


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules for the coordinator.

    Attributes:
      deadline: seconds to wait for a site in a round.
      quorum: the least number of replies with which a round is merged.
      largest_norm: the largest norm of a site's message; a longer one is dropped.
    """

    deadline: float = declared("give a number above 0", 60.0, _is_positive)
    quorum: int = declared("give a whole number of sites, 1 or more", fits=_is_positive)
    largest_norm: float = declared("give a number above 0", 1e6, _is_positive)


@dataclass(frozen=True)
class Proposal:
    """What all sites agree on.

    Attributes:
      name: the federation's.
      sites: their names, in the order in which messages are merged.
      training: the options that `TRAINING` names, nothing left open.
      schema: the columns of the records.
      rules: the coordinator's.
      seed: the seed of the first model, which is public.
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
        """The proposal in values that JSON holds."""
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
        """The hash that identifies the proposal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def job(self, run: int = 1) -> str:
        """The name of the n-th run of the proposal: always the same, so that it can be resumed."""
        return f"{self.digest[:16]}-{run}"

    @property
    def options(self) -> RunRequest:
        """The request for a run with these options."""
        return RunRequest(
            data=self.name,
            preprocess="bounds",
            subject_column=self.schema.subject_column,
            evaluate_every=self.training["rounds"],
            **self.training,
        )


def is_job_of(name: Any, proposal: Proposal) -> bool:
    """Whether the name is that of a run of the proposal: only such a name is made a folder."""
    well_formed = isinstance(name, str) and _JOB.fullmatch(name)
    return bool(well_formed) and name.startswith(f"{proposal.digest[:16]}-")


def _are_different(names: tuple[str, ...]) -> bool:
    return all(names) and 1 <= len(set(names)) == len(names) <= _MOST_SITES


@dataclass(frozen=True)
class _Document:
    """A proposal as it is written; the tables in it are checked one by one."""

    name: str = declared(
        "give the federation a name", fits=lambda name: 0 < len(name) <= 100 and name.isprintable()
    )
    sites: tuple[str, ...] = declared(
        "give a list of names; name each once, at least one", fits=_are_different
    )
    training: Mapping[str, Any] = declared("write [training] and its lines below", {})
    schema: Mapping[str, Any] = declared("write [schema] and its lines below", {})
    rules: Mapping[str, Any] = declared("write [rules] and its lines below", {})
    seed: int = declared("give a whole number from 0", 0, lambda seed: 0 <= seed < 2**31)


# At which addresses the server listens: all of its machine, or those that only it can reach.
ANYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"


def _is_port(port: int) -> bool:
    return 0 < port < 65536


@dataclass(frozen=True)
class ServerTable:
    """Where sites find the coordinator's server, and where it listens.

    Attributes:
      host: its name as sites know it.
      port: its port as sites know it.
      bind: the address at which it listens on its own machine; else that goes by the host.
      bind_port: the port there; else `port`.
    """

    host: str = declared("give the coordinator's host name", "localhost", bool)
    port: int = declared("give a number from 1 to 65535", 8102, _is_port)
    bind: Literal["0.0.0.0", "127.0.0.1"] | None = declared(
        "give '0.0.0.0' (all addresses of the machine) or '127.0.0.1' (behind a proxy on it)", None
    )
    bind_port: int | None = declared("give a number from 1 to 65535", None, _is_port)

    @property
    def listens_at(self) -> tuple[str, int]:
        """The address and port at which the server listens."""
        usual = LOOPBACK if self.host in ("localhost", LOOPBACK) else ANYWHERE
        return self.bind or usual, self.bind_port or self.port


class FederationFile(NamedTuple):
    """The content of fed.toml."""

    proposal: Proposal
    server: ServerTable


def read_federation(path: Path) -> FederationFile:
    """Reads fed.toml; refuses whatever is wrong with it."""
    document = read_toml(path)
    server = decode(ServerTable, document.pop("server", {}), f"{path}: [server]")
    proposal = proposal_of(str(path), document)
    given = document.get("training", {})
    if get_method(proposal.training["method"]).in_messages:
        for reason in without_effect(given, given).values():
            raise SilodpError(f"{path}: [training] {reason}")
    return FederationFile(proposal, server)


def read_proposal(text: str, where: str = "The proposal") -> Proposal:
    """Reads a proposal that was sent; refuses one with anything open or unknown."""
    document = json_of(text, where, "get it again from the coordinator")
    proposal = proposal_of(where, document)
    if proposal.to_plain() != document:
        raise SilodpError(f"{where} leaves something open: get it again from the coordinator.")
    return proposal


def proposal_of(where: str, document: Any) -> Proposal:
    """Makes a proposal of plain values: checks each, and fills in what is left open."""
    given = decode(_Document, document, where)
    schema = agreed_schema(f"{where}: [schema]", given.schema)
    return Proposal(
        name=given.name,
        sites=given.sites,
        training=_training(where, given.training, schema),
        schema=schema,
        rules=_rules(where, given.rules, len(given.sites)),
        seed=given.seed,
    )


def first_difference(one: Proposal, other: Proposal) -> str:
    """The first field in which two proposals differ, in words."""
    ours, theirs = _flat(one.to_plain()), _flat(other.to_plain())
    for name in ours | theirs:
        if theirs.get(name) != ours.get(name):
            return f"{name} is {theirs.get(name)!r}, not {ours.get(name)!r}"
    return "they do not differ"


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = value
    return flat


def _training(where: str, table: Mapping[str, Any], schema: AgreedSchema) -> dict[str, Any]:
    for key in table:
        if key in tagged("site_own"):
            raise SilodpError(
                f"{where}: [training] has {key}, which is each site's own: leave it out; a site "
                "states it in its site.toml."
            )
    check_keys(f"{where}: [training]", table, TRAINING)
    request = with_method(RunRequest(**table), table)
    if request.method_options is not None and not isinstance(request.method_options, str):
        raise SilodpError(f"{where}: [training] method_options: give text, as name=number.")
    get_method(request.method)
    if request.model is not None and request.model not in MODELS:
        known = one_of(str(request.model), MODELS)
        raise SilodpError(f"{where}: [training] model is {request.model!r}: use {known}.")
    options = resolve(request, defaults_of(schema.task, "bounds"), None, schema.task)
    try:
        metric = metric_for(schema.task, request.metric)
        if request.metric_share:
            mean_metric(metric, "metric_share")
    except SilodpError as error:
        raise SilodpError(f"{where}: [training] {error}") from None
    values = dict(options.values)
    if get_method(request.method).in_messages:
        values["weights"] = "uniform"  # they take none, so no site has to tell its count
    return {
        name: values[name]
        for name in TRAINING
        if name not in _WHERE_GIVEN or values[name] is not None
    }


def _rules(where: str, table: Mapping[str, Any], sites: int) -> Rules:
    rules = decode(Rules, {"quorum": sites} | dict(table), f"{where}: [rules]")
    if rules.quorum > sites:
        raise SilodpError(f"{where}: [rules] quorum is {rules.quorum}: give 1 to {sites} sites.")
    return rules
