"""Commands: a shelf of `cli`."""
