"""What a method found out about the silos, in words and few numbers.

`ebmtl` learns from released updates how much each silo keeps of its own. Here that becomes what a
user asks about: who keeps how much, who is alike, in what silos differ. All of it is made from what
is released anyway, so it costs no privacy.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

from silodp.base.arrays import array_name
from silodp.base.text import shown
from silodp.results.result import Result

# What a method must have learned for all this: arrays [seeds, ...].
NEEDED = frozenset({"kept", "relations", "sizes", "differs", "shares"})
MOST_RELATED = 300  # silos: of more, a table of all pairs would be most of the result
# Groups end where the mean cosine between silos falls below this...
LEAST_COSINE = 0.5
# ... and count only if so much of what silos keep of their own is common to their groups. Silos
# spread evenly have 0.64 (2 / pi, if along one line, as two halves), be it in one or in many ways.
# Few silos can have more by chance: six along one line have 0.8 one time in five, 0.9 one in 25.
LEAST_COMMON = 0.9
# So much of how silos differ along one line is worth saying.
_MOSTLY = 0.7
_MOST_BUDGETS = 4  # to be told one by one
_MOST_NAMES = 5
_LONGEST_NAME = 30


def is_summed_up(result: Result) -> bool:
    """Whether a result holds what `summed_up` gives."""
    return result.learned is not None and {"silos", "groups", "summary"} <= result.learned.keys()


def sentences(result: Result) -> list[str]:
    """What was learned, in words; none of what only the method's author has words for."""
    said = (result.learned or {}).get("summary")
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        return []
    return said


def summed_up(
    learned: Mapping[str, Any],
    silos: Sequence[str],
    epsilons: Sequence[float],
    features: Sequence[str] | None,
) -> dict[str, Any]:
    """What a result says of what was learned.

    Nothing of one silo alone, of a method that learned something else, and of numbers that are not
    finite.

    Args:
      learned: arrays (or pytrees of them) [seeds, ...], by name.
      silos: their names.
      epsilons: their budgets.
      features: of a linear model, their names; None for any other model.

    Returns:
      "silos": [{"silo", "epsilon", "kept"}]; "groups": lists of names; "features" (or "layers"):
      [{"feature", "differs"}], the largest first; "summary": sentences.
    """
    # One silo alone keeps all and nothing: FedAvg and local training are the same.
    if len(silos) < 2 or not learned.keys() >= NEEDED or not _all_finite(learned):
        return {}
    kept = kept_lately(_mean(learned["kept"]))
    relations, sizes = _mean(learned["relations"]), _mean(learned["sizes"])
    differs = jax.tree.map(_mean, learned["differs"])
    parameters = sum(leaf.size for leaf in jax.tree.leaves(differs))
    groups = groups_of(found_beyond_noise(relations, sizes, parameters))
    named = [[silos[place] for place in group] for group in groups]
    part, parts = "layer", layers_that_differ(differs)
    if features is not None:
        part, parts = "feature", features_that_differ(differs, features)
    return {
        "silos": [
            {"silo": silo, "epsilon": epsilon, "kept": float(f"{own:.6g}")}
            for silo, epsilon, own in zip(silos, epsilons, kept.tolist(), strict=True)
        ],
        "groups": named,
        f"{part}s": [{part: name, "differs": float(f"{size:.6g}")} for name, size in parts],
        "summary": [
            *_about_kept(kept),
            *_about_budgets(kept, epsilons),
            *_about_groups(named, len(silos), along_one_line(relations, sizes)),
            *_about_parts(part, parts),
        ],
    }


def kept_lately(kept: np.ndarray) -> np.ndarray:
    """[silos] of [rounds, silos]: the mean over the last quarter, since single rounds are noisy."""
    return kept[-max(1, len(kept) // 4) :].mean(axis=0)


def by_budget(epsilons: Sequence[float]) -> dict[str, np.ndarray]:
    """The places of silos by their budgets, strictest first; in three parts if there are many."""
    budgets, which = np.unique(np.array(epsilons, float), return_inverse=True)
    parts = np.array_split(budgets, len(budgets) if len(budgets) <= _MOST_BUDGETS else 3)
    return {
        " to ".join(f"{end:g}" for end in dict.fromkeys((part[0], part[-1]))): np.flatnonzero(
            np.isin(budgets[which], part)
        )
        for part in parts
    }


def found_beyond_noise(relations: np.ndarray, sizes: np.ndarray, parameters: int) -> np.ndarray:
    """[silos, directions]: what silos keep of their own, in the directions that stand out.

    The threshold is that of M. Gavish, D. L. Donoho. The optimal hard threshold for singular values
    is 4 / sqrt(3). IEEE Transactions on Information Theory, 2014, for noise of unknown size.

    Args:
      relations: cosines between what silos keep of their own.
      sizes: how long that is, of each silo.
      parameters: of the model.
    """
    values, vectors = np.linalg.eigh(relations * np.outer(sizes, sizes))
    values = np.maximum(values, 0.0)
    few, many = sorted((len(sizes) - 1, parameters))  # the mean is taken off
    ratio = few / many
    least = 0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43
    out = values > least**2 * np.median(values[-few:])
    return vectors[:, out] * np.sqrt(values[out])


def groups_of(own: np.ndarray) -> list[list[int]]:
    """The places of silos that differ from the mean alike, the largest group first.

    None where silos lie evenly spread: then some are alike, but no group ends anywhere.

    Args:
      own: [silos, directions], as of `found_beyond_noise`.
    """
    if len(own) < 4 or not own.size:  # of three, two always lie on one side
        return []
    products = own @ own.T
    sizes = np.sqrt(np.maximum(np.diag(products), 1e-60))
    relations = products / np.outer(sizes, sizes)
    numbers = fcluster(_tree(relations), 1 - LEAST_COSINE, "distance")
    groups = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    groups = [group for group in groups if len(group) > 1]
    total = float(np.trace(products))
    common = sum(_between(products[np.ix_(group, group)]) for group in groups)
    if common < LEAST_COMMON * total:
        return []
    return [group.tolist() for group in sorted(groups, key=lambda group: (-len(group), group[0]))]


def along_one_line(relations: np.ndarray, sizes: np.ndarray) -> float:
    """How much of what silos keep of their own is more or less of one and the same."""
    total = float(np.sum(sizes**2))
    largest = float(np.linalg.eigvalsh(relations * np.outer(sizes, sizes))[-1])
    return largest / total if total else 0.0


def in_order(relations: np.ndarray) -> list[int]:
    """The places of silos such that those alike are next to each other."""
    return leaves_list(_tree(relations)).tolist()


def features_that_differ(differs: np.ndarray, names: Sequence[str]) -> list[tuple[str, float]]:
    """Of a linear model [features + 1] or [features + 1, classes]: the largest first."""
    by_feature = np.linalg.norm(differs.reshape(len(differs), -1), axis=1)
    return _largest_first(zip((*names, "bias"), by_feature.tolist(), strict=True))


def layers_that_differ(differs: Any) -> list[tuple[str, float]]:
    """Of any model: the root mean square over the numbers of each array, the largest first."""
    leaves = jax.tree_util.tree_leaves_with_path(differs)
    return _largest_first((array_name(path), math.sqrt(np.mean(a**2))) for path, a in leaves)


def feature_names(shape: tuple[int, ...], given: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of a record's features, flattened: as given, else by their place."""
    if given:
        return tuple(given)
    # The one channel of a grey image says nothing.
    said = shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape
    if len(said) < 2:
        return tuple(f"feature {place}" for place in range(math.prod(said)))
    return tuple(f"feature {place}" for place in np.ndindex(*said))


def _about_kept(kept: np.ndarray) -> list[str]:
    low, high = _percent(kept.min()), _percent(kept.max())
    span = f"{low} to {high} %" if low < high else f"{low} %"
    mean = f", {_percent(kept.mean())} % on average" if low < high else ""
    ends = "0 % is FedAvg, 100 % local training"
    return [f"Silos keep {span} of what is their own{mean} ({ends})."]


def _about_budgets(kept: np.ndarray, epsilons: Sequence[float]) -> list[str]:
    budgets = by_budget(epsilons)
    if len(budgets) < 2:
        return []
    means = [_percent(kept[places].mean()) for places in budgets.values()]
    of_each = [f"with epsilon {b} keep {m} %" for b, m in zip(budgets, means, strict=True)]
    said = ", those ".join(of_each)
    if max(means) - min(means) <= 1:
        verdict = "budgets make no difference"
    elif means == sorted(means):
        verdict = "the stricter lean more on the others"
    elif means == sorted(means, reverse=True):
        verdict = "the stricter keep more of their own"
    else:
        verdict = "not in the order of their budgets"
    return [f"Silos {said}: {verdict}."]


def _about_groups(groups: Sequence[Sequence[str]], silos: int, one_line: float) -> list[str]:
    said = []
    if groups:
        count = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
        stand = "stands" if len(groups) == 1 else "stand"
        of_each = "; ".join(_some(group) for group in groups[:_MOST_NAMES])
        more = f"; and {len(groups) - _MOST_NAMES} more" if len(groups) > _MOST_NAMES else ""
        said = [f"{count} of silos {stand} out: {of_each}{more}."]
    elif silos > 2:
        line = f"{_percent(one_line)} % of how they differ is more or less of one and the same"
        said = [f"No groups of silos stand out{f': {line}' if one_line >= _MOSTLY else ''}."]
    if silos > MOST_RELATED:
        said.append(f"Relations between more than {MOST_RELATED} silos are left out.")
    return said


def _about_parts(part: str, parts: Sequence[tuple[str, float]]) -> list[str]:
    most = [shown(name, _LONGEST_NAME) for name, size in parts[:3] if size > 0]
    return [f"Silos differ most in the {part}s: {'; '.join(most)}."] if most else []


def _some(names: Sequence[str]) -> str:
    said = ", ".join(shown(name, _LONGEST_NAME) for name in names[:_MOST_NAMES])
    return said + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def _tree(relations: np.ndarray) -> np.ndarray:
    """Of average linkage: silos and groups are as far apart as 1 - their mean cosine."""
    apart = np.clip(1 - (relations + relations.T) / 2, 0, 2)
    np.fill_diagonal(apart, 0)
    return linkage(squareform(apart, checks=False), "average")


def _between(products: np.ndarray) -> float:
    """What a group's silos have in common: the mean product of two, times how many they are."""
    return float(products.sum() - np.trace(products)) / (len(products) - 1)


def _largest_first(sizes) -> list[tuple[str, float]]:
    return sorted(sizes, key=lambda pair: -pair[1])


def _percent(share: float) -> int:
    return round(100 * float(share))


def _mean(array: Any) -> np.ndarray:
    """Over seeds."""
    return np.asarray(array, np.float64).mean(axis=0)


def _all_finite(learned: Mapping[str, Any]) -> bool:
    """Not so of a run that diverged, which a sweep goes on with."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(dict(learned)))
