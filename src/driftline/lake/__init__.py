"""Stores deltas: Delta tables, flush, snapshots, replay."""
