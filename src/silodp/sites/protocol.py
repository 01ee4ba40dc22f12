"""What a coordinator asks a site, and what a site answers: plain values, known to both.

No word here or in an answer says anything about a record that was not paid for.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from silodp.base.version import own_version

Kind = Literal["join", "train", "finish"]
Status = Literal["ok", "refused"]


@dataclass(frozen=True)
class Request:
    """What a site is asked.

    Attributes:
      kind: to join a job; to train in a round; to use what came of it.
      job: its name. A site reserves what a job may take of its ledger when it joins, charges
        block by block what it answers, and answers no round of a job twice.
      proposal: what all have agreed on, as JSON; a site compares it with what it consented to.
      round: from 0: that is asked for, of "train"; else where the job stands, so that a site can
        refuse to join one that has no round left.
      arrays: what every site is told: the leaves of the method's broadcast.
      version: of silodp at the coordinator. What is reckoned here and there must be the same.
    """

    kind: Kind
    job: str
    proposal: str
    round: int = 0
    arrays: list[np.ndarray] = field(default_factory=list)
    version: str = field(default_factory=own_version)


@dataclass(frozen=True)
class Reply:
    """What a site answers. A refusal is an answer, not an error.

    Attributes:
      status: whether it did what it was asked.
      reason: in words, why not.
      about: plain JSON: what else may be told.
      arrays: the leaves of the method's message.
    """

    status: Status
    reason: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    arrays: list[np.ndarray] = field(default_factory=list)
