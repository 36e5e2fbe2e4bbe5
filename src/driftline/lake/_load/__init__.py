"""Loads: snapshots, change events and files of deltas into the lake."""
