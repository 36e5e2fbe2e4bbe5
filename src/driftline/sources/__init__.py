"""Readers: strict CSV, Parquet, JSONL, SQLite."""
