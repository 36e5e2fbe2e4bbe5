"""Batch: a shelf of `payloads`."""
