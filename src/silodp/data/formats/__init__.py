"""Readers of file formats, none of which is trusted."""
