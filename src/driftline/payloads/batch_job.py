"""A batch of comparisons as data: where pairs come from, which schemas apply, and how input is cut into splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from driftline.errors import InputError, PayloadError
from driftline.files import AnyPath, compression_of, explain_io_errors, open_to_read, size_of
from driftline.payloads.comparison import PayloadPlan
from driftline.payloads.comparison import compile as compile_schema
from driftline.payloads.path_rules import PathRule
from driftline.payloads.schema_files import Bundle
from driftline.storage.objects import is_url

SPLIT_BYTES = 64 << 20

Role = Literal["pairs", "old", "new"]


@dataclass(frozen=True, slots=True)
class Source:
    """A file of pairs, or of one side."""

    path: str
    role: Role
    size: int

    @property
    def is_parquet(self) -> bool:
        """Whether the file is Parquet, by its name."""
        return self.path.endswith((".parquet", ".pq"))


@dataclass(frozen=True, slots=True)
class BatchJob:
    """Everything a task needs to know."""

    sources: tuple[Source, ...]
    schemas: Mapping[str | None, bytes | Bundle]
    config: Mapping[str, Any] = field(default_factory=dict)
    root: str | None = None
    id_name: str = "id"
    flags: tuple[PathRule, ...] = ()
    masked: tuple[str, ...] = ()
    mask_key: bytes | None = None  # one for all tasks of a run
    headers: tuple[str, ...] | None = None  # None: records hold payloads; else whole answers, with these headers
    schema_names: Mapping[str | None, str] = field(default_factory=dict)

    def plan(self, endpoint: str | None) -> PayloadPlan:
        """The plan of an endpoint; None is the schema for all others."""
        schema = self.schemas.get(endpoint, self.schemas.get(None))
        if schema is None:
            raise PayloadError(f"no schema for the endpoint {endpoint!r}", details={"reason": "unknown endpoint"})
        return compile_schema(schema, self.config, self.root, flags=self.flags, is_record=self.headers is not None)

    @property
    def size(self) -> int:
        """The bytes of all sources."""
        return sum(source.size for source in self.sources)


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of a source: a byte range of lines, or a range of Parquet row groups."""

    number: int
    source: Source
    start: int
    end: int


def open_source(path: AnyPath, role: Role) -> Source:
    """A source that exists."""
    name = str(path)
    if is_url(name):
        return Source(name, role, size_of(name))
    with explain_io_errors(name):
        size = Path(name).stat().st_size
    if Path(name).is_dir():
        raise InputError(f"{name} is a directory, a file is wanted", code="is_a_directory", path=name)
    return Source(name, role, size)


def splits_of(job: BatchJob, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """The job's input in pieces that tasks can read on their own."""
    splits: list[Split] = []
    for source in job.sources:
        for start, end in _ranges(source, split_bytes):
            splits.append(Split(len(splits), source, start, end))
    return splits


def _ranges(source: Source, split_bytes: int) -> Iterator[tuple[int, int]]:
    if source.is_parquet:
        yield from _row_groups(source.path, split_bytes)
    elif compression_of(source.path) != "plain":
        yield 0, source.size  # a compressed stream is read from its start
    else:
        for start in range(0, max(source.size, 1), split_bytes):
            yield start, min(start + split_bytes, source.size)


def _row_groups(path: str, split_bytes: int) -> Iterator[tuple[int, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_to_read(path) as file:
            metadata = pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path} is not a Parquet file: {error}", code="corrupt_parquet", path=path) from None
    start, size = 0, 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= split_bytes:
            yield start, group + 1
            start, size = group + 1, 0
    if start < metadata.num_row_groups:
        yield start, metadata.num_row_groups
