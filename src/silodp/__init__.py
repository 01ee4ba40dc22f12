"""silodp: private, personalised learning across data silos.

import silodp

result = silodp.run(data="synthetic", method="mrmtl", lam=1, epsilon=3, seeds=3)
print(result.mean, result.std, result.epsilons)
"""

from silodp.errors import SilodpError
from silodp.federation import Federation, Records, Silo
from silodp.methods.base import Method
from silodp.models import Model, custom_model, get_model
from silodp.options import RunOptions
from silodp.privacy.policy import Policy, read_policies
from silodp.result import Result, read_result
from silodp.run import run, sweep

__all__ = [
    "Federation",
    "Method",
    "Model",
    "Policy",
    "Records",
    "Result",
    "RunOptions",
    "Silo",
    "SilodpError",
    "custom_model",
    "get_model",
    "read_policies",
    "read_result",
    "run",
    "sweep",
]
