"""A PostgreSQL cluster of its own for a test: in a temporary directory, on a socket, run by a user that is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes import run_process

_USERS = ("postgres", "nobody")


def programs() -> Path:
    """Where PostgreSQL's programs are; the test is skipped where they or wal2json are missing."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists() and (folder.parent / "lib" / "wal2json.so").exists():
            return folder
    pytest.skip("PostgreSQL with wal2json is not installed (Debian: postgresql-15-wal2json)")


def owner() -> str | None:
    """The user that the server runs as; PostgreSQL refuses root."""
    if os.getuid() != 0:
        return None
    known = [entry.pw_name for entry in pwd.getpwall()]
    for name in _USERS:
        if name in known:
            return name
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


class Cluster:
    """A running server; statements go through psql."""

    def __init__(self, bin_folder: Path, folder: Path, user: str | None) -> None:
        self._bin, self.folder, self._user = bin_folder, folder, user

    def run(self, program: str, *arguments: str, text: str = "") -> str:
        done = run_process(
            [str(self._bin / program), *arguments],
            input=text,
            capture_output=True,
            encoding="utf-8",
            user=self._user,
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sql(self, text: str) -> list[str]:
        """Run statements; the lines of their results."""
        options = ["-h", str(self.folder), "-U", "me", "-d", "postgres", "-X", "-A", "-t", "-q"]
        return self.run("psql", *options, "-v", "ON_ERROR_STOP=1", text=text).splitlines()

    def captured(self, slot: str, *options: str) -> list[str]:
        """The messages of a slot since the last time."""
        given = ", ".join(["NULL", "NULL", *(f"'{option}'" for option in options)])
        return self.sql(f"SELECT data FROM pg_logical_slot_get_changes('{slot}', {given})")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A server that ends with the test."""
    bin_folder, user = programs(), owner()
    # A short path: the name of a socket has room for about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)
    made = Cluster(bin_folder, folder, user)
    data = folder / "data"
    try:
        made.run("initdb", "-D", str(data), "-A", "trust", "-N", "-U", "me", "-E", "UTF8", "--locale", "C")
        settings = f"-c wal_level=logical -c listen_addresses= -c fsync=off -k {folder}"
        made.run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", settings, "start")
        try:
            yield made
        finally:
            made.run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
