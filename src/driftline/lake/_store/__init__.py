"""The stored lake: Delta tables, Parquet files, schemas, flushes, snapshots and pending files."""
