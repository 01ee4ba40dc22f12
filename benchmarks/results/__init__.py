"""The claims of the paper, recomputed from the numbers in docs/results."""
