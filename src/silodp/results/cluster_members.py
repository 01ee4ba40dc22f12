"""The silos of each cluster over seeds, with clusters matched between seeds.

Choices are private selections that silos release anyway: to show them costs no privacy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from silodp.base.text import shown

_MOST_NAMES = 5


def cluster_members(chosen: np.ndarray, silos: Sequence[str]) -> dict[str, Any]:
    """The clusters that silos chose, as a result holds them.

    Args:
      chosen: [seeds, silos, clusters], 1 where a silo ended in a cluster.
      silos: their names.

    Returns:
      "clusters": [{"silo", "cluster", "agreement"}]: clusters are numbered from 1, the largest
      first; agreement is the share of seeds in which the silo was with the same others; "summary":
      sentences.
    """
    votes = np.mean(_matched(np.asarray(chosen, float)), axis=0)
    cluster_of = np.argmax(votes, axis=1)
    sizes = np.bincount(cluster_of, minlength=votes.shape[1])
    number = {old: new for new, old in enumerate(np.argsort(-sizes, kind="stable"), start=1)}
    members = [
        {"silo": silo, "cluster": number[cluster], "agreement": float(votes[place, cluster])}
        for place, (silo, cluster) in enumerate(zip(silos, cluster_of.tolist(), strict=True))
    ]
    used = int((sizes > 0).sum())
    total = f"{votes.shape[1]} cluster{'s' * (votes.shape[1] > 1)}"
    sentences = [f"Silos chose {used} of {total}: {_listed(members, used)}."]
    if len(chosen) > 1:
        always = sum(one["agreement"] == 1 for one in members)
        sentences.append(
            f"{always} of {len(members)} silos are with the same others in every seed."
        )
    return {"clusters": members, "summary": sentences}


def _matched(chosen: np.ndarray) -> np.ndarray:
    """The clusters of all seeds, ordered by their match with those of the first seed."""
    first = chosen[0]
    matched = []
    for one in chosen:
        _, order = linear_sum_assignment(first.T @ one, maximize=True)
        matched.append(one[:, order])
    return np.stack(matched)


def _listed(members: Sequence[dict[str, Any]], used: int) -> str:
    texts = []
    for number in range(1, min(used, _MOST_NAMES) + 1):
        names = [shown(one["silo"]) for one in members if one["cluster"] == number]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        texts.append(f"{', '.join(names[:_MOST_NAMES])}{more}")
    return "; ".join(texts) + ("; and others" if used > _MOST_NAMES else "")
