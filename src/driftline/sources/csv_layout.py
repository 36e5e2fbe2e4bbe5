"""CSV files to splits: the quick way where it is proven right, through a rewritten copy where it is not."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from driftline.files import naming_the_file
from driftline.sources.csv_exact import rewrite_soundly
from driftline.sources.csv_quotes import quoting_is_sound
from driftline.sources.csv_side import part_mismatch
from driftline.sources.csv_splits import ByteRange, plan_file, record_bytes
from driftline.sources.inputs import Input, InputFile
from driftline.sources.splits import CsvSplit, SplitSide
from driftline.sources.workspace import Workspace


def lay_out(source: Input, side: str, split_bytes: int, pool: Executor | None = None) -> SplitSide | None:
    """The splits of a side, or None where a header cannot be read the quick way."""
    layouts = [plan_file(file, source.delimiter, split_bytes, pool) for file in source.files]
    header = layouts[0].header
    if header is None or any(layout.header is None for layout in layouts):
        return None
    for file, layout in zip(source.files, layouts, strict=True):
        if layout.header != header:
            raise part_mismatch(side, file.name)
    ranges = [one for layout in layouts for one in layout.ranges]
    splits = tuple(CsvSplit(one, tuple(header), source.delimiter) for one in ranges)
    return SplitSide(tuple(header), splits, int(source.size / record_bytes(ranges)))


def make_sound(source: Input, side: str, workspace: Workspace, pool: Executor | None = None) -> Input:
    """The same side with every file provably sound; raises what the exact way finds wrong."""
    files = tuple(_sound_file(file, source.delimiter, side, workspace, pool) for file in source.files)
    return replace(source, files=files)


def _sound_file(file: InputFile, delimiter: str, side: str, workspace: Workspace, pool: Executor | None) -> InputFile:
    layout = plan_file(file, delimiter, 16 << 20, pool)
    check = partial(range_is_sound, delimiter=delimiter)
    if layout.header is not None and all((pool.map if pool else map)(check, layout.ranges)):
        return file
    target = workspace.new_file("rewritten.csv")
    with naming_the_file(file.name), open(file.path, "rb") as stream, open(target, "wb") as out:
        rewrite_soundly(stream, out, side=side, delimiter=delimiter)
    file.check_unchanged()
    return InputFile.of(target, file.name)


def range_is_sound(part: ByteRange, delimiter: str) -> bool:
    """Whether a range is soundly quoted UTF-8."""
    data = part.read()
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return quoting_is_sound(data, delimiter)
