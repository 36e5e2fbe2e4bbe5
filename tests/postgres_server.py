"""A PostgreSQL server of one's own, on loopback, for as long as a test needs it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _program(name: str) -> str:
    found = shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
    if found is None:
        pytest.skip(f"needs {name}, of the package postgresql")
    return found


def _as_user() -> list[str]:
    """The server refuses to run as root."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of an empty database."""
    control, initialize = _program("pg_ctl"), _program("initdb")
    folder = Path(tempfile.mkdtemp(prefix="driftline-postgres-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = str(folder / "data")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    try:
        subprocess.run(
            [*_as_user(), initialize, "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        subprocess.run(
            [*_as_user(), control, "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start"],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*_as_user(), control, "-D", data, "-m", "immediate", "stop"], capture_output=True, cwd="/")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
