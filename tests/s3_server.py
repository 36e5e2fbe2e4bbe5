"""An S3 emulator (moto's server) as a process on loopback: objects in memory, real requests."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SETTINGS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def s3_server(bucket: str) -> Iterator[tuple[Any, dict[str, str]]]:
    """A client of a server with one bucket, and the environment that reaches it."""
    pytest.importorskip("moto.server", reason="needs moto with flask, dev dependencies")
    boto3 = pytest.importorskip("boto3", reason="needs boto3, a dev dependency")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    settings = {**SETTINGS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    client = boto3.client(
        "s3",
        endpoint_url=settings["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    try:
        _await_port(port)
        client.create_bucket(Bucket=bucket)
        yield client, settings
    finally:
        server.kill()
        server.wait()


def _await_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("moto's server did not start")
