"""Engines run methods: compiled on one machine, or step by step to find a fault."""
