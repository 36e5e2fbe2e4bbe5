"""A `driftline serve` process on a free port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.processes import PATIENCE, start_process

ROOT = Path(__file__).parents[2]


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """The address of a running server; it is ended by SIGTERM."""
    command = [sys.executable, "-m", "driftline", "serve", "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = start_process(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield f"http://127.0.0.1:{_port(process)}"
    finally:
        process.terminate()
        process.wait(PATIENCE)
        assert process.stderr is not None
        process.stderr.close()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    for line in process.stderr:
        fields = json.loads(line)
        if "port" in json.dumps(fields):
            # Keep reading, so that the server never waits for its log.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return int(fields.get("port") or fields["fields"]["port"])
    raise RuntimeError("the server did not start")
