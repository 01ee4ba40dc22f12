"""Sentences of a card: what its guarantee covers, what it does not, and why it is this model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silodp.models.metrics import get_metric


def meaning_of_seed(seeds: int) -> str:
    """Why the card's model is the one of the first seed."""
    if seeds == 1:
        return "The run had one seed: this is its model."
    return (
        f"The run had {seeds} seeds, each with a model. This is the first one's, because that was "
        "settled before anything was trained: to take the model that did best on test records "
        "would be a choice by these records, which no epsilon covers and which flatters the model."
    )


def meaning_of_test(metric: str, noisy: bool) -> str:
    """What the metric means, and whether epsilon covers it."""
    how = (
        "with noise that epsilon covers, and each record's share bounded"
        if noisy
        else "exact: epsilon does not cover it"
    )
    return f"{get_metric(metric).meaning} on this silo's test records, {how}."


def meaning_of_privacy(
    privacy: Mapping[str, Any], uncovered: Sequence[str], noise_from_seed: bool
) -> list[str]:
    """Sentences on what a holder of the file may rely on."""
    others = (
        "Records of other silos had their part in it by what those silos sent: they are protected "
        "by those silos' own budgets, which this card does not know."
    )
    if math.isinf(privacy["epsilon"]):
        return [
            "No privacy was asked for: the model may give away records of this silo that it was "
            "trained on. Treat this file as you treat the records.",
            others,
        ]
    whom = "one record" if privacy["unit"] == "record" else "one person with all records"
    promised = (
        f"The model was made from nothing but noisy answers about this silo's training records, "
        f"the same that everything was made from that the silo sent. Model and messages together "
        f"are epsilon {privacy['epsilon']:.4g}, delta {privacy['delta']:.3g} for {whom} of this "
        "silo, whoever gets the model and whatever is worked out from it."
    )
    sentences = [promised, others]
    if noise_from_seed:
        sentences.insert(
            0,
            "This is a model of an experiment: its noise came from the seed that this card tells, "
            "and whoever knows the seed knows the noise. What follows would hold for secret noise: "
            "train with a ledger, or with entropy os, before you give a model away.",
        )
    if privacy["unproven"]:
        sentences.insert(1, "This is not proven: see unproven.")
    sentences.append(
        "Epsilon is about the model, not about this card: the metric, unless it is noisy, the "
        "number of records and what the preparation took from records come on top."
    )
    if uncovered:
        sentences.append(
            "The card holds what was taken from the records: keep it where the records are."
        )
    sentences.append(
        "What a prediction tells about whom it is made for is not what epsilon is about."
    )
    return sentences
