"""PostgreSQL servers of one's own, on loopback, for as long as a test needs them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes import run_process


class PostgresServer:
    """A server with a data directory of its own; it may have a standby, which can be promoted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = str(folder / "data")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.address = f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """An empty cluster."""
        _run("initdb", "-D", self.data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        _run("pg_ctl", "-D", self.data, "-o", options, "-l", str(self.folder / "log"), "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        """By default without a word to anybody, as a machine dies."""
        _run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop", check=False)

    @contextmanager
    def standby(self) -> Iterator[PostgresServer]:
        """A server that follows this one by streaming replication."""
        with _folder() as folder:
            follower = PostgresServer(folder)
            _run(
                "pg_basebackup",
                "-d",
                self.address,
                "-D",
                follower.data,
                "-R",
                "-X",
                "stream",
                "-c",
                "fast",
                "--no-sync",
            )
            follower.start()
            try:
                yield follower
            finally:
                follower.stop()

    def promote(self) -> None:
        _run("pg_ctl", "-D", self.data, "-w", "promote")


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server with an empty database."""
    _program("initdb")
    with _folder() as folder:
        server = PostgresServer(folder)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of an empty database."""
    with running_postgres() as server:
        yield server.address


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="driftline-postgres-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    # Debian's own folder first: what the PATH has there are links, which another account may not be able to follow.
    found = next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None) or shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}, of the package postgresql")
    return found


def _run(name: str, *arguments: str, check: bool = True) -> None:
    # The server refuses to run as root.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    run_process([*as_user, _program(name), *arguments], check=check, capture_output=True, cwd="/")
