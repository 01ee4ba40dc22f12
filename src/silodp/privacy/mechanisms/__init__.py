"""What may be asked of records, and the noise on it."""
