"""Who gains from federating."""
