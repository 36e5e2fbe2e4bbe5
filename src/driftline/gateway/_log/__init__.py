"""Log: a shelf of `gateway`."""
