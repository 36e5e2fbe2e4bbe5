"""Build: a shelf of `codeindex`."""
