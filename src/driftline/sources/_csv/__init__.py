"""Csv: a shelf of `sources`."""
