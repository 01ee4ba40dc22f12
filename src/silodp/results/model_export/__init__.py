"""Export of personal models: a file for each silo, and a card that says how to use it."""
