"""Results of runs: `result.json`, what a method learned, and personal models."""
