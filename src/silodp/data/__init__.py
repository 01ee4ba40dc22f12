"""Records: what a federation is, and where it comes from."""
