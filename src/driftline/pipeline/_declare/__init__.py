"""Declare: a shelf of `pipeline`."""
