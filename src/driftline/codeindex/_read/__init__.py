"""Read: a shelf of `codeindex`."""
