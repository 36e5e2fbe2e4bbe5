"""The protocols of readers: a format opens a source, a source is cut into splits (sources §2).

    source = open_source("orders.csv", workspace)
    side = source.lay_out("A", split_bytes=8 << 20, workspace=workspace)
    tables = [split.read().table for split in side.splits]

Engines, the pipeline and the survey use these members and never the kind of data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import islice
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from driftline.core import Location, Workspace, explain_os_error
from driftline.errors import DriftlineError, InputError, TableError
from driftline.sources._addresses import InputFile, known_suffix

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    import numpy as np
    import numpy.typing as npt
    import polars as pl
    import pyarrow as pa

    from driftline.sources._csv.strict import TextTable

AUTO = "auto"  # the delimiter is found in the first line
FileFingerprint = Callable[[InputFile], str]
_MAX_DIGITS = 38
_HEAD_ROWS = 6144
Pool: TypeAlias = "Executor | None"
RecordNumbers: TypeAlias = "npt.NDArray[np.int64]"  # counted from 0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a side is read; a delimiter of None is the one of the file's suffix."""

    delimiter: str | None = None
    encoding: str = "utf-8"
    no_header: bool = False
    rename_columns: bool = False
    ragged: Literal["error", "pad", "skip"] = "error"
    skip_blank_lines: bool = False
    skip_lines: int = 0  # above the header
    comment: str | None = None  # lines that start with it are left out
    inside: str | None = None  # what holds the rows in a file, as the part behind `::` of an address

    def delimiter_of(self, name: str) -> str:
        """The delimiter: the one that was given, else a tab for .tsv and .tab and a comma for other files."""
        if self.delimiter is not None and self.delimiter != AUTO:
            return self.delimiter
        return "\t" if known_suffix(name) in (".tsv", ".tab") else ","


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments of a format: plain files (none where the address is no file), options, a workspace."""

    files: tuple[InputFile, ...]
    options: ReadOptions
    workspace: Workspace


# What a format's own library raises while it reads, as one line about the input: said here, once for all formats.


_READING = (
    "header", "types", "fingerprint", "lay_out", "normalized", "records", "sample", "text_table",  # of a source
    "read", "pick", "count", "head", "typed_rows", "frame",  # of a split
)  # fmt: skip
_OURS = ("builtins", "driftline", "concurrent", "asyncio")


@contextmanager
def reading_errors(name: str) -> Iterator[None]:
    """Turn what is wrong with an input into one line; faults of driftline itself stay what they are.

    >>> with reading_errors("orders.dat"):  # doctest: +ELLIPSIS
    ...     b"\\xff".decode()
    Traceback (most recent call last):
    ...
    driftline.errors.InputError: orders.dat cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: ...
    """
    try:
        yield
    except (DriftlineError, BrokenPipeError, ImportError, MemoryError):
        raise
    except OSError as error:
        raise explain_os_error(error, error.filename if isinstance(error.filename, str) else name) from error
    except Exception as error:
        if not _is_of_the_input(error):
            raise
        words = f"{name} cannot be read: {first_line(error)} (is it complete, and of the format that its name says?)"
        raise InputError(words, code="unreadable_input", path=name) from error


@contextmanager
def explained(kinds: type[Exception] | tuple[type[Exception], ...], words: str, **about: Any) -> Iterator[None]:
    """Exceptions of a library as one line: what is wrong, and what the library says first."""
    try:
        yield
    except kinds as error:
        raise InputError(f"{words}: {first_line(error)}", **about) from error


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_of_the_input(error: Exception) -> bool:
    """Whether a library or a decoder complains about data: by the type of the error, or by where it was raised."""
    if isinstance(error, (UnicodeError, EOFError)) or type(error).__module__.partition(".")[0] not in _OURS:
        return True
    raised = error.__traceback__
    while raised is not None and raised.tb_next is not None:
        raised = raised.tb_next
    where = "driftline" if raised is None else str(raised.tb_frame.f_globals.get("__name__", ""))
    return isinstance(error, ValueError) and where.partition(".")[0] != "driftline"


def _explained(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def reading(self: Any, *given: Any, **options: Any) -> Any:
        files = self.files
        name = files[0].name if files else f"the {getattr(self, 'format', 'input')} table"
        with reading_errors(name):
            found = method(self, *given, **options)
        return _explained_rows(found, name) if isinstance(found, Iterator) else found

    return reading


def _explained_rows(rows: Iterator[Any], name: str) -> Iterator[Any]:
    with reading_errors(name):
        yield from rows


class _Reader:
    """Sources and splits: their reading methods say in one line what is wrong with their input."""

    __slots__ = ()

    @property
    def files(self) -> tuple[InputFile, ...]:
        """The files in the order of their rows, which must not change during a run."""
        return ()

    def __init_subclass__(cls) -> None:
        if "explained" in cls.__dict__:
            return  # the class is made again, with slots
        for name in _READING:
            method = cls.__dict__.get(name)
            if isinstance(method, FunctionType):  # some have a field of that name
                setattr(cls, name, _explained(method))
        cls.explained = True  # type: ignore[attr-defined]


class Source(_Reader, ABC):
    """One side of a diff for a scheduler: picklable, without open files or connections.

    What stands here is right for typed cells in files.
    """

    __slots__ = ()
    format: str
    typed: bool = True  # cells are the JSON text of typed values; else they are text
    seekable: bool = True  # splits are read in place; else `lay_out` copies all rows into the workspace
    ordered: bool = True  # rows have an order
    inner: str = ""  # what is read of its files: a table, a sheet or a query
    identity: str = ""  # of a content that never changes

    @property
    def size(self) -> int | None:
        """About how many bytes there are to read; None: not known."""
        return sum(file.size for file in self.files)

    def header(self, side: str) -> tuple[str, ...]:
        """The names of its columns, read with as little as possible."""
        declared = self.types()
        assert declared is not None, "a source has declared columns, or says how they are found"
        return tuple(declared.names)

    def types(self) -> pa.Schema | None:
        """The declared types of its columns, where it declares any."""

    def fingerprint(self, of_file: FileFingerprint) -> str | None:
        """A text for its current content; None: there is none, it must be read."""
        content = "+".join(map(of_file, self.files)) + (f"::{self.inner}" if self.inner else "")
        return self.identity or content or None

    @abstractmethod
    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide | None:
        """The splits, or None where `normalized` must be called first."""

    def copied(self, folder: Location | None) -> tuple[str, str] | None:
        """Copy the rows into a folder where the data is: their address and content; None: they are read here."""

    def normalized(self, side: str, workspace: Workspace, pool: Pool = None) -> Self:
        """The same rows rewritten so that they can be cut into splits; raises the errors in them."""
        return self

    def records(self, side: str, *, checked: bool = True) -> Iterator[list[str]] | None:
        """Header and rows by the strict text reader; None where cells are typed.

        Without `checked` the file is not checked to its end before the first record.
        """

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The cells of the first rows by column, read with as little as possible."""
        with Workspace() as workspace:
            laid_out = self.lay_out(side, 0, workspace)
            for split in laid_out.splits if laid_out else ():
                table = split.head()
                if table is not None and table.num_rows:
                    return {name: table.column(at).to_pylist()[:rows] for at, name in enumerate(table.column_names)}
        return {name: [] for name in self.header(side)}

    def text_table(self, side: str) -> TextTable | None:
        """The table in memory by the strict text reader; None where cells are typed."""

    def with_absolute_paths(self) -> Self:
        """The same source for processes in other folders."""
        moved: Any = {"files": tuple(file.with_absolute_path() for file in self.files)} if self.files else {}
        return replace(self, **moved)  # type: ignore[type-var]


class Split(_Reader, ABC):
    """Consecutive rows that can be read anywhere and more than once. A side is the rows of its splits, in order."""

    __slots__ = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """About how many bytes are read, for progress and balance."""

    @abstractmethod
    def read(self, part: RowPart | None = None) -> ParsedRange:
        """All rows as Arrow columns, at least those of a part if it is given, or their error."""

    def pick(self, records: RecordNumbers, known: RecordIndex | None = None) -> pa.Table:
        """Some rows (a NumPy array of numbers from 0, ascending) as an Arrow table."""
        return self.read().take(records)

    def count(self) -> Counted:
        """The numbers of records and of rows."""
        rows = self.read().records
        return Counted(rows, rows)

    def head(self) -> pa.Table | None:
        """Some of the first rows as an Arrow table, if they are cheap to read; else None."""
        return self.read().table


class TypedRows(Split):
    """A split of typed rows that can be compared without conversion to text."""

    __slots__ = ()

    @abstractmethod
    def typed_rows(self) -> pa.Table:
        """All rows as they are stored."""

    def frame(self) -> pl.DataFrame:
        """All rows in Polars, if it has columns of their types; read once, they can be fetched from it."""
        import polars as pl

        return pl.DataFrame(pl.from_arrow(self.typed_rows(), rechunk=False))

    def read(self, part: RowPart | None = None) -> ParsedRange:
        table = self.pick(None)
        return ParsedRange(table.num_rows, table)

    def pick(self, records: RecordNumbers | None, known: RecordIndex | None = None) -> pa.Table:
        from driftline.sources._cells import json_columns

        return json_columns(self.typed_rows(), records)

    def count(self) -> Counted:
        rows = self.typed_rows().num_rows
        return Counted(rows, rows)

    def head(self) -> pa.Table | None:
        """The first rows; the complete split is read for them."""
        from driftline.sources._cells import json_columns

        return json_columns(self.typed_rows().slice(0, _HEAD_ROWS))


class RowPart(NamedTuple):
    """What is read of text records: some columns, and the bytes of the records if requested."""

    columns: tuple[str, ...]
    text: bool = False


class RecordIndex(NamedTuple):
    """What is known of a split's records: their number, and the offset behind each or the rows themselves."""

    number: int | None = None
    ends: npt.NDArray[np.int32] | None = None
    frame: pl.DataFrame | None = None  # its typed rows, if they are still in memory


class Counted(NamedTuple):
    """The number of records of a split, and of those that are rows: some may be left out."""

    records: int
    rows: int


class RowLengthError(NamedTuple):
    """The first record of a range (counted from 0) whose number of fields is not the header's."""

    record: int
    got: int


@dataclass(frozen=True, slots=True)
class ParsedRange:
    """The content of a split: its columns, or the reason why there are none.

    `sound` is False where only the strict reader may decide: quoting that proves nothing, or bytes that are not UTF-8.
    """

    records: int = 0
    table: pa.Table | None = None
    width_mismatch: RowLengthError | None = None
    sound: bool = True
    numbers: npt.NDArray[np.int64] | None = None  # of the records that are rows, counted from 0; None: all of them
    data: bytes | None = None  # the bytes of text records, if requested

    def take(self, records: npt.NDArray[np.int64]) -> pa.Table:
        from driftline.sources._csv.parse import take_records

        assert self.table is not None, "only sound splits are picked from"
        return take_records(self.table, records if self.numbers is None else self.numbers.searchsorted(records))


class EarlySplit(Split):
    """A split whose read has started in the background; other reads of it start again."""

    def __init__(self, split: Split, pool: Executor, part: RowPart | None = None) -> None:
        self.split = split
        self._part = part
        self._reading: Future[ParsedRange] | None = pool.submit(split.read, part)
        self.pick, self.count, self.head = split.pick, split.count, split.head  # type: ignore[method-assign]

    @property
    def size(self) -> int:
        return self.split.size

    @property
    def files(self) -> tuple[InputFile, ...]:
        return self.split.files

    def read(self, part: RowPart | None = None) -> ParsedRange:
        """The result of the started read, if it is this one; it is returned once and not stored."""
        reading, self._reading = self._reading, None
        return self.split.read(part) if reading is None or part != self._part else reading.result()


@dataclass(frozen=True, slots=True)
class SplitSide:
    """A header, the splits below it, and about how many rows they have."""

    header: tuple[str, ...]
    splits: Sequence[Split]
    expected_rows: int
    typed: bool = False  # cells are JSON text, see `json_cells`
    first_record: int = 2  # the number of the first record below the header
    skipped: int = 0  # records that were left out before it
    kinds: Mapping[str, str] = field(default_factory=dict)  # what typed columns hold: number, boolean, date, datetime
    schema: pa.Schema | None = None  # of the `typed_rows` of every split, where all of them have those
    delimiter: str | None = None  # of text records; then every split is a `TextSplit`
    quotes: float | None = None  # about how many a text record has, if the text of records may be compared

    @property
    def size(self) -> int:
        return sum(split.size for split in self.splits)

    def read_ahead(self, pool: Executor, limit_bytes: int, part: RowPart | None = None) -> tuple[SplitSide, int]:
        """The same side with reads of its first splits started, up to a limit, and the rest of the limit."""
        splits: list[Split] = []
        for split in self.splits:
            limit_bytes -= split.size
            splits.append(EarlySplit(split, pool, part) if limit_bytes > 0 else split)
        return replace(self, splits=splits), max(limit_bytes, 0)


def typed_side(schema: pa.Schema, splits: Sequence[Split], rows: int, *, by_value: bool = True) -> SplitSide:
    """Splits of typed rows with one schema; `by_value`: all rows have exactly its types."""
    from driftline.sources._cells import column_kinds

    own = schema if by_value else None
    return SplitSide(tuple(schema.names), splits, rows, typed=True, kinds=column_kinds(schema), schema=own)


def polars_column(values: pa.Array | pa.ChunkedArray | npt.NDArray[Any]) -> pl.Series:
    """An array as a column of Polars, by way of a table: other ways import 30 ms of functions of Arrow or NumPy."""
    import polars as pl
    import pyarrow as pa

    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = values if values.flags.c_contiguous else values.copy()
        values = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
    if values.type.num_fields or isinstance(values.type, (pa.DictionaryType, pa.BaseExtensionType)):
        return pl.Series(pl.from_arrow(values, rechunk=False))
    return pl.DataFrame(pl.from_arrow(pa.table([values], [""]), rechunk=False)).to_series()


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def known_size(*sources: Source) -> int:
    """About how many bytes there are to read, as far as that is known."""
    return sum(source.size or 0 for source in sources)


def number_type(type_: pa.DataType, name: str) -> str | None:
    """A column of numbers as the lake calls it, exact where the source is; None for other columns.

    >>> import pyarrow as pa
    >>> [number_type(kind, "x") for kind in (pa.int8(), pa.uint64(), pa.decimal128(12, 2), pa.float32(), pa.string())]
    ['integer', 'decimal(0)', 'decimal(2)', 'number', None]
    """
    from pyarrow import types

    if types.is_dictionary(type_):
        return number_type(type_.value_type, name)
    if types.is_integer(type_):
        return "decimal(0)" if types.is_uint64(type_) else "integer"
    if types.is_decimal(type_):
        if max(type_.precision, type_.scale) > _MAX_DIGITS:  # nothing here can hold them
            limit = f"{_MAX_DIGITS} are the most: cast it to decimal({_MAX_DIGITS}, S) or to text"
            words = f'column "{name}" has decimals of {type_.precision} digits, and {limit}'
            raise InputError(words, code="unsupported_type", column=name)
        return f"decimal({max(0, type_.scale)})"
    return "number" if types.is_floating(type_) else None


def part_mismatch(side: str, name: str) -> TableError:
    """The error for a part file with another header than the first part."""
    words = f"Header mismatch: the parts of {side} have different headers (first seen in {name})"
    return TableError(words, code="header_mismatch", side=side)


@dataclass(frozen=True, slots=True)
class RowSource(Source):
    """The base of formats that only have rows: `rows` says how a file is read, and everything else follows.

    Columns are those of all rows, in the order of first appearance; a format that declares its columns says so in
    `declared`.
    """

    files: tuple[InputFile, ...] = field()
    format: str
    seekable: bool = field(default=False, init=False)

    @abstractmethod
    def rows(self, file: InputFile) -> Iterator[Mapping[str, Any]]:
        """The rows of one file, in order: a value of JSON for each column that the row has."""

    def declared(self) -> Sequence[str]:
        """The columns, where the format declares them."""
        return ()

    def header(self, side: str) -> tuple[str, ...]:
        """The columns of all rows: the last one may have a new column."""
        return tuple(self.declared()) or tuple(dict.fromkeys(name for row in self._all_rows() for name in row))

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        from driftline.sources._cells import spool_rows

        return spool_rows(((file, self.rows(file)) for file in self.files), workspace, self.declared())

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        from driftline.sources._cells import cells_by_column

        with closing(self._all_rows()) as found:
            return cells_by_column(islice(found, rows), self.declared())

    def _all_rows(self) -> Generator[Mapping[str, Any]]:
        for file in self.files:
            yield from self.rows(file)


@dataclass(frozen=True, slots=True)
class ColumnarFiles(Source):
    """Files with the same columns in the same order, each with blocks of rows (Parquet, Arrow)."""

    files: tuple[InputFile, ...] = field()
    format: str

    @abstractmethod
    def blocks(self, file: InputFile) -> tuple[pa.Schema, int, Sequence[Split]]:
        """The columns of a file, how many rows it has, and its blocks."""

    @abstractmethod
    def first_rows(self, rows: int) -> pa.Table:
        """Of the first file."""

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        found = [self.blocks(file) for file in self.files]
        first, schema = found[0][0], found[-1][0]
        for file, (own, _, _) in zip(self.files, found, strict=True):
            if own.names != first.names:
                raise part_mismatch(side, file.name)
        alike = all(own.equals(schema) for own, _, _ in found)  # rows of other types are compared as text
        splits = [split for _, _, own in found for split in own]
        return typed_side(schema, splits, sum(rows for _, rows, _ in found), by_value=alike)

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        from driftline.sources._cells import json_columns

        table = json_columns(self.first_rows(rows))
        return {name: table.column(at).to_pylist() for at, name in enumerate(table.column_names)}


@dataclass(frozen=True, slots=True)
class ColumnarSplit(TypedRows):
    """One block of rows of a file."""

    file: InputFile
    number: int
    size: int = field()

    @property
    def files(self) -> tuple[InputFile, ...]:
        return (self.file,)
