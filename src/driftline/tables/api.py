"""`driftline.diff`: two tables in, the ordered stream of events out."""

from __future__ import annotations

import tempfile
from typing import Any, BinaryIO, Unpack, cast

from driftline.core._progress import Tracker, silent
from driftline.tables.engines import DiffJob, TableInput, choose_engine, find_engine
from driftline.tables.options import DiffRules, check_options
from driftline.tables.result import TableDiff as TableDiff

_IN_MEMORY_BYTES = 16 << 20  # longer streams of events wait on disk


def diff(
    a: TableInput,
    b: TableInput,
    *,
    engine: str = "auto",
    memory: int | None = None,
    master: str | None = None,
    tracker: Tracker | None = None,
    **rules: Unpack[DiffRules],
) -> TableDiff:
    """Compare two tables and return what was added, removed and changed; the rules are those of `driftline diff`.

    A side is a path or address, or a table: an object of pandas, Polars, Arrow or DuckDB, a list of dicts, a cursor.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("id,name\\n1,Ann\\n")
    >>> _ = (folder / "b.csv").write_text("id,name\\n1,Anna\\n")
    >>> [event["type"] for event in diff(folder / "a.csv", folder / "b.csv", key=["id"])]
    ['schema', 'changed', 'stats']
    """
    options = check_options(**rules)
    job = DiffJob(a, b, options, memory=memory, master=master, tracker=tracker or silent())
    chosen, _ = choose_engine(engine, job)
    stream = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - lives as long as the result
    stats = find_engine(chosen)(job, stream.write)
    return TableDiff(cast(BinaryIO, stream), stats, job)


def assert_equal(a: TableInput, b: TableInput, **options: Any) -> None:
    """Raise an `AssertionError` that says what differs; takes what `diff` takes.

    >>> assert_equal([{"id": 1, "v": "x"}], [{"id": 1, "v": "x"}], key="id")
    >>> try:
    ...     assert_equal([{"id": 1, "v": "x"}], [{"id": 1, "v": "y"}], key="id")
    ... except AssertionError as error:
    ...     print(error)
    tables differ: 0 added, 0 removed, 1 changed, 0 unchanged (key id)
      changed id=1: v: 'x' → 'y'
    """
    __tracebackhide__ = True  # a test's output ends at the line of the test
    result = diff(a, b, **options)
    if result.failed:
        raise TablesDifferError(result)
    result.close()


class TablesDifferError(AssertionError):
    """Two tables are not equal; `diff` is their difference."""

    def __init__(self, result: TableDiff) -> None:
        super().__init__(f"tables differ: {result.describe()}")
        self.diff = result


TablesDifferError.__module__ = "driftline"  # where people know it from
