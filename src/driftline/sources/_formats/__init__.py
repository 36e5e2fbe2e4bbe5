"""The registry of table formats, one file each; the first one that recognises an input opens it.

Every command imports these files, so heavy packages are imported inside the functions that need them.
"""

from __future__ import annotations

from driftline.sources._formats.arrow import ArrowFormat
from driftline.sources._formats.csv import CsvFormat
from driftline.sources._formats.delta import DeltaFormat
from driftline.sources._formats.duckdb import DuckDbFormat
from driftline.sources._formats.hive import HiveFormat
from driftline.sources._formats.iceberg import IcebergFormat
from driftline.sources._formats.jsonl import JsonLinesFormat
from driftline.sources._formats.parquet import ParquetFormat
from driftline.sources._formats.postgresql import PostgresFormat
from driftline.sources._formats.sqlite import SqliteFormat
from driftline.sources._formats.workbook import WorkbookFormat
from driftline.sources._source import Format

# CSV is last, because it reads what no other format recognises.
FORMATS: tuple[Format, ...] = (
    DeltaFormat(),
    IcebergFormat(),
    HiveFormat(),
    PostgresFormat(),
    WorkbookFormat(),
    DuckDbFormat(),
    SqliteFormat(),
    ParquetFormat(),
    ArrowFormat(),
    JsonLinesFormat(),
    CsvFormat(),
)
