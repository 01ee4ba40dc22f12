"""Every option of a run, declared once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from silodp.base.errors import SilodpError
from silodp.config.choices import (
    AUTO_METHOD,
    Accountant,
    Engine,
    Entropy,
    LifetimeFilter,
    MetricName,
    Optimiser,
    Regulariser,
    Relation,
    Sampling,
    SelectMechanism,
    SelectScore,
    ServerOptimiserName,
    SmallSilos,
    Weights,
)
from silodp.config.data_options import DataRequest
from silodp.config.declared import Option, Tag, listed, option, options_of


@dataclass(frozen=True)
class RunRequest(DataRequest):
    """All options of a run; `None` takes what fits the data set.

    The command line, `--config` files and `silodp.run` all take these names.

    Examples:
      >>> silodp.plan(data="synthetic", epsilon=3, rounds=0)
      Traceback (most recent call last):
      ...
      silodp.base.errors.SilodpError: --rounds is 0: give a number of at least 1.
    """

    data: str = option(
        "synthetic",
        "Path, or data set's name.",
        group="Data",
        basic=True,
    )
    method: str = option(
        AUTO_METHOD,
        "How silos learn (silodp methods).",
        group="Method",
        basic=True,
        tags={"agreed"},
        remedy="give one name (silodp methods)",
    )
    model: str | None = option(
        None,
        "svm, convnet, convnet5; else the task's own.",
        group="Method",
        basic=True,
        tags={"agreed", "advised"},
    )
    lam: float = option(
        1.0,
        "lambda: how hard silos are pulled.",
        group="Method",
        basic=True,
        tags={"agreed", "of_method", "swept", "tuned"},
        least=0,
        single_precision=True,
        infinite=True,
        word="lambda",
    )
    silo_lam: Path | Mapping[str, float] | None = option(
        None,
        "TOML file with a lambda of its own for each silo that it names.",
        group="Method",
        tags={"of_method", "tuned", "named_file", "sent_file"},
    )
    finetune_fraction: float = option(
        0.5,
        "Part of the rounds that finetune federates.",
        group="Method",
        tags={"agreed", "of_method", "swept", "tuned"},
        least=0,
        most=1,
        word="fraction",
    )
    clusters: int = option(
        2,
        "Models to choose from (ifca, ifca+...).",
        group="Method",
        tags={"agreed", "of_method", "tuned"},
        least=1,
    )
    select_fraction: float = option(
        0.1,
        "Part of the rounds in which silos choose (ifca).",
        group="Method",
        tags={"agreed", "of_method", "tuned"},
        least=0,
        most=1,
        word="selecting",
    )
    shared_passes: int = option(
        1,
        "Training passes of the shared model in a round (ditto).",
        group="Method",
        tags={"agreed", "of_method", "tuned"},
        least=1,
        most=100,
        why="each pass costs privacy",
        unsaid=1,
    )
    personal_passes: int = option(
        1,
        "Training passes of a silo's own model in a round (ditto).",
        group="Method",
        tags={"agreed", "of_method", "tuned"},
        least=1,
        most=100,
        why="each pass costs privacy",
        unsaid=1,
    )
    method_options: str | Mapping[str, float] | None = option(
        None,
        "Options of a method of your own: name=number, separated by commas.",
        group="Method",
        tags={"agreed", "of_method", "tuned"},
    )
    server_optimiser: ServerOptimiserName = option(
        "average",
        f"How the server uses the silos' mean update: {listed(ServerOptimiserName)}.",
        group="Method",
        tags={"agreed", "of_method", "tuned"},
        word="server",
        unsaid="average",
    )
    server_lr: float | None = option(
        None,
        "Learning rate of the server; else 1, or 0.01 for fedadam.",
        group="Method",
        tags={"agreed", "of_method", "swept", "tuned"},
        above=0,
        single_precision=True,
        unsaid=1.0,
    )
    server_momentum: float = option(
        0.9,
        "Momentum of fedavgm; beta_1 of fedadam.",
        group="Method",
        tags={"agreed", "of_method", "tuned"},
        least=0,
        below=1,
        needs="server_optimiser",
        unsaid=0.9,
    )
    regulariser: Regulariser | None = option(
        None,
        "The pull: outside the clip, proximal (stable for any lambda; default of ditto), or inside "
        "the clip as in the authors' code.",
        group="Method",
        tags={"agreed", "tuned"},
    )
    weights: Weights = option(
        "records",
        "Weights of silos when merging: by records, or uniform.",
        group="Method",
        tags={"agreed", "advised", "of_training"},
    )
    messages: int | None = option(
        None,
        "Messages of each silo in place of rounds (fewround): 1, 2, 3 or 5; else 3 (of several "
        "classes 2).",
        group="Method",
        tags={"agreed", "agreed_if_given", "of_method", "tuned", "advised"},
        least=1,
        most=5,
    )
    rounds: int | None = option(
        None,
        "Rounds of communication.",
        group="Training",
        basic=True,
        tags={"agreed", "tuned", "of_training"},
        least=1,
    )
    batch_size: int | None = option(
        None,
        "Expected records in a step.",
        group="Training",
        basic=True,
        tags={"agreed", "tuned", "checked", "of_training"},
        least=1,
    )
    clip: float | None = option(
        None,
        "Largest norm of a record's gradient.",
        group="Training",
        basic=True,
        tags={"agreed", "advised", "tuned", "of_training"},
        above=0,
        least=1e-12,  # less is lost in single precision
        single_precision=True,
    )
    lr: float | None = option(
        None,
        "Learning rate of local training.",
        group="Training",
        basic=True,
        tags={"agreed", "swept", "tuned", "of_training"},
        above=0,
        single_precision=True,
    )
    seeds: int = option(
        1,
        "Runs: each has a split of its own.",
        group="Training",
        basic=True,
        tags={"outside", "single", "checked"},
        least=1,
    )
    first_seed: int = option(
        0,
        "The first seed.",
        group="Training",
        tags={"advised", "outside", "single"},
        least=0,
    )
    epochs: int = option(
        1,
        "Local epochs in a round.",
        group="Training",
        tags={"agreed", "tuned", "of_training"},
        least=1,
    )
    optimiser: Optimiser = option(
        "sgd",
        f"Optimiser of local training: {listed(Optimiser)}.",
        group="Training",
        tags={"agreed", "tuned", "of_training"},
    )
    small_silos: SmallSilos | None = option(
        None,
        "Silos with fewer records than a batch: refuse, or train on the full-batch.",
        group="Training",
        tags={"agreed", "checked", "of_training"},
    )
    evaluate_every: int | None = option(
        None,
        "Rounds between evaluations; else 20 in a run.",
        group="Training",
        tags={"single"},
        least=1,
    )
    engine: Engine = option(
        "simulation",
        "simulation, or debug: slow, names the silo and stage that failed.",
        group="Training",
        tags={"of_training"},
    )
    epsilon: float | None = option(
        None,
        "Most that a silo may spend; inf: no privacy.",
        group="Privacy",
        basic=True,
        tags={"site_own", "policy", "advised", "swept"},
        above=0,
    )
    delta: float | None = option(
        None,
        "Chance with which that bound may fail.",
        group="Privacy",
        basic=True,
        tags={"site_own", "policy", "advised"},
        above=0,
        below=1,
    )
    policies: Path | None = option(
        None,
        "Silos' own policies; the stricter limit holds.",
        group="Privacy",
        basic=True,
        tags={"site_own", "advised", "swept", "named_file", "sent_file"},
    )
    ledger: Path | None = option(
        None,
        "Ledgers' folder: charges and limits runs.",
        group="Privacy",
        basic=True,
        tags={"site_own", "advised", "single"},
    )
    relation: Relation = option(
        "add-remove",
        "Neighbours differ by one record more, or by one exchanged: replace-one.",
        group="Privacy",
        tags={"site_own", "policy", "advised"},
    )
    lifetime_epsilon: float | None = option(
        None,
        "Budget over all runs in the ledger; else as for one run.",
        group="Privacy",
        tags={"site_own", "policy", "advised"},
        above=0,
        needs="ledger",
    )
    lifetime_delta: float | None = option(
        None,
        "Its delta; else as for one run.",
        group="Privacy",
        tags={"site_own", "policy", "advised"},
        above=0,
        below=1,
        needs="ledger",
    )
    lifetime_filter: LifetimeFilter = option(
        "renyi",
        "Rule by which a run fits the lifetime, fixed when the ledger is opened: renyi (any run), "
        "or gaussian (Gaussian mechanisms on all records alone, more tightly).",
        group="Privacy",
        tags={"site_own", "policy", "advised"},
        needs="ledger",
    )
    max_silos_per_subject: int = option(
        1,
        "Most silos that a person may be in: the result says what that adds up to.",
        group="Privacy",
        least=1,
    )
    entropy: Entropy | None = option(
        None,
        "Source of noise: seed (repeatable, fast: an experiment) or os (secret, exact: a release; "
        "always with --ledger).",
        group="Privacy",
        tags={"advised"},
    )
    sampling: Sampling = option(
        "poisson",
        "poisson (proven), or shuffle as in the authors' code (not proven).",
        group="Privacy",
        tags={"of_training"},
    )
    accountant: Accountant = option(
        "best",
        "best (the tighter of the two), pld or rdp.",
        group="Privacy",
        tags={"agreed"},
    )
    select_share: float = option(
        0.03,
        "Share of epsilon that one private selection takes.",
        group="Shares of epsilon",
        tags={"agreed", "of_selections", "tuned"},
        least=0,
        below=1,
    )
    select_mechanism: SelectMechanism = option(
        "exponential",
        "Mechanism of private selections: exponential or permute-and-flip.",
        group="Shares of epsilon",
        tags={"agreed", "of_selections", "tuned"},
    )
    select_score: SelectScore | None = option(
        None,
        "Score of selections: error (default of classifiers) or loss, clipped.",
        group="Shares of epsilon",
        tags={"agreed", "of_selections", "tuned"},
    )
    select_bound: float = option(
        1.0,
        "Bound to which a record's loss is clipped in selections.",
        group="Shares of epsilon",
        tags={"agreed", "of_selections", "tuned"},
        above=0,
        single_precision=True,
    )
    statistics_share: float = option(
        0.0,
        "Share of epsilon for noisy statistics: the means that missing values count as, where a "
        "schema has that rule; else a mean and variance to standardise features with.",
        group="Shares of epsilon",
        tags={"agreed"},
        least=0,
        below=1,
    )
    metric: MetricName | None = option(
        None,
        f"Metric on test records: {listed(MetricName)}; else the task's own.",
        group="Training",
        tags={"agreed", "agreed_if_given", "single"},
    )
    prevalence: float | None = option(
        None,
        "Share of the second of two classes that is known beforehand: both then weigh alike in "
        "training, and probabilities stay true (model logistic).",
        group="Training",
        tags={"agreed", "agreed_if_given", "single"},
        above=0,
        below=1,
    )
    cost_ratio: float | None = option(
        None,
        "How many false alarms a missed case of the second class is worth: it is predicted from a "
        "probability of 1 / (1 + ratio) on, not of 1/2 (binary).",
        group="Training",
        tags={"agreed", "agreed_if_given", "single"},
        above=0,
        single_precision=True,
    )
    metrics: str | None = option(
        None,
        "What to measure besides, separated by commas; the first is --metric if that is left out.",
        group="Training",
        tags={"single"},
        remedy="give names separated by commas",
    )
    purpose: str | None = option(
        None,
        "What the model is for, in a sentence: it stands on top of a report.",
        group="Data",
        tags={"single", "outside"},
        remedy="give a sentence",
    )
    metric_share: float = option(
        0.0,
        "Share of epsilon for noisy test metrics; 0 leaves them exact and not private.",
        group="Shares of epsilon",
        tags={"agreed"},
        least=0,
        below=1,
    )
    metric_bound: float = option(
        1.0,
        "Bound to which a record's error (squared for mse) is clipped in noisy metrics and trials' "
        "scores.",
        group="Shares of epsilon",
        tags={"agreed"},
        above=0,
        single_precision=True,
        needs="metric_share",
    )

    def __post_init__(self):
        for name, declared in OPTIONS.items():
            given = getattr(self, name)
            if given is declared.default:  # most are, in each of a sweep's thousands of settings
                continue
            value = declared.converted(given)
            if value is not given:
                object.__setattr__(self, name, value)
            declared.check(value)
        if self.ledger is not None and self.entropy == "seed":
            raise SilodpError(
                "--entropy is 'seed', but runs that are charged to a ledger need secret noise: two "
                "runs of one seed would share it; leave out --entropy or --ledger."
            )


OPTIONS: dict[str, Option] = options_of(RunRequest)
"""Every option of a run, by name."""

DATA_OPTIONS: tuple[str, ...] = tuple(options_of(DataRequest))
"""The names of the options that say how data are loaded."""


def tagged(*tags: Tag) -> tuple[str, ...]:
    """The names of the options with all of these tags."""
    return tuple(name for name, one in OPTIONS.items() if one.tags.issuperset(tags))
