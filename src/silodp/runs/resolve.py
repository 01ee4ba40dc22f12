"""From a request, with options left open, to a spec with a value for each."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from silodp.config.choices import Entropy, Regulariser, SelectScore, SmallSilos
from silodp.config.options import OPTIONS, RunRequest
from silodp.data.source import Defaults
from silodp.data.tasks import get_task
from silodp.methods import MethodEntry, get_method
from silodp.methods.server import SERVER_LR
from silodp.models.metrics import Metric
from silodp.models.model import Model
from silodp.privacy.plan import SiloPlan
from silodp.privacy.policy import Policy
from silodp.runs.method_choice import OwnValues

# Messages by what labels are: of several classes, a second one says how sure to be, and a third
# hardly more than the first loses.
USUAL_MESSAGES = {"numbers": 3, "signs": 3, "places": 2, None: 3}


@dataclass(frozen=True)
class ResolvedOptions:
    """A request with nothing left open that a run needs.

    Attributes:
      request: the request.
      model_name: the model's name.
      rounds: the number of communication rounds.
      messages: messages of each silo, in a method of these; else None.
      batch_size: expected records in a step.
      clip: largest norm of a record's gradient.
      lr: learning rate of local training.
      delta: chance with which epsilon may fail, where no policy says otherwise.
      preprocess: how features are scaled.
      small_silos: the treatment of silos with fewer records than a batch.
      evaluate_every: rounds between evaluations.
      select_score: the score that selections go by.
      entropy: the source of noise.
      server_lr: learning rate of the server's optimiser.
      regulariser: how the pull towards the server's model works.
    """

    request: RunRequest
    model_name: str
    rounds: int
    messages: int | None
    batch_size: int
    clip: float
    lr: float
    delta: float
    preprocess: str
    small_silos: SmallSilos
    evaluate_every: int
    select_score: SelectScore
    entropy: Entropy
    server_lr: float
    regulariser: Regulariser

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Every option by name: as resolved, or else as in the request."""
        resolved = {field.name: getattr(self, field.name) for field in fields(ResolvedOptions)}
        resolved["model"] = self.model_name
        return {name: resolved.get(name, getattr(self.request, name)) for name in OPTIONS}


@dataclass(frozen=True)
class RunSpec(ResolvedOptions):
    """One setting of a run, with nothing left open.

    Attributes:
      method: how silos learn together.
      model: the model that is trained.
      metrics: what is measured on test records; the run goes by the first.
      policies: one per silo.
      plans: one per silo.
      own_values: the method's options that differ from silo to silo, by name.
    """

    method: MethodEntry
    model: Model
    metrics: tuple[Metric, ...]
    policies: tuple[Policy, ...]
    plans: tuple[SiloPlan, ...]
    own_values: OwnValues

    @property
    def metric(self) -> Metric:
        """The metric on test records that the run goes by."""
        return self.metrics[0]


def resolve(
    request: RunRequest, defaults: Defaults, custom_model: Model | None, task: str
) -> ResolvedOptions:
    """Resolves a request: options left open get values that fit the data."""
    messages, usual_model = None, defaults.model
    if get_method(request.method).in_messages:
        messages = request.messages or USUAL_MESSAGES[get_task(task).as_vectors]
        usual_model = get_task(task).model  # whichever else suits the data: it is for no other
    rounds = messages or request.rounds or defaults.rounds
    # Each evaluation that is released costs privacy: one is enough, unless more are requested.
    usual = rounds if request.metric_share else max(1, rounds // 20)
    return ResolvedOptions(
        request=request,
        model_name=custom_model.name if custom_model else request.model or usual_model,
        rounds=rounds,
        messages=messages,
        batch_size=request.batch_size or defaults.batch_size,
        clip=request.clip or defaults.clip,
        lr=request.lr or defaults.lr,
        delta=request.delta or defaults.delta,
        preprocess=request.preprocess or defaults.preprocess,
        small_silos=request.small_silos or defaults.small_silos,
        evaluate_every=min(request.evaluate_every or usual, rounds),
        select_score=request.select_score or get_task(task).select_score,
        entropy=request.entropy or ("os" if request.ledger else "seed"),
        server_lr=request.server_lr or SERVER_LR[request.server_optimiser],
        regulariser=request.regulariser or get_method(request.method).regulariser,
    )


def spec_of(options: ResolvedOptions, **more: Any) -> RunSpec:
    """The spec of a setting: its options, and the other fields of a `RunSpec`."""
    return RunSpec(
        **{field.name: getattr(options, field.name) for field in fields(options)}, **more
    )
