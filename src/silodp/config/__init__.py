"""Options of a run, and the words that they take."""
