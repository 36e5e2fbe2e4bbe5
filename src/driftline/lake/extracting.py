"""Extract: the difference of two snapshots of a table becomes deltas in the lake (deltas-and-lake §12).

Deltas lead from A to B, so the lake must hold A: its ledger says so, or the two are compared. The loading itself is the
one that pipelines use.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from driftline.core._files import StrPath
from driftline.core._json import JsonObject
from driftline.core._progress import Tracker, silent
from driftline.deltas import Clock
from driftline.deltas._deltas import check_table_name
from driftline.errors import LakeError
from driftline.lake.layout import Lake, relative
from driftline.lake.ledger import Ledger, Window, greatest_hlc, read_ledger
from driftline.lake.loading import LoadJob, Schedulers, WantedSnapshot, count_differences, load_snapshot
from driftline.lake.registry import registered
from driftline.sources._open import fingerprint, header_of, is_text, write_nothing
from driftline.tables._engines import DiffJob, find_engine
from driftline.tables._options import DiffOptions, check_options

DEFAULT_GATEWAY = "extract"


@dataclass(frozen=True, slots=True)
class ExtractResult:
    """The deltas that an extraction made: how many, and their first timestamp."""

    table: str
    deltas: int
    start: int
    was_done_before: bool
    base_deltas: int = 0
    stats: JsonObject = field(default_factory=dict)


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
    load_base: bool = False,
    diff_engine: str = "local",
    master: str | None = None,
    schedulers: Schedulers | None = None,
    tracker: Tracker | None = None,
) -> ExtractResult:
    """Diff two snapshots and append the deltas that lead from A to B; the lake must hold A, or load it first."""
    check_table_name(table)
    options = check_options(key_columns=tuple(key), header_mode=header_mode)
    with _event_folder(lake, table) as folder:
        sides = [_at_hand(side, folder) for side in (a, b)]
        diffs = _Diffs(sides[0], sides[1], options, folder, diff_engine, master, tracker or silent())
        known = registered(lake, table)
        job = LoadJob(
            lake,
            table,
            DEFAULT_GATEWAY,
            client_id,
            options.key_columns,
            {},
            {"header_mode": header_mode},
            is_text(sides[1]),
            schedulers or Schedulers(),
            tracker or silent(),
            columns=known.names if known else header_of(sides[1]),
        )
        return _extract(job, diffs, start, load_base)


def _extract(job: LoadJob, diffs: _Diffs, start: int | None, load_base: bool) -> ExtractResult:
    ledger = read_ledger(job.lake, job.table)
    fingerprints = [fingerprint(side) for side in (diffs.a, diffs.b)]
    base, goal = map(job.content, fingerprints)
    if not _is_now(ledger, base):
        done = _earlier(ledger, base, goal)
        if done is not None:
            return ExtractResult(job.table, 0, done.start, True)
    timestamp = _first_timestamp(job, start)
    loaded = None
    if not _is_now(ledger, base):
        loaded = _settle_base(job, diffs, fingerprints[0], timestamp, load_base)
    wanted = WantedSnapshot(f"b@{ledger.number}", fingerprints[1], partial(_behind, timestamp), fingerprints[0])
    window = load_snapshot(job, wanted, diffs)
    return ExtractResult(job.table, window.deltas, window.start, False, loaded.deltas if loaded else 0, diffs.stats)


def _is_now(ledger: Ledger, content: str) -> bool:
    newest = ledger.newest
    return newest is not None and not ledger.others and ledger.holds(newest.label, content)


def _earlier(ledger: Ledger, base: str, goal: str) -> Window | None:
    """The load that led from A to B, if there was one."""
    for before, window in zip(ledger.windows, ledger.windows[1:], strict=False):
        if (before.content, window.content) == (base, goal):
            return window
    return None


def _settle_base(job: LoadJob, diffs: _Diffs, base: str, timestamp: int, load_base: bool) -> Window | None:
    """The lake holds A, or is made to, or it is told what differs."""
    label = f"a@{read_ledger(job.lake, job.table).number}"
    source = _OnlyBase(diffs)
    count, some = _differences(job, diffs, source, timestamp)
    if count and not load_base:
        named = ", ".join(map(repr, some[:3]))
        raise _mismatch(job, f"{count:,} rows differ, as {named}" if some else "it holds nothing yet")
    # A base that is there already needs no timestamp of its own: B begins where it was asked to.
    start = timestamp if count else timestamp - 1
    return load_snapshot(job, WantedSnapshot(label, base, partial(_behind, start)), source)


def _differences(job: LoadJob, diffs: _Diffs, source: _OnlyBase, timestamp: int) -> tuple[int, list[str]]:
    return count_differences(job, source, timestamp) if _holds_rows(job) else (diffs.base_rows(), [])


def _holds_rows(job: LoadJob) -> bool:
    return greatest_hlc(job.lake, job.table) > 0


def _mismatch(job: LoadJob, difference: str) -> LakeError:
    return LakeError(
        f"A is not what the lake holds of {job.table} ({difference}), so the deltas from A to B would not lead to B: "
        "give the version that was loaded last, or load A first with --load-base",
        code="base_mismatch",
        table=job.table,
    )


def _first_timestamp(job: LoadJob, wanted: int | None) -> int:
    """After all that is known, or as wanted; older deltas would lose against what is there."""
    newest = greatest_hlc(job.lake, job.table)
    if wanted is None:
        return max(Clock().now(), newest + 1)
    if wanted <= newest:
        raise LakeError(
            f"--start {wanted} is not after {newest}, the newest delta of {job.table}: B would lose against it",
            code="late_start",
        )
    return wanted


def _behind(timestamp: int, ledger: Ledger) -> int:
    return max(timestamp, ledger.newest.last + 1) if ledger.newest else timestamp


class _Diffs:
    """The events of an extraction, made by any engine of the table diff."""

    def __init__(
        self, a: str, b: str, options: DiffOptions, folder: Path, engine: str, master: str | None, tracker: Tracker
    ) -> None:
        self.a, self.b, self._options, self._folder = a, b, options, folder
        self._engine, self._master, self._tracker = engine, master, tracker
        self.stats: JsonObject = {}

    def difference(self) -> Path:
        """From A to B."""
        return self._events(self.a, self.b, "difference")

    def whole(self) -> Path:
        """All of B."""
        return self.whole_of(self.b, "b")

    def whole_of(self, side: str, name: str) -> Path:
        """All of a side."""
        folder = self._folder / f"nothing-{name}"
        folder.mkdir(exist_ok=True)
        nothing = write_nothing(side, self._options.reading("B"), folder)
        return self._events(str(nothing), side, f"whole-{name}")

    def base_rows(self) -> int:
        """How many rows A has."""
        self.whole_of(self.a, "a")
        return int(self.stats["rows_added"])

    def _events(self, a: str, b: str, name: str) -> Path:
        target = self._folder / f"{name}.jsonl"
        if not target.exists():
            job = DiffJob(a, b, self._options, master=self._master, tracker=self._tracker)
            with open(target, "wb", buffering=1 << 20) as out:
                self.stats = find_engine(self._engine)(job, out.write).to_event()
        return target


@dataclass(frozen=True)
class _OnlyBase:
    """A alone, as something to load."""

    diffs: _Diffs

    def difference(self) -> None:
        """There is nothing before it."""

    def whole(self) -> Path:
        """All of A."""
        return self.diffs.whole_of(self.diffs.a, "a")


def _at_hand(side: StrPath, folder: Path) -> str:
    """A side that can be read several times: standard input is kept in a file."""
    if str(side) != "-":
        return str(side)
    target = folder / "standard-input.csv"
    with open(target, "wb") as out:
        shutil.copyfileobj(cast(Any, sys.stdin.buffer), out)
    return str(target)


@contextmanager
def _event_folder(lake: Lake, table: str) -> Iterator[Path]:
    """A folder for the events on their way: in a local lake, where Spark's tasks see it, else a temporary one."""
    parent = None
    if lake.is_local:
        lake.make_directory(relative(table, "extracts"))
        parent = Path(lake.root, relative(table, "extracts"))
    with tempfile.TemporaryDirectory(prefix=".events-", dir=parent) as folder:
        yield Path(folder)
