"""A real gateway in a process of its own, and clients that speak HTTP to it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from driftline.deltas import Clock, ColumnDelta, RowDelta
from driftline.gateway._auth import sign
from support.processes import PATIENCE, start_process

GATEWAY = "gw-1"
SECRET = "a-secret-that-is-long-enough-for-hs256"
SOURCE = Path(__file__).parents[2] / "src"
CLOCK = Clock()


def token(sub: str = "alice", **changes: Any) -> str:
    claims = {"sub": sub, "gw": GATEWAY, "exp": int(time.time()) + 600, **changes}
    return sign({name: value for name, value in claims.items() if value is not None}, SECRET)


def delta(
    client: str = "alice",
    row: str = "r1",
    op: str = "UPDATE",
    hlc: int | None = None,
    table: str = "todos",
    **columns: Any,
) -> dict[str, Any]:
    """A well-formed delta in wire form; columns by keyword."""
    made = RowDelta.make(
        op=op,  # type: ignore[arg-type]
        table=table,
        row_id=row,
        client_id=client,
        columns=[ColumnDelta(name, value) for name, value in columns.items()],
        hlc=CLOCK.now() if hlc is None else hlc,
    )
    return made.to_wire()


class Client:
    """One client of a running gateway."""

    def __init__(self, url: str, sub: str = "alice", **claims: Any) -> None:
        self.sub = sub
        self.http = httpx.Client(
            base_url=url, timeout=PATIENCE, headers={"Authorization": f"Bearer {token(sub, **claims)}"}
        )

    def push(self, *deltas: dict[str, Any], **body: Any) -> httpx.Response:
        content = {"clientId": self.sub, "deltas": list(deltas), **body}
        return self.http.post(f"/sync/{GATEWAY}/push", content=json.dumps(content))

    def pull(self, **query: Any) -> httpx.Response:
        return self.http.get(f"/sync/{GATEWAY}/pull", params=query)

    def pull_all(self, limit: int = 1000, **start: Any) -> tuple[list[dict[str, Any]], str]:
        """Every delta after a start, and the cursor at the end."""
        found: list[dict[str, Any]] = []
        query = start or {"since": "0"}
        while True:
            answer = self.pull(limit=limit, **query)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            found += page["deltas"]
            query = {"cursor": page["cursor"]}
            if not page["hasMore"]:
                return found, page["cursor"]

    def admin(self, route: str, content: Any = None, method: str = "POST") -> httpx.Response:
        body = None if content is None else json.dumps(content)
        return self.http.request(method, f"/admin/{route}/{GATEWAY}", content=body)


class Server:
    """A `driftline serve` process; its log lines are kept."""

    def __init__(self, data: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.data = data
        self.lines: list[dict[str, Any]] = []
        self._ports: queue.Queue[int | None] = queue.Queue()
        self.process = start_process(
            [
                *(sys.executable, "-m", "driftline", "serve", "--gateway", GATEWAY, "--data", str(data), "--port", "0"),
                *options,
            ],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "DRIFTLINE_JWT_SECRET": SECRET, **(environment or {})},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        port = self._ports.get(timeout=PATIENCE)
        assert port is not None, self.lines
        self.url = f"http://127.0.0.1:{port}"

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                record = json.loads(line)
            except ValueError:
                record = {"event": "text", "text": line}
            self.lines.append(record)
            if record["event"] == "listening":
                self._ports.put(record["port"])
        self._ports.put(None)

    def client(self, sub: str = "alice", **claims: Any) -> Client:
        return Client(self.url, sub, **claims)

    def kill(self) -> None:
        """No goodbye, neither from the server nor from the processes it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self._gone()

    def stop(self, timeout: float = PATIENCE) -> int:
        """SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        self._gone(timeout)
        return self.process.returncode

    def _gone(self, timeout: float = PATIENCE) -> None:
        self.process.wait(timeout)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def running(data: Path, *options: str, **more: Any) -> Iterator[Server]:
    server = Server(data, *options, **more)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()
