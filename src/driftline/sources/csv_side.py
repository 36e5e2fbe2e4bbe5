"""The records of one side, read the exact way; part files follow each other under one header."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from driftline.errors import TableError
from driftline.files import naming_the_file
from driftline.sources.csv_exact import stream_records
from driftline.sources.inputs import Input, InputFile


def side_records(source: Input, side: str) -> Iterator[list[str]]:
    """Header first, then every record of every file."""
    header: list[str] | None = None
    for file in source.files:
        records = file_records(file, side, source.delimiter)
        own = next(records)
        if header is None:
            header = own
            yield header
        elif own != header:
            raise part_mismatch(side, file.name)
        yield from records


def file_records(file: InputFile, side: str, delimiter: str) -> Iterator[list[str]]:
    """All records of one file; afterwards the file must be what it was before."""
    with naming_the_file(file.name), open(file.path, "rb") as stream:
        yield from stream_records(stream, side=side, delimiter=delimiter)
    file.check_unchanged()


def head_records(source: Input, side: str, count: int) -> list[list[str]]:
    """The header and the first `count` records of a side that is known to be sound."""
    first = source.files[0]
    with naming_the_file(first.name), open(first.path, "rb") as stream:
        records = stream_records(stream, side=side, delimiter=source.delimiter, known_encoding=True)
        return list(islice(records, count + 1))


def part_mismatch(side: str, name: str) -> TableError:
    """The error for a part file with another header than the first part."""
    return TableError(
        f"Header mismatch: the parts of {side} have different headers (first seen in {name})",
        code="header_mismatch",
        side=side,
    )
