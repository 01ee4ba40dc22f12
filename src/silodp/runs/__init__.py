"""From what is asked for to results."""
