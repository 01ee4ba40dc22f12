"""`python -m silodp.sites.flare.server_process`: FLARE's server, with a doorkeeper of silodp's."""

import sys
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.server.server_train import main, parse_arguments
from nvflare.private.fed.app.utils import version_check

from silodp.sites.flare.doorkeeper import Doorkeeper, install

if __name__ == "__main__":
    version_check()
    arguments = parse_arguments()
    install(Doorkeeper(Path(arguments.workspace).parent))
    code: Any = MainProcessMonitor.run(main_func=main, run_dir=arguments.workspace, args=arguments)
    sys.exit(code)
