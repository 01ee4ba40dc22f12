"""Requests and replies as FLARE carries them.

They travel packed (see `messages`), not as FLARE's own kind of array.
"""

from typing import Any

from nvflare.apis.shareable import Shareable

from silodp.sites.messages import packed_reply, packed_request, unpacked_reply, unpacked_request
from silodp.sites.protocol import Reply, Request

TASK = "silodp"
_KEY = "silodp"


def from_request(request: Request) -> Shareable:
    """The request as FLARE carries it."""
    return _shareable(packed_request(request))


def to_request(shareable: Any) -> Request:
    """Reads a request that arrived; refuses what is not one."""
    return unpacked_request(_packed(shareable))


def from_reply(reply: Reply) -> Shareable:
    """The reply as FLARE carries it."""
    return _shareable(packed_reply(reply))


def to_reply(shareable: Any) -> Reply:
    """Reads a reply that arrived; refuses what is not one."""
    return unpacked_reply(_packed(shareable))


def _shareable(packed: dict[str, Any]) -> Shareable:
    shareable = Shareable()
    shareable[_KEY] = packed
    return shareable


def _packed(shareable: Any) -> Any:
    return shareable.get(_KEY) if isinstance(shareable, dict) else None
