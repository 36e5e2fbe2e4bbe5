"""Pages of an events file: offsets, kinds and changed columns are indexed once, rows are read from disk on demand.

The file is read with `pread` only: a mapped file that shrinks under us would kill the process. Nothing here trusts the
file: it may be foreign, damaged, or replaced while a page shows it.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.errors import InputError

KINDS = ("added", "removed", "changed")
INDEX_VERSION = 1
_CHUNK = 4 << 20
_HEAD = 1 << 20
_LONGEST_LINE = 64 << 20
_KIND_BYTE = {kind: ord(kind[0]) for kind in KINDS}  # the tenth byte of {"type":"added"…
_KIND_AT = len('{"type":"')
_CHANGES = tuple(f'{{"type":"{kind}"'.encode() for kind in KINDS)

_ARRAYS = ("starts", "ends", "kinds", "column_set", "per_set")  # of an index
Event = dict[str, Any]


@dataclass(frozen=True)
class Selection:
    """Which events to show; empty fields choose everything."""

    kind: str = ""
    column: str = ""
    words: str = ""

    @property
    def chooses_all(self) -> bool:
        return not (self.kind or self.column or self.words)


@dataclass(frozen=True)
class _Index:
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    column_set: NDArray[np.int32]  # per event, which of `sets` changed; -1 where nothing did
    per_set: NDArray[np.int64]
    sets: tuple[tuple[str, ...], ...]


class EventFile:
    """An events file with schema first and stats last, opened for looking at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index_path = path.with_name(f".{path.name}.index.npz")
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.identity = identity(os.fstat(self._file))
        self.size = self.identity[0]
        self.schema = self._schema()
        self.stats = self._stats()
        self.columns: list[str] = list(dict.fromkeys([*self.schema["columns_a"], *self.schema["columns_b"]]))
        self._indexed = threading.Event()
        self._index: _Index | None = None
        self._failure: str | None = None
        threading.Thread(target=self._make_index, daemon=True).start()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    @property
    def is_current(self) -> bool:
        """Whether the path still shows the file that was opened."""
        try:
            return identity(os.stat(self.path)) == self.identity
        except OSError:
            return False

    @property
    def failure(self) -> str:
        """Why there are no filters; empty where there are, or where that is not known yet."""
        return (self._failure or "") if self._indexed.is_set() else ""

    @property
    def total(self) -> int:
        """How many events of changes there are, by the stats."""
        return sum(int(self.stats.get(f"rows_{kind}", 0)) for kind in KINDS)

    def column_counts(self) -> dict[str, int] | None:
        """How many rows changed in each column; None while that is still being counted."""
        if not self._indexed.is_set():
            return None
        counts = Counter(dict.fromkeys(self.columns, 0))
        for names, rows in zip(self._index.sets, self._index.per_set, strict=True) if self._index else ():
            counts.update(dict.fromkeys(names, int(rows)))
        return counts

    def first(self, count: int) -> list[Event]:
        """The first events; they need no index."""
        changes = (line for line in self._lines() if line.startswith(_CHANGES))
        return [_change(line) for line in islice(changes, count)]

    def select(self, selection: Selection) -> NDArray[np.int64]:
        """The numbers of the events that are chosen, in file order."""
        return _select(self, self.identity, selection)

    def read(self, numbers: Sequence[int] | NDArray[np.int64]) -> list[Event]:
        return [self._event(number) for number in numbers]

    def _ready(self) -> _Index:
        self._indexed.wait()
        if self._index is None:
            raise InputError(self._failure or "the events could not be indexed", code="bad_events")
        return self._index

    def _pread(self, start: int, end: int) -> bytes:
        data = os.pread(self._file, min(end - start, _CHUNK + _LONGEST_LINE), start)
        if len(data) < end - start:
            raise InputError(f"{self.path.name} changed while it was shown: load the page again", code="file_changed")
        return data

    def _lines(self) -> Iterator[bytes]:
        """Lines from the beginning, in small pieces."""
        position, rest = 0, b""
        while position < self.size:
            piece = os.pread(self._file, _HEAD, position)
            if not piece:
                return
            position += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
            if len(rest) > _LONGEST_LINE:
                raise InputError(f"{self.path.name} has a line of more than 64 MiB", code="bad_events")

    def _schema(self) -> dict[str, Any]:
        schema = _parsed(next(self._lines(), b""))
        sides = (schema.get("columns_a"), schema.get("columns_b"))
        if schema.get("type") != "schema" or not all(isinstance(side, list) for side in sides):
            raise InputError(f"{self.path.name} holds no events of a table diff", code="bad_events")
        return schema

    def _stats(self) -> dict[str, Any]:
        """The last line, found from the end."""
        tail = b""
        start = self.size
        while start > 0 and tail.rstrip(b"\n").count(b"\n") == 0:
            start = max(0, start - 65536)
            tail = os.pread(self._file, self.size - start, start)
        stats = _parsed(tail.rstrip(b"\n").rpartition(b"\n")[2])
        if stats.get("type") != "stats":
            raise InputError(
                f"{self.path.name} ends without its stats: it was cut off, compare again", code="bad_events"
            )
        return stats

    def _make_index(self) -> None:
        try:
            self._index = self._saved_index() or self._fresh_index()
        except InputError as error:
            self._failure = error.message
        except Exception as error:  # noqa: BLE001 - shown on the page, which works without filters
            self._failure = f"{self.path.name} could not be indexed: {type(error).__name__}"
        finally:
            self._indexed.set()

    def _fresh_index(self) -> _Index:
        starts, ends, kinds = self._scan()
        if len(starts) != self.total:
            words = f"{self.path.name} holds {len(starts)} changes where its stats count {self.total}: compare again"
            raise InputError(words, code="bad_events")
        column_set, sets = self._column_sets(starts, ends, kinds)
        per_set = np.bincount(column_set[column_set >= 0], minlength=len(sets)).astype(np.int64)
        index = _Index(starts, ends, kinds, column_set, per_set, sets)
        self._save(index)
        return index

    def _scan(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Where events begin and end, and of which kind they are; the first line is none."""
        found, marks = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)]
        for position in range(0, self.size, _CHUNK):
            # The kind of a line that begins at the end of a chunk is behind it.
            data = np.frombuffer(os.pread(self._file, _CHUNK + _KIND_AT + 1, position), np.uint8)
            ends = np.flatnonzero(data[:_CHUNK] == ord("\n"))
            at = ends + 1 + _KIND_AT
            found.append(ends + position)
            marks.append(np.where(at < len(data), data[np.minimum(at, len(data) - 1)], np.uint8(0)))
        ends, kinds = np.concatenate(found), np.concatenate(marks)[:-1]
        starts, ends = ends[:-1] + 1, ends[1:]
        chosen = np.isin(kinds, list(_KIND_BYTE.values())) & (ends - starts > _KIND_AT)
        return starts[chosen], ends[chosen], kinds[chosen]

    def _column_sets(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64], kinds: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int32], tuple[tuple[str, ...], ...]]:
        """For each event the number of its set of changed columns, and those sets."""
        import polars as pl

        codes = np.full(len(starts), -1, np.int32)
        known: dict[str, int] = {}
        for rows in _batches(np.flatnonzero(kinds == _KIND_BYTE["changed"]), starts):
            names = self._texts(rows, starts, ends).str.extract(r'"changed":(\[(?:[^"\]]|"(?:[^"\\]|\\.)*")*\])', 1)
            for text in names.unique(maintain_order=True).drop_nulls():
                known.setdefault(text, len(known))
            codes[rows] = names.replace_strict(known, default=-1, return_dtype=pl.Int32).to_numpy()
        return codes, tuple(_names(text) for text in known)

    def _texts(self, rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Any:
        """Those lines as a Polars series, with one read."""
        import polars as pl
        import pyarrow as pa

        if not len(rows):
            return pl.Series([], dtype=pl.String)
        data = self._pread(int(starts[rows[0]]), int(ends[rows[-1]]))
        # Offsets run start, end, start, end …: every second element is a line, the others lie between lines.
        offsets = np.stack([starts[rows], ends[rows]], axis=1).ravel() - starts[rows[0]]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        pieces = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
        lines = pl.Series(pl.from_arrow(pieces)).gather_every(2)
        try:
            return lines.cast(pl.String)
        except pl.exceptions.ComputeError:  # somewhere it is no UTF-8: rare, so that the slow way will do
            return pl.Series([line.decode("utf-8", "replace") for line in lines], dtype=pl.String)

    def _save(self, index: _Index) -> None:
        """Keep the index beside the result; a folder that cannot be written only costs time at the next look."""
        from driftline.core import atomic_write

        head = json.dumps({"version": INDEX_VERSION, "of": list(self.identity), "sets": index.sets})
        arrays = {name: getattr(index, name) for name in _ARRAYS}
        try:
            with atomic_write(self._index_path) as out:
                np.savez(out, head=np.frombuffer(head.encode(), np.uint8), **arrays)
        except OSError:
            return

    def _saved_index(self) -> _Index | None:
        import zipfile

        try:
            with np.load(self._index_path, allow_pickle=False) as saved:
                head = json.loads(saved["head"].tobytes())
                if head["version"] != INDEX_VERSION or head["of"] != list(self.identity):
                    return None
                sets = tuple(tuple(names) for names in head["sets"])
                return _Index(sets=sets, **{name: saved[name] for name in _ARRAYS})
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None

    def matching(self, rows: NDArray[np.int64], words: str) -> NDArray[np.int64]:
        """Those of the events whose keys or values hold the words; small letters find either case."""
        index = self._ready()
        raw = re.escape(json.dumps(words, ensure_ascii=False)[1:-1])
        case = "(?i)" if words == words.lower() else ""
        # A value stands behind a colon, a column's name before one: names are not searched.
        pattern = rf'{case}:(?:"(?:[^"\\]|\\.)*?{raw}|[^",\[{{]*?{raw})'
        found = []
        for batch in _batches(rows, index.starts):
            texts = self._texts(batch, index.starts, index.ends).str.slice(_KIND_AT + 9)
            found.append(batch[texts.str.contains(pattern).fill_null(False).to_numpy()])
        hits = np.concatenate(found) if found else rows[:0]
        return self._looked_into(hits, words) if self._may_mislead(words) else hits

    def _may_mislead(self, words: str) -> bool:
        """Whether the pattern may find what is no value: a column's name with a colon in it, or JSON's own marks."""
        small = words.lower()
        return not any(map(str.isalnum, words)) or any(":" in name and small in name.lower() for name in self.columns)

    def _looked_into(self, hits: NDArray[np.int64], words: str) -> NDArray[np.int64]:
        folded = words == words.lower()
        kept = [
            any(words in (text.lower() if folded else text) for text in _value_texts(event))
            for event in map(self._event, hits)
        ]
        return np.asarray(hits[np.array(kept, dtype=bool)], np.int64)

    def _event(self, row: int) -> Event:
        index = self._ready()
        return _change(self._pread(int(index.starts[row]), int(index.ends[row])))


@lru_cache(maxsize=8)
def _select(events: EventFile, identity: tuple[int, ...], selection: Selection) -> NDArray[np.int64]:
    index = events._ready()
    rows = np.arange(len(index.starts))
    if selection.kind:
        rows = rows[index.kinds[rows] == _KIND_BYTE[selection.kind]]
    if selection.column:
        holding = [n for n, names in enumerate(index.sets) if selection.column in names]
        rows = rows[np.isin(index.column_set[rows], holding)]
    if selection.words:
        rows = events.matching(rows, selection.words)
    return rows


def _batches(rows: NDArray[np.int64], starts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The numbers of events in runs that begin within one chunk of the file."""
    if len(rows):
        yield from np.split(rows, np.flatnonzero(np.diff(starts[rows] // _CHUNK)) + 1)


def identity(stat: os.stat_result) -> tuple[int, int, int]:
    """What changes where a file is replaced or written to."""
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _names(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(name) for name in json.loads(text))
    except ValueError:
        return ()


def _value_texts(event: Event) -> Iterator[str]:
    """The keys and values of an event as texts."""
    for part in (event.get("key"), event.get("row"), event.get("before"), event.get("after")):
        for value in part.values() if isinstance(part, dict) else ():
            yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _change(line: bytes) -> Event:
    """An event of a change in the shape that the page relies on; a damaged one says so."""
    event = _parsed(line)
    delta = event.get("delta", {})
    is_sound = (
        event.get("type") in KINDS
        and all(isinstance(event.get(part, {}), dict) for part in ("key", "row", "before", "after", "delta"))
        and all(isinstance(cell, dict) and cell.keys() >= {"from", "to"} for cell in delta.values())
        and isinstance(event.get("changed", []), list)
    )
    return event if is_sound else {"type": "damaged"}


def _parsed(line: bytes) -> Event:
    """A line as an event; what is no JSON object is shown as nothing."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}
