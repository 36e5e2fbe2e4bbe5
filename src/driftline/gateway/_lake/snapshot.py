"""Snapshot pages: the state of all rows for a new client (gateway §8), and the cursor to continue from.

The state is merged from the lake as of `flushed` and the log's records after it up to `last`, read in this order, so
that nothing is missed in between. A merged state is described by a manifest in the log, so that any process can serve
any page, and make the state again where its files were removed. Clients carry a signed token: the manifest's key, and
the last row of the page before.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import shutil
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from driftline.core import JsonObject
from driftline.deltas import RowMerge, physical_ms
from driftline.errors import GatewayError, LakeError
from driftline.gateway._log.log import DeltaLog, unavailable
from driftline.gateway._sync.pull import NO_VIEW, Cursor, must_refetch
from driftline.gateway._sync.push import stored_delta
from driftline.gateway._sync.rules import SyncRules

if TYPE_CHECKING:
    from driftline.lake import FlushTarget

DEFAULT_LIMIT = 5000
MAX_LIMIT = 50_000
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
DEFAULT_KEPT_BYTES = 2048 << 20

_SCANNED = 200_000  # rows filtered for one page: where most are hidden, a page may end early
_PAGE_BYTES = 16 << 20  # a page ends here too, but has at least one row
_PORTION_BYTES = 4 << 20  # rows that are rendered at a time
_PAGE_MS = 3_600_000  # how long a page token is valid
_SHARED_MS = 10_000  # first pages share a state that is not older; pulls bring the rest
_MANIFESTS, _MANIFEST_MS = 500, 6 * _PAGE_MS  # how many manifests are kept in the log, and for how long
_KEPT_SECONDS = 900.0  # how long merged rows are stored for the next page
_IN_USE_SECONDS = 30.0
_LOCK_SECONDS = 10.0
_FREE_BYTES = 1 << 30  # of the disk that merged rows never take, or a tenth of a small one
_DIGEST_ROWS = 10_000
_FOLDS, _PAGE_KEYS = "folds", "page_keys"  # documents: keys and times of manifests; by log id, the keys of tokens
_DAMAGE = ("missing_file", "corrupt_file", "missing_archive", "bad_log", "wrong_schema")
_ON_PURPOSE = ("snapshot_gone", "TOO_OLD")

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class PageToken(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position of a page: a merged state, the last row of the page before, and the view it is for."""

    form: Literal[3]
    fold: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    table: _Number  # the number of a table in the manifest
    after: str | None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)]
    rules: _Number
    view: Annotated[str, msgspec.Meta(max_length=64)]
    issued_ms: _Number


@dataclass(frozen=True, slots=True)
class PageSigner:
    """Signs the page tokens of one caller; `keys` are those of the log, by its ids, the current one first."""

    keys: Mapping[str, bytes]
    gateway: str
    subject: str

    def sign(self, token: PageToken) -> str:
        """The token as the text of `next`."""
        payload = msgspec.json.encode(token)
        key = next(iter(self.keys.values()))
        return base64.urlsafe_b64encode(self._mac(key, payload) + payload).decode().rstrip("=")

    def read(self, text: str) -> PageToken:
        """The token that a client sends back; nothing of it is parsed before its signature is verified."""
        try:
            signed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError as error:
            raise _no_page() from error
        mac, payload = signed[:16], signed[16:]
        valid = [hmac.compare_digest(mac, self._mac(key, payload)) for key in self.keys.values()]
        if not any(valid):
            raise _no_page()
        if not valid[0]:
            raise _replaced()
        try:
            return _page_token(payload)
        except msgspec.MsgspecError as error:
            raise _no_page() from error

    def _mac(self, key: bytes, payload: bytes) -> bytes:
        parts = (self.gateway.encode(), self.subject.encode("utf-8", "surrogatepass"), payload)
        return hmac.digest(key, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256")[:16]


def page_keys(log: DeltaLog) -> dict[str, bytes]:
    """The keys of page tokens, shared by all processes and hosts of a log; a new log id has a new one."""
    current = log.identity()

    def change(before: bytes | None) -> bytes:
        known: dict[str, str] = json.loads(before or b"{}")
        kept = {name: known[name] for name in (current.log_id, *current.was[:3]) if name in known}
        return json.dumps({current.log_id: secrets.token_hex(32), **kept}).encode()

    stored = json.loads(log.document(_PAGE_KEYS) or b"{}")
    if next(iter(stored), None) != current.log_id:
        log.change_document(_PAGE_KEYS, change)
        stored = json.loads(log.document(_PAGE_KEYS) or b"{}")
    return {name: bytes.fromhex(key) for name, key in stored.items()}


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """What a merged state consists of, and the digest of its rows."""

    log_id: str
    flushed: int
    seq: int
    arrival: int
    tables: list[tuple[str, int, str]]  # with the version of the deltas (-1: none) and the digest of pending envelopes
    began_ms: int
    digest: str = ""

    def key(self) -> str:
        """Identifies the merged rows: neither the time nor the caller is part of it."""
        content = (self.log_id, self.flushed, self.seq, self.arrival, self.tables, self.digest)
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]


# Made once: msgspec crashes where two threads meet a type for the first time.
_page_token, _manifest = msgspec.json.Decoder(PageToken).decode, msgspec.json.Decoder(Manifest).decode


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page, as plain data; `rules` is None where the caller sees everything."""

    page: PageToken | None
    signer: PageSigner
    limit: int
    rules: SyncRules | None
    rules_number: int
    claims: Mapping[str, Any]
    parameters: Mapping[str, str]
    as_arrow: bool = False
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of columns with exact numbers

    @property
    def view(self) -> str:
        """The digest of the caller's view."""
        return NO_VIEW if self.rules is None else self.rules.view_digest(self.claims, self.parameters)


@dataclass(frozen=True, slots=True)
class _Page:
    """A page that is being made: what is requested, its token, and the merged state that it is cut from."""

    request: Request
    token: PageToken
    manifest: Manifest
    folder: Path
    head: JsonObject

    def file(self, number: int) -> Path:
        """The rows of a table; files have numbers, so that no name of a table becomes a path."""
        return self.folder / f"{number}.arrow"

    def shows(self, table: str) -> bool:
        return self.request.rules is None or table in self.request.rules.tables()

    def cursor(self) -> str:
        made = self.manifest
        return Cursor(made.log_id, made.seq, made.arrival, self.token.rules, self.token.view).encode()


class Snapshots:
    """Merges and serves snapshots from a log and a lake."""

    def __init__(self, log: DeltaLog, store: FlushTarget, folder: Path, kept_bytes: int = DEFAULT_KEPT_BYTES) -> None:
        self._log = log
        self._store = store
        self._folder = folder
        self._kept_bytes = kept_bytes
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def prepare(self, request: Request) -> PageToken:
        """The token of a page whose merged state is there: the requested one, or that of a first page."""
        try:
            if request.page is None:
                with self._locked("first"):
                    manifest = self._first()
                return PageToken(
                    3, manifest.key(), 0, None, request.limit, request.rules_number, request.view, physical_ms()
                )
            manifest = self._manifest(request, request.page)
            with self._locked(request.page.fold):
                if not (self._folder / request.page.fold).exists():
                    made = self._fold(manifest)
                    if made.digest != manifest.digest:  # other rows than before are never served
                        shutil.rmtree(self._folder / made.key(), ignore_errors=True)
                        raise _gone()
        except LakeError as error:
            raise self._unreadable(error, is_first=request.page is None) from error
        return request.page

    def page(self, request: Request) -> bytes:
        """The page of a prepared token: NDJSON, or an Arrow stream of rows of one table."""
        token = request.page
        if token is None:
            raise _no_page()
        manifest = self._manifest(request, token)
        folder = self._folder / token.fold
        try:
            os.utime(folder)
            head: JsonObject = {"serverHlc": str(self._log.head().clock), "serverTime": physical_ms()}
            page = _Page(request, token, manifest, folder, head)
            head["tables"] = [name for name, _, _ in manifest.tables if page.shows(name)]
            head |= {"types": request.types} if request.types else {}
            return (_arrow_page if request.as_arrow else _json_page)(page)
        except FileNotFoundError as error:
            raise unavailable("the snapshot was removed meanwhile", "snapshots") from error

    def _first(self) -> Manifest:
        """The newest merged state where it is young or nothing has happened since, else a new one."""
        newest = self._newest()
        if newest is not None and physical_ms() - newest.began_ms < _SHARED_MS:
            return newest
        made = self._begin()
        again = newest and msgspec.structs.replace(newest, began_ms=made.began_ms)
        if again is not None and again == msgspec.structs.replace(made, digest=again.digest):
            made = again  # merged from the same parts
        else:
            made = self._fold(made)
        self._record(made)
        return made

    def _newest(self) -> Manifest | None:
        """The newest state, if its rows are still here and pulls can continue from it."""
        listed = json.loads(self._log.document(_FOLDS) or b"[]")
        manifest = self._stored(listed[-1][0]) if listed else None
        if manifest is None or not (self._folder / manifest.key()).exists():
            return None
        is_current = manifest.log_id == self._log.identity().log_id and manifest.seq >= self._log.head().pruned
        return manifest if is_current and self._log.arrival_at(manifest.seq) == manifest.arrival else None

    def _begin(self) -> Manifest:
        identity, flushed, began = self._log.identity(), self._log.head().flushed, physical_ms()
        versions = self._store.versions()
        last = self._log.head().last
        found = [(name, versions.get(name, -1)) for name in sorted({*versions, *self._log.table_names()})]
        tables = [(*each, self._store.pending_digest(*each, identity.log_id, flushed)) for each in found]
        return Manifest(identity.log_id, flushed, last, self._log.arrival_at(last) or 0, tables, began)

    def _manifest(self, request: Request, token: PageToken) -> Manifest:
        """The manifest of a token that is valid for this caller now."""
        if token.rules != request.rules_number:
            raise must_refetch("rules_changed", "the sync rules have changed since the first page")
        if token.view != request.view:
            raise must_refetch("view_changed", "the claims or parameters that decide what you see have changed")
        manifest = self._stored(token.fold)
        if manifest is None or physical_ms() - token.issued_ms > _PAGE_MS or token.table > len(manifest.tables):
            raise _gone()
        is_current = manifest.log_id == self._log.identity().log_id and manifest.seq <= self._log.head().last
        if not is_current or self._log.arrival_at(manifest.seq) not in (None, manifest.arrival):
            raise _replaced()
        return manifest

    def _stored(self, key: str) -> Manifest | None:
        body = self._log.document(f"fold:{key}")
        return None if body is None else _manifest(body)

    def _record(self, manifest: Manifest) -> None:
        """Store a manifest as the newest one, and remove those whose tokens are not valid any more."""
        key, oldest = manifest.key(), manifest.began_ms - _MANIFEST_MS
        removed: list[str] = []

        def change(before: bytes | None) -> bytes:
            listed = [each for each in json.loads(before or b"[]") if each[0] != key]
            kept = [each for each in listed if each[1] >= oldest][-_MANIFESTS:]
            removed[:] = [each[0] for each in listed if each not in kept]
            return json.dumps([*kept, [key, manifest.began_ms]]).encode()

        self._log.change_document(f"fold:{key}", lambda _: msgspec.json.encode(manifest))
        self._log.change_document(_FOLDS, change)
        for each in removed:
            self._log.change_document(f"fold:{each}", lambda _: None)

    def _fold(self, manifest: Manifest) -> Manifest:
        """Write the rows of every table into the folder of the key that they have."""
        self._sweep()
        if self._log.head().pruned > manifest.flushed:
            raise LakeError("records of the snapshot have been forgotten", code="snapshot_gone")
        made = Path(tempfile.mkdtemp(prefix=".making-", dir=self._folder))
        digest = hashlib.sha256()
        try:
            tail: dict[str, dict[str, RowMerge]] = {}  # the records that the lake does not have yet, merged by row
            for record in self._log.read_all(manifest.flushed, manifest.seq):
                delta = stored_delta(record.body)
                tail.setdefault(delta.table, {}).setdefault(delta.row_id, RowMerge()).add(delta)
            for number, (table, version, _) in enumerate(manifest.tables):
                more = self._store.enveloped_rows(table, version, manifest.log_id, manifest.flushed, manifest.began_ms)
                for row_id, fold in tail.get(table, {}).items():
                    more.setdefault(row_id, RowMerge()).join(fold)
                target = made / f"{number}.arrow"
                self._store.write_rows(table, version, more, target)
                digest.update(_rows_digest(target))
                if self._free() < 0:
                    problem = (
                        f"merged snapshots take more than {self._kept_bytes >> 20} MiB, or the disk is nearly full"
                    )
                    message = f"{problem} ({_size(made) >> 20} MiB are this one's)"
                    raise unavailable(message, "snapshot_quota", retry_after=60)
            done = msgspec.structs.replace(manifest, digest=digest.hexdigest())
            folder = self._folder / done.key()
            if not folder.exists():
                os.rename(made, folder)
            os.utime(folder)
            return done
        except OSError as error:
            raise unavailable(f"the snapshot cannot be kept: {error.strerror}", "disk") from error
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove merged rows that were not requested for a while, and the oldest ones beyond the quota."""
        kept: list[tuple[float, Path]] = []
        for entry in self._folder.iterdir():
            try:
                age = time.time() - entry.stat().st_mtime
            except FileNotFoundError:
                continue
            if age > _KEPT_SECONDS and entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.is_dir() and age > _IN_USE_SECONDS:
                kept.append((age, entry))
        for _, entry in sorted(kept, reverse=True):
            if self._free() > 0:
                return
            shutil.rmtree(entry, ignore_errors=True)

    def _free(self) -> int:
        """Bytes that merged rows may still take; negative where they take too many."""
        disk = shutil.disk_usage(self._folder)
        return min(self._kept_bytes - _size(self._folder), disk.free - min(disk.total // 10, _FREE_BYTES))

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """One process of this host at a time; who comes later waits, and then finds what it needs."""
        deadline = time.monotonic() + _LOCK_SECONDS
        with open(self._folder / f".lock-{name if name == 'first' else name[0]}", "ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise unavailable("the snapshot is being made", "snapshots") from error
                    time.sleep(0.02)
            yield

    def _unreadable(self, error: LakeError, *, is_first: bool) -> GatewayError | LakeError:
        """The answer for a lake that cannot be read: removed on purpose, damaged, or out of reach."""
        path = str(error.context.get("path", ""))
        is_removed = error.code in _ON_PURPOSE or (error.code == "missing_file" and not self._store.is_current(path))
        if is_removed and not is_first:
            return _gone()
        if error.code not in (*_DAMAGE, *_ON_PURPOSE):
            return error
        message = "the lake cannot be read: its operator has to repair it"
        return unavailable(message, "lake_damaged", retry_after=60, found=error.message)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.arrow"))


def _rows_digest(path: Path) -> bytes:
    """The digest of a file's rows, whatever batches they were written in."""
    import pyarrow as pa

    found = hashlib.sha256()

    def add(table: Any) -> None:
        for batch in table.combine_chunks().to_batches():
            found.update(batch.serialize())

    with pa.memory_map(str(path)) as source:
        file = pa.ipc.open_file(source)
        found.update(file.schema.serialize())
        waiting: list[Any] = []
        for number in range(file.num_record_batches):
            waiting.append(file.get_batch(number))
            while sum(batch.num_rows for batch in waiting) >= _DIGEST_ROWS:
                table = pa.Table.from_batches(waiting)
                add(table.slice(0, _DIGEST_ROWS))
                waiting = table.slice(_DIGEST_ROWS).to_batches()
        if waiting:
            add(pa.Table.from_batches(waiting))
    return found.digest()


def _json_page(page: _Page) -> bytes:
    from driftline.lake import json_line, row_lines

    lines = [json_line({"page": page.head})]
    following: PageToken | None = None
    left, size = page.token.limit, 0
    for cut in _cuts(page):
        rows = cut.rows.slice(0, left)
        taken = 0
        # A few MiB at a time, or one by one where each row is large.
        step = max(1, _PORTION_BYTES * rows.num_rows // max(rows.nbytes, 1))
        for start in range(0, rows.num_rows, step):
            made, ends = row_lines(rows.slice(start, step), cut.table, cut.columns)
            fitting = max(bisect_right(ends, _PAGE_BYTES - size), 0 if size else 1)
            lines.append(made[: ends[fitting - 1] if fitting else 0])
            size, taken = size + len(lines[-1]), taken + fitting
            if fitting < len(ends):
                break
        if taken < rows.num_rows:  # no byte is left
            following = cut.after(page.token, taken) if taken else following
            break
        left -= taken
        following = cut.after(page.token, taken)
        if left == 0 or cut.ends_page:
            break
    lines.append(json_line({"end": {"next": _next(page, following), "cursor": page.cursor()}}))
    return b"".join(lines)


def _arrow_page(page: _Page) -> bytes:
    """Rows of one table in the columns of its lake; a row that does not fit them is JSON in `_joined`."""
    import pyarrow as pa

    taken: list[Any] = []
    following: PageToken | None = None
    left, size, table = page.token.limit, 0, None
    for cut in _cuts(page):
        if table not in (None, cut.table):
            break
        table = cut.table
        rows = cut.rows.slice(0, left)
        while rows.num_rows > 1 and size + rows.nbytes > _PAGE_BYTES:
            rows = rows.slice(0, max(1, rows.num_rows // 2))
        if taken and size + rows.nbytes > _PAGE_BYTES:
            break
        taken.append(rows)
        left, size = left - rows.num_rows, size + rows.nbytes
        following = cut.after(page.token, rows.num_rows)
        if left == 0 or cut.ends_page or rows.num_rows < cut.rows.num_rows:
            break
    rows = pa.concat_tables(taken) if taken else pa.table({"_row_id": pa.array([], pa.string())})
    end = {"next": _next(page, following), "cursor": page.cursor()}
    own = {"driftline.page": json.dumps({**page.head, "table": table}), "driftline.end": json.dumps(end)}
    rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), **own})
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

    def after(self, token: PageToken, taken: int) -> PageToken:
        """The token of the page after so many of the rows."""
        last = self.last if taken == self.rows.num_rows else self.rows["_row_id"][taken - 1].as_py()
        return msgspec.structs.replace(token, table=self.number, after=last, issued_ms=physical_ms())


def _cuts(page: _Page) -> Iterator[_Cut]:
    """The rows after the token in chunks, without those that the caller does not see."""
    from driftline.lake import columns_in

    scanned = 0
    for number, after in _rest(page, page.token):
        table = page.manifest.tables[number][0]
        for batch in _batches(page.file(number), after):
            columns = columns_in(batch.schema)
            scanned += batch.num_rows
            seen = batch if page.request.rules is None else _visible(batch, table, columns, page.request)
            last = batch["_row_id"][-1].as_py()
            yield _Cut(number, table, columns, seen, last, scanned >= _SCANNED)


def _rest(page: _Page, token: PageToken) -> Iterator[tuple[int, str | None]]:
    """The tables from a token on that the caller may see rows of, with the last row that was passed."""
    for number in range(token.table, len(page.manifest.tables)):
        if page.shows(page.manifest.tables[number][0]):
            yield number, token.after if number == token.table else None


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


def _next(page: _Page, following: PageToken | None) -> str | None:
    """The next page, None where no row is left."""
    if following is None:
        return None
    rest = (batch for number, after in _rest(page, following) for batch in _batches(page.file(number), after))
    return None if next(rest, None) is None else page.request.signer.sign(following)


def _no_page() -> GatewayError:
    return GatewayError("page is not one of this gateway")


def _replaced() -> GatewayError:
    return must_refetch("log_replaced", "the page belongs to another log")


def _gone() -> GatewayError:
    return must_refetch("snapshot_gone", "the snapshot that this page belongs to can no longer be read")
