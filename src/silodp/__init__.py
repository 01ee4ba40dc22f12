"""silodp: private, personalised learning across data silos.

import silodp

result = silodp.run(data="synthetic", method="mrmtl", lam=1, epsilon=3, seeds=3)
print(result.mean, result.std, result.epsilons)
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from silodp.advice.advise import Advice, advise
    from silodp.advice.messages import MessageAdvice, advise_messages
    from silodp.auditing.audit import Audit, audit
    from silodp.base.errors import SilodpError
    from silodp.config.options import RunRequest
    from silodp.data.encoders.functions import encoder
    from silodp.data.federation import Federation, Records, Silo
    from silodp.methods.base import Method, Start, difference, weighted_mean
    from silodp.methods.entry import MethodEntry, merging
    from silodp.methods.server import ServerOptimiser
    from silodp.models.from_torch import torch_model
    from silodp.models.model import Model, custom_model
    from silodp.pictures.learned_picture import draw_learned
    from silodp.privacy.ledger.standing import remaining
    from silodp.privacy.mechanisms.queries import Queries, Schedule
    from silodp.privacy.policy import Policy
    from silodp.privacy.policy_files import read_policies
    from silodp.report import write_report
    from silodp.results.mlflow_log import log_to_mlflow
    from silodp.results.model_export.personal_model import PersonalModel, load_model
    from silodp.results.result import Result, read_result
    from silodp.results.views import to_frame
    from silodp.runs.asking import question
    from silodp.runs.fit import fit
    from silodp.runs.prepare import Prepared
    from silodp.runs.run import plan, run, sweep
    from silodp.tuning import tune

    __version__: str

__all__ = [
    "Advice",
    "Audit",
    "Federation",
    "MessageAdvice",
    "Method",
    "MethodEntry",
    "Model",
    "PersonalModel",
    "Policy",
    "Prepared",
    "Queries",
    "Records",
    "Result",
    "RunRequest",
    "Schedule",
    "ServerOptimiser",
    "Silo",
    "SilodpError",
    "Start",
    "advise",
    "advise_messages",
    "audit",
    "custom_model",
    "difference",
    "draw_learned",
    "encoder",
    "fit",
    "load_model",
    "log_to_mlflow",
    "merging",
    "plan",
    "question",
    "read_policies",
    "read_result",
    "remaining",
    "run",
    "sweep",
    "to_frame",
    "torch_model",
    "tune",
    "weighted_mean",
    "write_report",
]

# Imported when they are first asked for: whoever needs a part does not wait for JAX, nor a process
# that only carries messages hold it in memory.
_PLACES = {
    "Advice": "silodp.advice.advise",
    "MessageAdvice": "silodp.advice.messages",
    "advise": "silodp.advice.advise",
    "advise_messages": "silodp.advice.messages",
    "Audit": "silodp.auditing.audit",
    "audit": "silodp.auditing.audit",
    "custom_model": "silodp.models.model",
    "difference": "silodp.methods.base",
    "draw_learned": "silodp.pictures.learned_picture",
    "encoder": "silodp.data.encoders.functions",
    "Federation": "silodp.data.federation",
    "fit": "silodp.runs.fit",
    "load_model": "silodp.results.model_export.personal_model",
    "log_to_mlflow": "silodp.results.mlflow_log",
    "merging": "silodp.methods.entry",
    "Method": "silodp.methods.base",
    "MethodEntry": "silodp.methods.entry",
    "Model": "silodp.models.model",
    "PersonalModel": "silodp.results.model_export.personal_model",
    "plan": "silodp.runs.run",
    "Policy": "silodp.privacy.policy",
    "Prepared": "silodp.runs.prepare",
    "Queries": "silodp.privacy.mechanisms.queries",
    "question": "silodp.runs.asking",
    "read_policies": "silodp.privacy.policy_files",
    "read_result": "silodp.results.result",
    "Records": "silodp.data.federation",
    "remaining": "silodp.privacy.ledger.standing",
    "Result": "silodp.results.result",
    "run": "silodp.runs.run",
    "RunRequest": "silodp.config.options",
    "Schedule": "silodp.privacy.mechanisms.queries",
    "ServerOptimiser": "silodp.methods.server",
    "Silo": "silodp.data.federation",
    "SilodpError": "silodp.base.errors",
    "Start": "silodp.methods.base",
    "sweep": "silodp.runs.run",
    "to_frame": "silodp.results.views",
    "torch_model": "silodp.models.from_torch",
    "tune": "silodp.tuning",
    "weighted_mean": "silodp.methods.base",
    "write_report": "silodp.report",
}


# Names that are about to leave, and where else the same is: see docs/stability.md.
_LEAVING = {
    "get_model": ("silodp.models.model", "get_model"),
    "Merging": ("silodp", "ServerOptimiser"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from silodp.base.version import own_version

        return own_version()
    if name in _LEAVING:
        module, other = _LEAVING[name]
        warnings.warn(
            f"silodp.{name} leaves with the next minor release: import {other} from {module}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(module), other)
    if name not in _PLACES:
        raise AttributeError(f"module 'silodp' has no attribute {name!r}")
    found = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
