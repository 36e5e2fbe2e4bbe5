"""`driftline.diff`: two tables in, the ordered stream of events out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, cast

from driftline.files import StrPath, atomic_write
from driftline.progress import Tracker, silent
from driftline.sinks.formats import write_events
from driftline.tables.engines import DiffJob, choose_engine, find_engine
from driftline.tables.events import Event
from driftline.tables.options import check_options
from driftline.tables.stats import Stats

_IN_MEMORY_BYTES = 16 << 20  # longer streams of events wait on disk


class TableDiff:
    """The result of a diff: iterate its events as dicts (schema first, stats last), or write them to a file.

    `stats` is the last event.
    """

    def __init__(self, stream: BinaryIO, stats: Stats) -> None:
        self._stream = stream
        self.stats: dict[str, Any] = stats.to_event()

    def __iter__(self) -> Iterator[Event]:
        return map(json.loads, self.lines())

    @property
    def has_differences(self) -> bool:
        """Whether any row was added, removed or changed."""
        return Stats.of_event(self.stats).any_difference

    def lines(self) -> Iterator[bytes]:
        """The events as lines of JSONL; any number of readers may iterate at the same time."""
        position = 0
        while True:
            self._stream.seek(position)
            line = self._stream.readline()
            if not line:
                return
            position = self._stream.tell()
            yield line

    def write(self, path: StrPath, format: str = "jsonl", *, limit: int | None = None) -> None:  # noqa: A002
        """Write the events to a file that appears whole or not at all; formats as `driftline diff --format`."""
        with atomic_write(path) as out:
            write_events(self.lines(), out, format, limit=limit)


def diff(
    a: StrPath,
    b: StrPath,
    *,
    key: Iterable[str] | str | None = None,
    mode: str | None = None,
    header_mode: str = "strict",
    emit_unchanged: bool = False,
    ignore_row_order: bool = False,
    engine: str = "auto",
    delimiter: str | None = None,
    memory: int | None = None,
    master: str | None = None,
    tracker: Tracker | None = None,
) -> TableDiff:
    """Compare two tables and return what was added, removed and changed.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("id,name\\n1,Ann\\n")
    >>> _ = (folder / "b.csv").write_text("id,name\\n1,Anna\\n")
    >>> [event["type"] for event in diff(folder / "a.csv", folder / "b.csv", key=["id"])]
    ['schema', 'changed', 'stats']
    """
    options = check_options(
        mode=mode,
        key_columns=() if key is None else key,
        header_mode=header_mode,
        emit_unchanged=emit_unchanged,
        ignore_row_order=ignore_row_order,
        delimiter=delimiter,
    )
    job = DiffJob(a, b, options, memory=memory, master=master, tracker=tracker or silent())
    chosen, _ = choose_engine(engine, job)
    stream = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - lives as long as the result
    stats = find_engine(chosen)(job, stream.write)
    return TableDiff(cast(BinaryIO, stream), stats)
