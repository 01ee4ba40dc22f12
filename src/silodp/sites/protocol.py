"""Requests of a coordinator and replies of a site: plain values, known to both.

A reply says nothing about a record that was not paid for.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from silodp.base.version import own_version

Kind = Literal["join", "train", "finish"]
Status = Literal["ok", "refused"]


@dataclass(frozen=True)
class Request:
    """A request to a site.

    Attributes:
      kind: join a job; train in a round; finish, with the last broadcast.
      job: its name. A site reserves what a job may take of its ledger when it joins, charges
        block by block what it answers, and answers no round of a job twice.
      proposal: what all have agreed on, as JSON; a site compares it with what it consented to.
      round: counted from 0: the round to train, or else where the job stands, so that a site can
        refuse to join one that has no round left.
      arrays: the leaves of the method's broadcast, the same for every site.
      version: the version of silodp at the coordinator; a site with another one refuses.
      shown: what the coordinator last saw of each site's ledger (see `shown_ledger`).
    """

    kind: Kind
    job: str
    proposal: str
    round: int = 0
    arrays: list[np.ndarray] = field(default_factory=list)
    version: str = field(default_factory=own_version)
    shown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """A site's reply. A refusal is a reply, not an error.

    Attributes:
      status: whether the site did what was requested.
      reason: why not, in words.
      about: plain JSON: what else the coordinator may know.
      arrays: the leaves of the method's message.
    """

    status: Status
    reason: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    arrays: list[np.ndarray] = field(default_factory=list)
