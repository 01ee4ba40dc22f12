"""NVIDIA FLARE as the engine between sites: kits, processes, and a thin adapter."""
