"""A user's tables."""
