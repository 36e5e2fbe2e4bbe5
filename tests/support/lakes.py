"""What the lake's tests share: a table of every type, deltas from short words, hypothesis strategies."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from driftline.deltas import ColumnDelta, RowDelta, TableSchema
from driftline.lake import Lake, compact, register
from driftline.lake._fold.plan import plan_fold
from driftline.lake._store.flush import append_deltas
from driftline.lake._store.lake import relative
from driftline.lake._store.parquet import read_file
from driftline.lake._store.rows import base_file_schema

SCHEMA = TableSchema(
    "todos",
    [
        {"name": "title", "type": "string"},
        {"name": "Unit Price", "type": "number"},
        {"name": "done", "type": "boolean"},
        {"name": "tags (all)", "type": "json"},
    ],
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "title": st.sampled_from(["", "a", "é", "\U0001f602", 'line\n"quoted"', None]),
    "Unit Price": st.sampled_from([0, -1.5, 1e300, 42, None]),
    "done": st.sampled_from([True, False, None]),
    "tags (all)": st.sampled_from([[], {"b": 1, "a": [None]}, "x", 3, None]),
}
# the last two order differently by UTF-16 than by code point
CLIENTS = ["a", "b", "\U0001f602", "\ufb33"]
ROWS = ["r1", "r2", "é", "x" * 80 + "1", "x" * 80 + "2"]


@st.composite
def row_deltas(draw: st.DrawFn) -> RowDelta:
    op = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]))
    names = [] if op == "DELETE" else draw(st.lists(st.sampled_from(list(VALUES)), unique=True))
    return RowDelta.make(
        op=op,
        table="todos",
        row_id=draw(st.sampled_from(ROWS)),
        client_id=draw(st.sampled_from(CLIENTS)),
        columns=[ColumnDelta(name, draw(VALUES[name])) for name in names],
        hlc=draw(st.integers(1, 6)),
    )


BATCHES = st.lists(st.lists(row_deltas(), min_size=1, max_size=8), min_size=1, max_size=4)


def delta(op: str, row_id: str, hlc: int, client: str = "c", table: str = "todos", **columns: Any) -> RowDelta:
    entries = [ColumnDelta(name, value) for name, value in columns.items()]
    kind: Any = op
    return RowDelta.make(op=kind, table=table, row_id=row_id, client_id=client, columns=entries, hlc=hlc)


def load_lake(root: Any, batches: list[list[RowDelta]], compact_after: set[int] | None = None) -> Lake:
    lake = root if isinstance(root, Lake) else Lake(str(root))
    register(lake, SCHEMA)
    for number, batch in enumerate(batches):
        # Past the check of ids with two operations: lakes of earlier versions hold some.
        append_deltas(lake, "todos", batch, "gw", {"flush:gw": number + 1})
        if number in (compact_after or set()):
            compact(lake, "todos", rows_per_range=2)
    return lake


def lives_and_deaths(count: int) -> list[list[RowDelta]]:
    """Batches of thirty deltas in which a dozen rows are written and deleted again and again."""
    chance = random.Random(3)
    made: list[list[RowDelta]] = []
    for number in range(count):
        hlcs = [number * 100 + position for position in range(30)]
        rows = [f"r{chance.randrange(12)}" for _ in hlcs]
        made.append(
            [
                delta("DELETE", row, hlc) if chance.random() < 0.3 else delta("UPDATE", row, hlc, title=f"v{hlc}")
                for row, hlc in zip(rows, hlcs, strict=True)
            ]
        )
    return made


def problems_at_once(*works: Callable[[], object]) -> list[BaseException]:
    """What went wrong when all of these ran at once, each in a thread of its own."""
    problems: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - given to the test
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems


def snapshot_table(lake: Lake, table: str) -> pa.Table:
    """The committed base of a table."""
    plan = plan_fold(lake, table)
    files = plan.snapshot.base if plan.snapshot else ()
    schema = base_file_schema(plan.columns)
    tables = [read_file(lake, relative(table, "base", file.path), schema) for file in files]
    return pa.concat_tables([schema.empty_table(), *tables]).sort_by("_row_id")
