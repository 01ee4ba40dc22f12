"""What adds up for a person in several silos, in words: on the terminal and in reports."""

import math
from collections.abc import Mapping
from typing import Any


def person_in_words(person: Mapping[str, Any], unit: str) -> str:
    """What adds up for somebody in several silos."""
    who = f"Somebody who is in up to {person['silos']} silos"
    if unit == "record":
        who += " (with one record in each)"
    if person["epsilon"] in (math.inf, "inf"):
        return f"{who}: no guarantee, because not every silo is private."
    return f"{who}: epsilon {person['epsilon']:.4g} at delta {person['delta']:.3g}."
