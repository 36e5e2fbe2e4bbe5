"""Diffs of DataFrames and functions over their columns, lazily, in the caller's own session."""
