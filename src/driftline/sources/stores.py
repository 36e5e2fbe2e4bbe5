"""Files behind URLs, through obstore: known by ETag, read in pinned ranges (sources §4).

Keys are literal: nothing in a URL is decoded, and `?`, `*` and `[` only mean something in a glob.
"""

from __future__ import annotations

import fnmatch
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, cast

from driftline.errors import DriftlineError, InputError
from driftline.sources.input_file import InputFile

SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss")
_RETRIES = 3  # the store's own ten make missing credentials cost seconds
_BUFFER_BYTES = 1 << 20
_MAGIC = "*?["


@dataclass(frozen=True, slots=True)
class StoredFile(InputFile):
    """An object as it was when it was found; every read asks for that very version of it."""

    etag: str = ""

    @classmethod
    def at(cls, url: str) -> StoredFile:
        """Take note of an object as it is now."""
        store, key = _located(url)
        with _explained(url):
            import obstore

            about = obstore.head(store, key)
        return cls(url, url, about["size"], 0, about["e_tag"] or about["last_modified"].isoformat())

    def open(self, *, buffered: bool = True) -> BinaryIO:
        """A seekable stream of pinned ranges."""
        ranges = _Ranges(self)
        return cast(BinaryIO, io.BufferedReader(ranges, _BUFFER_BYTES) if buffered else ranges)

    def for_arrow(self) -> Any:
        """A stream: Arrow's own file systems decode the names of objects."""
        return self.open()

    def check_unchanged(self) -> None:
        """Raise if the object was replaced."""
        if StoredFile.at(self.path).etag != self.etag:
            raise _changed(self.path)

    def with_absolute_path(self) -> StoredFile:
        """A URL is the same everywhere."""
        return self

    def read_range(self, start: int, end: int) -> bytes:
        """One request, which fails if the object was replaced."""
        if start >= end:
            return b""
        import obstore

        store, key = _located(self.path)
        with _explained(self.path):
            found = obstore.get(store, key, options={"range": (start, end), "if_match": self.etag})
            return bytes(found.bytes())


class _Ranges(io.RawIOBase):
    """A file-like view of an object."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._file.read_range(self._at, min(self._at + len(buffer), self._file.size))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def is_url(text: str) -> bool:
    """Whether a text names something in an object store."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def list_urls(url: str) -> list[str]:
    """The objects of a folder (`/` at the end), of a glob, or the one object, in the order of their names."""
    if url.endswith("/"):
        return sorted(_below(url))
    pattern = _located(url)[1]
    if not any(letter in pattern for letter in _MAGIC):
        return [url]
    fixed = pattern[: min(pattern.find(letter) for letter in _MAGIC if letter in pattern)].rpartition("/")[0]
    root = url[: len(url) - len(pattern)]
    depth = pattern.count("/")
    keys = [found[len(root) :] for found in _below(f"{root}{fixed}/" if fixed else root)]
    if pattern in keys:  # the letters of a glob are letters of names too, as in local paths
        return [url]
    return sorted(root + key for key in keys if key.count("/") == depth and fnmatch.fnmatchcase(key, pattern))


def _below(folder: str) -> Iterator[str]:
    import obstore

    store, prefix = _located(folder)
    root = folder[: len(folder) - len(prefix)]
    with _explained(folder):
        for batch in obstore.list(store, prefix.rstrip("/") or None):
            yield from (f"{root}{entry['path']}" for entry in batch)


def _located(url: str) -> tuple[Any, str]:
    # Not urlsplit: `?` and `#` are letters of a key here, and nothing is percent-decoded.
    scheme, _, rest = url.partition("://")
    root, _, key = rest.partition("/")
    return _store(f"{'s3' if scheme == 's3a' else scheme}://{root}", os.getpid()), key


@lru_cache(maxsize=32)
def _store(root: str, process: int) -> Any:
    """One store for each process and bucket: making one costs up to a tenth of a second."""
    from obstore.store import from_url

    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    options: dict[str, Any] = {"client_options": {"allow_http": True}} if plain else {}
    return from_url(root, retry_config={"max_retries": _RETRIES}, **options)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """The store's complaints as one clear line, without its debug text."""
    from obstore import exceptions

    try:
        yield
    except DriftlineError:
        raise
    except exceptions.PreconditionError as error:
        raise _changed(url) from error
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        raise InputError(f"{url} does not exist", code="not_found", path=url) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise _denied(url) from error
    except exceptions.BaseError as error:
        raise _generic(url, str(error)) from error


def _generic(url: str, words: str) -> InputError:
    if "403" in words or "AccessDenied" in words:
        return _denied(url)
    if "redential" in words or "169.254.169.254" in words:
        return InputError(
            f"{url}: there are no credentials for this store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run "
            "where the machine has a role",
            code="no_credentials",
            path=url,
        )
    if "404" in words or "NoSuchBucket" in words:
        return InputError(f"{url} does not exist: check the bucket", code="not_found", path=url)
    return InputError(
        f"{url}: the store does not answer: check AWS_ENDPOINT_URL and the network", code="store_unreachable", path=url
    )


def _denied(url: str) -> InputError:
    return InputError(f"{url}: access denied: the credentials may not read it", code="access_denied", path=url)


def _changed(url: str) -> InputError:
    return InputError(
        f"{url} changed while it was being read: run again when nobody writes to it", code="file_changed", path=url
    )
