"""Snapshot pages: the state of all rows for a new client (gateway §8), and the cursor to continue from.

The state is merged from the lake as of `flushed` and the log's records after it up to `last`, read in this order, so
that nothing is missed in between. A page's `next` names all of it, so that any process can serve any page; the merged
rows stay in files while pages are requested.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from driftline.core import JsonObject
from driftline.deltas import RowMerge, make_hlc, physical_ms
from driftline.errors import GatewayError, LakeError
from driftline.gateway._log.log import DeltaLog, read_all, unavailable
from driftline.gateway._sync.pull import NO_VIEW, Cursor, must_refetch
from driftline.gateway._sync.push import stored_delta
from driftline.gateway._sync.rules import SyncRules
from driftline.lake import FlushTarget

DEFAULT_LIMIT = 5000
MAX_LIMIT = 50_000
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"

_SCANNED = 200_000  # rows filtered for one page: where most are hidden, a page may end early
_MAX_SEQUENCE = (1 << 63) - 1
_KEPT_SECONDS = 900.0  # how long merged rows are stored for the next page


class Pins(msgspec.Struct, frozen=True, array_like=True):
    """What the pages of one snapshot have in common, and the last row of the page before."""

    log_id: str
    flushed: int
    seq: int
    arrival: int
    rules: int
    view: str
    made_ms: int
    limit: int
    tables: list[tuple[str, int]]  # with the version of the table's deltas, -1 where it has none
    table: int = 0
    after: str | None = None

    def encode(self) -> str:
        """The pins as the text of `page`."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    def cursor(self) -> str:
        """The cursor of a client that has every page."""
        return Cursor(self.log_id, self.seq, self.arrival, self.rules, self.view).encode()

    def key(self) -> str:
        """Identifies the merged rows, which do not depend on the caller."""
        shared = msgspec.json.encode((self.log_id, self.flushed, self.seq, self.made_ms, self.tables))
        return hashlib.sha256(shared).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page, as plain data; `rules` is None where the caller sees everything."""

    page: str | None
    limit: int
    rules: SyncRules | None
    rules_number: int
    claims: Mapping[str, Any]
    parameters: Mapping[str, str]
    as_arrow: bool = False

    @property
    def view(self) -> str:
        """The digest of the caller's view."""
        return NO_VIEW if self.rules is None else self.rules.view_digest(self.claims, self.parameters)


def decode_pins(text: str) -> Pins:
    """The pins that a client sends back."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        pins = msgspec.json.decode(plain, type=Pins)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _no_page() from error
    is_page = 1 <= pins.limit <= MAX_LIMIT and 0 <= pins.table <= len(pins.tables)
    if not (is_page and 0 <= pins.flushed <= pins.seq <= _MAX_SEQUENCE):
        raise _no_page()
    return pins


def _no_page() -> GatewayError:
    return GatewayError("page is not one of this gateway")


class Snapshots:
    """Merges and serves snapshots from a log and a lake."""

    def __init__(self, log: DeltaLog, store: FlushTarget, folder: Path) -> None:
        self._log = log
        self._store = store
        self._folder = folder

    def page(self, request: Request) -> bytes:
        """One page: NDJSON, or an Arrow stream of rows of one table."""
        is_first = request.page is None
        pins = self._begin(request) if request.page is None else self._go_on(request, decode_pins(request.page))
        try:
            folder = self._folder / pins.key()
            if not folder.exists():
                if not is_first:
                    self._check_tables(pins)
                self._fold(pins, folder)
        except LakeError as error:
            if error.code in ("snapshot_gone", "missing_file", "missing_archive", "TOO_OLD"):
                raise _gone() from error
            raise
        os.utime(folder)
        return (_arrow_page if request.as_arrow else _json_page)(self._head(pins), pins, request, folder)

    def _begin(self, request: Request) -> Pins:
        identity, flushed, made = self._log.identity(), self._log.flush_progress().flushed, physical_ms()
        versions = self._store.versions()
        last = self._log.bounds().last
        names = {*versions, *self._log.table_names()}
        return Pins(
            identity.log_id,
            flushed,
            last,
            self._log.arrival_at(last) or 0,
            request.rules_number,
            request.view,
            made,
            request.limit,
            [(name, versions.get(name, -1)) for name in sorted(names)],
        )

    def _go_on(self, request: Request, pins: Pins) -> Pins:
        if pins.log_id != self._log.identity().log_id:
            raise _replaced()
        if pins.seq > self._log.bounds().last or pins.flushed > self._log.flush_progress().flushed:
            raise _no_page()
        if self._log.arrival_at(pins.seq) not in (None, pins.arrival):
            raise _replaced()
        if pins.rules != request.rules_number:
            raise must_refetch("rules_changed", "the sync rules have changed since the first page")
        if pins.view != request.view:
            raise must_refetch("view_changed", "the claims or parameters that decide what you see have changed")
        return pins

    def _check_tables(self, pins: Pins) -> None:
        """Refuse tables and versions that no first page can have named, before a read or write for them."""
        versions = self._store.versions()
        known = {*versions, *self._log.table_names()}
        for name, version in pins.tables:
            if name not in known or not -1 <= version <= versions.get(name, -1):
                raise _no_page()

    def _head(self, pins: Pins) -> JsonObject:
        server_hlc = max(self._log.clock(), make_hlc(physical_ms()))
        return {"serverHlc": str(server_hlc), "tables": [name for name, _ in pins.tables]}

    def _fold(self, pins: Pins, folder: Path) -> None:
        """Write the folder with every table's rows."""
        self._sweep()
        if self._log.bounds().pruned > pins.flushed:
            raise LakeError("records of the snapshot have been forgotten", code="snapshot_gone")
        made = Path(tempfile.mkdtemp(prefix=".making-", dir=self._folder))
        try:
            tail = self._tail(pins)
            for table, version in pins.tables:
                more = self._store.enveloped_rows(table, version, pins.log_id, pins.flushed, pins.made_ms)
                for row_id, fold in tail.get(table, {}).items():
                    more.setdefault(row_id, RowMerge()).join(fold)
                self._store.write_rows(table, version, more, made / f"{table}.arrow")
            os.rename(made, folder)
        except OSError as error:
            if not folder.exists():  # else another process was faster
                raise unavailable(f"the snapshot cannot be kept: {error.strerror}", "disk") from error
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _tail(self, pins: Pins) -> dict[str, dict[str, RowMerge]]:
        """The records that the lake does not have yet, merged by row."""
        found: dict[str, dict[str, RowMerge]] = {}
        for record in read_all(self._log, pins.flushed, pins.seq):
            delta = stored_delta(record.body)
            found.setdefault(delta.table, {}).setdefault(delta.row_id, RowMerge()).add(delta)
        return found

    def _sweep(self) -> None:
        """Remove merged rows that were not requested for a while."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for entry in self._folder.iterdir():
            try:
                if time.time() - entry.stat().st_mtime > _KEPT_SECONDS:
                    shutil.rmtree(entry, ignore_errors=True)
            except FileNotFoundError:
                continue


def _json_page(head: Mapping[str, Any], pins: Pins, request: Request, folder: Path) -> bytes:
    from driftline.lake import row_records

    lines = [_line({"page": head})]
    following: Pins | None = None
    room = pins.limit
    for cut in _cuts(pins, request, folder):
        taken = cut.rows.slice(0, room)
        lines += [_line(record) for record in row_records(taken, cut.table, cut.columns)]
        room -= taken.num_rows
        following = cut.after(pins, taken.num_rows)
        if room == 0 or cut.ends_page:
            break
    lines.append(_line({"end": {"next": _next(following, folder), "cursor": pins.cursor()}}))
    return b"".join(lines)


def _arrow_page(head: Mapping[str, Any], pins: Pins, request: Request, folder: Path) -> bytes:
    """Rows of one table in the columns of its lake; a row that does not fit them is JSON in `_joined`."""
    import pyarrow as pa

    taken: list[Any] = []
    following: Pins | None = None
    room, table = pins.limit, None
    for cut in _cuts(pins, request, folder):
        if table not in (None, cut.table):
            break
        table = cut.table
        taken.append(cut.rows.slice(0, room))
        room -= taken[-1].num_rows
        following = cut.after(pins, taken[-1].num_rows)
        if room == 0 or cut.ends_page:
            break
    rows = pa.concat_tables(taken) if taken else pa.table({"_row_id": pa.array([], pa.string())})
    end = {"next": _next(following, folder), "cursor": pins.cursor()}
    metadata = {
        **(rows.schema.metadata or {}),
        b"driftline.page": json.dumps({**head, "table": table}).encode(),
        b"driftline.end": json.dumps(end).encode(),
    }
    rows = rows.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows of one table that the caller sees, and the last row that was filtered for them."""

    number: int
    table: str
    columns: Any
    rows: Any
    last: str
    ends_page: bool = False

    def after(self, pins: Pins, taken: int) -> Pins:
        """The pins of the page after so many of the rows."""
        last = self.last if taken == self.rows.num_rows else self.rows["_row_id"][taken - 1].as_py()
        return msgspec.structs.replace(pins, table=self.number, after=last)


def _cuts(pins: Pins, request: Request, folder: Path) -> Iterator[_Cut]:
    """The rows after the pins in chunks, without those that the caller does not see."""
    from driftline.lake import columns_in

    scanned = 0
    for number in range(pins.table, len(pins.tables)):
        table = pins.tables[number][0]
        after = pins.after if number == pins.table else None
        for batch in _batches(folder / f"{table}.arrow", after):
            columns = columns_in(batch.schema)
            scanned += batch.num_rows
            seen = batch if request.rules is None else _visible(batch, table, columns, request)
            last = batch["_row_id"][-1].as_py()
            yield _Cut(number, table, columns, seen, last, scanned >= _SCANNED)


def _batches(path: Path, after: str | None) -> Iterator[Any]:
    """The rows of a file after a row id, batch by batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with pa.memory_map(str(path)) as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            table = pa.Table.from_batches([file.get_batch(number)], schema=file.schema)
            if table.num_rows == 0 or (after is not None and table["_row_id"][-1].as_py().encode() <= after.encode()):
                continue
            yield table if after is None else table.filter(pc.greater(table["_row_id"], after))


def _visible(rows: Any, table: str, columns: Any, request: Request) -> Any:
    """The living rows that the caller's rules show."""
    import pyarrow as pa

    from driftline.lake import watched_values

    assert request.rules is not None
    watched = request.rules.columns_of(table)
    seen = [
        values is not None and request.rules.sees(table, values, request.claims, request.parameters)
        for values in watched_values(rows, columns, watched)
    ]
    return rows.filter(pa.array(seen, pa.bool_()))


def _next(following: Pins | None, folder: Path) -> str | None:
    """The next page, None where no row is left."""
    if following is None:
        return None
    for number in range(following.table, len(following.tables)):
        after = following.after if number == following.table else None
        if any(True for _ in _batches(folder / f"{following.tables[number][0]}.arrow", after)):
            return following.encode()
    return None


def _line(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _replaced() -> GatewayError:
    return must_refetch("log_replaced", "the page belongs to another log")


def _gone() -> GatewayError:
    return must_refetch("snapshot_gone", "the snapshot that this page belongs to can no longer be read")
