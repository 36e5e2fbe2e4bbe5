"""An S3 emulator (moto's server) as a process on loopback: objects in memory, real requests."""

from __future__ import annotations

import http.client
import http.server
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.processes import start_process, wait_until

SETTINGS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def s3_server(bucket: str) -> Iterator[tuple[Any, dict[str, str]]]:
    """A client of a server with one bucket, and the environment that reaches it."""
    pytest.importorskip("moto.server", reason="needs moto with flask, dev dependencies")
    boto3 = pytest.importorskip("boto3", reason="needs boto3, a dev dependency")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = start_process(
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
    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(answers, "the start of moto's server")


@contextmanager
def unreliable(settings: dict[str, str], seed: int, *, faults: float = 0.16) -> Iterator[dict[str, str]]:
    """A server in front of the store that refuses, cuts short or forgets some of its answers.

    Given is the environment that reaches it. A forgotten answer is the worst one: what was asked for has been done.
    """
    from driftline.core import _objects as objects

    # A process of its own: calls into the store hold this interpreter while they wait for the answer.
    command = [sys.executable, "-m", "support.s3", settings["AWS_ENDPOINT_URL"], str(seed), str(faults)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with start_process(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        through = {**settings, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}"}
        saved = dict(os.environ)
        os.environ.update(through)
        objects._store.cache_clear()
        try:
            yield through
        finally:
            os.environ.clear()
            os.environ.update(saved)
            objects._store.cache_clear()
            server.kill()


def _handler(endpoint: str, dice: random.Random, faults: float) -> type[http.server.BaseHTTPRequestHandler]:
    # The emulator looks at the condition of a put and then puts: in between others may do so, as no S3 lets them.
    one_at_a_time = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fate = dice.random() / faults  # below 1: something goes wrong
            if fate < 0.5:
                self.send_error(503)
                return
            if fate < 0.65:
                self.close_connection = True
                return
            connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=20)
            with one_at_a_time:
                connection.request(self.command, self.path, body=body or None, headers=dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
            self.close_connection = True
            if fate < 0.8:
                return  # done, and the answer is forgotten
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if fate < 1 and self.command == "GET" else content)

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the base class names them

        def log_message(self, *_: object) -> None:
            pass

    return Handler


if __name__ == "__main__":
    endpoint, seed, share = sys.argv[1:]
    proxy = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), _handler(endpoint, random.Random(int(seed)), float(share))
    )
    print(proxy.server_port, flush=True)
    proxy.serve_forever()
