"""The layout of a lake and its file system; timestamps as users write them.

    tables/{table}/deltas/{date}/{gateway}/{minHlc}-{maxHlc}-{attempt}.parquet    every delta, a Delta table
    tables/{table}/base/…          one row per live row id, a Delta table
    tables/{table}/deletes/…       equality deletes, a Delta table
    tables/{table}/state/…         the rows of base with plain columns, for other tools, a Delta table
    tables/{table}/envelopes/…     deltas that no schema accepts yet, as JSON
    tables/{table}/set-aside/…     deltas below the retention horizon, as JSON
    tables/{table}/archive/…       where replay starts once a retention horizon is set, a Delta table
    gateways/…                     which log owns which gateway's name, a Delta table

>>> Lake("/data/lake").part("todos", "base")
'/data/lake/tables/todos/base'

A timestamp is an hlc in digits, or a time.

>>> parse_timestamp("65536000000"), parse_timestamp("1970-01-01T00:16:40Z") >> 16
(65536000000, 1000000)
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow.fs as pa_fs

from driftline.core import delta_options
from driftline.deltas import MAX_COUNTER, MAX_HLC, check_gateway_id, check_table_name, make_hlc
from driftline.errors import LakeError, OptionError

if TYPE_CHECKING:
    from driftline.lake._store.tables import TableStore

LAST_TIMESTAMP = MAX_HLC

Part = Literal["deltas", "base", "deletes", "archive", "state"]

_MERGED = "m"  # attempt tokens are hexadecimal
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Lake:
    """A lake: its root (a local path or an object-store URL) and the options that the store needs."""

    root: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)  # may hold secrets
    table_store: TableStore | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        root = os.fspath(self.root)
        if root.startswith("file://"):
            root = root.removeprefix("file://")
        if not _URL.match(root):
            root = os.path.abspath(root)
        object.__setattr__(self, "root", root.rstrip("/") or "/")

    @property
    def is_local(self) -> bool:
        """Whether the lake is on a local path."""
        return _URL.match(self.root) is None

    def options(self) -> dict[str, str] | None:
        """The options of the object store."""
        return dict(self.storage_options) if self.storage_options else delta_options(self.root)

    def part(self, table: str, part: Part) -> str:
        """The root of one of a table's Delta tables."""
        return f"{self.root}/tables/{check_table_name(table)}/{part}"

    def files(self) -> pa_fs.FileSystem:
        """The lake's file system; paths are relative to the root."""
        if self.is_local:
            return pa_fs.SubTreeFileSystem(self.root, pa_fs.LocalFileSystem())
        from driftline.lake._store.delta import store_files

        return store_files(self.root, self.options())

    def store(self) -> TableStore:
        """Where the tables are: Delta tables, unless another store was given."""
        if self.table_store is not None:
            return self.table_store
        from driftline.lake._store.delta import DeltaStore

        return DeltaStore(self)

    def tables(self) -> list[str]:
        """The names of the tables in the lake, in order."""
        found = self.files().get_file_info(pa_fs.FileSelector("tables", allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == pa_fs.FileType.Directory)

    def table_name(self, table: str) -> str:
        """The name, or an error that lists the tables there are."""
        if check_table_name(table) in self.tables():
            return table
        self.store()  # a missing library is reported before a missing table
        known = ", ".join(self.tables()) or "none yet"
        raise LakeError(f"no table {table!r} in this lake (tables: {known})", code="unknown_table", table=table)

    def make_directory(self, path: str) -> None:
        """Create a directory below the root where the store has directories."""
        if self.is_local:
            Path(self.root, path).mkdir(parents=True, exist_ok=True)


def relative(table: str, part: str, path: str = "") -> str:
    """A path inside a table's part, relative to the lake's root."""
    return f"tables/{table}/{part}/{path}".rstrip("/")


def attempt_token() -> str:
    """Unique: committing one path twice would silently replace the first file."""
    return secrets.token_hex(8)


def log_attempt(log_id: str) -> str:
    """A unique token that names the log that wrote a delta file."""
    return f"{log_id}{secrets.token_hex(4)}"


def is_written_by(path: str, log_id: str) -> bool:
    """Whether a log wrote this delta file or envelope.

    >>> is_written_by("2026-11-15/gw/5-9-0123456789abcdef01234567.parquet", "0123456789abcdef")
    True
    """
    return f"-{log_id}" in path.rpartition("/")[2]


def delta_file_name(gateway_id: str, min_hlc: int, max_hlc: int, attempt: str, extension: str = "parquet") -> str:
    """`{date}/{gateway}/{min}-{max}-{attempt}`, the date being the UTC day of the flush."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{day}/{check_gateway_id(gateway_id)}/{min_hlc}-{max_hlc}-{attempt}.{extension}"


def merged_file_name(folder: str, min_hlc: int, max_hlc: int) -> str:
    """A delta file that replaces small ones, marked as such by its name."""
    return f"{folder}/{min_hlc}-{max_hlc}-{_MERGED}{attempt_token()}.parquet"


def is_merged(path: str) -> bool:
    """Whether a delta file replaces small ones."""
    return path.rpartition("/")[2].rpartition("-")[2].startswith(_MERGED)


def path_hlcs(path: str) -> tuple[int, int] | None:
    """The least and greatest hlc in a delta file's name.

    >>> path_hlcs("2026-11-15/gw/5-9-0123abcd.parquet")
    (5, 9)
    """
    low, _, rest = path.rpartition("/")[2].partition("-")
    high = rest.partition("-")[0]
    return (int(low), int(high)) if low.isdecimal() and high.isdecimal() else None


def parse_timestamp(text: str, *, first: bool = False, whole_day: bool = False) -> int:
    """The hlc of a decimal number, or the last hlc of the millisecond that an ISO 8601 time names (UTC by default).

    `first` gives the first hlc of the millisecond instead, for what starts then; with `whole_day` a day without a time
    is its end, as the state as of a day is that of its snapshot.
    """
    if text.isdecimal() and text.isascii():
        hlc = int(text)
        if hlc <= MAX_HLC:
            return hlc
        raise OptionError(f"{text} is not a timestamp: the greatest is {MAX_HLC}", code="invalid_moment")
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(
            f"{text!r} is neither an hlc nor a time such as 2026-11-15T12:00:00Z", code="invalid_moment"
        ) from error
    if whole_day and _DAY.fullmatch(text):
        time += timedelta(days=1, milliseconds=-1)
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    milliseconds = (aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000
    if milliseconds < 0:
        raise OptionError(f"{text!r} is before 1970", code="invalid_moment")
    return make_hlc(int(milliseconds), 0 if first else MAX_COUNTER)


def timestamp_text(hlc: int) -> str:
    """An hlc as a time with milliseconds and its counter.

    >>> timestamp_text(65536000001)
    '1970-01-01T00:16:40.000Z+1'
    """
    wall, counter = hlc >> 16, hlc & MAX_COUNTER
    try:
        text = datetime.fromtimestamp(wall / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError):
        text = f"{wall}ms"
    return f"{text}+{counter}" if counter else text
