"""Store: a shelf of `lake`."""
