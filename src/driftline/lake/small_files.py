"""Small delta files that a snapshot has folded are merged; what they say does not change (`dataChange=false`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa

from driftline.lake.columns import delta_file_schema
from driftline.lake.delta_tables import Commit, append, files_of, load, retried
from driftline.lake.layout import Lake, merged_file_name, relative
from driftline.lake.parquet_files import DataFile, read_file, write_file
from driftline.lake.registry import every_column
from driftline.lake.snapshots import newest_snapshot

SMALL_BYTES = 4 << 20
MIN_FILES = 16  # of one day and gateway, before merging is worth it
_MERGED_BYTES = 64 << 20


def merge_small_files(lake: Lake, table: str, *, small_bytes: int = SMALL_BYTES, min_files: int = MIN_FILES) -> int:
    """Merge the small folded files of each day and gateway; how many files went away."""
    gone = 0

    def attempt() -> bool:
        nonlocal gone
        deltas_table = load(lake, table, "deltas")
        snapshot = newest_snapshot(lake, table)
        pinned = load(lake, table, "deltas", snapshot.deltas_version) if snapshot else None
        if pinned is None:
            return True
        folded = {file.path for file in files_of(pinned)}
        current = [file for file in files_of(deltas_table) if file.path in folded]
        groups = [group for group in _groups(current, small_bytes) if len(group) >= min_files]
        if not groups:
            return True
        schema = delta_file_schema(every_column(deltas_table))
        merged = [_merge(lake, table, group, schema) for group in groups]
        removes = [file.path for group in groups for file in group]
        details = {"operation": "merge files"}
        if not append(deltas_table, Commit(merged, removes, {}, details, data_change=False)):
            return False
        gone = len(removes)
        return True

    retried(attempt, f"merging small files of {table}")
    return gone


def _groups(files: Iterable[DataFile], small_bytes: int) -> list[list[DataFile]]:
    by_folder: dict[str, list[DataFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.path):
        if file.size < small_bytes:
            by_folder[file.path.rpartition("/")[0]].append(file)
    groups: list[list[DataFile]] = []
    for members in by_folder.values():
        groups.append([])
        for file in members:
            if sum(each.size for each in groups[-1]) > _MERGED_BYTES:
                groups.append([])
            groups[-1].append(file)
    return groups


def _merge(lake: Lake, table: str, group: list[DataFile], schema: object) -> DataFile:
    root = relative(table, "deltas")
    rows = pa.concat_tables([read_file(lake, f"{root}/{file.path}", schema) for file in group]).sort_by("_hlc")
    low = min(file.min_hlc or 0 for file in group)
    high = max(file.max_hlc or 0 for file in group)
    folder = group[0].path.rpartition("/")[0]
    return write_file(lake, root, merged_file_name(folder, low, high), rows)
