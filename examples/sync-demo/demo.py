"""Two clients and a gateway: one of them is cut off for a while, both edit on, and they converge.

Run it with `python examples/sync-demo/demo.py`.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from driftline.deltas import Clock, RowDelta, extract, merge
from driftline.gateway.auth import sign
from driftline.gateway.client import GatewayClient

GATEWAY, TABLE = "demo", "todos"


class Replica:
    """A client that works offline: edits become deltas, `sync` ships them and fetches everyone's."""

    def __init__(self, name: str, url: str, token: str) -> None:
        self.name = name
        self.clock = Clock()
        self.deltas: list[RowDelta] = []
        self.unsent: list[RowDelta] = []
        self.cursor: str | None = None
        self.gateway = GatewayClient(url, GATEWAY, name, token=token)

    def rows(self) -> dict[str, dict[str, Any]]:
        """The replica's state: the merge of all it has seen."""
        return {key[1]: state.columns for key, state in sorted(merge(self.deltas).items()) if state.live}

    def edit(self, row_id: str, row: dict[str, Any] | None) -> None:
        """Set some columns of a row, or remove it."""
        before = self.rows().get(row_id)
        after = None if row is None else {**(before or {}), **row}
        delta = extract(before, after, table=TABLE, row_id=row_id, client_id=self.name, hlc=self.clock.now())
        if delta is not None:
            self.deltas.append(delta)
            self.unsent.append(delta)

    def sync(self) -> None:
        """Push what is unsent, then pull to the end of the log."""
        if self.unsent:
            self.gateway.push(self.unsent)
            self.unsent.clear()
        for page in self.gateway.pull_all(cursor=self.cursor):
            self.deltas += page.deltas
            self.cursor = page.cursor
            self.clock.recv(page.server_hlc)


def main() -> None:
    secret = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as directory:
        server, url = start_gateway(Path(directory), secret)
        try:
            play(url, secret)
        finally:
            server.terminate()
            server.wait()


def play(url: str, secret: str) -> None:
    laptop, phone = (Replica(name, url, token_for(name, secret)) for name in ("laptop", "phone"))
    laptop.edit("1", {"title": "buy milk", "done": False})
    laptop.edit("2", {"title": "call Ada", "done": False})
    laptop.sync()
    phone.sync()
    show("both in touch", laptop, phone)

    # The phone loses its network; both go on.
    phone.edit("1", {"done": True})
    phone.edit("3", {"title": "written on the train", "done": False})
    laptop.edit("1", {"title": "buy oat milk"})
    laptop.edit("2", None)
    laptop.sync()
    show("the phone is cut off", laptop, phone)

    phone.sync()
    laptop.sync()
    show("back again", laptop, phone)
    if laptop.rows() != phone.rows():
        sys.exit("the replicas differ")
    print("converged")


def show(when: str, *replicas: Replica) -> None:
    print(f"\n{when}")
    for replica in replicas:
        print(f"  {replica.name:<7} {replica.rows()}")


def token_for(name: str, secret: str) -> str:
    return sign({"sub": name, "gw": GATEWAY, "exp": int(time.time()) + 600}, secret)


def start_gateway(directory: Path, secret: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "driftline", "serve", "--gateway", GATEWAY, "--data", str(directory / "gateway")]
    server = subprocess.Popen(
        [*command, "--port", "0"],
        env={**os.environ, "DRIFTLINE_JWT_SECRET": secret},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    listening = server.stderr.readline()
    port = re.search(r'"port": (\d+)', listening)
    if port is None:
        sys.exit(f"the gateway did not start: {listening}")
    return server, f"http://127.0.0.1:{port.group(1)}"


if __name__ == "__main__":
    main()
