"""Rules: a shelf of `payloads`."""
