"""The server's commands that a site's processes obey: those that run a job, and no other.

FLARE's client checks rights only if the server says that it should; without, it would read out
any file, run a logging configuration that calls any function, and more. A site that does not
trust its coordinator must not have these commands at all.
"""

from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

SITE_COMMANDS = frozenset(
    (
        "AbortAppProcessor",
        "AbortTaskProcessor",
        "CancelResourceProcessor",
        "CheckResourceProcessor",
        "ClientStatusProcessor",
        "DeployProcessor",
        "NotifyJobStatusProcessor",
        "StartJobProcessor",
    )
)
JOB_COMMANDS = frozenset(("AbortCommand", "AbortTaskCommand", "ByeCommand", "CheckStatusCommand"))


def limit_site_commands() -> None:
    """Removes from a site's process all commands but those that it needs."""
    ClientRequestProcessors.request_processors[:] = [
        one
        for one in ClientRequestProcessors.request_processors
        if type(one).__name__ in SITE_COMMANDS
    ]


def limit_job_commands() -> None:
    """Removes from a job's process at a site all commands but those that it needs."""
    AdminCommands.commands[:] = [
        one for one in AdminCommands.commands if type(one).__name__ in JOB_COMMANDS
    ]
