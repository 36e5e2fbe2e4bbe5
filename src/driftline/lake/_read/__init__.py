"""Read: a shelf of `lake`."""
