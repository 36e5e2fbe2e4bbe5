"""Atomic writes, and reads of plain, gzip and zstd files, on a local disk or in an object store.

>>> import tempfile, pathlib
>>> target = pathlib.Path(tempfile.mkdtemp()) / "out.txt"
>>> with atomic_write(target) as out:
...     _ = out.write(b"done")
>>> target.read_bytes()
b'done'
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

from driftline.core._extras import load_function
from driftline.core._objects import Location, ObjectPath, is_url, location, stat_object, uploading
from driftline.errors import InputError, NotFoundError, OptionError, StorageError

Compression = Literal["plain", "gzip", "zstd", "bzip2", "xz"]
StrPath = str | os.PathLike[str]
SQLITE_MAGIC = b"SQLite format 3\0"
AnyPath = StrPath | ObjectPath  # a local path, or the URL of an object

# How a compressed stream begins; a header of a table may begin with BZh.
_BEGINNINGS: dict[Compression, re.Pattern[bytes]] = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
}
# A module, and the exceptions by which it reports damage.
_DECOMPRESSORS = {
    "gzip": ("gzip", "zlib:error", "gzip:BadGzipFile"),
    "zstd": ("backports.zstd", "backports.zstd:ZstdError"),
    "xz": ("lzma", "lzma:LZMAError"),
    "bzip2": ("bz2", "builtins:OSError", "builtins:ValueError"),
}
COMPRESSION_BYTES = 10  # that tell a compression
# Suffixes that say what a file is; others, such as .txt and .out, are for any text.
FILE_SUFFIXES = (
    ".jsonl", ".ndjson", ".json", ".geojson", ".csv", ".tsv", ".tab", ".md", ".markdown", ".html", ".htm", ".xml",
    ".yaml", ".yml", ".toml", ".sql", ".parquet", ".arrow", ".feather", ".avro", ".orc", ".xlsx", ".xlsm", ".xls",
    ".ods", ".db", ".sqlite", ".sqlite3", ".duckdb", ".changeset", ".patchset", ".pdf", ".docx", ".zip", ".tar", ".7z",
    ".gz", ".bz2", ".xz", ".zst",
)  # fmt: skip
_BUFFER_BYTES = 1 << 20
STANDARD_OUTPUT = "standard output"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]+)\Z")
_STANDARD_DEVICES = {"/dev/stdout": 1, "/dev/stderr": 2}


def is_sqlite_file(path: StrPath) -> bool:
    """Whether a local file is an SQLite database, by its first bytes; a pipe is not read."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except (OSError, ValueError):
        return False  # reading it reports why


def names_revision(given: object) -> bool:
    """Whether an input is a revision of a code base, `git:REVISION`, and no file of such a name."""
    return isinstance(given, str) and given.lower().startswith("git:") and not os.path.exists(given)


def format_of(path: StrPath, formats: Mapping[str, str]) -> str:
    """The format of a file's suffix, else the first one; a suffix that says that the file is another one is refused.

    >>> format_of("changes.SQL", {".bin": "changeset", ".sql": "sql"}), format_of("changes", {".bin": "changeset"})
    ('sql', 'changeset')
    """
    suffix = os.path.splitext(os.fspath(path).rstrip("/"))[1].lower()
    if suffix in FILE_SUFFIXES and suffix not in formats:
        known = ", ".join(formats)
        message = f"{os.fspath(path)}: nothing is written as {suffix} here: use one of {known}, or name a format"
        raise OptionError(message, code="invalid_format")
    return formats.get(suffix, next(iter(formats.values())))


@contextmanager
def open_output(path: AnyPath | None, inputs: Iterable[StrPath] = ()) -> Iterator[BinaryIO]:
    """The output of a command: an atomic write to `path`, or standard output when it is None."""
    if path is not None:
        with atomic_write(path, inputs) as out:
            yield out
        return
    out = standard_output()
    try:
        yield out
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise explain_os_error(error, error.filename or STANDARD_OUTPUT) from error


def standard_output() -> BinaryIO:
    """Standard output for bytes, after a flush of what was written to it as text."""
    sys.stdout.flush()
    return cast(BinaryIO, sys.stdout.buffer)


def output_place(path: AnyPath) -> Location:
    """The location of an output: a path, or an object of a store; other URLs are refused (storage §1)."""
    if isinstance(path, ObjectPath):
        return path
    name = os.fspath(path)
    scheme = _SCHEME.match(name)
    if scheme is None or scheme[1] == "file" or is_url(name):
        return location(name)
    message = f"{name}: outputs at {scheme[1]} addresses are not served: use a path, s3://, gs:// or abfs://"
    raise OptionError(message, code="unsupported_address", path=name)


@contextmanager
def atomic_write(path: AnyPath, inputs: Iterable[StrPath] = ()) -> Iterator[BinaryIO]:
    """Write a binary file atomically: it appears under `path` complete and synced to disk, or not at all.

    Symbolic links are followed; mode and owner of a replaced file are retained. What cannot be replaced (a device, a
    pipe) is written to directly. An output that is one of `inputs` is refused.
    """
    target = output_place(path)
    if isinstance(target, ObjectPath):
        _refuse_object_among(path, inputs)
        with uploading(target.url) as out:
            yield out
        return
    path = target
    refuse_output_among(path, inputs)
    with io_errors(path):
        descriptor = _open_descriptor(path)
        status = _status_of(path)
        if descriptor is not None or (status is not None and not stat.S_ISREG(status.st_mode)):
            with open(path if descriptor is None else os.dup(descriptor), "wb", buffering=_BUFFER_BYTES) as out:
                yield out
            return
    yield from _write_beside(path)


def _refuse_object_among(output: AnyPath, inputs: Iterable[StrPath]) -> None:
    name = str(output)
    if name.endswith("/"):
        raise OptionError(f"{name} is a folder, an object is wanted", code="is_a_directory", path=name)
    for given in (os.fspath(one) for one in inputs):
        inside = name.startswith(given) if given.endswith("/") else fnmatch.fnmatchcase(name, given)
        if name == given or inside:
            raise OptionError(
                f"{name} is one of the inputs: write the result to another object", code="output_is_input"
            )


def _write_beside(path: StrPath) -> Iterator[BinaryIO]:
    """Write a temporary file in the target's folder, and rename it to the target when it is complete."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with io_errors(path), open(temporary, "wb", buffering=_BUFFER_BYTES) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        replace_file(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(temporary: StrPath, path: StrPath) -> None:
    """Rename a complete file to `path`, or to the target of a link there; mode and owner are retained."""
    with io_errors(path):
        replaced = _status_of(path)
        if replaced is not None and not stat.S_ISREG(replaced.st_mode):
            raise OptionError(f"{os.fspath(path)} is not a regular file", code="not_a_file")
        if replaced is not None:
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(temporary, replaced.st_uid, replaced.st_gid)
            os.chmod(temporary, stat.S_IMODE(replaced.st_mode))
        target = os.path.realpath(path)
        os.replace(temporary, target)
        sync_directory(os.path.dirname(target))


def _open_descriptor(path: StrPath) -> int | None:
    """The descriptor behind a path such as /dev/stdout: opened by name, its file would be truncated."""
    name = os.fspath(path)
    found = _DESCRIPTOR.match(name)
    return int(found[1]) if found else _STANDARD_DEVICES.get(name)


def _status_of(path: StrPath) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def refuse_output_among(output: StrPath, inputs: Iterable[StrPath]) -> None:
    """Raise if writing `output` would destroy one of the inputs: a file, one in a folder or glob, `file.db::table`."""
    status = _status_of(output)
    if status is None or not stat.S_ISREG(status.st_mode):
        return
    for given in inputs:
        if any(_is_same_file(status, name) for name in _files_behind(os.fspath(given))):
            raise OptionError(
                f"{os.fspath(output)} is one of the inputs: write the result to another file", code="output_is_input"
            )


def _files_behind(name: str) -> Iterator[str]:
    yield name
    yield name.rpartition("::")[0]
    if os.path.isdir(name):
        yield from (entry.path for entry in os.scandir(name))
    elif glob.has_magic(name):
        yield from glob.iglob(name)


def _is_same_file(status: os.stat_result, name: str) -> bool:
    try:
        return os.path.samestat(status, os.stat(name))
    except (OSError, ValueError):
        return False


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Replace `path` by `data` in one step."""
    with atomic_write(path) as out:
        out.write(data)


@contextmanager
def text_into(path: AnyPath, encoding: str = "utf-8") -> Iterator[IO[str]]:
    """Write a text atomically; line ends are written as they are."""
    with atomic_write(path) as out:
        text = io.TextIOWrapper(out, encoding=encoding, newline="", write_through=True)
        yield text
        text.detach()


def write_all(out: IO[bytes], data: bytes | memoryview) -> int:
    """Write every byte, although a raw stream may take only a part at a time; the number of bytes."""
    rest = memoryview(data).cast("B")
    size = len(rest)
    while rest:
        taken = out.write(rest)
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "the stream takes no more bytes")
        rest = rest[taken:]
    return size


class UnbufferedWriter(io.BufferedWriter):
    """Writes all bytes to a raw stream at once, without buffering (`python -u` makes stdout raw)."""

    def write(self, data: Any, /) -> int:
        """Write every byte."""
        taken = super().write(data)
        self.flush()
        return taken


def sync_directory(path: StrPath) -> None:
    """Make a rename in this directory durable, or the content of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def io_errors(path: AnyPath) -> Iterator[None]:
    """Turn an `OSError` into one clear line about `path`; a broken pipe is left as it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise explain_os_error(error, path) from error


def explain_os_error(error: OSError, path: AnyPath) -> StorageError | InputError:
    """The driftline error for an `OSError`, with a hint."""
    if isinstance(error, NotFoundError):
        return error  # explained where the right name was known
    name = str(path)
    if error.errno == errno.ENOENT:
        return NotFoundError(f"no such file or directory: {name}", path=name)
    if error.errno == errno.EISDIR:
        return InputError(f"{name} is a directory, a file is wanted", code="is_a_directory", path=name)
    if error.errno in (errno.EACCES, errno.EPERM):
        return InputError(f"no permission for {name}", code="permission_denied", path=name)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = f"the disk is full while writing {name}: free some space or choose another place"
        return StorageError(message, code="disk_full", path=name)
    return StorageError(f"{name}: {error.strerror or error}", code="io_error", path=name)


def open_to_read(path: AnyPath) -> BinaryIO:
    """A seekable stream of a file or an object, not decompressed."""
    name = str(path)
    if is_url(name):
        return stat_object(name).open()
    with io_errors(name):
        return open(name, "rb", buffering=_BUFFER_BYTES)


def size_of(path: AnyPath) -> int:
    """The bytes of a file or an object."""
    name = str(path)
    with io_errors(name):
        return stat_object(name).size if is_url(name) else os.path.getsize(name)


def compression_of(path: AnyPath) -> Compression:
    """The compression of a file, by its first bytes (its name may be wrong)."""
    with open_to_read(path) as file:
        start = file.read(COMPRESSION_BYTES)
    return compression_of_bytes(start)


def compression_of_bytes(start: bytes) -> Compression:
    """The compression of a stream that starts with these bytes."""
    return next((kind for kind, beginning in _BEGINNINGS.items() if beginning.match(start)), "plain")


def open_bytes(path: AnyPath) -> BinaryIO:
    """A stream of the file's decompressed content."""
    kind = compression_of(path)
    return decompressed(open_to_read(path), kind, str(path))


def decompressed(raw: BinaryIO, kind: Compression, name: str) -> BinaryIO:
    """`raw` through its decompressor; damage is an `InputError` that names the file."""
    if kind == "plain":
        return raw
    # Imported here: most files are plain, and imports take most of the time of a short command.
    module, *errors = _DECOMPRESSORS[kind]
    opened, damage = import_module(module).open(raw, "rb"), (EOFError, *map(load_function, errors))
    return cast(BinaryIO, io.BufferedReader(_CheckedStream(opened, raw, name, damage), _BUFFER_BYTES))


def file_digest(path: AnyPath, stop: int | None = None, on_read: Callable[[int], object] = lambda size: None) -> str:
    """The xxh128 hash of a file's bytes, or of those before `stop`."""
    import xxhash

    digest, left = xxhash.xxh3_128(), sys.maxsize if stop is None else stop
    with open_to_read(path) as file:
        while left and (chunk := file.read(min(4 * _BUFFER_BYTES, left))):
            digest.update(chunk)
            left -= len(chunk)
            on_read(len(chunk))
    return digest.hexdigest()


def read_lines(path: AnyPath) -> Iterator[bytes]:
    """The lines of a plain or compressed file, without their line feeds."""
    with open_bytes(path) as stream:
        for line in stream:
            yield line[:-1] if line.endswith(b"\n") else line


class _CheckedStream(io.RawIOBase):
    """A decompressing stream that closes its source and turns damage into an `InputError`."""

    def __init__(self, stream: IO[bytes], raw: BinaryIO, name: str, damage: tuple[type[Exception], ...]) -> None:
        self._stream = stream
        self._raw = raw
        self._name = name
        self._damage = damage

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except self._damage as error:
            raise InputError(
                f"{self._name} is damaged or cut short: {error}", code="corrupt_compression", path=self._name
            ) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(OSError, EOFError):
                self._stream.close()
            self._raw.close()
        super().close()
