"""Flushing files: JSON lines of deltas by ranges (on Spark too), envelopes whole."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.cli.engine_options import chosen_engine
from driftline.core._files import explain_io_errors

if TYPE_CHECKING:
    from driftline.deltas import RowDelta
    from driftline.lake import FlushResult, Lake
    from driftline.lake._load.ingest import Scheduler


def flush_files(
    lake: Lake, files: Iterable[str], gateway: str, engine: str, master: str | None
) -> Iterator[FlushResult]:
    """Flush every file; its content is its identity."""
    with ExitStack() as stack:
        paths = [_as_file(name, stack) for name in files]
        name = chosen_engine("lake", engine, master, lambda: sum(path.stat().st_size for path in paths))
        scheduler = _scheduler(name, master, stack)
        for path in paths:
            yield from _flush_file(lake, path, gateway, scheduler)


def _flush_file(lake: Lake, path: Path, gateway: str, scheduler: Scheduler) -> Iterator[FlushResult]:
    from driftline.lake._store.envelopes import parse_envelope

    with explain_io_errors(path), open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        start = file.read(64)
    if start.lstrip().startswith(b'{"version"'):
        envelope = parse_envelope(path.read_bytes(), path.name)
        yield from _flush_deltas(lake, envelope.deltas, envelope.gateway_id or gateway, digest)
    else:
        yield from _flush_lines(lake, path, gateway, digest, scheduler)


def _flush_lines(lake: Lake, path: Path, gateway: str, digest: str, scheduler: Scheduler) -> Iterator[FlushResult]:
    from driftline.core._parts import line_ranges
    from driftline.lake._load.ingest import commit_ingested, parse_delta, plan_ingest
    from driftline.lake._store.schemas import registered

    ranges = line_ranges(path)
    known = [table for table in lake.tables() if registered(lake, table) is not None]
    if not known:
        # Without any schema everything goes into envelopes.
        deltas = (parse_delta(line, path.name, n) for lines in ranges for n, line in enumerate(lines.lines()))
        yield from _flush_deltas(lake, deltas, gateway, digest)
        return
    plan = plan_ingest(lake, known, gateway)
    yield from commit_ingested(plan, scheduler(plan, [(lines, 0) for lines in ranges]), f"file:{digest}")


def _flush_deltas(lake: Lake, deltas: Iterable[RowDelta], gateway: str, digest: str) -> Iterator[FlushResult]:
    from collections import defaultdict

    from driftline.lake._store.flush import flush_content

    by_table: dict[str, list[RowDelta]] = defaultdict(list)
    for delta in deltas:
        by_table[delta.table].append(delta)
    for table, batch in sorted(by_table.items()):
        yield flush_content(lake, table, batch, gateway, f"file:{digest}", f"f{digest[:16]}")


def _as_file(name: str, stack: ExitStack) -> Path:
    if name != "-":
        with explain_io_errors(name):
            Path(name).stat()
        return Path(name)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-flush-")))
    with open(folder / "stdin", "wb") as out:
        shutil.copyfileobj(sys.stdin.buffer, out, 1 << 20)
    return folder / "stdin"


def _scheduler(name: str, master: str | None, stack: ExitStack) -> Scheduler:
    from driftline.lake._load.ingest import ingest_locally

    if name == "local":
        return ingest_locally
    from driftline.spark._lake import ingest_on_spark
    from driftline.spark._runtime.session import open_session

    return partial(ingest_on_spark, stack.enter_context(open_session(master)))
