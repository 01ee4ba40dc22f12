"""The method of a run that names none: `fewround` where it suits the data, else `ebmtl`.

It is chosen before anything is spent, and by what is public: the task, the model, bounds on
features, budgets and record counts. docs/fewround.md has the federations that the rule rests on.
"""

import math
from collections.abc import Sequence

import numpy as np

from silodp.config.options import RunRequest
from silodp.data.federation import Federation
from silodp.data.tasks import get_task
from silodp.methods.fewround.constants import CONSTANTS
from silodp.models.model import Model
from silodp.privacy.plan import SiloPlan

# Beyond this noise on second moments (see `hidden_moments`) messages are worth less than steps.
MOST_HIDDEN = 5.0

CHOSEN_FEW = (
    "fewround, because the model is linear, features have public bounds, and the noise leaves "
    "their second moments to be seen"
)
MOMENTS_HIDDEN = "noise would hide the second moments that few messages rest on"


def unlike_messages(
    request: RunRequest, federation: Federation, usual_model: str, custom_model: Model | None
) -> str | None:
    """Why the data or options are not for few messages; None if they are."""
    task = get_task(federation.task)
    if task.as_vectors != "numbers":
        return "few messages know chances of classes less well than steps do"
    if custom_model is not None or (request.model or usual_model) != task.model:
        return "the model learns from steps"
    if federation.feature_bound is None and not federation.uncovered:
        return "features have no public bounds"
    return None


def hidden_moments(plans: Sequence[SiloPlan], federation: Federation) -> float:
    """How far noise hides the second moments that all silos release together.

    The largest eigenvalue that noise alone would give their mean, over the mean eigenvalue that
    records of length 1 give it.
    """
    size = math.prod(federation.input_shape) + 1
    noises = np.array([plan.message_noise(0) for plan in plans])
    if (noises == 0).any():
        return 0.0
    counts = np.array([plan.public_count for plan in plans])
    precision = CONSTANTS.parts.gram * float(((counts / noises) ** 2).sum())
    return size * math.sqrt(2 * size / max(precision, CONSTANTS.smallest))
