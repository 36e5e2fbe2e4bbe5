"""What an application lives on: durable pushes by store and processes, snapshots, hot rows, how far `state` is behind.

PostgreSQL runs with its own defaults, so its commits are synced as SQLite's are; without it its rows are left out.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.cases.gateway import NEVER, Ours, _load, _row, server
from benchmarks.contest import DATA, Row
from benchmarks.data_lake import START, TABLE, add_updates, write_inserts
from driftline.core import utf16_sort_key
from driftline.deltas import RowMerge
from driftline.lake._store.rows import plain_number

CLIENTS, BATCH = 16, 100
RATE = 5_000  # deltas a second while compaction is watched


def run(full: bool) -> list[Row]:
    parts = (_stores, _snapshots, _snapshot_lines, _hot_row, _lag, _state_cost, _flushes, _client_store)
    return [row for part in parts for row in part(full)]


def _stores(full: bool) -> list[Row]:
    """Stores take turns, so that a busy machine is busy for both."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        logs: dict[str, tuple[str, ...]] = {"SQLite": ()}
        address = stack.enter_context(_postgres())
        if address is not None:
            logs["PostgreSQL"] = ("--log", address)
        for processes in (1, 2, 4):
            best: dict[str, dict[str, float]] = {}
            for turn in range(2):
                for name, log in logs.items():
                    data = Path(folder) / f"{name}-{processes}-{turn}"
                    options = (*NEVER, "--workers", str(processes), "--per-address", "0", *log)
                    with server(data, options) as ours:
                        figures = _load(ours, "push", CLIENTS, 60 if full else 20, BATCH)
                    if figures["deltas_per_s"] > best.get(name, {"deltas_per_s": 0})["deltas_per_s"]:
                        best[name] = figures
            case = f"durable pushes, {CLIENTS} clients x {BATCH}, {processes} processes"
            rows += [_row(case, f"driftline, log in {name}", figures) for name, figures in best.items()]
    return rows


def _snapshots(full: bool) -> list[Row]:
    """All pages of a table, over HTTP; the first page pays for the fold."""
    count = 1_000_000 if full else 100_000
    lake = DATA / f"lake-snapshot-{count}"
    if not lake.exists():
        write_inserts(str(lake), count)
        from driftline.lake import Lake, compact

        compact(Lake(str(lake)), TABLE)
    rows: list[Row] = []
    kinds = {"NDJSON": "application/x-ndjson", "NDJSON, gzip": "", "Arrow": "application/vnd.apache.arrow.stream"}
    for name, accepted in kinds.items():
        with (
            tempfile.TemporaryDirectory() as data,
            server(Path(data), (*NEVER, "--lake", str(lake), "--adopt-lake")) as ours,
        ):
            rows.append(_row(f"snapshot of {count:,} rows x 6", f"driftline, {name}", _fetched(ours, accepted)))
    return rows


def _snapshot_lines(full: bool) -> list[Row]:
    """The lines of a snapshot out of its merged rows: by columns, and row by row, in turns; the bytes are the same."""
    import pyarrow as pa

    from driftline.lake import columns_in, row_lines
    from driftline.lake._read.state import record_line, write_rows
    from driftline.lake._store.tables import loaded

    count, page = (200_000 if full else 50_000), 5_000
    spent = {"by columns": 0.0, "row by row": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        lake, target = write_inserts(folder, count), Path(folder) / "rows.arrow"
        write_rows(lake, TABLE, loaded(lake, TABLE).version(), {}, target)
        with pa.memory_map(str(target)) as source:
            rows = pa.ipc.open_file(source).read_all()
            columns = columns_in(rows.schema)
            for start in range(0, count, page):
                part, begun = rows.slice(start, page), time.process_time()
                made, _ = row_lines(part, TABLE, columns)
                between = time.process_time()
                one_by_one = [record_line(TABLE, row["_row_id"], _merged(row)) for row in part.to_pylist()]
                spent["row by row"] += time.process_time() - between
                spent["by columns"] += between - begun
                assert made.decode() == "".join(f"{line}\n" for line in one_by_one)
    return [
        _row(f"lines of {count:,} rows x 6", f"driftline, {way}", {"wall_s": cpu, "cpu_us_a_row": cpu / count * 1e6})
        for way, cpu in spent.items()
    ]


def _merged(row: dict[str, Any]) -> RowMerge:
    """A live row of a snapshot's file, one value after the other."""
    stamps = row["_stamps"]
    columns = {
        name: (_stamp(stamp), plain_number(row[name]) if isinstance(row[name], float) else row[name])
        for name, stamp in stamps["columns"].items()
        if stamp is not None
    }
    return RowMerge(columns, _stamp(stamps["live"]))


def _stamp(plain: dict[str, Any]) -> tuple[int, bytes, str, bool]:
    return plain["hlc"], utf16_sort_key(plain["client"]), f"{plain['mark'] + (1 << 63):016x}", False


def _fetched(ours: Ours, accepted: str) -> dict[str, float]:
    import httpx

    headers = {"Authorization": f"Bearer {ours.tokens.read_text().split()[0]}", "Accept": accepted or "*/*"}
    headers["Accept-Encoding"] = "identity" if accepted else "gzip"
    begun, size, first = time.perf_counter(), 0, 0.0
    with httpx.Client(base_url=ours.url, headers=headers, timeout=300) as http, _peak_of(ours.process) as peak:
        query: dict[str, str] | None = {"limit": "50000"}
        while query is not None:
            with http.stream("GET", "/v1/sync/bench/snapshot", params=query) as answer:
                raw = b"".join(answer.iter_raw())
            assert answer.status_code == 200, raw[:500]
            size += len(raw)
            first = first or time.perf_counter() - begun
            following = _next_page(raw, accepted, gzipped=not accepted)
            query = None if following is None else {"page": following}
    wall = time.perf_counter() - begun
    return {"wall_s": wall, "first_page_s": first, "size_mb": size / 1e6, "peak_mb_all_processes": peak[0] / 1e6}


def _next_page(raw: bytes, accepted: str, *, gzipped: bool) -> str | None:
    import gzip
    import json

    if "arrow" in accepted:
        import pyarrow as pa

        with pa.ipc.open_stream(raw) as stream:
            return json.loads(stream.schema.metadata[b"driftline.end"])["next"]  # type: ignore[no-any-return]
    lines = (gzip.decompress(raw) if gzipped else raw).rstrip().rpartition(b"\n")
    return json.loads(lines[2])["end"]["next"]  # type: ignore[no-any-return]


@contextmanager
def _peak_of(process: psutil.Process) -> Iterator[list[int]]:
    """The most memory that a server and all its processes had at once."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            total = 0
            for each in [process, *process.children(recursive=True)]:
                try:
                    total += each.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            peak[0] = max(peak[0], total)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _hot_row(full: bool) -> list[Row]:
    """One row that changes its owner again and again, read page by page under rules: later pages cost no more."""
    import json

    from driftline.deltas import ColumnDelta, RowDelta
    from driftline.gateway._auth import Caller
    from driftline.gateway._log.sqlite import SqliteLog
    from driftline.gateway._sync.pull import LogReader
    from driftline.gateway._sync.push import parse_push
    from driftline.gateway._sync.row_index import RowIndex
    from driftline.gateway._sync.rules import parse_rules

    count = 100_000 if full else 10_000
    bucket = {"name": "b", "tables": ["t"], "filters": [{"column": "owner", "op": "eq", "value": "jwt:sub"}]}
    rules = parse_rules(json.dumps({"version": 1, "buckets": [bucket]}).encode())
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        log = SqliteLog(Path(folder) / "log")
        for start in range(0, count, 2000):
            deltas = [
                RowDelta.make(
                    op="UPDATE", table="t", row_id="hot", client_id="w", hlc=(1 << 40) + number,
                    columns=[ColumnDelta("owner", "ab"[number % 2]), ColumnDelta("n", number)],
                ).to_wire()
                for number in range(start, start + 2000)
            ]  # fmt: skip
            log.append([parse_push(json.dumps({"clientId": "w", "deltas": deltas}).encode()).entries])
        reader = LogReader(log, RowIndex(log), "bench", lambda: (rules, 1))
        caller, times, query = Caller("a", "bench", claims={"sub": "a"}), [], {"since": "0"}
        begun = time.perf_counter()
        reader.index.catch_up(rules, 1)
        folded = time.perf_counter() - begun
        while True:
            begun = time.perf_counter()
            page = reader.page(caller, {**query, "limit": "1000"})
            times.append(time.perf_counter() - begun)
            query = {"cursor": page.cursor.encode()}
            if not page.has_more:
                break
        log.close()
    half = len(times) // 2
    figures = {"wall_s": folded + sum(times), "fold_s": folded, "pages_first_half_s": sum(times[:half])}
    figures["pages_second_half_s"] = sum(times[half:])
    rows.append(_row(f"one row with {count:,} changes, pages of 1,000 under rules", "driftline", figures))
    return rows


def _lag(full: bool) -> list[Row]:
    """Pushes at a steady rate while the server flushes and compacts by itself: how far `state` lies behind."""
    from driftline.deltas import TableSchema
    from driftline.lake import Lake, register, status_of

    seconds = 30 if full else 10
    kinds = {"id": "number", "name": "string", "city": "string", "amount": "number", "active": "boolean"}
    columns = [{"name": name, "type": kind} for name, kind in {**kinds, "note": "string"}.items()]
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(str(Path(folder) / "lake"))
        register(lake, TableSchema.from_wire({"table": "orders", "columns": columns}))
        options = ("--flush-seconds", "1", "--compact-deltas", str(RATE * 5), "--lake", lake.root)
        with server(Path(folder) / "data", options) as ours:
            before = ours.process.cpu_times()
            pushed = _paced(ours, seconds)
            unfolded: list[int] = []
            ages: list[int] = []
            while pushed.is_alive():
                time.sleep(1)
                status = status_of(lake, "orders")
                unfolded.append(status.unfolded)
                ages.append(status.state_age_seconds if status.state_age_seconds is not None else len(ages))
            after = ours.process.cpu_times()
    cpu = after.user + after.system - before.user - before.system
    figures = {
        "wall_s": float(seconds),
        "deltas_per_s": pushed.done / pushed.seconds,
        "unfolded_median": float(np.median(unfolded)),
        "unfolded_max": float(max(unfolded)),
        "age_median_s": float(np.median(ages)),
        "age_max_s": float(max(ages)),
        "server_cpu_s": cpu,
    }
    return [_row(f"{RATE:,} deltas/s for {seconds} s, compacting at {RATE * 5:,}", "driftline", figures)]


class _Paced(threading.Thread):
    def __init__(self, ours: Ours, seconds: int) -> None:
        super().__init__()
        self.ours, self.seconds, self.done = ours, float(seconds), 0

    def run(self) -> None:
        import httpx

        from benchmarks.data_gateway import push_bodies

        token = self.ours.tokens.read_text().split()[0]
        begun = time.perf_counter()
        with httpx.Client(base_url=self.ours.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
            for body in push_bodies("client-0", int(self.seconds * RATE) // 1000, 1000):
                assert http.post("/sync/bench/push", content=body).status_code == 200
                self.done += 1000
                time.sleep(max(0.0, self.done / RATE - (time.perf_counter() - begun)))
        self.seconds = time.perf_counter() - begun


def _paced(ours: Ours, seconds: int) -> _Paced:
    thread = _Paced(ours, seconds)
    thread.start()
    return thread


def _state_cost(full: bool) -> list[Row]:
    """A thousand changed rows among many: what the compaction takes, and what of it is `state`."""
    from driftline.lake import Lake, compact

    count = 1_000_000 if full else 100_000
    with tempfile.TemporaryDirectory() as folder:
        lake = write_inserts(folder, count)
        compact(lake, TABLE)
        sizes = {part: _size(Path(folder) / "tables" / TABLE / part) for part in ("base", "state", "deltas")}
        add_updates(lake, np.arange(0, count, count // 1000), seed=3, start=START + 10 * count)
        begun = time.perf_counter()
        compact(Lake(folder), TABLE)
        wall = time.perf_counter() - begun
        grown = {part: _size(Path(folder) / "tables" / TABLE / part) - sizes[part] for part in ("base", "state")}
    figures = {"wall_s": wall, **{f"{part}_mb": size / 1e6 for part, size in sizes.items()}}
    figures |= {f"{part}_written_mb": size / 1e6 for part, size in grown.items()}
    return [_row(f"1,000 updates into {count:,} rows", "driftline", figures)]


def _flushes(full: bool) -> list[Row]:
    """CPU of a flush after many, compacted and with its log cut as a gateway does; nothing is as old as 30 days."""
    from driftline.deltas import ColumnDelta, RowDelta, TableSchema
    from driftline.lake import FlushTarget, LogRange, compact, cut_logs, register

    last, window = (10_000 if full else 1_000), 100  # a checkpoint is written every hundred commits
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        store = FlushTarget(folder)
        register(store.lake, TableSchema("t", [{"name": "x", "type": "number"}]))
        for number in range(1, last + 1):
            entry = [ColumnDelta("x", number)]
            made = RowDelta.make(
                op="INSERT", table="t", row_id=str(number % 500), client_id="c", columns=entry, hlc=number << 16
            )
            begun = time.process_time()
            store.append("t", [made], LogRange("bench", "ab" * 8, number, number))
            spent.append((time.process_time() - begun) * 1000)
            if number % (window // 2) == 0:
                compact(store.lake, "t")
                cut_logs(store.lake, "t", 30)
        files = len(list(Path(folder, "tables/t/deltas/_delta_log").iterdir()))
    figures = {"wall_s": sum(spent) / 1000, "log_files": float(files)}
    for number in (window, last):
        end = min(number + window // 2, last)
        figures[f"cpu_ms_at_{number}"] = float(np.median(spent[end - window : end]))
    return [_row(f"flush number {last:,} against number {window}", "driftline", figures)]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def _postgres() -> Iterator[str | None]:
    """A server of its own with its default settings, or None where there is none."""
    programs = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)
    if programs is None:
        print("  no PostgreSQL here", file=sys.stderr)
        yield None
        return
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="driftline-bench-"))
    if user:
        shutil.chown(folder, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    control = [*user, str(programs / "pg_ctl"), "-D", str(folder / "data")]
    create = [*user, str(programs / "initdb"), "-D", str(folder / "data"), "-U", "bench", "-A", "trust"]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    try:
        subprocess.run(create, check=True, capture_output=True, cwd="/")
        start = [*control, "-o", options, "-l", str(folder / "log"), "-w", "start"]
        subprocess.run(start, check=True, capture_output=True, cwd="/")
        yield f"postgresql://bench@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True, cwd="/", check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _client_store(full: bool) -> list[Row]:
    """A client's store in memory, a tenth of the rows and all of them in turn: no cost grows with the table."""
    from driftline.client import Store

    sizes = (10_000, 100_000)
    stores = [Store(":memory:", "bench", indexes={"todos": ["owner", "due"]}) for _ in sizes]
    times: list[dict[str, list[float]]] = [{} for _ in sizes]
    for store, size in zip(stores, sizes, strict=True):
        for number in range(size):
            store.put("todos", str(number), {"title": f"to do {number}", "owner": f"o{number // 10}", "due": number})
    between = [{"column": "due", "op": "gte", "value": 5_000}, {"column": "due", "op": "lt", "value": 5_010}]
    actions = {
        "put_ms": lambda store, turn: store.put("todos", str(turn), {"title": f"again {turn}"}),
        "get_ms": lambda store, turn: store.get("todos", str(turn)),
        "query_equal_ms": lambda store, turn: store.query(
            "todos", [{"column": "owner", "op": "eq", "value": f"o{turn}"}]
        ),
        "query_range_ms": lambda store, turn: store.query("todos", between),
    }
    for turn in range(1000 if full else 200):
        for name, action in actions.items():
            for store, taken in zip(stores, times, strict=True):
                start = time.perf_counter()
                action(store, turn)
                taken.setdefault(name, []).append((time.perf_counter() - start) * 1000)
    figures = [{name: float(np.median(each)) for name, each in taken.items()} for taken in times]
    cases = zip(sizes, figures, strict=True)
    return [_row(f"client's store of {size:,} rows in memory", "driftline", each) for size, each in cases]
