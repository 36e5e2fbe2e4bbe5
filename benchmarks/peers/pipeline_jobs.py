"""The jobs of a nightly run, each alone in one warm Spark session: `pipeline_jobs.py DIR` fills out/seconds.json.

For each table: diff, deltas of its events into the lake, compaction, patchset of its events; plain calls of the rooms,
nothing of the pipeline. What the session's start and its first jobs take is not counted, so these are warm times.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from driftline.core import Workspace, line_ranges
from driftline.lake import Lake, compact, registered
from driftline.lake._load.ingest import Extraction, commit_ingested, plan_ingest
from driftline.spark import events_to_changeset, ingest_on_spark, lake_engine, open_session
from driftline.spark._lake import survey_on_spark
from driftline.tables import TableDiffJob, check_options, find_engine

MASTER = "local[2]"
WARM_ROWS = 20_000


@dataclass(frozen=True)
class Work:
    """One table: its two nights, the lake that holds the first one, and where results go."""

    session: Any
    table: str
    before: Path
    after: Path
    lake: Lake
    out: Path

    @property
    def job(self) -> TableDiffJob:
        return TableDiffJob(str(self.before), str(self.after), check_options(key_columns=["id"]), master=MASTER)

    @property
    def events(self) -> Path:
        return self.out / f"{self.table}.jsonl"


def diff(work: Work) -> None:
    with work.events.open("wb", buffering=1 << 20) as out:
        find_engine("spark")(work.job, out.write)


def deltas(work: Work) -> None:
    ranges = line_ranges(work.events)
    numbered, before = [], 0
    for lines, found in zip(ranges, survey_on_spark(work.session, ranges), strict=True):
        numbered.append((lines, before))
        before += found.events
    start = (time.time_ns() // 1_000_000) << 16
    extraction = Extraction(work.table, "jobs", start, registered(work.lake, work.table))
    plan = plan_ingest(work.lake, [work.table], "jobs", extraction)
    commit_ingested(plan, ingest_on_spark(work.session, plan, numbered), "jobs")


def compaction(work: Work) -> None:
    compact(work.lake, work.table, engine=lake_engine(work.session))


def patchset(work: Work) -> None:
    header = json.loads(work.events.open().readline())["columns_b"]
    with Workspace() as workspace, (work.out / f"{work.table}.patchset").open("wb") as out:
        events_to_changeset(
            work.session,
            str(work.events),
            out,
            "patchset",
            folder=Path(workspace.folder),
            table=work.table,
            types=dict.fromkeys(header, "TEXT"),
        )


JOBS: tuple[Callable[[Work], None], ...] = (diff, deltas, compaction, patchset)


def main(directory: Path) -> None:
    """`directory` holds data/, lake/ with the first night, and takes out/."""
    out = directory / "out"
    out.mkdir(exist_ok=True)
    nights: dict[str, list[Path]] = {}
    for path in sorted((directory / "data").glob("*.csv")):
        nights.setdefault(path.name.partition("-")[0], []).append(path)
    with open_session(MASTER) as session:
        warm_up(session, out)
        seconds = {
            f"{job.__name__} {table}": timed(partial(job, Work(session, table, *pair, Lake(directory / "lake"), out)))
            for table, pair in nights.items()
            for job in JOBS
        }
    (out / "seconds.json").write_text(json.dumps(seconds))


def timed(job: Callable[[], None]) -> float:
    started = time.monotonic()
    job()
    return time.monotonic() - started


def warm_up(session: Any, out: Path) -> None:
    """Every job once on a small table, twice over: Python workers are up and the JVM has seen the code."""
    from driftline.deltas import TableSchema
    from driftline.lake import register

    folder = out / "warm"
    folder.mkdir()
    pair = [folder / f"warm-{side}.csv" for side in "ab"]
    for path in pair:
        lines = (f"{number},{path.stem if number % 9 == 0 else ''}" for number in range(WARM_ROWS))
        path.write_text("id,x\n" + "\n".join(lines) + "\n")
    for turn in range(2):
        lake = Lake(folder / f"lake-{turn}")
        register(lake, TableSchema("warm", [{"name": "id", "type": "string"}, {"name": "x", "type": "string"}], ["id"]))
        for job in JOBS:
            job(Work(session, "warm", *pair, lake, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
