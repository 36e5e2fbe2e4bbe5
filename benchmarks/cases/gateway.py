"""The sync gateway on loopback: generator and server share the machine's cores; the generator's CPU is in the table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.contest import DATA, ROOT, Row, driftline_command
from benchmarks.data_gateway import loaded_log
from driftline.gateway import sign

GATEWAY = "bench"
SECRET = "only-for-benchmarks-and-long-enough-for-hs256"
CLIENTS = 16
LISTENERS = 1000


def run(full: bool) -> list[Row]:
    large = 10_000_000 if full else 1_000_000
    pulled = 1_000_000
    rows = [_delta_ids(full)]
    with tempfile.TemporaryDirectory() as place, server(Path(place) / "empty") as ours:
        _load(ours, "push", 1, 3, 100)
        rows.append(_row("one push of 10,000 deltas", "driftline", _best(ours, 3, "push", 1, 1, 10_000)))
        rows.append(_row("16 clients, batches of 100", "driftline", _best(ours, 3, "push", CLIENTS, 60, 100)))
        with server(Path(place) / "flushing", ("--flush-seconds", "1")) as ours:
            case = "16 clients, batches of 100, flushing every second"
            rows.append(_row(case, "driftline", _best(ours, 3, "push", CLIENTS, 120, 100)))
        with server(Path(place) / "feeds", (*NEVER, "--per-address", "0")) as ours:
            idle = ours.process.memory_info().rss / 1e6
            figures = _load(ours, "feed", LISTENERS, 5)
            rows.append(_row(f"{LISTENERS:,} listeners", "driftline", {**figures, "server_rss_idle_mb": idle}))
    small, big = loaded_log(DATA / "gateway-100k", 100_000), loaded_log(DATA / f"gateway-{large}", large)
    for name, path, deltas in (("100k", small, 100_000), (f"{large // 1_000_000}M", big, pulled)):
        with server(_copied(path)) as ours:
            rows.append(
                _row(f"pull in pages of 10,000, log of {name}", "driftline", _best(ours, 3, "pull", 10_000, deltas))
            )
            rows.append(
                _row(f"16 clients pushing, log of {name}", "driftline", _best(ours, 3, "push", CLIENTS, 60, 100))
            )
            shutil.rmtree(ours.data)
    return rows


class Ours:
    """A running gateway."""

    def __init__(self, data: Path, url: str, process: psutil.Process, tokens: Path) -> None:
        self.data, self.url, self.process, self.tokens = data, url, process, tokens


NEVER = ("--flush-seconds", "3600", "--flush-mb", "100000")


@contextmanager
def server(data: Path, flushing: tuple[str, ...] = NEVER) -> Iterator[Ours]:
    data.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "DRIFTLINE_JWT_SECRET": SECRET, "PYTHONPATH": str(ROOT / "src")}
    options = ("--gateway", GATEWAY, "--data", str(data), "--port", "0", "--rate-limit", "0", "--log-level", "warning")
    started = subprocess.Popen(
        driftline_command("serve", *options, *flushing),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Ours(data, f"http://127.0.0.1:{_port(started)}", psutil.Process(started.pid), _tokens(data))
    finally:
        started.kill()
        started.wait()


def _port(started: subprocess.Popen[str]) -> int:
    process = psutil.Process(started.pid)
    for _ in range(600):
        ports = [each.laddr.port for each in process.net_connections() if each.status == psutil.CONN_LISTEN]
        if ports:
            return int(ports[0])
        time.sleep(0.05)
    raise SystemExit("the gateway did not start")


def _tokens(data: Path) -> Path:
    path = data / "tokens"
    expiry = int(time.time()) + 3600
    made = [
        sign({"sub": f"client-{number}", "gw": GATEWAY, "exp": expiry}, SECRET) for number in range(1 + LISTENERS // 4)
    ]
    path.write_text("\n".join(made))
    return path


def _load(ours: Ours, job: str, *numbers: int) -> dict[str, float]:
    before = ours.process.cpu_times()
    command = [sys.executable, "-m", "benchmarks.gateway_load", job, ours.url, str(ours.tokens), *map(str, numbers)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = ours.process.cpu_times()
    figures: dict[str, float] = json.loads(done.stdout)
    figures["server_cpu_s"] = after.user + after.system - before.user - before.system
    figures["server_rss_mb"] = ours.process.memory_info().rss / 1e6
    return figures


def _best(ours: Ours, rounds: int, job: str, *numbers: int) -> dict[str, float]:
    return max((_load(ours, job, *numbers) for _ in range(rounds)), key=lambda figures: figures["deltas_per_s"])


def _row(case: str, contender: str, figures: dict[str, float]) -> Row:
    print(f"  {case}: {figures}", file=sys.stderr, flush=True)
    return Row(case, contender, figures)


def _copied(path: Path) -> Path:
    """A copy to push into, beside the original (same disk)."""
    target = path.with_name(f"{path.name}-copy")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(path, target)
    return target


def _delta_ids(full: bool) -> Row:
    import random

    from benchmarks.data_gateway import columns
    from driftline.deltas import extract

    count = 200_000 if full else 50_000
    choose = random.Random(1)
    rows = [{entry.column: entry.value for entry in columns(number, choose)} for number in range(count)]
    best = 0.0
    for _ in range(3):
        cpu = time.process_time()
        for number, row in enumerate(rows):
            extract(None, row, table="orders", row_id=str(number), client_id="laptop", hlc=1_000_000 + number)
        best = max(best, count / (time.process_time() - cpu))
    return _row("extract + delta_id, 6 columns, one core", "driftline", {"deltas_per_s": best})
