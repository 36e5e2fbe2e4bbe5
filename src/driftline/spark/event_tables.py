"""Events as a table, made by tasks: they write the lines, count them, and turn them into Parquet where they lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from driftline.core._files import output_place
from driftline.core._objects import ObjectPath
from driftline.core._parts import PartWriter
from driftline.sinks._formats.table import known_version, write_table
from driftline.spark.runtime.session import open_session
from driftline.spark.scratch import scratch_place
from driftline.spark.task_pool import TaskPool
from driftline.tables._engines import DiffJob, Engine, diff_to_table
from driftline.tables._events import Stats


def diff_to_table_on_spark(run: Engine, job: DiffJob, output: str, format_name: str) -> Stats:
    """The same table as the local engine's; where tasks share nothing but the output, the driver makes it."""
    target = output_place(output)
    with open_session(job.master) as spark, scratch_place(spark) as scratch:
        if scratch is None or (isinstance(scratch, ObjectPath) and isinstance(target, Path)):
            return diff_to_table(run, job, output, format_name)
        known = known_version(target, format_name)
        if isinstance(target, Path):
            target = target.absolute()
            target.mkdir(parents=True, exist_ok=True)
        lines = PartWriter(scratch / "lines")
        stats = run(replace(job, parts=lines), lines.write)
        lines.commit()
        write_table(lines.folder, target, format_name, known, TaskPool(spark, job.tracker, "table").map)
    return stats
