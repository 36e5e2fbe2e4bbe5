"""Rules: a shelf of `tables`."""
