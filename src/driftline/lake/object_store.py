"""The file system of an object-store URL, through the store that `deltalake` commits with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
from deltalake.fs import DeltaStorageHandler


def store_files(root: str, options: dict[str, str] | None) -> Any:
    """A pyarrow file system whose paths are relative to `root`."""
    return pa_fs.PyFileSystem(_StoreHandler(root, options))


class _StoreHandler(DeltaStorageHandler):
    """Writing is given plain bytes: the store refuses the buffers that pyarrow hands over."""

    def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> Any:
        """A stream whose object appears when it is closed."""
        return pa.PythonFile(_BytesOnly(self._handler.open_output_stream(path, metadata)), mode="w")


class _BytesOnly:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.closed = False

    def write(self, data: Any) -> int:
        plain = bytes(data)
        self._stream.write(plain)
        return len(plain)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()
