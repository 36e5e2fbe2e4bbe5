"""Stages: a shelf of `pipeline`."""
