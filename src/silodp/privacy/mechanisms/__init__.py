"""The queries on records, and the noise on their answers."""
