"""`driftline.diff` and its result: events, counts, frames and files; `driftline.assert_equal`."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, Unpack, cast

from driftline.core import SHOWN_CHANGES, DiffMembers, StrPath, Tracker, atomic_write, exact_loads, no_progress
from driftline.errors import DriftlineError
from driftline.sinks import Title, cell_text, find_format, format_for, packed, settings_for, write_events
from driftline.sources import is_in_memory
from driftline.tables import _explain
from driftline.tables._engines import TableDiffJob, TableInput, choose_engine, find_engine
from driftline.tables._events import Event, Stats, count_changes
from driftline.tables._options import DiffRules, check_options, pairs, python_words
from driftline.tables._profile import Profile

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from driftline.tables._frames import ResultRows

_BLOCK_BYTES = 1 << 18
_IN_MEMORY_BYTES = 16 << 20  # longer streams of events are stored on disk


def diff(
    a: TableInput,
    b: TableInput,
    *,
    engine: str = "auto",
    memory: int | None = None,
    master: str | None = None,
    tracker: Tracker | None = None,
    auto: bool | Literal["rules"] = False,
    **rules: Unpack[DiffRules],
) -> TableDiff:
    """Compare two tables and return what was added, removed and changed; the rules are those of `driftline diff`.

    A side is a path or address, or a table: an object of pandas, Polars, Arrow or DuckDB, a list of dicts, a cursor.
    With `auto` it is chosen how files are read, and the key where none is given; the result has these options as
    `chosen`. `auto="rules"` also takes the rules that the profile of the changes suggests.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("id,name\\n1,Ann\\n")
    >>> _ = (folder / "b.csv").write_text("id,name\\n1,Anna\\n")
    >>> [event["type"] for event in diff(folder / "a.csv", folder / "b.csv", key=["id"])]
    ['schema', 'changed', 'stats']
    """
    given: dict[str, Any] = {name: value for name, value in rules.items() if value is not None}
    chosen = _explain.reading_of(a, b, given) if auto else {}
    if auto == "rules" and (renames := _explain.found_renames(a, b, {**given, **chosen})):
        chosen["rename"] = {**dict(pairs(given.get("rename", {}))), **{old: new for old, (new, _) in renames.items()}}
    tracker = tracker or no_progress()

    def run(added: Mapping[str, Any]) -> TableDiff:
        options = check_options(**{**given, **added})
        job = TableDiffJob(a, b, options, memory=memory, master=master, tracker=tracker, profile=True, kept=[])
        name, _ = choose_engine(engine, job)
        stream = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - lives as long as the result
        try:
            stats = find_engine(name)(job, stream.write)
        except DriftlineError as error:
            words = _explain.remedy(error, job, {**given, **added}, in_python=True)
            error.message = python_words(error.message)
            error.args = (error.message,)
            if words is not None:
                error.add_note(words)
            raise
        return TableDiff(cast(BinaryIO, stream), stats, job, dict(added))

    result = run(chosen)
    return (
        run({**chosen, **_explain.suggested_rules(result.profile(), given)}) if auto == "rules" and result else result
    )


def assert_equal(a: TableInput, b: TableInput, **options: Any) -> None:
    """Raise an `AssertionError` with the differences, if there are any; the arguments are those of `diff`.

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


TablesDifferError.__module__ = "driftline"  # the name that users import


class TableDiff(DiffMembers):
    """The result of a diff of tables: a `Diff` whose changes are events of rows, as dicts.

    It is true if there are differences, and as long as rows were added, removed or changed; where only columns came or
    went, it is true and has length 0. Iterating it gives all events, schema first and stats last; `stats` is the last
    one. A large result is stored in a temporary file, which is removed with the object or by `close`.
    """

    def __init__(
        self, stream: BinaryIO, stats: Stats, job: TableDiffJob, chosen: Mapping[str, Any] | None = None
    ) -> None:
        self.chosen = dict(chosen or {})  # options that `auto` took
        self._stream = stream
        self._reading = Lock()
        self._counts = stats
        self._job = replace(job, options=stats.options or job.options)
        self._heading = _explain.heading_of(job, stats)
        self.stats: dict[str, Any] = stats.to_event()

    def __iter__(self) -> Iterator[Event]:
        return map(exact_loads, self.lines())

    def __bool__(self) -> bool:
        return self.has_differences

    def __len__(self) -> int:
        return self._counts.added + self._counts.removed + self._counts.changed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        counts = self._counts
        return (
            f"<TableDiff: {counts.added:,} added, {counts.removed:,} removed, {counts.changed:,} changed, "
            f"{counts.unchanged:,} unchanged>"
        )

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><td>{html.escape(kind)}</td><td>{html.escape(place)}</td><td>{html.escape(what)}</td></tr>"
            for kind, place, what in islice(self._shown(), SHOWN_CHANGES)
        )
        return f"<p>{html.escape(repr(self)[1:-1])}</p><table>{''.join(rows)}</table>"

    def close(self) -> None:
        """Release the events; the counts stay."""
        self._stream.close()
        for kept in self._job.kept or ():
            kept.close()

    @property
    def has_differences(self) -> bool:
        """Whether any row was added, removed or changed, or any column added or removed."""
        return self._counts.any_difference

    @property
    def failed(self) -> bool:
        """Whether a check with this diff fails: by `fail_if`, or, without any condition, if there are differences."""
        limits = self._job.options.fail_if
        return bool(self._counts.exceeded(limits)) if limits else self.has_differences

    @property
    def exit_code(self) -> int:
        """What `driftline diff` returns with the same options: 1 if a check with this diff fails, else 0."""
        return int(self.failed)

    @property
    def counts(self) -> dict[str, int]:
        """Rows added, removed, changed and unchanged."""
        return {name: getattr(self._counts, name) for name in ("added", "removed", "changed", "unchanged")}

    def changes(self) -> Iterator[Event]:
        """The events of rows that were added, removed or changed, in the order of the output."""
        return (event for event in self if event["type"] in ("added", "removed", "changed"))

    def to_dict(self) -> dict[str, Any]:
        """The events as data: `schema`, `changes` and `stats`."""
        schema = next(iter(self))
        return {"schema": schema, "changes": list(self.changes()), "stats": self.stats}

    def lines(self) -> Iterator[bytes]:
        """The events as lines of JSONL; any number of threads may iterate at the same time."""
        position, rest = 0, b""
        while True:
            with self._reading:
                self._stream.seek(position)
                block = self._stream.read(_BLOCK_BYTES)
            if not block:
                return
            position += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line + b"\n"

    @property
    def added(self) -> pl.DataFrame:
        """The rows that only B has, with B's types."""
        return _frame(self._tables().rows("added").cells)

    @property
    def removed(self) -> pl.DataFrame:
        """The rows that only A has, with A's types."""
        return _frame(self._tables().rows("removed").cells)

    @property
    def changed(self) -> pl.DataFrame:
        """A row for every cell that changed: the key or row number, the column, and its values before and after.

        The values have their type if all columns outside the key have the same; else they are text.
        """
        from driftline.tables._frames import changed_cells

        options, renamed = self._job.options, dict(self._job.options.rename)
        numbered = options.has_row_numbers
        return _frame(changed_cells(self._tables(), self.lines(), options.key_columns, renamed, numbered=numbered))

    @property
    def column_stats(self) -> dict[str, int]:
        """How often each column changed, most often first."""
        return dict(count_changes(self).most_common())

    def profile(self) -> Profile:
        """The kinds of change: for each column, with frequent pairs of values, and rules that would hide many.

        >>> old = [{"id": n, "city": "Rome"} for n in range(20)]
        >>> new = [{"id": n, "city": "ROME"} for n in range(20)]
        >>> print(diff(old, new, key="id").profile().suggestions()[0].flag)
        --normalize city=case
        """
        assert self._counts.profile is not None, "every diff of this module asks for it"
        return self._counts.profile

    def to_polars(self) -> pl.DataFrame:
        """Every row version with its kind of change (`_change`), as in the csv format, with the types of the inputs."""
        return _frame(self.to_arrow())

    def to_arrow(self) -> pa.Table:
        """As `to_polars`, in Arrow."""
        from driftline.tables._frames import versions

        options = self._job.options
        return versions(self._tables(), numbered=options.has_row_numbers, unchanged=options.emit_unchanged)

    def to_pandas(self) -> Any:
        """As `to_polars`, in pandas, with columns of Arrow types."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]

        return self.to_arrow().to_pandas(types_mapper=pd.ArrowDtype)

    def _tables(self) -> ResultRows:
        """The rows as tables: those that were kept, else those of the events."""
        from driftline.tables._frames import TextRows

        return self._job.kept[0] if self._job.kept else TextRows(b"".join(self.lines()))

    def _shown(self) -> Iterator[tuple[str, str, str]]:
        """The changes as texts: kind, row, cells."""
        for event in self.changes():
            where = event.get("key") or ({"row": event["row_index"]} if "row_index" in event else {})
            place = ", ".join(f"{name}={cell_text(value)}" for name, value in where.items())
            if event["type"] == "changed":
                changed = event["delta"].items()
                cells = [f"{name}: {_repr(cell['from'])} → {_repr(cell['to'])}" for name, cell in changed]
            else:
                cells = [f"{name}={_repr(cell)}" for name, cell in event["row"].items()]
            yield event["type"], place, ", ".join(cells)

    def _headline(self) -> str:
        return f"{repr(self)[1:-1].removeprefix('TableDiff: ')} ({_explain.identity(self._job.options)})"

    def _change_lines(self) -> Iterator[str]:
        return (f"{kind} {place}: {what}" for kind, place, what in self._shown())

    def heading(self) -> Title:
        """The title: the inputs, the key and rules, and the time."""
        return self._heading

    def write(
        self,
        path: StrPath,
        format: str | None = None,  # noqa: A002
        *,
        limit: int | None = None,
        **settings: Any,
    ) -> None:
        """Write the events to a file, atomically, in a format of `driftline diff --format`.

        Without a format the file's suffix decides it. A changeset takes `table`, its table's name.
        """
        name = format_for(path, format)
        find_format(name)
        report = _explain.report_settings(self._job.options, self._counts, self._heading)
        settings = settings or {**report, **settings_for(path)}
        inputs = [given for given in (self._job.a, self._job.b) if not is_in_memory(given)]
        with atomic_write(path, inputs) as file, packed(file, path) as out:
            write_events(self.lines(), out, name, limit=limit, **settings)


def _repr(value: object) -> str:
    return repr(value) if isinstance(value, str) else cell_text(value)


def _frame(table: pa.Table) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(pl.from_arrow(table))
