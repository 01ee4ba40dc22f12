"""`python -m silodp.sites.flare.site_process`: FLARE's client, with fewer commands."""

import sys
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.client.client_train import main, parse_arguments
from nvflare.private.fed.app.utils import version_check

from silodp.sites.flare.guard import limit_site_commands
from silodp.sites.flare.heartbeats import Heartbeats

if __name__ == "__main__":
    limit_site_commands()
    version_check()
    arguments = parse_arguments()
    Heartbeats(Path(arguments.workspace).parent).install()
    code: Any = MainProcessMonitor.run(main_func=main, run_dir=arguments.workspace, args=arguments)
    sys.exit(code)
