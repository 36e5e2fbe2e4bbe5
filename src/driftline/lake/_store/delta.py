"""Delta tables: loading, their files, and commits that are retried on conflict and never done twice."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from driftline.core import JsonObject
from driftline.deltas import check_table_name
from driftline.errors import LakeError
from driftline.lake._store.lake import Lake, Part, attempt_token, relative
from driftline.lake._store.parquet import DataFile, now_ms
from driftline.lake._store.rows import HLC, ROW_ID

MAX_TRIES = 12
# Resume and time travel need pins and log entries: the log is retained.
_CONFIGURATION = {"delta.logRetentionDuration": "interval 36500 days"}


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: files to add and remove, application transactions and metadata."""

    adds: Sequence[DataFile] = ()
    removes: Sequence[str] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    data_change: bool = True
    overwrite: bool = False  # replaces every file, and the schema with them


def load(lake: Lake, table: str, part: Part, version: int | None = None) -> DeltaTable | None:
    """The Delta table, fresh from its log, or None if there is none (or not at that version any more)."""
    return load_at(lake, relative(check_table_name(table), part), version)


def loaded(lake: Lake, table: str, part: Part = "deltas", version: int | None = None) -> DeltaTable:
    """The Delta table where there must be one."""
    delta_table = load(lake, table, part, version)
    if delta_table is not None:
        return delta_table
    if version is not None:
        raise LakeError(f"version {version} of tables/{table}/{part} is no longer in its log", code="bad_log")
    raise LakeError(f"table {table!r} has no schema", code="no_schema", table=table)


def load_at(lake: Lake, path: str, version: int | None = None) -> DeltaTable | None:
    """The Delta table at a path below the lake's root, or None."""
    root, options = f"{lake.root}/{path}", lake.options()
    try:
        return DeltaTable(root, version=version, storage_options=options)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        if version is not None:
            return None
        if isinstance(error, DeltaError) and not DeltaTable.is_deltatable(root, options):
            return None
        raise LakeError(f"the log of {path} cannot be read: {_line(error)}", code="bad_log") from error


def files_of(delta_table: DeltaTable) -> list[DataFile]:
    """The files of a Delta table at its loaded version."""
    rows = pa.table(delta_table.get_add_actions(flatten=True)).to_pylist()
    return [
        DataFile(
            row["path"],
            row["size_bytes"],
            row["num_records"] or 0,
            row.get(f"min.{ROW_ID}"),
            row.get(f"max.{ROW_ID}"),
            row.get(f"min.{HLC}"),
            row.get(f"max.{HLC}"),
            row["modification_time"],
        )
        for row in rows
    ]


def create(lake: Lake, table: str, part: Part, schema: pa.Schema, commit: Commit) -> bool:
    """Create a Delta table with its first files; False if it was created meanwhile."""
    return create_at(lake, relative(check_table_name(table), part), f"{table}.{part}", schema, commit)


def create_at(lake: Lake, path: str, name: str, schema: pa.Schema, commit: Commit) -> bool:
    """Create a Delta table at a path below the lake's root; False if it was created meanwhile."""
    lake.make_directory(path)
    try:
        create_table_with_add_actions(
            f"{lake.root}/{path}",
            Schema.from_arrow(schema),
            _adds(commit),
            mode="error",
            name=name,
            configuration=_CONFIGURATION,
            storage_options=lake.options(),
            commit_properties=_properties(commit),
        )
    except DeltaError as error:
        if "already exists" in str(error) or isinstance(error, CommitFailedError):
            return False
        raise LakeError(f"{path} cannot be created: {_line(error)}", code="commit_failed") from error
    return True


def append(delta_table: DeltaTable, commit: Commit, schema: pa.Schema | None = None) -> bool:
    """Commit to a loaded table; False after a conflict with a concurrent commit: the table must be loaded anew."""
    removes = [RemoveAction(path, commit.data_change, now_ms()) for path in commit.removes]
    try:
        delta_table.create_write_transaction(
            [*_adds(commit), *removes],
            "overwrite" if commit.overwrite else "append",
            delta_table.schema() if schema is None else Schema.from_arrow(schema),
            commit_properties=_properties(commit),
        )
    except CommitFailedError:
        return False
    except (DeltaError, OSError) as error:
        raise LakeError(f"the commit failed: {_line(error)}", code="commit_failed") from error
    return True


def retried(attempt: Callable[[], bool], what: str) -> None:
    """Retry until it succeeds, with pauses for commits of other writers."""
    for number in range(MAX_TRIES):
        if attempt():
            return
        time.sleep(random.uniform(0, 0.05 * (number + 1)))
    raise LakeError(
        f"{what}: other writers kept committing, {MAX_TRIES} tries failed; run it again", code="commit_conflict"
    )


def transaction_version(delta_table: DeltaTable | None, application: str) -> int | None:
    """The version of an application's last transaction."""
    if delta_table is None:
        return None
    version: int | None = delta_table.transaction_version(application)
    return version


def commit_entries(lake: Lake, table: str, part: Part, version: int) -> list[JsonObject] | None:
    """The actions of one commit, or None where the log no longer has it."""
    path = relative(table, part, f"_delta_log/{version:020d}.json")
    try:
        with lake.files().open_input_stream(path) as stream:
            return [json.loads(line) for line in stream.read().splitlines() if line]
    except (FileNotFoundError, OSError):
        return None


def version_of_commit(lake: Lake, table: str, part: Part, token: str, after: int) -> int:
    """The version of the commit with this token, after a known version (-1: from the first)."""
    for candidate in itertools.count(after + 1):
        entries = commit_entries(lake, table, part, candidate)
        if entries is None:
            break
        if any(_token_of(entry) == token for entry in entries):
            return candidate
    raise LakeError(f"the commit to tables/{table}/{part} is not in its log", code="bad_log")


def new_token() -> str:
    """A token that identifies a commit."""
    return attempt_token()


def _token_of(entry: Mapping[str, Any]) -> str | None:
    details = entry.get("commitInfo", {}).get("driftline", {})
    return details.get("token") if isinstance(details, dict) else None


def _adds(commit: Commit) -> list[AddAction]:
    timestamp = now_ms()
    return [AddAction(file.path, file.size, {}, timestamp, commit.data_change, file.stats()) for file in commit.adds]


def _properties(commit: Commit) -> CommitProperties:
    return CommitProperties(
        custom_metadata={"driftline": dict(commit.metadata)},
        app_transactions=[Transaction(name, version) for name, version in commit.transactions.items()],
    )


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
