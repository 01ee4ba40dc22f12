"""A federation without a server: the same requests and replies as over a network, in files."""
