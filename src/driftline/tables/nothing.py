"""An empty table with the columns of another one, so that a whole snapshot is the difference from nothing.

The header is what the source itself says: there is no second opinion about what the columns are.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from driftline.core._files import atomic_write, text_into
from driftline.core._objects import Place
from driftline.core._workspace import Workspace
from driftline.sources.inputs import open_source
from driftline.sources.port import ReadOptions


def is_text(given: str, options: ReadOptions | None = None) -> bool:
    """Whether the cells are text (CSV, TSV) and not typed values."""
    with Workspace() as workspace:
        return not open_source(given, workspace, options).typed


def header_of(given: str, options: ReadOptions | None = None) -> tuple[str, ...]:
    """The columns in order."""
    with Workspace() as workspace:
        return open_source(given, workspace, options).header("B")


def write_nothing(given: str, options: ReadOptions, folder: Place) -> Place:
    """A file in `folder` with the columns of `given` and no rows, to be read under the same options."""
    with Workspace() as workspace:
        source = open_source(given, workspace, options)
        header, typed = source.header("B"), source.typed
    return _empty_parquet(header, folder) if typed else _empty_csv(header, options, given, folder)


def _empty_csv(header: Sequence[str], options: ReadOptions, given: str, folder: Place) -> Place:
    # The ending says the delimiter where no option does, so the empty file has the same one.
    is_tabbed = options.delimiter is None and {".tsv", ".tab"} & set(Path(given).suffixes)
    delimiter = "\t" if is_tabbed else "," if options.delimiter in (None, "auto") else options.delimiter
    target = folder / ("nothing.tsv" if is_tabbed else "nothing.csv")
    with text_into(target, options.encoding) as out:
        writer = csv.writer(out, delimiter=delimiter or ",", lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(header)
    return target


def _empty_parquet(header: Sequence[str], folder: Place) -> Place:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = folder / "nothing.parquet"
    with atomic_write(target) as out:
        pq.write_table(pa.table({name: pa.array([], pa.string()) for name in header}), out)
    return target
