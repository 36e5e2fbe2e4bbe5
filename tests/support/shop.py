"""A small shop: seeded daily snapshots, a pipeline over them, and ways to look at what a run left behind."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import driftline
from driftline.pipeline import RunRecord, load, run_pipeline
from support.processes import start_process

SOURCE = str(Path(driftline.__file__).parents[1])
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
HEADER = ["id", "name", "price"]

PIPELINE = """\
[pipeline]
name = "shop"

[lake]
path = "lake"

[tables.customers]
snapshots = "data/customers-{date}.csv"
key = ["id"]
columns = { price = "number" }
events = "out/customers-{to}.jsonl"
deltas = true
compact = true

[[tables.customers.state]]
path = "out/customers-day-two.jsonl"
as_of = "2026-03-02"

[[tables.customers.state]]
path = "out/customers-now.csv"
format = "csv"

[tables.orders]
snapshots = "data/orders-{date}.csv"
key = "id"
events = "out/orders-{to}.jsonl"
deltas = true
compact = true
"""

Rows = dict[str, list[str]]


def make_shop(directory: Path, text: str = PIPELINE, rows: int = 300) -> Path:
    """Three days of two tables, and the pipeline file."""
    (directory / "data").mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(("customers", "orders")):
        chance = random.Random(number)
        state: Rows = {str(i): [str(i), f"{table} {i}", f"{chance.randrange(10_000) / 100}"] for i in range(rows)}
        for day in DAYS:
            write_snapshot(directory / f"data/{table}-{day}.csv", state)
            state = next_day(state, chance)
    file = directory / "shop.toml"
    file.write_text(text)
    return file


def next_day(state: Rows, chance: random.Random) -> Rows:
    """Some rows change, some go, some come."""
    after = {key: list(row) for key, row in state.items()}
    for key in chance.sample(sorted(after), 12):
        after[key][2] = f"{chance.randrange(10_000) / 100}"
    for key in chance.sample(sorted(after), 3):
        del after[key]
    for _ in range(4):
        key = str(chance.randrange(10**6, 10**7))
        after[key] = [key, "new", "1.5"]
    return after


def write_snapshot(path: Path, state: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([HEADER, *state.values()])


def read_snapshot(path: Path) -> Rows:
    with path.open(newline="", encoding="utf-8") as source:
        return {row[0]: row for row in list(csv.reader(source))[1:]}


def change_snapshot(path: Path, edit) -> None:
    """Rewrite a snapshot after `edit(rows)`."""
    state = read_snapshot(path)
    edit(state)
    write_snapshot(path, state)


def run(file: Path, **options) -> RunRecord:
    return run_pipeline(load(file), **options)


def results(record: RunRecord) -> dict[str, str]:
    return {stage.stage: stage.result for stage in record.stages}


def output_bytes(directory: Path) -> dict[str, str]:
    """A hash of every file below out/."""
    found = sorted(path for path in (directory / "out").rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def lake_rows(directory: Path, table: str, day: str | None = None) -> dict[str, dict]:
    """The rows that the lake has for a table, now or at the end of a day."""
    from driftline.lake import Lake
    from driftline.lake._read.state import state_rows
    from driftline.pipeline._declare.snapshots import parse_period

    as_of = parse_period(day).end if day else None
    return dict(state_rows(Lake(directory / "lake"), table, as_of=as_of))


def snapshot_rows(directory: Path, table: str, day: str, numbers: tuple[str, ...] = ()) -> dict[str, dict]:
    """A snapshot as plain Python reads it."""
    found = {}
    for key, row in read_snapshot(directory / f"data/{table}-{day}.csv").items():
        cells = dict(zip(HEADER, row, strict=True))
        found[key] = {name: float(cell) if name in numbers else cell for name, cell in cells.items()}
    return found


def assert_lake_is_the_snapshots(directory: Path, days: tuple[str, ...] = DAYS) -> None:
    """The promise of loading: the lake's state as of each day is that day's snapshot."""
    for table, numbers in (("customers", ("price",)), ("orders", ())):
        for day in days:
            assert lake_rows(directory, table, day) == snapshot_rows(directory, table, day, numbers), (table, day)


def start_cli(file: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`driftline pipeline run` in its own process."""
    return start_process(
        [sys.executable, "-m", "driftline", "pipeline", "run", file.name, *arguments],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def last_record(directory: Path) -> dict:
    newest = sorted((directory / ".driftline/shop/runs").glob("*.json"))[-1]
    return json.loads(newest.read_text())
