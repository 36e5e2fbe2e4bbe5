"""Sync: a shelf of `gateway`."""
