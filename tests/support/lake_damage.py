"""Ways to damage a delta file, each of which must end in an error that names the file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.lake import Lake


def delta_files(lake: Lake) -> list[Path]:
    return sorted(Path(lake.root, "tables/todos/deltas").rglob("*.parquet"))


def rewrite(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(bytes(data))


def retype(path: Path) -> None:
    table = pq.read_table(path)
    rewrite(path, table.set_column(3, "_hlc", pa.array(["x"] * table.num_rows)))


def drop_column(path: Path) -> None:
    rewrite(path, pq.read_table(path).drop_columns(["_columns"]))


def shorten_ids(path: Path) -> None:
    table = pq.read_table(path)
    rewrite(path, table.set_column(4, "_delta_id", pa.array(["A"] * table.num_rows)))


def forge(path: Path) -> None:
    table = pq.read_table(path)
    place = table.column_names.index("title")
    rewrite(path, table.set_column(place, table.field(place), pa.array(["forged"] * table.num_rows)))


DAMAGES = [truncate, empty, garble, retype, drop_column, shorten_ids]
