"""A report served while a test looks at it."""

import threading
from contextlib import contextmanager
from pathlib import Path

from silodp.report.server import ReportServer


@contextmanager
def served(*folders, **more):
    with ReportServer([Path(folder) for folder in folders], **more) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
