"""Reads: states, changes, history, proofs and snapshots of a lake's tables."""

STATE_FORMATS = ("jsonl", "csv", "parquet", "sqlite")  # defined here, without the libraries that write them
