"""How well each column would serve as a key, judged by the first rows of both sides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.sources.csv_side import head_records
from driftline.sources.inputs import open_input
from driftline.sources.workspace import Workspace

_ROWS = 20_000


@dataclass(frozen=True)
class KeyColumn:
    """A column that both sides have: how often its values repeat or are missing in the rows that were looked at."""

    name: str
    repeated: int
    missing: int

    @property
    def is_unique(self) -> bool:
        """Whether every row has a value of its own."""
        return not (self.repeated or self.missing)

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.is_unique:
            return "unique"
        words = [f"{self.repeated} repeats" if self.repeated else "", f"{self.missing} empty" if self.missing else ""]
        return ", ".join(word for word in words if word)


def key_columns(a: str, b: str) -> list[KeyColumn]:
    """Columns that both sides have, in the order of A, unique ones first."""
    heads = [_head(address) for address in (a, b)]
    shared = [name for name in heads[0] if name in heads[1]]
    found = [_judge(name, [head[name] for head in heads]) for name in shared]
    return sorted(found, key=lambda column: not column.is_unique)


def _judge(name: str, sides: list[list[Any]]) -> KeyColumn:
    present = [[str(value) for value in side if value is not None and value != ""] for side in sides]
    repeated = sum(len(values) - len(set(values)) for values in present)
    return KeyColumn(name, repeated, sum(map(len, sides)) - sum(map(len, present)))


def _head(address: str) -> dict[str, list[Any]]:
    """The first rows of a table, by column."""
    with Workspace() as workspace:
        source = open_input(address, workspace)
        if source.kind == "csv":
            header, *rows = head_records(source, "A", _ROWS)
            return {name: [row[at] for row in rows if at < len(row)] for at, name in enumerate(header)}
        file = source.files[0].path
        if source.kind == "sqlite":
            return _sqlite_head(file, source.table or "")
        return _typed_head(file, source.kind)


def _typed_head(path: str, kind: str) -> dict[str, list[Any]]:
    import polars as pl

    frame = pl.scan_parquet(path) if kind == "parquet" else pl.scan_ndjson(path)
    return frame.head(_ROWS).collect().to_dict(as_series=False)


def _sqlite_head(path: str, table: str) -> dict[str, list[Any]]:
    import sqlite3

    name = table.replace('"', '""')
    connection = sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)
    try:
        cursor = connection.execute(f'SELECT * FROM "{name}" LIMIT {_ROWS}')  # noqa: S608 - the name is quoted
        rows = cursor.fetchall()
        return {column[0]: [row[at] for row in rows] for at, column in enumerate(cursor.description)}
    finally:
        connection.close()
