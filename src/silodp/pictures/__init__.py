"""The demo, and pictures of results."""
