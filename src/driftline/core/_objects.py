"""Object stores: read, write, list and conditional put (storage §2), and `ObjectPath`, a path with `pathlib`'s methods.

Keys are literal: nothing in a URL is decoded, and `?`, `*` and `[` only mean something in a glob. `ObjectPath` is no
`os.PathLike`, so code for the local disk refuses it instead of making a folder called `s3:`.

>>> ObjectPath("s3://shop/out") / "orders.jsonl"
ObjectPath('s3://shop/out/orders.jsonl')
>>> ObjectPath("s3://shop/out/orders.jsonl").parents
(ObjectPath('s3://shop/out'), ObjectPath('s3://shop'))
>>> location("out/orders.jsonl")
PosixPath('out/orders.jsonl')
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from driftline.errors import DriftlineError, InputError, NotFoundError

SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss")
_RETRIES = 3  # the store's own ten make missing credentials cost seconds
_PAUSES = (0.05, 0.2, 0.8)  # seconds before a conditional put is tried again
_PART_BYTES = 16 << 20  # of an upload; a store takes 10,000 parts
_MOST_COPIED_BYTES = 5 << 30  # S3 copies no more in one request
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of an object: its URL, size and ETag."""

    url: str
    size: int
    etag: str

    def open(self, *, buffered: bool = True) -> BinaryIO:
        """A seekable stream of ranges, each of which fails if the object was replaced."""
        ranges = _Ranges(self)
        return cast(BinaryIO, io.BufferedReader(ranges, _BUFFER_BYTES) if buffered else ranges)

    def read_range(self, start: int, end: int) -> bytes:
        """A range of this version, by one request."""
        if start >= end:
            return b""
        with _at(self.url) as (obstore, store, key):
            found = obstore.get(store, key, options={"range": (start, end), "if_match": self.etag})
            return bytes(found.bytes())


def is_url(text: str) -> bool:
    """Whether a text is the URL of an object store."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def stat_object(url: str) -> ObjectVersion:
    """The object as it is now."""
    with _at(url) as (obstore, store, key):
        return _version(url, obstore.head(store, key))


def read_object(url: str) -> tuple[bytes, ObjectVersion]:
    """All bytes of a small object, and their version."""
    with _at(url) as (obstore, store, key):
        found = obstore.get(store, key)
        return bytes(found.bytes()), _version(url, found.meta)


def _version(url: str, about: Any) -> ObjectVersion:
    return ObjectVersion(url, about["size"], about["e_tag"] or about["last_modified"].isoformat())


def put(url: str, data: bytes) -> None:
    """Write an object, whether it exists or not."""
    with _at(url) as (obstore, store, key):
        obstore.put(store, key, data, use_multipart=False)


def create(url: str, data: bytes) -> ObjectVersion | None:
    """Write an object that must not exist yet; None if it does.

    The data must identify its writer: after a lost response the object is read and compared.
    """
    return _conditional_put(url, data, "create")


def replace(version: ObjectVersion, data: bytes) -> ObjectVersion | None:
    """Write an object if it still is that version; None if it is not. The data must identify its writer."""
    return _conditional_put(version.url, data, {"e_tag": version.etag})


def copy_object(source: str, target: str) -> None:
    """Copy an object, inside the store where that is possible."""
    other, name = located(target)
    found = stat_object(source)
    with _at(source) as (obstore, store, key):
        if store is other and found.size < _MOST_COPIED_BYTES:
            obstore.copy(store, key, name)
            return
    with found.open() as stream, uploading(target) as out:
        while data := stream.read(_PART_BYTES):
            out.write(data)


def delete_object(url: str) -> None:
    """Remove an object if it exists."""
    with _at(url) as (obstore, store, key), contextlib.suppress(FileNotFoundError):
        obstore.delete(store, key)


def delete_old(folder: str, kept: set[str], seconds: float) -> None:
    """Remove the objects below a folder that are not in `kept` and are older than `seconds`."""
    limit = datetime.now(UTC) - timedelta(seconds=seconds)
    for url, written in entries_below(folder):
        if url not in kept and written < limit:
            delete_object(url)


def list_objects(folder: str) -> list[str]:
    """The objects below a folder, in the order of their names."""
    return [url for url, _ in entries_below(folder)]


def entries_below(folder: str) -> list[tuple[str, datetime]]:
    """The objects below a folder, and when they were written."""
    return sorted((url, about["last_modified"]) for url, about in _listed(folder))


def sizes_below(folder: str) -> dict[str, int]:
    """The bytes of the objects below a folder, by one listing."""
    return {url: int(about["size"]) for url, about in _listed(folder)}


def _listed(folder: str) -> list[tuple[str, Any]]:
    with _at(folder) as (obstore, store, prefix):
        root = folder[: len(folder) - len(prefix)]
        batches = list(obstore.list(store, prefix.rstrip("/") or None))
        if not folder.endswith("/"):
            return [(folder, obstore.head(store, prefix))]
    return [(f"{root}{entry['path']}", entry) for batch in batches for entry in batch]


class Upload(io.RawIOBase):
    """A multipart upload: the object becomes visible with `commit`; without it the upload is aborted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.size = 0
        with _at(url) as (obstore, store, key):
            self._writer: Any = obstore.open_writer(store, key, buffer_size=_PART_BYTES, max_concurrency=2)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        with explained(self.url):
            for start in range(0, len(view), _PART_BYTES):
                self._writer.write(bytes(view[start : start + _PART_BYTES]))
        self.size += len(view)
        return len(view)

    def commit(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with explained(self.url):
                writer.close()
        super().close()

    def discard(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            stop = InputError("the upload was given up")
            with explained(self.url):
                writer.__exit__(type(stop), stop, None)
        super().close()

    def close(self) -> None:
        """Closing by itself publishes nothing: half an object must never appear because of an error."""


@contextmanager
def uploading(url: str) -> Iterator[BinaryIO]:
    """An atomic upload: the object becomes visible at the end of the block, or not at all."""
    upload = Upload(url)
    buffered = io.BufferedWriter(upload, _BUFFER_BYTES)
    try:
        yield cast(BinaryIO, buffered)
        buffered.flush()
        upload.commit()
    finally:
        upload.discard()


def delta_options(url: str) -> dict[str, str] | None:
    """The storage options of a Delta table at a location: only whether plain HTTP is allowed."""
    return {"AWS_ALLOW_HTTP": "true"} if is_url(url) and _is_plain_http() else None


def _is_plain_http() -> bool:
    return os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")


def located(url: str) -> tuple[Any, str]:
    """The store and the key of a URL."""
    # Not urlsplit: `?` and `#` are letters of a key here, and nothing is percent-decoded.
    scheme, _, rest = url.partition("://")
    root, _, key = rest.partition("/")
    return _store(f"{'s3' if scheme == 's3a' else scheme}://{root}", os.getpid()), key


@lru_cache(maxsize=32)
def _store(root: str, process: int) -> Any:
    """One store for each process and bucket: creating one takes up to a tenth of a second."""
    from obstore.store import from_url

    options: dict[str, Any] = {"client_options": {"allow_http": True}} if _is_plain_http() else {}
    return from_url(root, retry_config={"max_retries": _RETRIES}, **options)


def _conditional_put(url: str, data: bytes, mode: Any) -> ObjectVersion | None:
    from obstore import exceptions

    with _at(url) as (obstore, store, key):
        for pause in (*_PAUSES, None):
            try:
                done = obstore.put(store, key, data, mode=mode)
                return ObjectVersion(url, len(data), done["e_tag"] or "")
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return _own(url, data)
            except exceptions.GenericError:
                # It may have been written all the same: the next try then finds it there.
                if pause is None:
                    raise
                time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _own(url: str, data: bytes) -> ObjectVersion | None:
    """The stored version if it equals `data`: then the put succeeded and only its response was lost."""
    try:
        there, version = read_object(url)
    except NotFoundError:
        return None
    return version if there == data else None


class _Ranges(io.RawIOBase):
    """A raw stream that reads an object by ranges."""

    def __init__(self, version: ObjectVersion) -> None:
        self._version = version
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._version.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._version.read_range(self._at, min(self._at + len(buffer), self._version.size))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def _at(url: str) -> Iterator[tuple[Any, Any, str]]:
    """The library, the store and the key of an object; what goes wrong is explained."""
    import obstore

    with explained(url):
        yield obstore, *located(url)


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn the store's exceptions into one line each, without their debug text."""
    from obstore import exceptions

    try:
        yield
    except DriftlineError:
        raise
    except exceptions.PreconditionError as error:
        raise changed(url) from error
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        raise NotFoundError(f"{url} does not exist", code="not_found", path=url) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise _denied(url) from error
    except exceptions.BaseError as error:
        raise _generic(url, str(error)) from error
    except ValueError as error:
        if "path" not in str(error):
            raise
        message = f"{url}: a name in an object store has no empty parts, and no . or .. among them"
        raise InputError(message, code="invalid_name", path=url) from error


def _generic(url: str, words: str) -> InputError:
    if "code: 403" in words or "AccessDenied" in words:
        return _denied(url)
    if "redential" in words or "169.254.169.254" in words:
        return InputError(
            f"{url}: there are no credentials for this store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run "
            "where the machine has a role",
            code="no_credentials",
            path=url,
        )
    if "code: 404" in words or "NoSuchBucket" in words:
        return NotFoundError(f"{url} does not exist: check the bucket", code="not_found", path=url)
    return InputError(
        f"{url}: the store does not answer: check AWS_ENDPOINT_URL and the network", code="store_unreachable", path=url
    )


def _denied(url: str) -> InputError:
    return InputError(f"{url}: access denied: the credentials do not allow it", code="access_denied", path=url)


def changed(url: str) -> InputError:
    """The error for an object that was replaced under its reader."""
    return InputError(
        f"{url} changed while it was being read: run again when nobody writes to it", code="file_changed", path=url
    )


@dataclass(frozen=True, slots=True, order=True, repr=False)
class ObjectPath:
    """The URL of an object or of a folder; a `/` at the end is dropped."""

    url: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/"))

    def __repr__(self) -> str:
        return f"ObjectPath({self.url!r})"

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The ending."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> ObjectPath:
        """The folder that contains it."""
        return ObjectPath(self.url.rpartition("/")[0])

    @property
    def parents(self) -> tuple[ObjectPath, ...]:
        """All folders that contain it, the nearest first."""
        bucket = "/".join(self.url.split("/")[:3])
        found, at = [], self
        while at.url != bucket:
            at = at.parent
            found.append(at)
        return tuple(found)

    def with_name(self, name: str) -> ObjectPath:
        """The path of that name in the same folder."""
        return self.parent / name

    def open(self) -> BinaryIO:
        """A seekable stream of the object as it is now."""
        return stat_object(self.url).open()

    def read_bytes(self) -> bytes:
        """All bytes of the object."""
        return read_object(self.url)[0]

    def write_bytes(self, data: bytes) -> int:
        """Replace the object."""
        put(self.url, data)
        return len(data)

    def exists(self) -> bool:
        """Whether an object has exactly this name."""
        return self.version() is not None

    def is_dir(self) -> bool:
        """Whether there are objects below it."""
        return bool(list_objects(self.url + "/"))

    def version(self) -> ObjectVersion | None:
        """The current version of the object, if it exists."""
        try:
            return stat_object(self.url)
        except NotFoundError:
            return None

    def below(self) -> list[ObjectPath]:
        """All objects below it, in the order of their names."""
        return [ObjectPath(url) for url in list_objects(self.url + "/")]

    def unlink(self, missing_ok: bool = True) -> None:
        """Remove the object; a store does not report whether it existed."""
        delete_object(self.url)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders, only names."""


Location = Path | ObjectPath


def location(text: str) -> Location:
    """The location that a URL or a path names."""
    return ObjectPath(text) if is_url(text) else Path(text.removeprefix("file://"))
