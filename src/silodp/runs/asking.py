"""Makes a question of a model and a table: what is asked of which records, at which price.

Everything that can be refused is refused here, before anything is spent. Who asks holds the table:
what a refusal says of it stays with them.
"""

import hashlib
import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from dp_accounting import DpEvent, get_sigma_gaussian

from silodp.base.documents import read_json
from silodp.base.errors import SilodpError, one_of
from silodp.base.progress import Reporter
from silodp.base.values import plain
from silodp.config.declared import flag
from silodp.config.options import DATA_OPTIONS, RunRequest
from silodp.data.tables.encoded import image_paths_in
from silodp.data.tables.files import read_table, values_of
from silodp.data.tables.schema import level_text
from silodp.data.tasks import get_task
from silodp.models.metrics import METRICS, MeanMetric, Metric, mean_metric, metric_for
from silodp.models.model import SCORE_STEPS, score_steps
from silodp.privacy.accounting.steps import moved_by
from silodp.privacy.ledger.account import Allowance, account_of
from silodp.privacy.ledger.charging import Reservation, run_of
from silodp.privacy.ledger.storage import exists, read_ledger
from silodp.privacy.ledger.words import QUESTION
from silodp.privacy.mechanisms.statistics import gaussian_event
from silodp.privacy.policy import RECORD_COUNT, Policy
from silodp.privacy.policy_files import read_policy
from silodp.privacy.session import RunLedgers
from silodp.results.model_export.personal_model import PersonalModel, load_model
from silodp.results.result import FROM_PYTHON, RESULT_FILE
from silodp.runs.acceptance import Question, Scores, kept_of
from silodp.runs.prepare import load

USUAL_EPSILON = 0.1
ANSWERS_FOLDER = "answers"  # in the folder of the ledgers
# Options by which records are set apart together, and not each by a coin of its own.
_NOT_BY_RECORD = ("test_from", "time_column", "group_column", "id_column", "subject_column")
# So many records stand for all there are, of a prediction that is the same for all.
_MANY = 10**6


def question(
    model: PersonalModel | Path | str,
    table: pd.DataFrame | Path | str | None,
    ledger: Path | str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    better_than: str | float | None = None,
    metric: str | None = None,
    metric_bound: float | None = None,
    epsilon: float = USUAL_EPSILON,
    silo: str | None = None,
    silo_column: str | None = None,
    charged_to: str | None = None,
    policies: Path | str | None = None,
    subject_column: str | None = None,
) -> Question:
    """Asks whether a model is good enough on a silo's own test records; nothing is spent yet.

    What comes back says the price and the power (`sentences()`, `difference`, `price_for`), and its
    `answer()` charges and answers: `verdict`, `value`, `interval`, `elsewhere`.

    Args:
      model: the model, its folder or card, or the folder of a run.
      table: test records with the target, as for `PersonalModel.score`; None: those that the run
        set apart, if its folder is at hand.
      ledger: the folder of the silo's ledger.
      at_least: asks whether the metric is this or more; for one of which more is better.
      at_most: asks whether it is this or less; for one of which less is better.
      better_than: asks whether it is better than by saying the same of every record: a class, a
        number, or the probability of the second of two classes. Public: not looked up in records.
      metric: a mean over records; by default the card's, or the first that the task has.
      metric_bound: the most that a record's error counts, in the metric's own unit; by default
        all that it can, or the declared range of the target. Else it has to be given.
      epsilon: the price.
      silo: whose model, where `model` is the folder of a run.
      silo_column: the column that names each row's silo: rows of others are left out. By default,
        that of the run, if its folder is at hand and the table has it.
      charged_to: whose records and ledger, where it is not the model's silo.
      policies: the silo's policy, as runs have it; else its ledger's lifetime is in force.
      subject_column: the column that names whom a record is about, where subjects are protected.

    Examples:
      >>> import pandas as pd
      >>> from pathlib import Path
      >>> stays = pd.DataFrame({"site": ["a", "b"] * 60, "age": range(120), "days": range(120)})
      >>> stays.to_csv("stays.csv", index=False)
      >>> result = silodp.run(
      ...     data="stays.csv", silo_column="site", target="days", preprocess="none", lr=1e-6,
      ...     method="local", epsilon=3, rounds=2, keep_models=True, out="runs/stays",
      ... )
      >>> lines = ["[default]", "epsilon = 3", "delta = 1e-4"]
      >>> characters = Path("policies.toml").write_text(chr(10).join(lines))
      >>> asked = silodp.question(
      ...     "runs/stays", stays, "ledgers", silo="a", policies="policies.toml",
      ...     at_most=60, metric="mae", metric_bound=120,
      ... )
      >>> asked.units, round(asked.difference)
      (60, 88)
      >>> asked.answer().verdict in ("yes", "no", "cannot say")
      True
    """
    loaded = model if isinstance(model, PersonalModel) else load_model(model, silo=silo)
    name = charged_to or loaded.about.silo
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(loaded.params)):
        raise SilodpError(
            f"Silo {loaded.about.silo!r}: its model is not finite, so that there is nothing to ask "
            "of it: train it again, with a smaller --lr."
        )
    directory = Path(ledger)
    policy = None if policies is None else read_policy(policies, name)
    allowance = _allowance(directory, name, policy)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise SilodpError(f"--epsilon is {epsilon}: give a number above 0, such as 0.1.")
    if policy is not None and epsilon > policy.epsilon:
        raise SilodpError(
            f"Silo {name!r}: --epsilon is {epsilon:g}, above the epsilon {policy.epsilon:g} that "
            "its policy allows: give less."
        )
    subjects = _subject_column(name, policy, allowance, subject_column)
    chosen = _metric(loaded, metric)
    asked = _Asked.of(loaded, chosen, at_least, at_most, better_than, metric_bound)
    if table is None:
        scores = _scores_set_apart(loaded, chosen, asked, name, subjects)
    else:
        names = column_of_silos(loaded, silo_column)
        if not isinstance(table, pd.DataFrame):
            texts = loaded.text_columns | {one for one in (subjects, names) if one is not None}
            path = Path(table)
            table = read_table(path, texts, fewest=1)
            table = image_paths_in(table, loaded.image_columns, path.parent)
        table = _own_rows(table, name, names, must=silo_column is not None)
        scores = _scores(loaded, chosen, asked, table, subjects)
    delta = allowance.delta if policy is None else policy.delta
    noise = get_sigma_gaussian(epsilon, delta) * moved_by(allowance.relation)
    described = {
        "model": loaded.about.silo,
        "metric": chosen.name,
        "direction": asked.direction,
        "threshold": asked.threshold,
        "other": None if better_than is None else str(better_than),
        "low": scores.low,
        "high": scores.high,
        "cut": asked.cut,
        "units": scores.units,
        "unit": allowance.unit,
        "relation": allowance.relation,
        "epsilon": epsilon,
        "delta": delta,
        "noise_multiplier": noise,
    }
    place = directory / ANSWERS_FOLDER / f"{_digest(name, described, loaded, scores)}.json"
    before = kept_of(place, directory, name)

    def event_of(first: int, last: int) -> DpEvent:
        return gaussian_event(noise, int(first <= 0 < last))

    # A draft knows the words; what it takes of the ledger is known last.
    draft = Question(
        silo=name,
        **described,
        shares=None,
        known=None,
        notes=_notes(loaded, policy, allowance, scores),
        _scores=scores,
        _ledgers=RunLedgers(directory, {}, {}),
        _place=place,
    )
    about = {"summary": f"{draft.words}, noise {noise:.4g}", QUESTION: plain(described)}
    ledgers = RunLedgers(
        directory, {name: Reservation(0.0, about, 1, event_of)}, {name: allowance}, strictest=True
    )
    known = shares = None
    if before is not None and before.released is not None:
        known = draft.read(before.released)
    elif before is None or run_of(directory, name, before.run) is None:
        shares = ledgers.check()[name]
    return replace(draft, shares=shares, known=known, _ledgers=ledgers)


class _Asked(NamedTuple):
    """What is asked of the metric, in its own unit."""

    direction: Literal["at least", "at most"]
    threshold: float
    constant: np.ndarray | None  # the output that is the same for all
    largest: float  # the most that a record counts, as models have it
    unit: float  # how much of the metric's own unit a metric's 1 is
    cut: float | None  # in its own unit, where a record might count more if it were let

    @classmethod
    def of(
        cls,
        loaded: PersonalModel,
        metric: MeanMetric,
        at_least: float | None,
        at_most: float | None,
        better_than: str | float | None,
        bound: float | None,
    ) -> "_Asked":
        """Checks what is asked."""
        given = [value for value in (at_least, at_most, better_than) if value is not None]
        if len(given) != 1:
            raise SilodpError(
                "Ask one thing: --at-least or --at-most a value of the metric, or --better-than a "
                "prediction that is the same for all records."
            )
        target = loaded.about.preparation.target
        unit = target.unit**metric.power_of_unit
        largest = _largest(loaded, metric, bound, unit)
        most = metric.most(len(target.classes))
        cut = None if most is not None and largest >= most else largest * unit
        if better_than is not None:
            constant = _constant(loaded, metric, str(better_than))
            return cls("at least", 0.0, constant, largest, unit, cut)
        higher = metric.better == "higher"
        flag, wrong = ("--at-least", "--at-most") if higher else ("--at-most", "--at-least")
        value = at_least if higher else at_most
        if value is None:
            raise SilodpError(
                f"{wrong}: of {metric.words} {metric.better} is better: ask whether it is {flag} "
                "something."
            )
        if not 0 < value < largest * unit:
            more = "" if higher else ", or raise --metric-bound"
            raise SilodpError(
                f"{flag} is {value:g}, but each record's {metric.noun} counts from 0 to "
                f"{largest * unit:g}: give a number between these{more}."
            )
        return cls("at least" if higher else "at most", float(value), None, largest, unit, cut)


def _largest(loaded: PersonalModel, metric: MeanMetric, bound: float | None, unit: float) -> float:
    """The most that a record counts: what is given, or all that it can, or the target's range."""
    target = loaded.about.preparation.target
    most = metric.most(len(target.classes))
    if bound is not None:
        if not (math.isfinite(bound) and bound > 0):
            raise SilodpError(f"--metric-bound is {bound}: give a number above 0.")
        return min(metric.largest(bound / unit), math.inf if most is None else most)
    if most is not None:
        return most
    if target.range is None or not get_task(target.task).is_scaled:
        raise SilodpError(
            f"--metric-bound is missing: nothing bounds what a single record adds to the "
            f"{metric.words}, and the noise would have no end: give the most that one may count."
        )
    return 1.0


def _constant(loaded: PersonalModel, metric: MeanMetric, text: str) -> np.ndarray:
    """The output that says the same of every record, from public words."""
    target, task = loaded.about.preparation.target, get_task(loaded.about.task)
    chance = _number(text)
    if task.of_classes and metric.of_decisions:
        if text not in target.classes:
            raise SilodpError(f"--better-than is {text!r}: give {one_of(text, target.classes)}.")
        labels = np.repeat(task.labels_of(np.array([target.classes.index(text)])), _MANY)
    elif task.of_classes and metric.of_probabilities and len(target.classes) == 2:
        if chance is None or not 0 < chance < 1:
            raise SilodpError(
                f"--better-than is {text!r}: give the probability of {target.classes[1]!r} that is "
                "said of every record, from 0 to 1."
            )
        labels = task.labels_of((np.arange(_MANY) < round(chance * _MANY)).astype(int))
    elif task.of_classes or task.label_shape:
        raise SilodpError(
            f"--better-than: of {metric.words} in a {task.name} task there is no one prediction "
            "for all: ask for a value (--at-most)."
        )
    elif chance is None:
        raise SilodpError(f"--better-than is {text!r}: give a number in the target's unit.")
    else:
        labels = target.scaled(np.array([chance]))
    constant = metric.no_skill(task, labels.astype(task.label_dtype), target.num_classes)
    assert constant is not None  # every task that comes here has one
    return np.asarray(constant)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _metric(loaded: PersonalModel, name: str | None) -> MeanMetric:
    """The metric that is asked for: a mean over records."""
    task = loaded.about.task
    if name is None:
        test = loaded.card.get("test")
        usual = [test.get("metric") if isinstance(test, dict) else None, get_task(task).metric]
        fitting = [
            one for one in METRICS.values() if task in one.tasks and isinstance(one, MeanMetric)
        ]
        fitting = [one for one in fitting if _has(loaded, one)]
        return min(fitting, key=lambda one: usual.index(one.name) if one.name in usual else 2)
    metric = metric_for(task, name)
    if not _has(loaded, metric):
        raise SilodpError(
            f"--metric {metric.name}: {metric.words} is about probabilities, and the model gives "
            "none: choose another."
        )
    return mean_metric(metric, "An answer")


def _has(loaded: PersonalModel, metric: Metric) -> bool:
    return loaded.model.has_probabilities or not metric.of_probabilities


def _allowance(directory: Path, name: str, policy: Policy | None) -> Allowance:
    """What the silo may spend in its lifetime: by its policy, or as its ledger has it."""
    if policy is not None:
        if not policy.count_is_public:
            raise SilodpError(
                f"Silo {name!r}: its {RECORD_COUNT} is not public, but a mean over its test "
                "records would tell it: let its policy declare it, or ask nothing."
            )
        unit = "record" if policy.subject is None else "subject"
        return Allowance(*policy.lifetime, policy.relation, unit, policy.lifetime_filter)
    held = account_of(read_ledger(directory, name)).allowance if exists(directory, name) else None
    if held is None:
        raise SilodpError(
            f"Silo {name!r} has no ledger in {directory} that an answer could be charged to: give "
            "the folder that its runs were charged to, or its policy (--policies) for a new ledger."
        )
    return held


def _subject_column(
    name: str, policy: Policy | None, allowance: Allowance, given: str | None
) -> str | None:
    """The column that names subjects; None where records are protected."""
    declared = None if policy is None else policy.subject
    if allowance.unit == "record":
        if given is not None:
            raise SilodpError(
                f"Silo {name!r}: its ledger counts per record, so that --subject-column does "
                "nothing: leave it out."
            )
        return None
    if declared is not None and given is not None and declared != given:
        raise SilodpError(
            f"Silo {name!r}: its policy protects the subjects of column {declared!r}, but "
            f"--subject-column is {given!r}: give --subject-column {declared}."
        )
    if (column := declared or given) is None:
        raise SilodpError(
            f"Silo {name!r}: its ledger counts per subject: give --subject-column, the column "
            "that names whom a record is about."
        )
    return column


def column_of_silos(loaded: PersonalModel, given: str | None) -> str | None:
    """The column that names silos: as given, or as the run's folder has it if it is at hand."""
    return given if given is not None else _option_of_run(loaded, "silo_column")


def is_table_of_run(loaded: PersonalModel, table: Path) -> bool:
    """Whether the model's run was given this table, if its folder is at hand."""
    data = _option_of_run(loaded, "data")
    return data is not None and Path(data).is_file() and Path(data).samefile(table)


def _option_of_run(loaded: PersonalModel, name: str) -> str | None:
    value = (_options_of_run(loaded) or {}).get(name)
    return value if isinstance(value, str) else None


def _options_of_run(loaded: PersonalModel) -> dict[str, Any] | None:
    """The options of the model's run, if its folder is at hand."""
    result = loaded.about.path.parent.parent.parent / RESULT_FILE
    if not result.is_file():
        return None
    content = read_json(result, remedy="run it again")
    options = content.get("options") if isinstance(content, dict) else None
    return options if isinstance(options, dict) else None


def _own_rows(table: pd.DataFrame, name: str, column: str | None, must: bool) -> pd.DataFrame:
    """The rows of one silo, where a column names silos."""
    if column is None or (column not in table.columns and not must):
        return table
    if column not in table.columns:
        raise SilodpError(
            f"Silo {name!r}: the table has no column {column!r} that names silos: use "
            f"{one_of(column, list(map(str, table.columns)))}."
        )
    own = table.loc[[level_text(value) == name for value in values_of(table, column)]]
    if not len(own):
        raise SilodpError(
            f"Silo {name!r} has no row in the table (column {column!r}): give its test records."
        )
    return own.reset_index(drop=True)


def _scores(
    loaded: PersonalModel,
    metric: MeanMetric,
    asked: _Asked,
    table: pd.DataFrame,
    subject_column: str | None,
) -> Scores:
    """What each record counts; refuses a table without a target in each row."""
    target, where = loaded.about.preparation.target, f"Silo {loaded.about.silo!r}"
    if not len(table):
        raise SilodpError(f"{where}: the table has no rows: give test records with a target.")
    needed = [*target.columns, *([] if subject_column is None else [subject_column])]
    for column in needed:
        if column not in table.columns:
            raise SilodpError(
                f"{where}: the table has no column {column!r}, which the question needs: give test "
                "records that have it."
            )
    subject = None
    if subject_column is not None:
        subject = _subjects(where, subject_column, values_of(table, subject_column))
    usable = target.usable(table)
    if not usable.all():
        row = int(np.flatnonzero(~usable)[0]) + 1
        raise SilodpError(
            f"{where}: {int((~usable).sum())} of {len(table)} rows have no {target.name!r} that "
            f"the model knows, such as row {row}: leave them out of the table."
        )
    y = target.encode_by_value(table)
    return _scored(loaded, metric, asked, loaded.features(table), y, subject)


def _scored(
    loaded: PersonalModel,
    metric: MeanMetric,
    asked: _Asked,
    x: np.ndarray,
    y: np.ndarray,
    subject: np.ndarray | None,
    expected: tuple[int, float] | None = None,
) -> Scores:
    """What each record counts, from features and labels as the model takes them."""
    features = loaded.model.prepare(jnp.asarray(x))
    labels = jnp.asarray(y.astype(loaded.model.deciding.label_dtype))

    def of(outputs_of: Any) -> np.ndarray:
        task = loaded.model.deciding
        found = score_steps(task, metric, outputs_of, features, labels, asked.largest)
        return np.asarray(found, np.int64)

    own = of(partial(loaded.model.apply, loaded.params))
    high = asked.largest * asked.unit
    if asked.constant is None:
        return Scores(0.0, high, own / SCORE_STEPS * high, subject, expected)
    constant = jnp.asarray(asked.constant, jnp.float32)[None]
    other = of(lambda _: constant)
    gains = own - other if metric.better == "higher" else other - own
    return Scores(-high, high, gains / SCORE_STEPS * high, subject, expected)


def _scores_set_apart(
    loaded: PersonalModel,
    metric: MeanMetric,
    asked: _Asked,
    name: str,
    subject_column: str | None,
) -> Scores:
    """What each record counts that the model's run set apart for testing."""
    where = f"Silo {name!r}"
    if subject_column is not None:
        raise SilodpError(
            f"{where}: how many people a run set apart is not known beforehand: give a table of "
            "test records."
        )
    options = _options_of_run(loaded)
    if options is None or options.get("data") in (None, FROM_PYTHON):
        raise SilodpError(
            f"{where}: the folder of the run that its model is from is not at hand, or it does not "
            "say where the records are: give a table of test records."
        )
    for together in _NOT_BY_RECORD:
        if options.get(together) is not None:
            raise SilodpError(
                f"{where}: records were set apart by {flag(together)}, so that it is not known "
                "beforehand about how many: give a table of test records."
            )
    given = {key: options[key] for key in ("data", *DATA_OPTIONS) if key in options}
    seed = loaded.card["training"]["seed"]
    request = RunRequest(**given, epsilon=1.0, first_seed=seed, seeds=1)
    federation = load(request, None, Reporter()).federations[0]
    silos = {silo.name: silo for silo in federation.silos}
    if name not in silos or not silos[name].public_test_count:
        raise SilodpError(f"{where} has no test record in {options['data']}: give a table of some.")
    silo, preparation = silos[name], loaded.about.preparation
    if silo.expected is None:
        raise SilodpError(
            f"{where}: its test records were not set apart by coins (--split coin), so that one "
            "record more moves others, which epsilon does not cover: give a table of test records."
        )
    x = preparation.finished(preparation.filled(silo.test).x)
    tests, everything = silo.expected.test, silo.expected.max_count
    deviation = math.sqrt(tests * max(0.0, 1 - tests / everything))
    return _scored(loaded, metric, asked, x, silo.test.y, None, (tests, deviation))


def _subjects(where: str, column: str, values: pd.Series) -> np.ndarray:
    """[records]: a number for whom each is about."""
    numbers, _ = pd.factorize(values.map(level_text, na_action="ignore"))
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0]) + 1
        raise SilodpError(
            f"{where}: row {row} names nobody in column {column!r}: fill it, or leave the row out."
        )
    return numbers


def _notes(
    loaded: PersonalModel, policy: Policy | None, allowance: Allowance, scores: Scores
) -> tuple[str, ...]:
    notes = []
    if scores.expected is not None:
        notes.append("How many records were set apart is a secret, and allowed for.")
    elif policy is None and allowance.relation == "add-remove":
        notes.append(f"Assumed: how many test {allowance.unit}s there are is public.")
    privacy = loaded.card.get("privacy")
    if not (isinstance(privacy, dict) and privacy.get("proven") is True):
        notes.append(
            "The model's own privacy is not proven: an answer protects the records of this table, "
            "and not those that the model was trained on."
        )
    return tuple(notes)


def _digest(name: str, described: dict[str, Any], loaded: PersonalModel, scores: Scores) -> str:
    """A name for what is released: another mean has another.

    The threshold is no part of it: what is released answers for all.
    """
    # Unless scores are taken from it.
    left_out = ("threshold", "direction") if scores.expected is None else ()
    released = {key: described[key] for key in described if key not in left_out}
    digest = hashlib.sha256(json.dumps([name, plain(released), loaded.about.sha256]).encode())
    digest.update(np.ascontiguousarray(scores.values, np.float64).tobytes())
    if scores.subject is not None:
        digest.update(np.ascontiguousarray(scores.subject, np.int64).tobytes())
    return digest.hexdigest()[:32]
