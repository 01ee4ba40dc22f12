"""FLARE's controller: sends the coordinator's requests to the sites, round by round."""

import math
import threading
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silodp.base.errors import SilodpError
from silodp.sites.flare import wire
from silodp.sites.flare.executor import site_folder
from silodp.sites.flare.failures import forget_failure, note_failure
from silodp.sites.membership.members import read_members
from silodp.sites.protocol import Reply, Request

# Seconds between FLARE's checks whether all have replied.
CHECK_PERIOD = 0.02
# Seconds that the first request may take longer than others: the sites' processes of this job
# start later than the server's, and JAX takes its time.
START_UP = 60.0
_REMOVED = Reply("refused", "it was removed from the federation")


class SilodpController(Controller):
    """Runs one job. It is given only the name: all else is in the federation's own folder."""

    def __init__(self, job: str) -> None:
        super().__init__(task_check_period=CHECK_PERIOD)
        self._job = job

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Does nothing: FLARE calls it before the run."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Does nothing: FLARE calls it after the run."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Runs the job; notes what stops it, for whoever follows the job."""
        folder = site_folder(_engine(fl_ctx).get_workspace())
        forget_failure(folder, self._job)
        try:
            self._run(folder, abort_signal, fl_ctx)
        except Exception as error:
            self.log_exception(fl_ctx, "the job stopped")
            known = isinstance(error, SilodpError)
            note_failure(folder, self._job, str(error) if known else repr(error))
            self.system_panic("the coordinator stopped the job", fl_ctx)

    def _run(self, folder: Path, abort_signal: Signal, fl_ctx: FLContext) -> None:
        from silodp.sites.coordinator import Coordinator

        _check_often(self.communicator)
        coordinator = Coordinator(folder, self._job)
        more = START_UP
        while (request := coordinator.next_request()) is not None:
            seconds = coordinator.deadline + more
            removed = read_members(folder).removed
            targets = [site for site in coordinator.targets if site not in removed]
            replies = self._ask(request, targets, seconds, abort_signal, fl_ctx)
            if abort_signal.triggered:
                return
            # Whoever is removed while a round goes on has no part in it.
            removed = read_members(folder).removed
            out = {site: _REMOVED for site in coordinator.targets if site in removed}
            coordinator.receive(replies | out)
            more = 0.0

    def _ask(
        self,
        request: Request,
        targets: list[str],
        seconds: float,
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> dict[str, Reply]:
        """The replies of the sites that replied in time."""
        # A site that was not there when the job began cannot come in later: not worth the deadline.
        present = {client.name for client in _engine(fl_ctx).get_clients()}
        present_targets = [name for name in targets if name in present]
        if not present_targets:
            return {}
        replies: dict[str, Reply] = {}
        lock = threading.Lock()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            reply = read(client_task.result)
            client_task.result = None
            with lock:
                replies[client_task.client.name] = reply

        task = Task(
            wire.TASK,
            wire.from_request(request),
            timeout=max(1, math.ceil(seconds)),
            result_received_cb=received,
        )
        # With no least number of responses, FLARE waits for all.
        self.broadcast_and_wait(
            task, fl_ctx, targets=present_targets, min_responses=0, abort_signal=abort_signal
        )
        with lock:
            return dict(replies)

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: Any
    ) -> None:
        """Ignores a reply that came too late."""


def read(result: Any) -> Reply:
    """Reads a site's reply; an unreadable one counts as a refusal of that site alone."""
    if isinstance(result, Shareable) and result.get_return_code() not in (None, ReturnCode.OK):
        return Reply("refused", "unreadable: the site's FLARE client reported an error")
    try:
        return wire.to_reply(result)
    except SilodpError as error:
        return Reply("refused", str(error))


def _engine(fl_ctx: FLContext) -> Any:
    return fl_ctx.get_engine()


def _check_often(communicator: Any) -> None:
    # FLARE 2.9.0 sets `task_check_period` and reads `_task_check_period`, which stays at 0.2 s.
    if hasattr(communicator, "_task_check_period"):
        communicator._task_check_period = CHECK_PERIOD
