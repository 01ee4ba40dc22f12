"""FLARE's executor: hands requests to the site's worker, and replies back."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silodp.base.errors import SilodpError
from silodp.sites.flare import wire
from silodp.sites.protocol import Reply, Request

if TYPE_CHECKING:
    from silodp.sites.worker import SiteWorker

# Not FLARE's logging, which can carry an error's message to the coordinator.
_log = logging.getLogger("silodp.sites")

INTERNAL = "internal error at the site; its own log says more"


class SilodpExecutor(Executor):
    """Executes requests. It takes no argument: the site's own files decide over privacy."""

    def __init__(self) -> None:
        super().__init__()
        self._worker: SiteWorker | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Replies to one request; a refusal is a reply, and so is an error."""
        try:
            request = wire.to_request(shareable)
        except SilodpError as error:
            return wire.from_reply(Reply("refused", str(error)))
        try:
            return wire.from_reply(self._answer(request, fl_ctx))
        except Exception:
            _log.exception("A request of kind %s was not answered.", request.kind)
            return wire.from_reply(Reply("refused", INTERNAL))

    def _answer(self, request: Request, fl_ctx: FLContext) -> Reply:
        if self._worker is None:
            from silodp.sites.worker import SiteWorker

            self._worker = SiteWorker(site_folder(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)))
        return self._worker.answer(request)


def site_folder(workspace: Any) -> Path:
    """The folder around the FLARE workspace: the site's own, or the federation's."""
    return Path(workspace.get_root_dir()).resolve().parent
