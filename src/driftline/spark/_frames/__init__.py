"""Frames: a shelf of `spark`."""
