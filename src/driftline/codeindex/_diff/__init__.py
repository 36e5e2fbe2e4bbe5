"""Diff: a shelf of `codeindex`."""
