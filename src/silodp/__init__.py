"""silodp: private, personalised learning across data silos.

import silodp

result = silodp.run(data="synthetic", method="mrmtl", lam=1, epsilon=3, seeds=3)
print(result.mean, result.std, result.epsilons)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silodp.advice import Advice, advise
    from silodp.errors import SilodpError
    from silodp.federation import Federation, Records, Silo
    from silodp.handover.personal_model import PersonalModel, load_model
    from silodp.learned import draw_learned
    from silodp.methods.base import Method, Start, difference, weighted_mean
    from silodp.methods.entry import MethodEntry, merging
    from silodp.methods.server import Merging
    from silodp.models import Model, custom_model, get_model
    from silodp.options import RunOptions
    from silodp.prepare import Prepared
    from silodp.privacy.audit import Audit, audit
    from silodp.privacy.policy import Policy
    from silodp.privacy.policy_files import read_policies
    from silodp.privacy.queries import Queries, Schedule
    from silodp.privacy.spending import remaining
    from silodp.report import write_report
    from silodp.result import Result, read_result
    from silodp.runs import plan, run, sweep
    from silodp.tuning import tune

__all__ = [
    "Advice",
    "Audit",
    "Federation",
    "Merging",
    "Method",
    "MethodEntry",
    "Model",
    "PersonalModel",
    "Policy",
    "Prepared",
    "Queries",
    "Records",
    "Result",
    "RunOptions",
    "Schedule",
    "Silo",
    "SilodpError",
    "Start",
    "advise",
    "audit",
    "custom_model",
    "difference",
    "draw_learned",
    "get_model",
    "load_model",
    "merging",
    "plan",
    "read_policies",
    "read_result",
    "remaining",
    "run",
    "sweep",
    "tune",
    "weighted_mean",
    "write_report",
]

# Imported when they are first asked for: whoever needs a part does not wait for JAX, nor a process
# that only carries messages hold it in memory.
_PLACES = {
    "Advice": "silodp.advice",
    "advise": "silodp.advice",
    "Audit": "silodp.privacy.audit",
    "audit": "silodp.privacy.audit",
    "custom_model": "silodp.models",
    "difference": "silodp.methods.base",
    "draw_learned": "silodp.learned",
    "Federation": "silodp.federation",
    "get_model": "silodp.models",
    "load_model": "silodp.handover.personal_model",
    "Merging": "silodp.methods.server",
    "merging": "silodp.methods.entry",
    "Method": "silodp.methods.base",
    "MethodEntry": "silodp.methods.entry",
    "Model": "silodp.models",
    "PersonalModel": "silodp.handover.personal_model",
    "plan": "silodp.runs",
    "Policy": "silodp.privacy.policy",
    "Prepared": "silodp.prepare",
    "Queries": "silodp.privacy.queries",
    "read_policies": "silodp.privacy.policy_files",
    "read_result": "silodp.result",
    "Records": "silodp.federation",
    "remaining": "silodp.privacy.spending",
    "Result": "silodp.result",
    "run": "silodp.runs",
    "RunOptions": "silodp.options",
    "Schedule": "silodp.privacy.queries",
    "Silo": "silodp.federation",
    "SilodpError": "silodp.errors",
    "Start": "silodp.methods.base",
    "sweep": "silodp.runs",
    "tune": "silodp.tuning",
    "weighted_mean": "silodp.methods.base",
    "write_report": "silodp.report",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'silodp' has no attribute {name!r}")
    found = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
