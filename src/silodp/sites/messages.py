"""Requests and replies as they travel: one line of JSON and the arrays' bytes, read strictly.

Arrays travel as their bytes, so that type, shape and length are checked before an array is made.
What carries them, a network or a file, adds nothing of its own to what they say.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from silodp.base.documents import json_of
from silodp.base.errors import SilodpError
from silodp.sites.protocol import Reply, Request

_DTYPES = {"bool", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def packed_request(request: Request) -> dict[str, Any]:
    """The request in plain values and bytes."""
    words = {
        "kind": request.kind,
        "job": request.job,
        "proposal": request.proposal,
        "round": request.round,
        "version": request.version,
        "shown": request.shown,
    }
    return _packed("request", words, request.arrays)


def unpacked_request(packed: Any) -> Request:
    """Reads a request that arrived; refuses what is not one."""
    keys = ("kind", "job", "proposal", "round", "version", "shown")
    words, arrays = _unpacked("request", packed, set(keys))
    kind, job, proposal, number, version, shown = (words[key] for key in keys)
    if kind not in ("join", "train", "finish"):
        raise _unreadable("request", "its kind is none of join, train and finish")
    if not all(isinstance(text, str) for text in (job, proposal, version)):
        raise _unreadable("request", "its job, proposal or version is not text")
    if type(number) is not int or number < 0:
        raise _unreadable("request", "its round is not a whole number from 0")
    if not isinstance(shown, dict) or not all(isinstance(own, str) for own in shown.values()):
        raise _unreadable("request", "what it says of ledgers is no table of texts")
    return Request(kind, job, proposal, number, arrays, version, shown)


def packed_reply(reply: Reply) -> dict[str, Any]:
    """The reply in plain values and bytes."""
    words = {"status": reply.status, "reason": reply.reason, "about": reply.about}
    return _packed("reply", words, reply.arrays)


def unpacked_reply(packed: Any) -> Reply:
    """Reads a reply that arrived; refuses what is not one."""
    words, arrays = _unpacked("reply", packed, {"status", "reason", "about"})
    status, reason, about = (words[key] for key in ("status", "reason", "about"))
    if status not in ("ok", "refused"):
        raise _unreadable("reply", "its status is neither ok nor refused")
    if not isinstance(reason, str):
        raise _unreadable("reply", "its reason is not text")
    if not isinstance(about, dict):
        raise _unreadable("reply", "its about is not a table")
    return Reply(status, reason, about, arrays)


def _packed(what: str, words: dict[str, Any], arrays: Sequence[np.ndarray]) -> dict[str, Any]:
    return {
        "what": what,
        "words": json.dumps(words, allow_nan=False),
        "arrays": [_array_out(array) for array in arrays],
    }


def _array_out(array: np.ndarray) -> dict[str, Any]:
    array = np.asarray(array)
    if array.dtype.name not in _DTYPES:
        raise SilodpError(f"An array of {array.dtype} cannot be sent: send numbers or booleans.")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "bytes": little.tobytes()}


def _unpacked(what: str, packed: Any, keys: set[str]) -> tuple[dict[str, Any], list[np.ndarray]]:
    if not isinstance(packed, dict) or set(packed) != {"what", "words", "arrays"}:
        raise _unreadable(what, "it is not of silodp")
    if packed["what"] != what:
        raise _unreadable(what, "it is something else")
    words, arrays = packed["words"], packed["arrays"]
    if not isinstance(words, str) or not isinstance(arrays, list):
        raise _unreadable(what, "its parts have the wrong types")
    try:
        fields = json_of(words, "It", "send it as JSON")
    except SilodpError:
        raise _unreadable(what, "its words are not JSON") from None
    if not isinstance(fields, dict) or set(fields) != keys:
        raise _unreadable(what, "its words are not those of this version of silodp")
    return fields, [_array_in(what, array) for array in arrays]


def _array_in(what: str, packed: Any) -> np.ndarray:
    if not isinstance(packed, dict) or set(packed) != {"dtype", "shape", "bytes"}:
        raise _unreadable(what, "an array in it is not one")
    name, shape, raw = packed["dtype"], packed["shape"], packed["bytes"]
    if not isinstance(name, str) or name not in _DTYPES:
        raise _unreadable(what, "an array in it has an unknown type")
    if not isinstance(shape, list) or len(shape) > 32:
        raise _unreadable(what, "an array in it has no shape")
    if any(type(size) is not int or size < 0 for size in shape):
        raise _unreadable(what, "an array in it has a wrong shape")
    count = 1
    for size in shape:
        count *= size
    dtype = np.dtype(name).newbyteorder("<")
    if not isinstance(raw, bytes) or len(raw) != count * dtype.itemsize:
        raise _unreadable(what, "an array in it has the wrong length")
    # A copy, because the array of np.frombuffer is read-only.
    return np.frombuffer(raw, dtype).reshape(shape).astype(np.dtype(name))


def _unreadable(what: str, why: str) -> SilodpError:
    return SilodpError(
        f"A {what} is unreadable ({why}): have the same version of silodp at all sites."
    )
