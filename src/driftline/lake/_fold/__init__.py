"""Fold: a shelf of `lake`."""
