"""Puts stand-ins for the site's worker and the coordinator into FLARE's job processes.

Python reads a file of this name at its start, from a folder on PYTHONPATH.
"""

import json
import os
import sys
import time
import types


class SiteWorker:
    def __init__(self, folder):
        self.folder = folder

    def answer(self, request):
        from silodp.sites.protocol import Reply

        fault = self.folder / "fault.json"
        what = json.loads(fault.read_text()) if fault.exists() else {}
        if what.get("round") == request.round:
            if what["do"] == "raise":
                raise RuntimeError("SECRET of a record")
            if what["do"] == "sleep":
                time.sleep(what["seconds"])
            if what["do"] == "refuse":
                return Reply("refused", "the budget is spent")
        return Reply("ok", "", {"pid": os.getpid()}, [array + 1 for array in request.arrays])


class Coordinator:
    """Asks for rounds until one is missing too many; drops whoever did not answer well."""

    def __init__(self, folder, job):
        import numpy as np

        self.folder, self.job, self.round = folder, job, 0
        plan = json.loads((folder / "plan.json").read_text())
        self.targets, self.deadline = plan["targets"], plan["deadline"]
        self.rounds, self.quorum = plan["rounds"], plan["quorum"]
        self.state = np.zeros(plan["size"], np.float32)
        self.seen, self.times, self.last = [], [], None

    def next_request(self):
        from silodp.sites.protocol import Request

        now = time.perf_counter()
        if self.last is not None:
            self.times.append(now - self.last)
        self.last = now
        self._save()
        if self.round == self.rounds:
            return None
        return Request("train", self.job, "{}", self.round, [self.state])

    def receive(self, replies):
        import numpy as np

        from silodp.base.errors import SilodpError

        told = {name: [reply.status, reply.reason] for name, reply in replies.items()}
        pids = {name: reply.about.get("pid") for name, reply in replies.items()}
        self.seen.append({"told": told, "pids": pids})
        good = [name for name, reply in replies.items() if reply.status == "ok"]
        self.targets = [name for name in self.targets if name in good]
        if len(good) < self.quorum:
            raise SilodpError(f"Only {len(good)} sites are left: ask for more.")
        self.state = np.mean([replies[name].arrays[0] for name in good], 0)
        self.round += 1

    def _save(self):
        told = {"seen": self.seen, "times": self.times, "state": float(self.state.flat[0])}
        (self.folder / "seen.json").write_text(json.dumps(told))


for name, kind in (("worker", SiteWorker), ("coordinator", Coordinator)):
    module = types.ModuleType(f"silodp.sites.{name}")
    setattr(module, kind.__name__, kind)
    sys.modules[module.__name__] = module
