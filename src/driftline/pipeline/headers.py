"""The column names of a snapshot, without reading its rows."""

from __future__ import annotations

import json
from pathlib import Path

from driftline.files import read_lines
from driftline.pipeline.snapshots import Snapshot
from driftline.sources.csv_side import side_records
from driftline.sources.inputs import Input, open_input
from driftline.sources.workspace import Workspace


def is_text(snapshot: Snapshot) -> bool:
    """Whether its cells are text (CSV, TSV) and not typed values."""
    with Workspace() as workspace:
        return open_input(_first(snapshot), workspace).kind == "csv"


def header_of(snapshot: Snapshot, delimiter: str | None) -> list[str]:
    """The columns in order."""
    with Workspace() as workspace:
        source = open_input(_first(snapshot), workspace, delimiter=delimiter)
        if source.kind == "csv":
            return list(next(iter(side_records(source, "B"))))
        return _typed_header(source)


def _first(snapshot: Snapshot) -> str:
    """One file of a folder is enough."""
    if snapshot.table is None and snapshot.path.is_dir():
        files = sorted(path for path in snapshot.path.iterdir() if path.is_file() and path.name[0] not in "._")
        return str(files[0]) if files else snapshot.given
    return snapshot.given


def _typed_header(source: Input) -> list[str]:
    path = Path(source.files[0].path)
    if source.kind == "parquet":
        import pyarrow.parquet as pq

        return list(pq.read_schema(path).names)
    if source.kind == "sqlite":
        return _sqlite_header(path, source.table or "")
    names: dict[str, None] = {}
    for line in read_lines(path):
        names.update(dict.fromkeys(json.loads(line)))
    return list(names)


def _sqlite_header(path: Path, table: str) -> list[str]:
    import sqlite3

    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return [row[1] for row in connection.execute("SELECT * FROM pragma_table_info(?)", (table,))]
    finally:
        connection.close()
