"""A file that tells the site's command line that the coordinator has let the site in."""

import os
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from silodp.base.files import write_file

FILE = "site.up"


class Presence(FLComponent):
    """Writes the process's number into a file beside the workspace once it is registered."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Handles an event; FLARE calls it whenever anything happens."""
        if event_type == EventType.AFTER_CLIENT_REGISTER:
            workspace: Any = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
            write_file(Path(workspace.get_root_dir(), "..", FILE), str(os.getpid()), sync="none")
