"""Values: a shelf of `payloads`."""
