"""Starts a job's own process, at a site and at the server.

FLARE's launchers join a command with blanks and split it again, which breaks at a folder with a
blank in its name; and a site's process must refuse some of the server's commands.
"""

import shlex
import sys
from collections.abc import Iterable
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs, JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.utils.job_launcher_utils import get_client_job_args, get_server_job_args


class SiteJob(ProcessHandle):
    """A job's process at a site, whose sudden end is not reported.

    FLARE would end the whole job for all sites; as it is, the site just does not reply.
    """

    def poll(self) -> Any:
        """How the process ended, in FLARE's words: a sudden end is reported as success."""
        code = super().poll()
        return JobReturnCode.SUCCESS if code == JobReturnCode.EXECUTION_ERROR else code


class SiteJobLauncher(ClientProcessJobLauncher):
    """Starts a job's process at a site."""

    def launch_job(self, job_meta: dict, fl_ctx: FLContext) -> SiteJob:
        """Starts the process as FLARE does."""
        handle: Any = super().launch_job(job_meta, fl_ctx)
        return SiteJob(process_adapter=handle.adapter)

    def get_command(self, job_meta: dict, fl_ctx: FLContext) -> str:
        """The command, quoted for a shell."""
        names = [name for name in get_client_job_args() if name != JobProcessArgs.EXE_MODULE]
        return _command("silodp.sites.flare.site_job", names, fl_ctx)


class ServerJobLauncher(ServerProcessJobLauncher):
    """Starts a job's process at the server."""

    def get_command(self, job_meta: dict, fl_ctx: FLContext) -> str:
        """The command, quoted for a shell."""
        names = [name for name in get_server_job_args() if name != JobProcessArgs.EXE_MODULE]
        return _command("nvflare.private.fed.app.server.runner_process", names, fl_ctx)


def _command(module: str, names: Iterable[str], fl_ctx: FLContext) -> str:
    given: dict[str, tuple[str, Any]] = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {}
    words = [sys.executable, "-u", "-m", module]
    for name in names:
        if given.get(name):
            option, value = given[name]
            # The options of --set are several words, made by silodp without blanks in them.
            words += [option, *(value.split() if name == JobProcessArgs.OPTIONS else [str(value)])]
    return shlex.join(words)
