"""Calls a running compare service: `single` latencies beside the library's time, or the rate of an NDJSON `batch`."""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.data_payloads import INVOICE_SCHEMA

from driftline import payloads


def main() -> None:
    mode, old_path, new_path, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    old, new = Path(old_path).read_bytes(), Path(new_path).read_bytes()
    server = subprocess.Popen(
        [sys.executable, "-m", "driftline", "serve", "--port", "0"], stderr=subprocess.PIPE, env={**os.environ}
    )
    try:
        assert server.stderr is not None
        port = _port(server.stderr.readline())
        threading.Thread(target=server.stderr.read, daemon=True).start()
        figures = _single(port, old, new, count) if mode == "single" else _batch(port, old, new, count)
    finally:
        server.terminate()
        server.wait()
    print(json.dumps(figures))


def _port(line: bytes) -> int:
    record = json.loads(line)
    return int(record.get("port") or record["fields"]["port"])


def _library_seconds(old: bytes, new: bytes) -> float:
    plan = payloads.compile(json.dumps(INVOICE_SCHEMA))
    plan.compare(old, new)
    times = []
    for _ in range(500):
        started = time.perf_counter()
        plan.compare(old, new).to_json()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _single(port: int, old: bytes, new: bytes, count: int) -> dict[str, float]:
    body = b'{"old_json":%b,"new_json":%b,"schema_fragment":%b}' % (old, new, json.dumps(INVOICE_SCHEMA).encode())
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    for number in range(count + 50):
        started = time.perf_counter()
        connection.request("POST", "/v1/compare", body)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        if number >= 50:
            times.append(time.perf_counter() - started)
    library = _library_seconds(old, new)
    times.sort()
    median = statistics.median(times)
    return {
        "wall_s": median,
        "library_s": library,
        "over_ms": (median - library) * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
        "per_s": 1 / statistics.mean(times),
    }


def _batch(port: int, old: bytes, new: bytes, count: int) -> dict[str, float]:
    line = b'{"id":1,"old":%b,"new":%b}\n' % (old, new)
    body = b'{"schema_fragment":%b}\n' % json.dumps(INVOICE_SCHEMA).encode() + line * count
    connection = http.client.HTTPConnection("127.0.0.1", port)
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        connection.request("POST", "/v1/compare/batch", body)
        lines = connection.getresponse().read().count(b"\n")
        best = min(best, time.perf_counter() - started)
        assert lines == count
    library = _library_seconds(old, new)
    return {
        "wall_s": best,
        "library_s": library * count,
        "per_s": count / best,
        "share_of_library": library * count / best,
    }


if __name__ == "__main__":
    main()
