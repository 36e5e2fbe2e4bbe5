"""Schema: a shelf of `payloads`."""
