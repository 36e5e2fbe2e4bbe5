"""Extract: the difference of two snapshots of a table becomes deltas in the lake.

The table diff (any engine) writes its events, which are then ingested. The start clock is stored before the run under
a name made from the inputs, so that a rerun of the same extraction makes the same deltas and they are committed once.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.canonical import canonical_json, sha256_hex
from driftline.deltas import Clock, TableSchema
from driftline.deltas.names import check_table_name
from driftline.errors import LakeError
from driftline.files import StrPath
from driftline.lake.delta_tables import files_of, load, transaction_version
from driftline.lake.flushing import FlushResult
from driftline.lake.ingesting import (
    Extraction,
    Scheduler,
    Survey,
    commit_ingested,
    inferred_schema,
    ingest_locally,
    plan_ingest,
    survey,
)
from driftline.lake.layout import Lake, relative
from driftline.lake.line_ranges import LineRange, line_ranges
from driftline.lake.registry import register, registered
from driftline.progress import Tracker, silent
from driftline.tables.engines import DiffJob, find_engine
from driftline.tables.options import check_options

DEFAULT_GATEWAY = "extract"

Surveyor = Callable[[Sequence[LineRange]], Iterable[Survey]]


@dataclass(frozen=True, slots=True)
class ExtractResult:
    """The deltas that an extraction made: how many, and their first timestamp."""

    table: str
    deltas: int
    start: int
    was_done_before: bool
    stats: dict[str, Any]


def survey_locally(ranges: Sequence[LineRange]) -> Iterable[Survey]:
    """Survey one range after the other."""
    return map(survey, ranges)


def extract_snapshots(
    lake: Lake,
    a: StrPath,
    b: StrPath,
    *,
    key: Iterable[str],
    table: str,
    client_id: str,
    start: int | None = None,
    header_mode: str = "strict",
    diff_engine: str = "local",
    master: str | None = None,
    scheduler: Scheduler = ingest_locally,
    surveyor: Surveyor = survey_locally,
    tracker: Tracker | None = None,
) -> ExtractResult:
    """Diff two snapshots and append the deltas that lead from A to B."""
    check_table_name(table)
    options = check_options(key_columns=tuple(key), header_mode=header_mode)
    job = DiffJob(a, b, options, master=master, tracker=tracker or silent())
    identity = extraction_identity(a, b, options.key_columns, table, client_id, start)
    moment = stored_start(lake, table, identity, start)
    with _event_folder(lake, table) as folder:
        events = folder / "events.jsonl"
        with open(events, "wb", buffering=1 << 20) as out:
            stats = find_engine(diff_engine)(job, out.write).to_event()
        ranges = line_ranges(events)
        surveys = list(surveyor(ranges))
        schema = _schema(lake, table, surveys, options.key_columns)
        application = f"extract:{identity}"
        if transaction_version(load(lake, table, "deltas"), application) is not None:
            return ExtractResult(table, 0, moment, True, stats)
        plan = plan_ingest(lake, [table], DEFAULT_GATEWAY, Extraction(table, client_id, moment, schema))
        results = commit_ingested(plan, scheduler(plan, _numbered(ranges, surveys)), application)
    return ExtractResult(table, _total(results), moment, any(each.was_done_before for each in results), stats)


def extraction_identity(
    a: StrPath, b: StrPath, key: Iterable[str], table: str, client_id: str, start: int | None
) -> str:
    """A name for the extraction: the same inputs, the same name; changed files, another one."""
    sides = [_fingerprint(a), _fingerprint(b)]
    return sha256_hex(canonical_json([sides, list(key), table, client_id, str(start)]))[:32]


def stored_start(lake: Lake, table: str, identity: str, wanted: int | None) -> int:
    """The first timestamp of an extraction: as stored by an earlier try, as wanted, or after all that is known."""
    path = relative(table, "extracts", f"{identity}.json")
    try:
        with lake.files().open_input_stream(path) as stream:
            return int(json.loads(stream.read())["start"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError) as error:
        raise LakeError(f"{path} is damaged: remove it to start anew", code="corrupt_file", path=path) from error
    start = wanted if wanted is not None else max(Clock().now(), _greatest_hlc(lake, table) + 1)
    lake.make_directory(path.rpartition("/")[0])
    with lake.files().open_output_stream(path) as sink:
        sink.write(json.dumps({"start": str(start)}).encode())
    return start


def _greatest_hlc(lake: Lake, table: str) -> int:
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return 0
    return max((file.max_hlc or 0 for file in files_of(deltas_table)), default=0)


def _schema(lake: Lake, table: str, surveys: Sequence[Survey], key: Sequence[str]) -> TableSchema:
    """The registered schema, or one inferred from the snapshots, which is registered."""
    known = registered(lake, table)
    if known is None:
        known = inferred_schema(table, surveys, key)
        register(lake, known)
    return known


def _numbered(ranges: Sequence[LineRange], surveys: Sequence[Survey]) -> list[tuple[LineRange, int]]:
    numbered, before = [], 0
    for lines, found in zip(ranges, surveys, strict=True):
        if found.events:
            numbered.append((lines, before))
        before += found.events
    return numbered


def _total(results: Iterable[FlushResult]) -> int:
    return sum(result.deltas for result in results)


def _fingerprint(side: StrPath) -> list[Any]:
    path = Path(str(side).partition("::")[0])
    if path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.is_file())
        return [[entry.name, entry.stat().st_size, entry.stat().st_mtime_ns] for entry in files]
    if path.is_file():
        return [path.name, path.stat().st_size, path.stat().st_mtime_ns]
    return [str(side)]


class _event_folder:  # noqa: N801 - reads as a word after `with`
    """A folder for the events on their way: in a local lake, where Spark's tasks see it, else a temporary one."""

    def __init__(self, lake: Lake, table: str) -> None:
        self.parent: str | None = None
        if lake.is_local:
            path = relative(table, "extracts")
            lake.make_directory(path)
            self.parent = os.path.join(lake.root, path)

    def __enter__(self) -> Path:
        self.folder = Path(tempfile.mkdtemp(prefix=".events-", dir=self.parent))
        return self.folder

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
