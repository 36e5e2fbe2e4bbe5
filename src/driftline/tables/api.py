"""`driftline.diff`: two tables in, the ordered stream of events out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from threading import Lock
from typing import Any, BinaryIO, Self, Unpack, cast

from driftline.files import StrPath, atomic_write
from driftline.progress import Tracker, silent
from driftline.sinks.formats import find_format, format_for, write_events
from driftline.tables.engines import DiffJob, choose_engine, find_engine
from driftline.tables.events import Event
from driftline.tables.options import DiffRules, check_options
from driftline.tables.stats import Stats

_BLOCK_BYTES = 1 << 18
_IN_MEMORY_BYTES = 16 << 20  # longer streams of events wait on disk


class TableDiff:
    """The result of a diff: iterate its events as dicts (schema first, stats last), or write them to a file.

    It is true if there are differences, and as long as rows were added, removed or changed. `stats` is the last
    event. A large result waits in a temporary file, which goes with the object or with `close`.
    """

    def __init__(self, stream: BinaryIO, stats: Stats, job: DiffJob) -> None:
        self._stream = stream
        self._reading = Lock()
        self._counts = stats
        self._job = job
        self.stats: dict[str, Any] = stats.to_event()

    def __iter__(self) -> Iterator[Event]:
        return map(json.loads, self.lines())

    def __bool__(self) -> bool:
        return self.has_differences

    def __len__(self) -> int:
        return int(sum(self.stats[f"rows_{kind}"] for kind in ("added", "removed", "changed")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the events; the counts stay."""
        self._stream.close()

    @property
    def has_differences(self) -> bool:
        """Whether any row was added, removed or changed, or a column came or went."""
        return self._counts.any_difference

    @property
    def failed(self) -> bool:
        """Whether a check with this diff fails: one of `fail_if` holds, or, without any, there are differences."""
        limits = self._job.options.fail_if
        return bool(self._counts.exceeded(limits)) if limits else self.has_differences

    def lines(self) -> Iterator[bytes]:
        """The events as lines of JSONL; any number of threads may iterate at the same time."""
        position, rest = 0, b""
        while block := self._block(position):
            position += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line + b"\n"

    def _block(self, position: int) -> bytes:
        with self._reading:
            self._stream.seek(position)
            return self._stream.read(_BLOCK_BYTES)

    def write(
        self,
        path: StrPath,
        format: str | None = None,  # noqa: A002
        *,
        limit: int | None = None,
        **settings: Any,
    ) -> None:
        """Write the events to a file that appears whole or not at all, in a format of `driftline diff --format`.

        Without a format the file's ending chooses it. A changeset takes `table`, its table's name.
        """
        name = format_for(path, format)
        find_format(name)
        options = self._job.options
        settings = settings or {"positional": options.has_row_numbers, "changed_only": options.changed_columns_only}
        with atomic_write(path, (self._job.a, self._job.b)) as out:
            write_events(self.lines(), out, name, limit=limit, **settings)


def diff(
    a: StrPath,
    b: StrPath,
    *,
    engine: str = "auto",
    memory: int | None = None,
    master: str | None = None,
    tracker: Tracker | None = None,
    **rules: Unpack[DiffRules],
) -> TableDiff:
    """Compare two tables and return what was added, removed and changed; the rules are those of `driftline diff`.

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
