"""Delta tables as the store of a lake: the only file of the lake that reads and writes Delta and its log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from driftline.core import JsonObject
from driftline.deltas import physical_ms
from driftline.errors import LakeError
from driftline.lake._store.lake import Lake
from driftline.lake._store.parquet import DataFile
from driftline.lake._store.rows import HLC, ROW_ID
from driftline.lake._store.tables import Commit, CommitEntry, Version

# Resume and time travel need pins and log entries: no other writer cuts the log, see `cut_log`.
_CONFIGURATION = {"delta.logRetentionDuration": "interval 36500 days"}
_HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)  # which looks at every entry
_MANY_FILES = 32  # after a merge, before they are merged too
_DIGITS = 20  # of a version in the names of log files
_DETAILS = "driftline"  # the member of a commit's information that has its metadata


class DeltaStore:
    """The Delta tables below a lake's root."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def open(self, path: str, version: Version | None = None) -> _StoredDelta | None:
        """The table, fresh from its log."""
        root, options = f"{self._lake.root}/{path}", self._lake.options()
        try:
            return _StoredDelta(DeltaTable(root, version=version, storage_options=options))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            if version is not None:
                return None
            if isinstance(error, DeltaError) and not DeltaTable.is_deltatable(root, options):
                return None
            raise LakeError(f"the log of {path} cannot be read: {_line(error)}", code="bad_log") from error

    def create(self, path: str, name: str, schema: pa.Schema, commit: Commit) -> bool:
        """Create a table with its first files; False if it was created meanwhile."""
        try:
            create_table_with_add_actions(
                f"{self._lake.root}/{path}",
                Schema.from_arrow(schema),
                _adds(commit),
                mode="error",
                name=name,
                configuration=_CONFIGURATION,
                storage_options=self._lake.options(),
                commit_properties=_properties(commit),
            )
        except DeltaError as error:
            if "already exists" in str(error) or isinstance(error, CommitFailedError):
                return False
            raise LakeError(f"{path} cannot be created: {_line(error)}", code="commit_failed") from error
        return True

    def commits(self, path: str, newest: Version) -> Iterator[CommitEntry | None]:
        """The commits from a version back to the first; None at the end where the log has been cut."""
        files = self._lake.files()
        for version in range(newest, -1, -1):
            try:
                with files.open_input_stream(f"{path}/_delta_log/{version:020d}.json") as stream:
                    actions = [json.loads(line) for line in stream.read().splitlines() if line]
            except (FileNotFoundError, OSError):
                yield None
                return
            yield _entry(version, actions)

    def cut_log(self, path: str, keep: Version | None, milliseconds: float, commits: int | None = None) -> int:
        """Remove what the log has before its newest checkpoint that is old enough and not after `keep`."""
        files, folder = self._lake.files(), pa_fs.FileSelector(f"{path}/_delta_log", allow_not_found=True)
        infos = [info for info in files.get_file_info(folder) if info.base_name[:_DIGITS].isdecimal()]
        versions = {info.path: int(info.base_name[:_DIGITS]) for info in infos}
        enough = -1 if commits is None else max(versions.values(), default=0) - commits
        old = [info for info in infos if info.mtime_ns < milliseconds * 1e6 or versions[info.path] <= enough]
        checkpoints = {versions[info.path]: info.path for info in old if info.base_name.endswith(".checkpoint.parquet")}
        candidates = sorted((version for version in checkpoints if keep is None or version <= keep), reverse=True)
        # A damaged one replaces nothing: what it was made of stays.
        first = next((version for version in candidates if _is_whole(files, checkpoints[version])), 0)
        gone = sorted(name for name, version in versions.items() if version < first)
        for name in gone:  # oldest first: a kill leaves a log that begins later, never one with a gap
            files.delete_file(name)
        return len(gone)


class _StoredDelta:
    """A Delta table at one version."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    def version(self) -> Version:
        return int(self._table.version())

    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def files(self) -> list[DataFile]:
        rows = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
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

    def property(self, name: str) -> str | None:
        found: str | None = self._table.metadata().configuration.get(name)
        return found

    def transaction(self, application: str) -> int | None:
        number: int | None = self._table.transaction_version(application)
        return number

    def append(self, commit: Commit, schema: pa.Schema | None = None) -> bool:
        removes = [RemoveAction(path, commit.data_change, physical_ms()) for path in commit.removes]
        written = self._table.schema() if schema is None else Schema.from_arrow(schema)
        mode = "overwrite" if commit.overwrite else "append"
        actions: list[AddAction | RemoveAction] = [*_adds(commit), *removes]
        return _committed(lambda: self._table.create_write_transaction(actions, mode, written, **_options(commit)))

    def add_columns(self, columns: Sequence[pa.Field], details: JsonObject) -> bool:
        fields = list(Schema.from_arrow(pa.schema(columns)).fields)
        return _committed(
            lambda: self._table.alter.add_columns(fields, commit_properties=_properties(Commit(metadata=details)))
        )

    def set_properties(self, values: Mapping[str, str], details: JsonObject) -> bool:
        return _committed(
            lambda: self._table.alter.set_table_properties(
                dict(values), raise_if_not_exists=False, commit_properties=_properties(Commit(metadata=details))
            )
        )

    def merge(self, rows: pa.RecordBatchReader, commit: Commit) -> bool:
        names = ['"' + name.replace('"', '""') + '"' for name in rows.schema.names]
        values = {name: f"s.{name}" for name in names}
        differs = " OR ".join(f"(t.{name} IS DISTINCT FROM s.{name})" for name in names)
        merging = self._table.merge(rows, f"t.{ROW_ID} = s.{ROW_ID}", "s", "t", **_options(commit))
        merging.when_matched_update(values, differs).when_not_matched_insert(values)
        before = self.version()
        done = _committed(merging.when_not_matched_by_source_delete().execute)
        if done and self.version() == before:  # no row differs: deltalake commits nothing
            return self.append(commit)
        if done and len(self._table.file_uris()) >= _MANY_FILES:
            options = _options(Commit(metadata={"operation": "merge files"}))
            _committed(lambda: self._table.optimize.compact(**options))
        return done

    def versions_since(self, milliseconds: float) -> list[Version]:
        return [entry["version"] for entry in self._table.history() if entry.get("timestamp", 0) >= milliseconds]

    def vacuum(self, keep: Sequence[Version], hours: int, dry_run: bool) -> list[str]:
        paths: list[str] = self._table.vacuum(
            retention_hours=hours,
            dry_run=dry_run,
            enforce_retention_duration=False,
            full=True,
            keep_versions=list(keep) or [self._table.version()],
        )
        return paths


def store_files(root: str, options: dict[str, str] | None) -> pa_fs.FileSystem:
    """The file system of an object-store URL, through the store that Delta commits with."""
    return pa_fs.PyFileSystem(_StoreHandler(root, options))


class _StoreHandler(DeltaStorageHandler):
    """Writes plain bytes: the store refuses the buffers of pyarrow."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> Any:
        return pa.PythonFile(_BytesOnly(self._handler.open_output_stream(path, metadata)), mode="w")


class _BytesOnly:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.closed = False

    def write(self, data: Any) -> int:
        plain = bytes(data)
        self._stream.write(plain)
        return len(plain)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()


def _is_whole(files: pa_fs.FileSystem, path: str) -> bool:
    try:
        with files.open_input_file(path) as source:
            return bool(pq.read_table(source).num_rows)
    except (pa.ArrowException, OSError):
        return False


def _committed(commit: Callable[[], object]) -> bool:
    try:
        commit()
    except CommitFailedError:
        return False
    except (DeltaError, OSError) as error:
        raise LakeError(f"the commit failed: {_line(error)}", code="commit_failed") from error
    return True


def _entry(version: Version, actions: Sequence[JsonObject]) -> CommitEntry:
    info: JsonObject = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    details = info.get(_DETAILS)
    details = details if isinstance(details, dict) else {}
    adds = [action["add"] for action in actions if "add" in action]
    return CommitEntry(
        version,
        int(info.get("timestamp", 0)),
        str(details.get("operation", info.get("operation", "unknown"))).lower(),
        details,
        {action["txn"]["appId"]: int(action["txn"]["version"]) for action in actions if "txn" in action},
        [add["path"] for add in adds],
        [add["path"] for add in adds if add.get("dataChange", True)],
        sum("remove" in action for action in actions),
    )


def _adds(commit: Commit) -> list[AddAction]:
    timestamp = physical_ms()
    return [AddAction(file.path, file.size, {}, timestamp, commit.data_change, _stats(file)) for file in commit.adds]


def _stats(file: DataFile) -> str:
    bounds = {ROW_ID: (file.min_row_id, file.max_row_id), HLC: (file.min_hlc, file.max_hlc)}
    known = {name: pair for name, pair in bounds.items() if pair[0] is not None}
    low, high = ({name: pair[side] for name, pair in known.items()} for side in (0, 1))
    counts = {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(known, 0)}
    return json.dumps(counts)


def _options(commit: Commit) -> dict[str, Any]:
    return {"commit_properties": _properties(commit), "post_commithook_properties": _HOOKS}


def _properties(commit: Commit) -> CommitProperties:
    return CommitProperties(
        custom_metadata={_DETAILS: dict(commit.metadata)},
        app_transactions=[Transaction(name, number) for name, number in commit.transactions.items()],
    )


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
