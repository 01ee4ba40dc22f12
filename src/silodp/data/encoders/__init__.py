"""Public encoders: a record becomes features by itself, before anything private begins."""
