"""What a file of an exchange holds, for people who want to see it before they send or answer it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from silodp.sites.exchange.signed_file import Received
from silodp.sites.messages import unpacked_reply, unpacked_request


def contents_of(path: Path) -> dict[str, Any]:
    """All that is in the file, but the signature: that is checked where the file is taken."""
    one = Received(path, "have it sent again")
    head = {name: value for name, value in vars(one.heading).items() if value != ""}
    if not one.heading.job:
        del head["round"]  # it belongs to none
    about = {
        name: _proposal(value) if name == "proposal" else value for name, value in one.about.items()
    }
    return {**head, **about, "messages": [_message(one, packed) for packed in one.messages]}


def _message(one: Received, packed: dict[str, Any]) -> dict[str, Any]:
    if one.heading.what == "ask":
        request = unpacked_request(packed)
        said: dict[str, Any] = {"kind": request.kind, "version": request.version}
        said["proposal"] = _proposal(request.proposal)
        said["shown"] = request.shown
        return {**said, "arrays": [_array(array) for array in request.arrays]}
    reply = unpacked_reply(packed)
    said = {"status": reply.status, "reason": reply.reason, **reply.about}
    return {**said, "arrays": [_array(array) for array in reply.arrays]}


def _array(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": list(array.shape), "numbers": array.tolist()}


def _proposal(text: Any) -> Any:
    """The proposal as a table, if it can be read; a hostile file may hold anything there."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return text
