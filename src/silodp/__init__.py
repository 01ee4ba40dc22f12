"""silodp: private, personalised learning across data silos.

import silodp

result = silodp.run(data="synthetic", method="mrmtl", lam=1, epsilon=3, seeds=3)
print(result.mean, result.std, result.epsilons)
"""

from silodp.advice import Advice, advise
from silodp.errors import SilodpError
from silodp.federation import Federation, Records, Silo
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
from silodp.result import Result, read_result
from silodp.run import plan, run, sweep
from silodp.tuning import tune

__all__ = [
    "Advice",
    "Audit",
    "Federation",
    "Merging",
    "Method",
    "MethodEntry",
    "Model",
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
    "merging",
    "plan",
    "read_policies",
    "read_result",
    "remaining",
    "run",
    "sweep",
    "tune",
    "weighted_mean",
]
