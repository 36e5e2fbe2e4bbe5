"""The reports of a range of ids as Parquet, a row for each pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.payloads.batch_records import Record
from driftline.payloads.report import Report, encode

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_PER_GROUP = 10_000


class ReportTable:
    """Gathers rows column by column and writes them in groups."""

    def __init__(self, path: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._schema = pa.schema(
            [("id", pa.string()), ("endpoint", pa.string()), ("is_match", pa.bool_()), ("mismatches", pa.int64()),
             ("warnings", pa.int64()), ("error", pa.string()), ("report", pa.string())]
        )  # fmt: skip
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []

    def __enter__(self) -> ReportTable:
        return self

    def __exit__(self, *details: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, pair: Record, report: Report | None, error: str | None, body: bytes) -> None:
        """Add the row of a pair."""
        identity = pair.id if isinstance(pair.id, str) or pair.id is None else encode(pair.id).decode()
        found = (None, None, None) if report is None else (report.is_match, len(report.diffs), len(report.warnings))
        self._rows.append((identity, pair.endpoint, *found, error, body))
        if len(self._rows) >= _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(self._batch())
            self._rows = []

    def _batch(self) -> pa.RecordBatch:
        import pyarrow as pa

        *columns, bodies = zip(*self._rows, strict=True)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self._schema, strict=False)]
        # The bodies are UTF-8 already: no way through Python strings.
        return pa.RecordBatch.from_arrays(
            [*arrays, pa.array(bodies, pa.binary()).cast(pa.string())], schema=self._schema
        )
