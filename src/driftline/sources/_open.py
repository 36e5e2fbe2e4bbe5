"""Opening an input: a path, a folder, a glob, a URL, `-`, `file.db::table` or a Python object becomes a `Source`."""

from __future__ import annotations

import csv
import glob
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import xxhash

from driftline import core
from driftline.core import Location, StrPath, Workspace, atomic_write, io_errors, is_url
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile, known_suffix, list_urls, noted_file, parse_address
from driftline.sources._formats import Format, format_of_address, format_of_file, format_of_suffix, is_workbook
from driftline.sources._in_memory import is_in_memory, object_size, open_object
from driftline.sources._source import Opening, ReadOptions, Source, explained, number_type, reading_errors

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD_INPUT = "-"
_BLOCK_BYTES = 1 << 20
_SPLIT_BYTES = 8 << 20  # of rows that are copied
_ONE_ROW = 1 << 200  # above all sums of hashes
_START_BYTES = 16  # enough for every magic number
_UNREADABLE: dict[bytes, str] = {  # first bytes, as a pattern, and a hint
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Excel workbook: save the sheet as CSV",
    rb"7z\xbc\xaf\x27\x1c": "a 7-Zip archive: unpack it first",
    rb"Obj\x01": "an Avro file: convert it to Parquet, or give it to driftline.diff as an Arrow table",
}
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_STREAMS = (STANDARD_INPUT, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def open_source(given: Any, workspace: Workspace, options: ReadOptions | None = None) -> Source:
    """Find the format and the files of an input; compressed files and streams are copied to plain files."""
    if is_in_memory(given):
        return open_object(given, workspace)
    options = options or ReadOptions()
    text = os.fspath(given)
    if is_stream(text):
        if text == STANDARD_INPUT:
            spooled = _spool_packed(cast(BinaryIO, sys.stdin.buffer), "standard input", workspace)
        else:
            with io_errors(text), open(text, "rb") as stream:
                spooled = _spool_packed(stream, text, workspace)
        return _opened(_format_of(spooled, text), Address(text, text), Opening((spooled,), options, workspace))
    address = parse_address(text)
    if options.inside is not None and not address.kind and address.table is None:
        address = Address(text, address.path, options.inside)
    decided = format_of_address(address)
    if decided is not None:
        return _opened(decided, address, Opening(_named_file(address, workspace), options, workspace))
    found = [_unzipped(noted_file(path), workspace) for path in _expand(address.path)]
    formats = {one.name: one for one in (_format_of(file, file.name) for file in found)}
    if len(formats) > 1:
        kinds = ", ".join(sorted(formats))
        raise InputError(f"{address.text} mixes files of several kinds: {kinds}", code="mixed_inputs")
    [chosen] = formats.values()
    files = tuple(_plain_file(file, workspace) for file in found)
    return _opened(chosen, address, Opening(files, options, workspace))


def _opened(chosen: Format, address: Address, opening: Opening) -> Source:
    """The source, which says in one line what is wrong with its data, whatever its format raises."""
    with reading_errors(address.text):
        return chosen.open(address, opening)


def input_size(given: Any) -> int | None:
    """About how many bytes there are to read, found without reading rows; None where that is not known.

    It is the size of the source that `open_source` gives, except that compressed files count as they are stored: they
    would have to be unpacked first.
    """
    if is_in_memory(given):
        return object_size(given)
    text = os.fspath(given)
    if is_stream(text):
        return None
    address = parse_address(text)
    decided = format_of_address(address)
    if decided is not None:
        if address.table is not None and not address.kind:
            return core.size_of(address.path)
        with Workspace() as workspace:
            return _opened(decided, address, Opening((), ReadOptions(), workspace)).size
    found = _expand(address.path)
    if is_url(address.path) and found != [address.path]:
        folder = re.split(r"[*?\[]", address.path)[0].rpartition("/")[0]
        sizes = core.sizes_below(f"{folder}/")
        return sum(sizes.get(url, 0) for url in found)  # an object that is gone by now is missed when it is opened
    return sum(map(core.size_of, found))


def _named_file(address: Address, workspace: Workspace) -> tuple[InputFile, ...]:
    """The one file of an address with a table in it, as a local file; none where the address is no file."""
    if address.table is None or address.kind:
        return ()
    file = noted_file(address.path)
    if not is_url(address.path):
        return (_plain_file(file, workspace),)
    with file.open() as stream:
        return (_spool(stream, file.name, workspace),)


def _expand(name: str) -> list[str]:
    """The parts of a manifest in its order, the files of a folder or a glob in that of their names, or the path."""
    if name.endswith("/") if is_url(name) else os.path.isfile(os.path.join(name, core.MANIFEST)):
        parts = core.read_manifest(core.location(name))
        if parts is not None:
            return [f"{name.rstrip('/')}/{part.name}" for part in parts]
    code, words, found = "not_found", f"no file matches {name}", [name]
    if is_url(name):
        words = f"no object matches {name}"
        found = [url for url in list_urls(name) if not name.endswith("/") or _is_data(url.rpartition("/")[2])]
    elif os.path.isdir(name):
        code = "is_a_directory"
        words = f"{name} is a directory without data files: name a file, or a folder of part files"
        with io_errors(name):
            found = sorted(entry.path for entry in os.scandir(name) if entry.is_file() and _is_data(entry.name))
    elif not os.path.exists(name) and glob.has_magic(name):
        found = sorted(path for path in glob.glob(name) if os.path.isfile(path))
    if not found:
        raise InputError(words, code=code, path=name)
    return found


def _is_data(name: str) -> bool:
    # Spark and others leave `_SUCCESS` and hidden checksum files beside the parts.
    return not name.startswith(("_", ".")) and format_of_suffix(known_suffix(name)) is not None


def is_stream(given: Any) -> bool:
    """Whether an input can be read only once: standard input, a pipe, `<(…)`, a cursor, a reader of batches."""
    if is_in_memory(given):
        return any(hasattr(given, name) for name in ("fetchone", "read_next_batch", "__next__"))
    name = os.fspath(given)
    if name == STANDARD_INPUT:
        return True
    try:
        kind = os.stat(name).st_mode
    except (OSError, ValueError):
        return False  # opening it reports why
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def check_inputs(a: StrPath, b: StrPath) -> None:
    """Raise if both inputs are standard input, which can be read once."""
    if is_in_memory(a) or is_in_memory(b):
        return
    if os.fspath(a) in _STREAMS and os.fspath(b) in _STREAMS:
        raise InputError("only one side can be standard input: name a file for the other", code="input_read_twice")


def _format_of(file: InputFile, name: str) -> Format:
    with io_errors(name), file.open() as stream:
        start = stream.read(_START_BYTES)
    for magic, words in _UNREADABLE.items():
        if re.match(magic, start):
            raise InputError(f"{name} is {words}", code="unsupported_format", path=name)
    return format_of_file(name, start)


def _unzipped(file: InputFile, workspace: Workspace) -> InputFile:
    """The one file of a ZIP archive, copied; other files, and workbooks, which are archives too, as they are."""
    with io_errors(file.name), file.open() as stream:
        if not stream.read(4).startswith(_ZIP_MAGIC) or is_workbook(file.name):
            return file
        stream.seek(0)
        import zipfile
        import zlib

        # An unknown method of compression is a NotImplementedError there, a password that is missing a RuntimeError.
        broken = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
        words = f"{file.name} is a ZIP archive that cannot be read"
        with (
            explained(broken, words, code="corrupt_compression", path=file.name),
            zipfile.ZipFile(stream) as archive,
        ):
            names = [item.filename for item in archive.infolist() if not item.is_dir()]
            data = [name for name in names if not name.startswith(("__MACOSX/", "."))]
            if len(data) != 1:
                archived = f"a ZIP archive of {len(data)} files ({', '.join(data[:5]) or 'none'})"
                words = f"{file.name} is {archived}: unpack it and name one"
                raise InputError(words, code="unsupported_format", path=file.name)
            with archive.open(data[0]) as member:
                return _spool(cast(BinaryIO, member), f"{file.name}/{data[0]}", workspace)


def _plain_file(file: InputFile, workspace: Workspace) -> InputFile:
    """The file itself, or a core.decompressed copy."""
    with io_errors(file.name), file.open() as stream:
        compression = core.compression_of_bytes(stream.read(core.COMPRESSION_BYTES))
        if compression == "plain":
            return file
        stream.seek(0)
        return _spool(core.decompressed(stream, compression, file.name), file.name, workspace)


def _spool_packed(raw: BinaryIO, name: str, workspace: Workspace) -> InputFile:
    start = cast(Any, raw).peek(core.COMPRESSION_BYTES)[: core.COMPRESSION_BYTES] if hasattr(raw, "peek") else b""
    return _spool(core.decompressed(raw, core.compression_of_bytes(start), name), name, workspace)


def _spool(stream: BinaryIO, name: str, workspace: Workspace) -> InputFile:
    target = workspace.new_file("input")
    with io_errors(name), open(target, "wb") as out:
        while block := stream.read(_BLOCK_BYTES):
            with io_errors(workspace.folder):
                out.write(block)
    return InputFile.of(target, name)


def fingerprint(given: str, options: ReadOptions | None = None) -> str:
    """A text for the current content of an input: equal bytes give equal texts, whatever the file is called.

    An input that has no files and no version, such as a table of PostgreSQL, is read for it.
    """
    with Workspace() as workspace:
        source = open_source(given, workspace, options)
        content = source.fingerprint(_hash)
        lines = (line.encode() for line in json_lines(source, workspace))
        return f"{source.format} {content or rows_digest(lines)}"


def json_lines(source: Source, workspace: Workspace, columns: Sequence[str] | None = None) -> Iterator[str]:
    """The rows of typed cells as JSON objects of these columns, else of its own; a missing cell is null.

    The cells are JSON text already, so that no value passes through another type.
    """
    side = source.lay_out("B", _SPLIT_BYTES, workspace)
    assert side is not None, "only text has to be made sound first"
    for split in side.splits:
        table = split.read().table
        assert table is not None, "typed rows are always sound"
        yield from cell_lines(table, side.header if columns is None else columns)


def cell_lines(table: pa.Table, columns: Sequence[str]) -> Iterator[str]:
    """Rows whose cells are JSON text as JSON objects of these columns; a missing cell is null."""
    names = [json.dumps(name, ensure_ascii=False) for name in columns]
    nulls, there = ["null"] * table.num_rows, table.column_names
    cells = [table.column(name).to_pylist() if name in there else nulls for name in columns]
    for row in zip(*cells, strict=True):
        yield "{" + ",".join(f"{name}:{cell}" for name, cell in zip(names, row, strict=True)) + "}\n"


def rows_digest(lines: Iterable[bytes]) -> int:
    """A number for rows in any order, since a database gives them in another one each time; those of parts add up."""
    return sum(xxhash.xxh3_128_intdigest(line) + _ONE_ROW for line in lines)


def copied_rows(given: str, source: Source, workspace: Workspace, folder: Location) -> tuple[str, str]:
    """Copy the rows of a table without versions into a folder: the address of the copy, and a text for its content."""
    folder.mkdir(parents=True, exist_ok=True)
    if (copied := source.copied(folder)) is not None:
        return copied
    copy = folder / "rows.jsonl"
    with core.text_into(copy, "utf-8") as out:
        out.writelines(json_lines(source, workspace))
    with core.open_to_read(copy) as lines:
        content = rows_digest(lines)
    # Without rows there are no columns in it.
    return str(copy if content else write_empty_like(given, ReadOptions(), folder)), str(content)


def tables_beside(given: str) -> list[str]:
    """The addresses of all tables that lie where the named one does: in its database, its schema or its namespace."""
    address = parse_address(given)
    decided = format_of_address(address)
    assert decided is not None, "the address names a table"
    with reading_errors(address.text):
        return decided.tables_beside(address)


def _hash(file: InputFile) -> str:
    with io_errors(file.name):
        digest = core.file_digest(file.path)
    file.check_unchanged()
    return f"xxh128:{digest}"


def has_text_cells(given: str, options: ReadOptions | None = None) -> bool:
    """Whether the cells are text (CSV, TSV) and not typed values."""
    with Workspace() as workspace:
        return not open_source(given, workspace, options).typed


def declared_numbers(given: str, options: ReadOptions | None = None) -> dict[str, str]:
    """The columns that the source declares as numbers: `integer`, `decimal(S)` or, for floats, `number`."""
    with Workspace() as workspace:
        declared = open_source(given, workspace, options).types()
    found = {} if declared is None else {field.name: number_type(field.type, field.name) for field in declared}
    return {name: kind for name, kind in found.items() if kind is not None}


def header_of(given: str, options: ReadOptions | None = None) -> tuple[str, ...]:
    """The columns of an input, in order."""
    with Workspace() as workspace:
        return open_source(given, workspace, options).header("B")


def write_empty_like(given: str, options: ReadOptions, folder: Location) -> Location:
    """An empty table with the columns of `given`, so that a first snapshot is a diff too; the options are the same."""
    with Workspace() as workspace:
        source = open_source(given, workspace, options)
        header, typed = source.header("B"), source.typed
    if typed:
        import pyarrow as pa
        import pyarrow.parquet as pq

        target = folder / "nothing.parquet"
        with atomic_write(target) as out:
            pq.write_table(pa.table({name: pa.array([], pa.string()) for name in header}), out)
        return target
    # Without an option the suffix decides the delimiter, so the empty file has the same one.
    delimiter = options.delimiter_of(given)
    target = folder / ("nothing.tsv" if options.delimiter is None and delimiter == "\t" else "nothing.csv")
    with core.text_into(target, options.encoding) as out:
        csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(header)
    return target
