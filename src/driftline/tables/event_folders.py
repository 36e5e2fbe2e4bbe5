"""A diff whose events go into a folder of ordered parts, or into a table (storage §4, §6)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from driftline.core._files import output_place
from driftline.core._parts import PartWriter
from driftline.errors import OptionError
from driftline.tables.engines import DiffJob, Engine
from driftline.tables.stats import Stats


def check_folder(output: str, format_name: str, limit: int | None) -> None:
    """Raise for what a folder or a table cannot hold."""
    if format_name not in ("jsonl", "parquet", "delta"):
        raise OptionError(
            f"a folder of parts holds jsonl or parquet, not {format_name}: name a file, without / at the end",
            code="invalid_option_combination",
        )
    if limit is not None:
        raise OptionError(
            "--limit makes a list for people: write it to a file or a pipe", code="invalid_option_combination"
        )
    output_place(output)


def diff_to_folder(run: Engine, job: DiffJob, output: str) -> Stats:
    """Write the events as parts; the folder changes when all of them are there."""
    with writing_parts(output) as parts:
        return run(replace(job, parts=parts), parts.write)


@contextmanager
def writing_parts(output: str) -> Iterator[PartWriter]:
    """A writer whose parts become the folder's content at the end of the block, and are removed after an error."""
    parts = PartWriter(output_place(output))
    try:
        yield parts
        parts.commit()
    except BaseException:
        parts.discard()
        raise


def diff_to_table(run: Engine, job: DiffJob, output: str, format_name: str) -> Stats:
    """Write the events as a table: a folder of Parquet parts, or a Delta table."""
    from driftline.sinks._formats.table import known_version, write_table

    target = output_place(output)
    known = known_version(target, format_name)
    if isinstance(target, Path):
        target.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="driftline-events-", suffix=".jsonl") as spool:
        stats = run(job, spool.write)
        spool.flush()
        write_table(spool.name, target, format_name, known)
    return stats
