"""Summaries of what a method learned about the silos, in words and few numbers.

`ebmtl` learns from released updates how much each silo keeps of its own. Here that becomes what a
user wants to know: who keeps how much, who is alike, in what silos differ. All of it comes from
released numbers, so it costs no privacy.
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

# The arrays [seeds, ...] that a method must have learned for a summary.
NEEDED = frozenset({"kept", "relations", "sizes", "differs", "shares"})
MOST_RELATED = 300  # silos: with more, a table of all pairs would be most of the result
# Groups end where the mean cosine between silos falls below this...
LEAST_COSINE = 0.5
# ... and count only if at least this share of what silos keep is common to their groups. Evenly
# spread silos have 0.64 (2 / pi, if along one line, as two halves), in one or in many directions.
# Few silos can have more by chance: six along one line have 0.8 one time in five, 0.9 one in 25.
LEAST_COMMON = 0.9
# The share along one line from which the summary mentions it.
_MOSTLY = 0.7
_MOST_BUDGETS = 4  # to be listed one by one
_MOST_NAMES = 5
_LONGEST_NAME = 30


def is_summed_up(result: Result) -> bool:
    """Whether a result holds the summary of `summed_up`."""
    return result.learned is not None and {"silos", "groups", "summary"} <= result.learned.keys()


def sentences(result: Result) -> list[str]:
    """The summary's sentences; none where a method of others learned something else."""
    summary = (result.learned or {}).get("summary")
    if not isinstance(summary, list) or not all(isinstance(one, str) for one in summary):
        return []
    return summary


def summed_up(
    learned: Mapping[str, Any],
    silos: Sequence[str],
    epsilons: Sequence[float],
    features: Sequence[str] | None,
) -> dict[str, Any]:
    """Summarises what was learned, as a result holds it.

    Empty for a single silo, a method that learned something else, and numbers that are not finite.

    Args:
      learned: arrays (or pytrees of them) [seeds, ...], by name.
      silos: their names.
      epsilons: their budgets.
      features: the names of a linear model's features; None for any other model.

    Returns:
      "silos": [{"silo", "epsilon", "kept"}]; "groups": lists of names; "features" (or "layers"):
      [{"feature", "differs"}], the largest first; "summary": sentences.
    """
    # For a single silo, FedAvg and local training are the same.
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
    """The mean over the last quarter of rounds, since single ones are noisy: [silos]."""
    return kept[-max(1, len(kept) // 4) :].mean(axis=0)


def by_budget(epsilons: Sequence[float]) -> dict[str, np.ndarray]:
    """The places of silos by budget, strictest first; in three parts if budgets are many."""
    budgets, which = np.unique(np.array(epsilons, float), return_inverse=True)
    parts = np.array_split(budgets, len(budgets) if len(budgets) <= _MOST_BUDGETS else 3)
    return {
        " to ".join(f"{end:g}" for end in dict.fromkeys((part[0], part[-1]))): np.flatnonzero(
            np.isin(budgets[which], part)
        )
        for part in parts
    }


def found_beyond_noise(relations: np.ndarray, sizes: np.ndarray, parameters: int) -> np.ndarray:
    """Silos' deviations in the directions that stand out from noise: [silos, directions].

    The threshold is that of M. Gavish, D. L. Donoho. The optimal hard threshold for singular values
    is 4 / sqrt(3). IEEE Transactions on Information Theory, 2014, for noise of unknown size.

    Args:
      relations: [silos, silos], cosines between the deviations.
      sizes: [silos], their norms.
      parameters: the number of the model's parameters.
    """
    values, vectors = np.linalg.eigh(relations * np.outer(sizes, sizes))
    values = np.maximum(values, 0.0)
    few, many = sorted((len(sizes) - 1, parameters))  # the mean is taken off
    ratio = few / many
    least = 0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43
    out = values > least**2 * np.median(values[-few:])
    return vectors[:, out] * np.sqrt(values[out])


def groups_of(own: np.ndarray) -> list[list[int]]:
    """Groups of silos that deviate from the mean alike, as places, the largest group first.

    There is none where silos are evenly spread: some are alike then, but groups have no borders.

    Args:
      own: [silos, directions], from `found_beyond_noise`.
    """
    if len(own) < 4 or not own.size:  # among three, two always lie on one side
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
    """The share of the deviations' squares that lies along one direction."""
    total = float(np.sum(sizes**2))
    largest = float(np.linalg.eigvalsh(relations * np.outer(sizes, sizes))[-1])
    return largest / total if total else 0.0


def in_order(relations: np.ndarray) -> list[int]:
    """The places of silos in an order in which similar ones are next to each other."""
    return leaves_list(_tree(relations)).tolist()


def features_that_differ(differs: np.ndarray, names: Sequence[str]) -> list[tuple[str, float]]:
    """Features of a linear model by how much they differ between silos, the largest first.

    Args:
      differs: [features + 1] or [features + 1, classes].
      names: [features].
    """
    by_feature = np.linalg.norm(differs.reshape(len(differs), -1), axis=1)
    return _largest_first(zip((*names, "bias"), by_feature.tolist(), strict=True))


def layers_that_differ(differs: Any) -> list[tuple[str, float]]:
    """Arrays of a model by the root mean square of their numbers, the largest first."""
    leaves = jax.tree_util.tree_leaves_with_path(differs)
    return _largest_first((array_name(path), math.sqrt(np.mean(a**2))) for path, a in leaves)


def feature_names(shape: tuple[int, ...], given: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of a record's flattened features: the given ones, or else by place."""
    if given:
        return tuple(given)
    # The single channel of a grey image is left out.
    sizes = shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape
    if len(sizes) < 2:
        return tuple(f"feature {place}" for place in range(math.prod(sizes)))
    return tuple(f"feature {place}" for place in np.ndindex(*sizes))


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
    budget_words = ", those ".join(of_each)
    if max(means) - min(means) <= 1:
        verdict = "budgets make no difference"
    elif means == sorted(means):
        verdict = "the stricter lean more on the others"
    elif means == sorted(means, reverse=True):
        verdict = "the stricter keep more of their own"
    else:
        verdict = "not in the order of their budgets"
    return [f"Silos {budget_words}: {verdict}."]


def _about_groups(groups: Sequence[Sequence[str]], silos: int, one_line: float) -> list[str]:
    lines = []
    if groups:
        count = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
        stand = "stands" if len(groups) == 1 else "stand"
        of_each = "; ".join(_some(group) for group in groups[:_MOST_NAMES])
        more = f"; and {len(groups) - _MOST_NAMES} more" if len(groups) > _MOST_NAMES else ""
        lines = [f"{count} of silos {stand} out: {of_each}{more}."]
    elif silos > 2:
        line = f"{_percent(one_line)} % of how they differ is more or less of one and the same"
        lines = [f"No groups of silos stand out{f': {line}' if one_line >= _MOSTLY else ''}."]
    if silos > MOST_RELATED:
        lines.append(f"Relations between more than {MOST_RELATED} silos are left out.")
    return lines


def _about_parts(part: str, parts: Sequence[tuple[str, float]]) -> list[str]:
    most = [shown(name, _LONGEST_NAME) for name, size in parts[:3] if size > 0]
    return [f"Silos differ most in the {part}s: {'; '.join(most)}."] if most else []


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(shown(name, _LONGEST_NAME) for name in names[:_MOST_NAMES])
    return listed + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def _tree(relations: np.ndarray) -> np.ndarray:
    """The tree of average linkage, with 1 - mean cosine as the distance of silos and groups."""
    distances = np.clip(1 - (relations + relations.T) / 2, 0, 2)
    np.fill_diagonal(distances, 0)
    return linkage(squareform(distances, checks=False), "average")


def _between(products: np.ndarray) -> float:
    """The common part of a group: the mean product of two silos, times the number of silos."""
    return float(products.sum() - np.trace(products)) / (len(products) - 1)


def _largest_first(sizes) -> list[tuple[str, float]]:
    return sorted(sizes, key=lambda pair: -pair[1])


def _percent(share: float) -> int:
    return round(100 * float(share))


def _mean(array: Any) -> np.ndarray:
    """The mean over seeds."""
    return np.asarray(array, np.float64).mean(axis=0)


def _all_finite(learned: Mapping[str, Any]) -> bool:
    """Whether all numbers are finite; those of a diverged run in a sweep are not."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(dict(learned)))
