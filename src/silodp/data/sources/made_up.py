"""Made-up federations: what a method should be able to tell apart, each by itself.

    centre_g = scale * N(0, I / d)                                  of each group of silos
    w_k      = centre_g(k) + heterogeneity * scale * N(0, I / d)    the truth of silo k
    x        = N(0, 1/4) in every feature, cut off at -1 and 1
    score    = x.w_k + offset;  a label is score + noise * N(0, 1) within -1 and 1 (regression), or
               drawn with log-odds 6 * score (binary); of several classes, the largest of as many
               scores with noise of the Gumbel distribution

How many records a silo has does not change with the seed; everything else is drawn anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from silodp.base.documents import check_keys
from silodp.base.text import numbered
from silodp.config.choices import TaskName
from silodp.data.federation import Federation, Records, Silo

SCALE = 1.0
STEEPNESS = 6.0


@dataclass(frozen=True)
class Recipe:
    """How a federation is drawn.

    Attributes:
      task: regression, binary or multiclass.
      silos: how many there are.
      records: training records of the smallest and of the largest silo; between them evenly on a
        log scale.
      features: of a record.
      heterogeneity: how far silos lie from the centre of their group, in its own length.
      groups: of silos, each with a centre of its own.
      noise: standard deviation of a label's noise (regression).
      offset: of every score; below 0, the second class is rare.
      classes: of a multiclass task.
      test: test records of each silo.
    """

    task: TaskName = "regression"
    silos: int = 30
    records: tuple[int, int] = (100, 100)
    features: int = 20
    heterogeneity: float = 0.3
    groups: int = 1
    noise: float = 0.2
    offset: float = 0.0
    classes: int = 4
    test: int = 200

    @classmethod
    def of(cls, where: str, content: Mapping[str, Any]) -> "Recipe":
        """The recipe of a file's table."""
        check_keys(where, content, [field.name for field in fields(cls)])
        records = tuple(content.get("records", cls.records))
        return cls(**{**content, "records": records})


def draw(name: str, recipe: Recipe, seed: int) -> Federation:
    """The federation of a seed."""
    groups, *of_silos = np.random.default_rng(seed).spawn(recipe.silos + 1)
    outputs = recipe.classes if recipe.task == "multiclass" else 1
    shape, length = (recipe.features, outputs), SCALE * 2 / np.sqrt(recipe.features)
    centres = length * groups.standard_normal((recipe.groups, *shape))
    sizes = np.geomspace(*recipe.records, recipe.silos).round().astype(int)

    def silo(number: int) -> Silo:
        random = of_silos[number]
        own = recipe.heterogeneity * length * random.standard_normal(shape)
        truth = centres[number % recipe.groups] + own
        train = _records(recipe, truth, sizes[number], random)
        test = _records(recipe, truth, recipe.test, random)
        return Silo(numbered("silo", number, recipe.silos), train, test)

    return Federation(
        name=name,
        silos=tuple(silo(number) for number in range(recipe.silos)),
        task=recipe.task,
        num_classes=recipe.classes if recipe.task == "multiclass" else 0,
        declared=(
            "feature bounds",
            "label range" if recipe.task == "regression" else "class list",
        ),
        feature_bound=1.0,
    )


def _records(recipe: Recipe, truth: np.ndarray, count: int, random: np.random.Generator) -> Records:
    x = np.clip(0.5 * random.standard_normal((count, recipe.features)), -1, 1)
    scores = x @ truth + recipe.offset
    if recipe.task == "multiclass":
        return Records(x, (STEEPNESS * scores + random.gumbel(size=scores.shape)).argmax(axis=1))
    score = scores[:, 0]
    if recipe.task == "binary":
        seen = STEEPNESS * score + random.logistic(size=count) > 0
        return Records(x, np.where(seen, 1.0, -1.0))
    return Records(x, np.clip(score + recipe.noise * random.standard_normal(count), -1, 1))
