"""The formats that driftline reads, one file each; the first that recognises an input opens it.

Their files are imported by every command, so what is heavy is imported inside the functions that need it.
"""

from __future__ import annotations

from driftline.sources._formats.arrow import ArrowFormat
from driftline.sources._formats.csv import CsvFormat
from driftline.sources._formats.delta import DeltaFormat
from driftline.sources._formats.hive import HiveFormat
from driftline.sources._formats.iceberg import IcebergFormat
from driftline.sources._formats.jsonl import JsonLinesFormat
from driftline.sources._formats.parquet import ParquetFormat
from driftline.sources._formats.postgresql import PostgresFormat
from driftline.sources._formats.sqlite import SqliteFormat
from driftline.sources._source import Format

# CSV is last, because it takes what nobody else knows.
FORMATS: tuple[Format, ...] = (
    DeltaFormat(),
    IcebergFormat(),
    HiveFormat(),
    PostgresFormat(),
    SqliteFormat(),
    ParquetFormat(),
    ArrowFormat(),
    JsonLinesFormat(),
    CsvFormat(),
)
