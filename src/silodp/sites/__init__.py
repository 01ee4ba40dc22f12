"""Federations of real sites, each of which keeps its records, policy and ledger to itself."""
