"""The formats that a table's state is written in, for whoever offers them without writing any."""

STATE_FORMATS = ("jsonl", "csv", "parquet", "sqlite")
