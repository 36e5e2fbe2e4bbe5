"""Lake: a shelf of `gateway`."""
