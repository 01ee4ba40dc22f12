"""`python -m silodp.sites.flare.site_job`: FLARE's job process at a site, with fewer commands."""

import os
import sys
from typing import Any

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.client.worker_process import main, parse_arguments

from silodp.sites.flare.guard import limit_job_commands

if __name__ == "__main__":
    limit_job_commands()
    arguments = parse_arguments()
    folder = os.path.join(arguments.workspace, arguments.job_id)
    code: Any = MainProcessMonitor.run(main_func=main, run_dir=folder, args=arguments)
    sys.exit(code)
