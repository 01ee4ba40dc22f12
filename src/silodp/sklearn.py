"""Estimators as scikit-learn has them: `fit(X, y, groups=...)`, where a group is a silo.

from silodp.sklearn import SiloRegressor
SiloRegressor(epsilon=2, bounds=(0, 1), target_range=(0, 30)).fit(X, y, groups=hospital)

All rows given to `fit` are for training, none for testing: what `score` says of rows that were
trained on is no more than what scikit-learn's say. Epsilon is that of each silo's rows in `fit`, as
`privacy_` states; whatever is done with several fits (a grid search, cross-validation) spends as
often. Of the same rows, numbers of rows of each silo are public; classes and ranges too, where they
are declared.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from silodp.base.errors import SilodpError, meant, one_of
from silodp.config.choices import TaskName
from silodp.config.data_options import DataOptions
from silodp.config.options import OPTIONS
from silodp.data.federation import Federation
from silodp.data.tables.files import in_order
from silodp.data.tables.schema import level_text
from silodp.data.tables.table import split_and_scale, table_of_frames
from silodp.data.tasks import get_task, task_of_classes
from silodp.data.tasks.regression import TASK as REGRESSION
from silodp.results.result import Result
from silodp.runs.run import run

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils import check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise SilodpError(
        "silodp.sklearn needs scikit-learn: install it with `pip install 'silodp[sklearn]'`."
    ) from None

ONE_SILO = "all"  # the silo's name where no groups are given
Bounds = tuple[float, float] | Sequence[tuple[float, float]]


class _SiloEstimator(BaseEstimator):
    """What both estimators have in common.

    Attributes:
      result_: the run's `Result`, with the silos' models.
      privacy_: what each silo spent, by its name: epsilon, delta, and whether that is proven.
      silos_: the silos' names.
    """

    # Declared by the estimators, whose parameters scikit-learn reads from their own __init__.
    epsilon: float | None
    silo: str | int | None
    delta: float | None
    policies: Path | str | None
    method: str
    model: str | None
    lam: float | None
    rounds: int | None
    batch_size: int | None
    lr: float | None
    clip: float | None
    bounds: Bounds | None
    ledger: Path | str | None
    random_state: Any
    options: Mapping[str, Any] | None

    def _trained(
        self, X: np.ndarray, y: np.ndarray, groups: Any, task: TaskName, **declared: Any
    ) -> Self:
        """Trains on all rows; `y` is of numbers: targets, or the classes' places."""
        owners = self._owners(groups, len(X))
        frame = self._frame(X)
        features = [str(name) for name in frame.columns]
        target = "y"
        while target in features:
            target += "'"
        frame[target] = y
        frames = {name: frame.loc[owners == name] for name in in_order(set(owners.tolist()))}
        options = DataOptions(
            target=target, task=task, bounds=self._declared_bounds(features), **declared
        )
        table = table_of_frames(type(self).__name__, frames, options, where="X")
        federation = split_and_scale(table, 0, options, whole=True)
        self.result_ = self._run(federation)
        self.silos_ = federation.names
        self.privacy_ = {
            silo["silo"]: {name: value for name, value in silo.items() if name != "silo"}
            for silo in self.result_.privacy
        }
        return self

    def _run(self, federation: Federation) -> Result:
        own_parameters = self.get_params(deep=False)
        given = {name: value for name, value in own_parameters.items() if name in OPTIONS}
        own = dict(self.options or {})
        for name in own:
            if name in own_parameters:
                raise SilodpError(f"options: {name} is a parameter of its own: give it as that.")
        if self.epsilon is None and self.policies is None:
            raise SilodpError(
                "epsilon is not given: give the most that each silo may spend (such as 2; smaller "
                "is more private), float('inf') for no privacy, or policies."
            )
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        chosen = {name: value for name, value in given.items() if value is not None}
        return run(federation=federation, keep_models=True, first_seed=int(seed), **chosen, **own)

    def _outputs(self, X: Any, groups: Any) -> tuple[np.ndarray, list[Any]]:
        """The models' outputs [rows, ...] and predictions, each of the row's own silo."""
        check_is_fitted(self)
        X, groups = self._apart(X, groups)
        X = validate_data(self, X, reset=False)
        if groups is None and len(self.silos_) > 1:
            raise SilodpError(
                f"Rows of {len(self.silos_)} silos were trained on, each with a model of its own: "
                "give groups, the silo of each row."
            )
        owners = self._owners(groups, len(X)) if groups is not None else None
        frame = self._frame(X)
        outputs: np.ndarray | None = None
        values: list[Any] = [None] * len(X)
        for name in self.silos_ if owners is None else dict.fromkeys(owners.tolist()):
            if name not in self.silos_:
                raise SilodpError(
                    f"groups: silo {name!r} was not among those trained: use "
                    f"{one_of(name, self.silos_)}."
                )
            rows = np.arange(len(X)) if owners is None else np.flatnonzero(owners == name)
            said = self.result_.model(name).predict(frame.iloc[rows])
            if outputs is None:
                outputs = np.zeros((len(X), *said.outputs.shape[1:]))
            outputs[rows] = said.outputs
            for row, value in zip(rows, said.values, strict=True):
                values[row] = value
        assert outputs is not None
        return outputs, values

    def _apart(self, X: Any, groups: Any) -> tuple[Any, Any]:
        """The features, and the name of each row's silo if X has a column of them."""
        if self.silo is None:
            return X, groups
        if groups is not None:
            raise SilodpError(
                f"silo names the column {self.silo!r}, and groups name silos as well: give one."
            )
        X = X.to_pandas() if hasattr(X, "to_pandas") else X
        if not isinstance(X, pd.DataFrame):
            X = pd.DataFrame(np.asarray(X))
            features = X.drop(columns=self.silo, errors="ignore").to_numpy()
        else:
            features = X.drop(columns=self.silo, errors="ignore")
        if self.silo not in X.columns:
            raise SilodpError(
                f"silo names the column {self.silo!r}, which X does not have: "
                f"{meant(self.silo, map(str, X.columns))}"
            )
        return features, X[self.silo]

    def _owners(self, groups: Any, rows: int) -> np.ndarray:
        """[rows]: the name of each row's silo."""
        if groups is None:
            return np.full(rows, ONE_SILO, dtype=object)
        names = np.array([level_text(name) for name in column_or_1d(groups)], dtype=object)
        if len(names) != rows:
            raise SilodpError(
                f"groups has {len(names)} names for {rows} rows: give the silo of each row."
            )
        return names

    def _frame(self, X: np.ndarray) -> pd.DataFrame:
        names = getattr(self, "feature_names_in_", None)
        columns = [f"x{k}" for k in range(X.shape[1])] if names is None else list(names)
        return pd.DataFrame(X, columns=pd.Index(columns))

    def _declared_bounds(self, columns: Sequence[str]) -> dict[str, tuple[float, float]] | None:
        if self.bounds is None:
            return None
        pairs = np.asarray(self.bounds, float)
        if pairs.shape == (2,):
            pairs = np.tile(pairs, (len(columns), 1))
        if pairs.shape != (len(columns), 2):
            raise SilodpError(
                f"bounds has shape {pairs.shape} for {len(columns)} features: give (lowest, "
                "highest), or such a pair for each feature."
            )
        return {
            name: (low, high) for name, (low, high) in zip(columns, pairs.tolist(), strict=True)
        }


class SiloRegressor(RegressorMixin, _SiloEstimator):
    """A regression with a model for each silo, private by (epsilon, delta) in each.

    Parameters:
      epsilon: the most that a silo may spend in a fit; float("inf") for no privacy. There is no
        default: it is the decision.
      silo: the column of X (its name, or its place) that names each row's silo, in place of groups:
        for whatever hands on X alone, such as GridSearchCV and cross_val_score.
      delta: the chance with which that bound may fail; by default 1e-5.
      policies: a file of the silos' own policies, beside epsilon or in its place.
      method: how silos learn together (silodp methods).
      model: the model's name; by default linear regression.
      lam: lambda, of the methods that have it.
      rounds: rounds of communication.
      batch_size: expected rows in a step.
      lr: the learning rate.
      clip: the largest norm of a row's gradient.
      bounds: the lowest and the highest value of features, or such a pair for each feature: public
        knowledge, and target_range must be given with it. Without it, features are standardised by
        the rows, which epsilon does not cover.
      target_range: the lowest and the highest target: public knowledge. Without it, it is taken
        from y, which epsilon does not cover.
      ledger: a folder of ledgers, which charge and limit fits; then noise is secret.
      random_state: of the noise, where it comes from a seed: an experiment.
      options: other options of `silodp.run`, by name.

    Examples:
      >>> import numpy as np
      >>> X = np.linspace(0, 1, 60)[:, None]
      >>> hospital = np.repeat(["north", "south"], 30)
      >>> model = SiloRegressor(epsilon=3, bounds=(0, 1), target_range=(0, 1), rounds=2)
      >>> model.fit(X, X[:, 0], groups=hospital).predict(X[:2], groups=["north", "south"]).shape
      (2,)
    """

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        silo: str | int | None = None,
        delta: float | None = None,
        policies: Path | str | None = None,
        method: str = "ebmtl",
        model: str | None = None,
        lam: float | None = None,
        rounds: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        clip: float | None = None,
        bounds: Bounds | None = None,
        target_range: tuple[float, float] | None = None,
        ledger: Path | str | None = None,
        random_state: Any = None,
        options: Mapping[str, Any] | None = None,
    ):
        self.epsilon = epsilon
        self.silo = silo
        self.delta = delta
        self.policies = policies
        self.method = method
        self.model = model
        self.lam = lam
        self.rounds = rounds
        self.batch_size = batch_size
        self.lr = lr
        self.clip = clip
        self.bounds = bounds
        self.target_range = target_range
        self.ledger = ledger
        self.random_state = random_state
        self.options = options

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Trains a model for each silo.

        Args:
          X: numbers [rows, features]; categories have to be encoded before.
          y: numbers [rows].
          groups: the name of each row's silo; without it, all rows are of one.
        """
        X, groups = self._apart(X, groups)
        X, y = validate_data(self, X, y, y_numeric=True)
        if self.target_range is None and np.ptp(y) == 0:
            raise SilodpError(
                f"y is {y[0]:g} in all rows (n_samples = {len(y)}): there is nothing to learn; "
                "give other rows, or declare target_range."
            )
        return self._trained(X, y, groups, REGRESSION.name, target_range=self.target_range)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """Numbers in the target's own units, each by the model of the row's silo."""
        return np.array(self._outputs(X, groups)[1], float)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """R2 of the predictions; exact, so that no epsilon covers it."""
        return r2_score(y, self.predict(X, groups), sample_weight=sample_weight)


class SiloClassifier(ClassifierMixin, _SiloEstimator):
    """A classification with a model for each silo, private by (epsilon, delta) in each.

    Parameters are those of `SiloRegressor`, but for the model (by default logistic or softmax
    regression) and `classes` in place of `target_range`: the classes that there may be, which are
    public knowledge. Without it, they are taken from y, which epsilon does not cover.

    Examples:
      >>> import numpy as np
      >>> X = np.linspace(0, 1, 60)[:, None]
      >>> model = SiloClassifier(epsilon=3, bounds=(0, 1), classes=["no", "yes"], rounds=2)
      >>> model.fit(X, np.where(X[:, 0] > 0.5, "yes", "no")).predict_proba(X[:2]).shape
      (2, 2)
    """

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        silo: str | int | None = None,
        delta: float | None = None,
        policies: Path | str | None = None,
        method: str = "ebmtl",
        model: str | None = None,
        lam: float | None = None,
        rounds: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        clip: float | None = None,
        bounds: Bounds | None = None,
        classes: Sequence | None = None,
        ledger: Path | str | None = None,
        random_state: Any = None,
        options: Mapping[str, Any] | None = None,
    ):
        self.epsilon = epsilon
        self.silo = silo
        self.delta = delta
        self.policies = policies
        self.method = method
        self.model = model
        self.lam = lam
        self.rounds = rounds
        self.batch_size = batch_size
        self.lr = lr
        self.clip = clip
        self.bounds = bounds
        self.classes = classes
        self.ledger = ledger
        self.random_state = random_state
        self.options = options

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Trains a model for each silo.

        Args:
          X: numbers [rows, features]; categories have to be encoded before.
          y: a class for each row: words or whole numbers.
          groups: the name of each row's silo; without it, all rows are of one.
        """
        X, groups = self._apart(X, groups)
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_ = np.unique(y if self.classes is None else np.asarray(self.classes))
        if strange := sorted(set(np.unique(y).tolist()) - set(self.classes_.tolist())):
            raise SilodpError(
                f"y holds {strange[0]!r}, which is not among the declared classes: declare it, or "
                "leave those rows out."
            )
        if len(self.classes_) < 2:
            raise SilodpError(
                f"y is of one class ({self.classes_[0]!r}) in all rows: declare the classes that "
                "there may be (classes)."
            )
        places = np.searchsorted(self.classes_, y)
        named = [str(place) for place in range(len(self.classes_))]
        declared = None if self.classes is None else named
        task = task_of_classes(len(named)).name
        return self._trained(X, places, groups, task, classes=declared)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """A class for each row, by the model of its silo; of equally likely ones, the first."""
        outputs, _ = self._outputs(X, groups)
        chosen = (outputs > 0).astype(int) if outputs.ndim == 1 else outputs.argmax(axis=1)
        return self.classes_[chosen]

    @available_if(lambda self: self.model != "svm")
    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """[rows, classes]: how likely each class is; a support vector machine does not know."""
        outputs, _ = self._outputs(X, groups)
        return get_task(task_of_classes(len(self.classes_)).name).probabilities(outputs)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Accuracy of the predictions; exact, so that no epsilon covers it."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))
