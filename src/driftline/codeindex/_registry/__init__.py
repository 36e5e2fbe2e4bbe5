"""Registry: a shelf of `codeindex`."""
