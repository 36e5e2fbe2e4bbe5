"""When the columns of a table change from one snapshot to the next: what is compared and loaded then (pipeline §2).

Every snapshot gets a shape, which is the columns that it has for the pipeline: those of the snapshots before it, with
new ones added or ignored and missing ones filled, as declared. A snapshot whose own columns are others is rewritten
into its shape before it is compared or loaded.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftline.core._files import text_into
from driftline.core._objects import Place
from driftline.core._workspace import Workspace
from driftline.errors import PipelineError
from driftline.sources._open import open_source
from driftline.sources._source import ReadOptions, Source

NEW_COLUMN = ("fail", "ignore", "add")
MISSING_COLUMN = ("fail", "null")
TYPE_CHANGE = ("fail", "refresh")

_SPLIT_BYTES = 8 << 20
_NULL = "null"


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """What happens when columns come, go, or change their declared type."""

    on_new_column: str = "fail"
    on_missing_column: str = "fail"
    on_type_change: str = "fail"

    @property
    def is_active(self) -> bool:
        """Whether snapshots may have other columns than the ones before them."""
        return self.on_new_column != "fail" or self.on_missing_column != "fail"


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a snapshot for the pipeline; `missing` are filled, `ignored` left out, `added` new in it."""

    columns: tuple[str, ...]
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the snapshot has these columns itself."""
        return not self.missing and not self.ignored

    def notes(self) -> list[str]:
        """What happened, in words for the record of a run."""
        words = (("was added", self.added), ("was ignored", self.ignored), ("is missing and null", self.missing))
        return [f"column {name!r} {what}" for what, names in words for name in names]

    def widened(self, columns: Sequence[str]) -> Shape:
        """The same snapshot with the columns of the next one, for their comparison."""
        own = set(self.columns) - set(self.missing)
        return Shape(tuple(columns), tuple(name for name in columns if name not in own), self.ignored)


def shapes_of(
    labels: Sequence[str], headers: Sequence[Sequence[str]], policy: SchemaPolicy, known: Sequence[str] = ()
) -> list[Shape]:
    """The shape of every snapshot in its turn; the first one's columns, or those that the lake knows, are given.

    >>> [shape.columns for shape in shapes_of("12", [["a"], ["a", "b"]], SchemaPolicy("add"))]
    [('a',), ('a', 'b')]
    """
    columns = tuple(headers[0])
    if known and policy.on_new_column == "ignore":  # what was ignored when it was new stays so when it is old
        columns = tuple(name for name in columns if name in known)
    found = []
    for label, header in zip(labels, headers, strict=True):
        new = tuple(name for name in header if name not in columns)
        missing = tuple(name for name in columns if name not in header)
        _refuse(label, "has a new column", new, policy.on_new_column, "on_new_column", "add or ignore")
        _refuse(label, "lacks the column", missing, policy.on_missing_column, "on_missing_column", "null")
        ignored = new if policy.on_new_column == "ignore" else ()
        added = () if ignored else new
        columns = (*columns, *added)
        found.append(Shape(columns, missing, ignored, added))
    return found


def header_of(given: str, options: ReadOptions) -> tuple[str, ...]:
    """The columns that a snapshot has itself."""
    with Workspace() as workspace:
        return open_source(given, workspace, options).header("B")


def reshaped(given: str, options: ReadOptions, shape: Shape, folder: Place, name: str) -> str:
    """The snapshot in its shape: itself, or a copy in `folder`; a column that it lacks is empty or null."""
    with Workspace() as workspace:
        source = open_source(given, workspace, options)
        if source.header("B") == shape.columns:
            return given
        target = folder / f"{name}{'.jsonl' if source.typed else Path(_uncompressed(given)).suffix or '.csv'}"
        if source.typed:
            _write_json(source, shape, workspace, target)
        else:
            _write_csv(source, shape, options, target)
    return str(target)


def _refuse(label: str, what: str, names: tuple[str, ...], policy: str, option: str, choices: str) -> None:
    if names and policy == "fail":
        listed = ", ".join(map(repr, names))
        raise PipelineError(
            f"snapshot {label} {what} {listed}: declare {option} = {choices}, or mend the source",
            code="header_mismatch",
        )


def _write_csv(source: Source, shape: Shape, options: ReadOptions, target: Place) -> None:
    records = source.records("B")
    assert records is not None, "text has a strict reader"
    header = next(records)
    places = [header.index(name) if name in header else None for name in shape.columns]
    usual = "\t" if target.suffix in (".tsv", ".tab") else ","
    delimiter = usual if options.delimiter in (None, "auto") else options.delimiter or usual
    with text_into(target, options.encoding) as out:
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        writer.writerow(shape.columns)
        for record in records:
            if len(record) != len(header):
                raise PipelineError(f"a row has {len(record)} cells, the header {len(header)}", code="ragged_row")
            writer.writerow("" if place is None else record[place] for place in places)


def _write_json(source: Source, shape: Shape, workspace: Workspace, target: Place) -> None:
    """Cells of typed sources are JSON text already, so that no value passes through another type."""
    names = [json.dumps(name, ensure_ascii=False) for name in shape.columns]
    with text_into(target, "utf-8") as out:
        for cells in _typed_rows(source, shape, workspace):
            out.write("{" + ",".join(f"{name}:{cell}" for name, cell in zip(names, cells, strict=True)) + "}\n")


def _typed_rows(source: Source, shape: Shape, workspace: Workspace) -> Iterator[tuple[str, ...]]:
    side = source.lay_out("B", _SPLIT_BYTES, workspace)
    assert side is not None, "only text has to be made sound first"
    for split in side.splits:
        table = split.read().table
        assert table is not None, "typed rows are always sound"
        columns = [
            table.column(name).to_pylist() if name in table.column_names else [_NULL] * table.num_rows
            for name in shape.columns
        ]
        yield from zip(*columns, strict=True)


def _uncompressed(given: str) -> str:
    for ending in (".gz", ".zst", ".zstd"):
        given = given.removesuffix(ending)
    return given
