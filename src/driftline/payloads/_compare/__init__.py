"""Compare: a shelf of `payloads`."""
