"""The same methods across real sites: each keeps its records, policy and ledger to itself."""
