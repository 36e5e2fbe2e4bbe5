"""Tables of a session's catalogs as inputs: `spark:catalog.schema.table`, with `@version` where a format has them.

Spark's tasks read a table where its data is and write its rows once, as Parquet parts, to storage that all tasks see.
Engines read those parts; the driver gets their names. So rows that come in another order or change meanwhile (a view,
a table of a database) are the same rows for every step.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline import core
from driftline.errors import InputError
from driftline.sources import Source, SplitSide, cell_lines, json_columns, open_source, rows_digest
from driftline.spark import _jobs as jobs
from driftline.spark._runtime.session import active_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART_BYTES = 64 << 20  # of rows in memory; a part is one split


def open_input(address: Any, opening: Any) -> CatalogSource:
    """The table or view, as of its version."""
    from driftline.spark._runtime.pyspark_internals import arrow_schema, newer_type

    session, name, version = _session(address.text), _quoted(address.path), address.version
    with _explained(address.text):
        session.catalog.refreshTable(name)  # files may have come since the session last looked
        travel = f"VERSION AS OF {version}" if (version or "").isdigit() else f"TIMESTAMP AS OF '{version}'"
        relation = f"{name} {travel}" if version else name
        frame = _rows(session, relation)
        variant = next(
            (each.name for each in frame.schema if isinstance(each.dataType, newer_type("VariantType"))), None
        )
        if variant is not None:
            words = f'{address.text}: column "{variant}" is a variant: cast it to text in a view'
            raise InputError(words, code="unsupported_type", column=variant)
        return CatalogSource(address.text, relation, arrow_schema(frame))


def tables_beside(address: Any) -> list[str]:
    """The tables and views of the schema."""
    session, (schema, mark, _) = _session(address.text), address.path.rpartition(".")
    version = f"@{address.version}" if address.version else ""
    with _explained(address.text):
        found = session.sql(f"SHOW TABLES IN {_quoted(schema)}" if schema else "SHOW TABLES").collect()
    return [f"spark:{schema}{mark}{row['tableName']}{version}" for row in found]


@dataclass(frozen=True)
class CatalogSource(Source):
    """A table of the session; `relation` is how SQL names it at its version."""

    text: str
    relation: str
    schema: pa.Schema
    format: str = "spark"
    seekable: bool = False
    ordered: bool = False

    @property
    def size(self) -> None:
        """It is not known."""

    def types(self) -> pa.Schema:
        return self.schema

    def lay_out(self, side: str, split_bytes: int, workspace: core.Workspace, pool: Any = None) -> SplitSide | None:
        return self.in_files(workspace.folder).lay_out(side, split_bytes, workspace, pool)

    def in_files(self, place: core.Location | None) -> Source:
        """The rows as a source that tasks can read."""
        if place is None:
            raise jobs.shared_folder_needed("tables of a catalog are copied into Parquet parts")
        copy, _ = self.copied(place / f"table-{secrets.token_hex(8)}", digested=False)
        with core.Workspace() as workspace:
            return open_source(copy, workspace)

    def copied(self, folder: core.Location | None, *, digested: bool = True) -> tuple[str, str]:
        """Write the rows into a folder: its address, and a text for the rows; without a folder only the text."""
        from driftline.spark import _tasks as tasks

        session, parts = _session(self.text), core.PartWriter(folder) if folder is not None else None
        with _explained(self.text):
            copy = partial(_copy_task, folder, self.schema, digested)
            frame = _rows(session, self.relation).mapInArrow(copy, tasks.frame_schema(tasks.RESULTS))
            rows = jobs.watched(session, core.no_progress(), f"read {self.text}", 0, frame.collect)
        found = tasks.results_of(rows) or [_copied_rows(folder, self.schema, digested, 0, [])]
        if parts is not None:
            parts.adopt(part for part, _ in found)
            parts.commit()
        return f"{folder}/", f"{sum(digest for _, digest in found)} {core.sha256_hex(str(self.schema))}"


def _copy_task(
    folder: core.Location | None, schema: pa.Schema, digested: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: write the rows of a partition; the driver gets the names of the parts and a number for the rows."""
    from pyspark import TaskContext

    from driftline.spark._tasks import prepare_worker, result_batch

    prepare_worker()
    number, held = getattr(TaskContext.get(), "partitionId", int)(), list[pa.RecordBatch]()
    for batch in batches:
        held.append(batch)
        if sum(each.nbytes for each in held) >= _PART_BYTES:
            yield result_batch(number, _copied_rows, folder, schema, digested, number, held)
            held = []
    if held:
        yield result_batch(number, _copied_rows, folder, schema, digested, number, held)


def _copied_rows(
    folder: core.Location | None, schema: pa.Schema, digested: bool, number: int, batches: list[pa.RecordBatch]
) -> tuple[Any, int]:
    """The part with these rows, if there is a folder, and the number for them, if it is requested."""
    import pyarrow.parquet as pq

    table, sink = pa.Table.from_batches(batches, batches[0].schema if batches else schema), pa.BufferOutputStream()
    lines = cell_lines(json_columns(table.cast(schema)), schema.names) if digested else ()
    digest = rows_digest(line.encode() for line in lines)
    if folder is None:
        return None, digest
    pq.write_table(table.cast(schema), sink)
    return core.write_part(folder, number, [memoryview(sink.getvalue())], ".parquet"), digest


def _session(text: str) -> SparkSession:
    session = active_session()
    if session is None:
        words = f"{text} is a table of a Spark catalog, which Spark alone reads, in a diff or a pipeline with a key"
        raise InputError(f"{words}: use --engine spark", code="needs_spark", path=text)
    return session


def _rows(session: SparkSession, relation: str) -> DataFrame:
    return session.sql(f"SELECT * FROM {relation}")  # noqa: S608 - its name is quoted


def _quoted(name: str) -> str:
    """A name of several parts as SQL writes it."""
    return ".".join("`{}`".format(part.replace("`", "``")) for part in name.split("."))


@contextmanager
def _explained(text: str) -> Iterator[None]:
    """What Spark says about a table, as one line."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        said = str(error).splitlines()[0][:300]
        if "NOT_FOUND" in said:
            words = f"{text} does not exist in this session: check the catalog's settings: {said}"
            raise InputError(words, code="not_found", path=text) from error
        raise InputError(f"{text}: {said}", code="unreadable_input", path=text) from error
