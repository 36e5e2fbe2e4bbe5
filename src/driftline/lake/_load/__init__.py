"""Load: a shelf of `lake`."""
