"""Run: a shelf of `pipeline`."""
