"""The console on a large result in a real browser: first paint, pages, filters, search; times are the browser's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contest import DATA, ROOT, Row, driftline_command
from driftline.core import atomic_write

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_COLUMNS = ("id", "name", "email", "city", "plan", "balance", "since", "note")
_ROUNDS = 5


def run(full: bool) -> list[Row]:
    count = 1_000_000 if full else 100_000
    source = _events(DATA / f"console-{count}.jsonl", count)
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(source, Path(place) / "changes.jsonl")
        return list(_looks(Path(place), f"{count:,} events"))


def _looks(folder: Path, what: str) -> Iterator[Row]:
    with _server(folder) as (address, process), _browser() as browser:
        page = f"{address}/open?path=changes.jsonl"
        idle = process.memory_info().rss / 1e6
        yield _row(f"{what}: first paint, fresh browser and server", {"ms": _paint(browser, page)})
        yield _row(f"{what}: index made", {"ms": _timed(lambda: _indexed(browser, page))})
        context = browser.new_context()
        shown = context.new_page()
        warm = [_paint_of(shown, page) for _ in range(_ROUNDS)]
        yield _row(f"{what}: first paint, warm", {"ms": min(warm), "worst_ms": max(warm)})
        shown.wait_for_selector(".rates")
        for name, steps in _STEPS.items():
            taken = [_timed(lambda step=step: _swap(shown, step)) for step in steps]
            yield _row(f"{what}: {name}", {"ms": min(taken), "worst_ms": max(taken)})
        rss = process.memory_info().rss / 1e6
        yield _row(f"{what}: memory of the server", {"rss_mb": rss, "rss_idle_mb": idle})
        context.close()
    with _server(folder) as (address, _), _browser() as browser:
        page = f"{address}/open?path=changes.jsonl"
        yield _row(f"{what}: first paint, fresh browser and server, saved index", {"ms": _paint(browser, page)})
        yield _row(f"{what}: saved index read", {"ms": _timed(lambda: _indexed(browser, page))})


_STEPS = {
    "next page": ["page=2", "page=3", "page=4"],
    "page in the middle": ["page=900", "page=1500", "page=1999"],
    "filter by kind": ["kind=added", "kind=removed", "kind=changed"],
    "filter by column": ["column=balance", "column=plan", "column=city"],
    "search, new words": ["q=zanzibar", "q=Ana+Silva", "q=c0000100"],
    "search in a filter": ["kind=added&q=lagos", "column=plan&q=basic", "kind=changed&q=ring"],
}


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = driftline_command("ui", str(folder), "--port", "0")
    started = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    found = re.search(r"http://[^ ]+", started.stderr.readline())
    try:
        assert found is not None, "the console did not start"
        yield found.group().rstrip("/"), psutil.Process(started.pid)
    finally:
        started.kill()
        started.wait()


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        running = tool.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


def _paint(browser: Any, address: str) -> float:
    context = browser.new_context()
    taken = _paint_of(context.new_page(), address)
    context.close()
    return taken


def _paint_of(page: Any, address: str) -> float:
    page.goto(address)
    while (painted := page.evaluate(_PAINTED)) is None:
        page.wait_for_timeout(5)
    return float(painted)


def _indexed(browser: Any, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(".rates", timeout=120_000)
    context.close()


def _swap(page: Any, query: str) -> None:
    """From the wish to the new rows on the page, as a click or a key does it."""
    page.evaluate("address => show(address)", f"/open?path=changes.jsonl&{query}")


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def _row(case: str, figures: dict[str, float]) -> Row:
    print(f"  {case}: {figures}", file=sys.stderr, flush=True)
    return Row(case, "driftline ui", figures)


def _events(path: Path, count: int) -> Path:
    """A result as the diff writes it: a sixth added, a seventh removed, the rest changed in one or two cells."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {"added": 0, "removed": 0, "changed": 0}
    with atomic_write(path) as out:
        out.write(_line({"type": "schema", "columns_a": _COLUMNS, "columns_b": _COLUMNS}))
        for number in range(count):
            kind = "added" if number % 6 == 0 else "removed" if number % 7 == 0 else "changed"
            kinds[kind] += 1
            out.write(_line(_event(kind, number)))
        counts = {f"rows_{kind}": many for kind, many in kinds.items()}
        total = kinds["changed"] + 400_000
        out.write(_line({"type": "stats", "rows_total_compared": total, **counts, "rows_unchanged": 400_000}))
    return path


def _event(kind: str, number: int) -> dict[str, Any]:
    cities, plans = ("Oslo", "Lagos", "São Paulo", "Berlin", "Lima"), ("free", "basic", "pro", "team")
    row = dict(
        zip(
            _COLUMNS,
            (
                *(f"C{number:07d}", f"Ana Silva {number % 971}", f"ana.{number}@example.com", cities[number % 5]),
                *(plans[number % 4], f"{number % 5000}.{number % 100:02d}", "2020-07-21", "ring twice" * (number % 3)),
            ),
            strict=True,
        )
    )
    event: dict[str, Any] = {"type": kind, "key": {"id": row["id"]}}
    if kind != "changed":
        return {**event, "row": row}
    changed = ["balance"] if number % 3 else ["plan", "balance"] if number % 2 else ["city"]
    after = {**row, **{name: f"{row[name]}1" for name in changed}}
    delta = {name: {"from": row[name], "to": after[name]} for name in changed}
    return {**event, "changed": changed, "before": row, "after": after, "delta": delta}


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
