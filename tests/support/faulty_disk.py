"""A disk between SQLite and the real one: it counts syncs, runs full, fails to sync, and loses power.

What was written but not synced when the power goes is lost or kept write by write, as a real disk may do it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw


class FaultyDisk(apsw.VFS):
    """A VFS over the default one; files are the real ones, `survive` says what a power loss would leave."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.base = apsw.vfs_names()[0]
        super().__init__(name, self.base)
        self.full = False
        self.sync_fails = False
        self.syncs: list[str] = []
        self.durable: dict[str, bytes] = {}
        self.unsynced: dict[str, list[tuple[int, bytes | None]]] = {}

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802 - SQLite's names
        return _FaultyFile(self, name, flags)

    def xDelete(self, name: str, sync_directory: bool) -> None:  # noqa: N802
        self.durable.pop(name, None)
        self.unsynced.pop(name, None)
        super().xDelete(name, sync_directory)

    def survive(self, target: Path, choose: random.Random) -> Path:
        """The files as they may be found after a power loss right now, in another directory."""
        target.mkdir()
        for name in {*self.durable, *self.unsynced}:
            content = bytearray(self.durable.get(name, b""))
            for offset, data in self.unsynced.get(name, []):
                if choose.random() < 0.5:
                    _apply(content, offset, data)
            (target / Path(name).name).write_bytes(content)
        return target


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self.disk.full:
            raise apsw.FullError("no space left")
        self.disk.unsynced.setdefault(self.path, []).append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self.disk.unsynced.setdefault(self.path, []).append((size, None))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self.disk.sync_fails:
            raise apsw.IOError("sync failed")
        super().xSync(flags)
        self.disk.syncs.append(self.path)
        content = bytearray(self.disk.durable.get(self.path, b""))
        for offset, data in self.disk.unsynced.pop(self.path, []):
            _apply(content, offset, data)
        self.disk.durable[self.path] = bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data
