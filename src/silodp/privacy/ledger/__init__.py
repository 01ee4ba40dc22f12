"""The ledger: storage, meaning, writing, and what fits a lifetime."""
