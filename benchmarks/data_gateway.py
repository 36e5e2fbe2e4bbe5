"""Data for the gateway's benchmarks: push bodies made beforehand, and large logs loaded in bulk. Seeded."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from driftline.deltas import Clock, ColumnDelta, RowDelta, physical_ms
from driftline.gateway._log.log import Entry
from driftline.gateway._log.sqlite import SqliteLog

CITIES = ("Zürich", "Bern", "Basel", "Genève", "Lugano", "Chur")
_LOAD_STEP = 20_000


def columns(number: int, choose: random.Random) -> list[ColumnDelta]:
    """Six columns of ordinary kinds."""
    return [
        ColumnDelta("id", number),
        ColumnDelta("name", f"Customer number {number}"),
        ColumnDelta("city", choose.choice(CITIES)),
        ColumnDelta("amount", round(choose.random() * 1000, 2)),
        ColumnDelta("active", choose.random() < 0.5),
        ColumnDelta("note", None if choose.random() < 0.3 else "checked and found in order"),
    ]


def push_bodies(client: str, batches: int, size: int) -> Iterator[bytes]:
    """Encoded pushes of one client, stamped now."""
    choose, clock = random.Random(client), Clock()
    for batch in range(batches):
        deltas = [
            RowDelta.make(
                op="INSERT",
                table="orders",
                row_id=f"{client}-{batch}-{number}",
                client_id=client,
                columns=columns(number, choose),
                hlc=clock.now(),
            ).to_wire()
            for number in range(size)
        ]
        yield json.dumps({"clientId": client, "deltas": deltas}, ensure_ascii=False).encode()


def loaded_log(path: Path, deltas: int) -> Path:
    """A data directory whose log holds that many deltas; made once and kept."""
    if (path / "complete").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    # A day ago, so that the clock is not ahead of what the benchmark pushes.
    clock = Clock(lambda: physical_ms() - 86_400_000)
    log = SqliteLog(path / "log.sqlite")
    pieces = [_piece(number) for number in range(1000)]
    for start in range(0, deltas, _LOAD_STEP):
        log.append([[_entry(start + number, clock.now(), pieces) for number in range(min(_LOAD_STEP, deltas - start))]])
        if start % (10 * _LOAD_STEP) == 0:
            log.checkpoint()
    log.advance(flushed=deltas)
    log.close()
    (path / "complete").touch()
    return path


def _piece(number: int) -> bytes:
    wire = RowDelta.make(
        op="INSERT",
        table="orders",
        row_id="-",
        client_id="loader",
        columns=columns(number, random.Random(number)),
        hlc=0,
    ).to_wire()
    return json.dumps(wire["columns"], ensure_ascii=False, separators=(",", ":")).encode()


def _entry(number: int, hlc: int, pieces: list[bytes]) -> Entry:
    """An entry of the usual size; its id is unique but not the hash of its content, which the log does not check."""
    digest = hashlib.sha256(b"%d" % number).digest()
    body = (
        b'{"op":"INSERT","table":"orders","rowId":"row-%d","clientId":"loader","columns":%b,"hlc":"%d","deltaId":"%b"}'
    )
    text = body % (number, pieces[number % len(pieces)], hlc, digest.hex().encode())
    return Entry(hlc, digest, 0, "orders", text)
