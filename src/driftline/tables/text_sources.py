"""CSV tables that are read as a whole, to be written again."""

from __future__ import annotations

from driftline.errors import InputError
from driftline.files import StrPath
from driftline.sources.csv_reading import TextTable
from driftline.sources.formats.csv import CsvSource
from driftline.sources.inputs import open_source
from driftline.sources.workspace import Workspace
from driftline.tables.options import DiffOptions


def open_text(
    given: StrPath, side: str, options: DiffOptions, workspace: Workspace
) -> tuple[CsvSource, TextTable, list[list[str]]]:
    """A CSV source, its table, and the record that stands above its rows, as it is in the file."""
    source = open_source(given, workspace, options.reading(side))
    if not isinstance(source, CsvSource):
        raise InputError(f"{given} is {source.format}: only CSV tables can be written again", code="unsupported_format")
    table = source.text_table(side)
    return source, table, [] if source.reading.no_header else [source.first_record(side)]
