"""driftline on the payload cases: CASE OLD NEW SECONDS; `text` includes parsing and report, and times `json.loads` of
both texts in turn with it.

`pairs FILE COUNT 0` does the same for the first pairs of a batch, one after the other; `compile FILE ROOT 0` compiles.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from itertools import islice
from pathlib import Path

import msgspec
from benchmarks.data_payloads import INVOICE_SCHEMA, KEYED_SCHEMA, UNORDERED_SCHEMA

from driftline import payloads

SCHEMAS = {"invoice": INVOICE_SCHEMA, "text": INVOICE_SCHEMA, "keyed": KEYED_SCHEMA, "unordered": UNORDERED_SCHEMA}


def main() -> None:
    if sys.argv[1] == "pairs":
        _compare_pairs(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "compile":
        _compile(Path(sys.argv[2]), sys.argv[3])
    else:
        _compare_one(*sys.argv[1:])


def _compile(path: Path, root: str) -> None:
    """From a file to a plan, each time with other limits, so that no plan is known already."""
    best = float("inf")
    for number in range(5):
        started = time.perf_counter()
        payloads.compile(path, {"timeout_seconds": 30 + number}, root)
        best = min(best, time.perf_counter() - started)
    print(json.dumps({"wall_s": best}))


def _compare_pairs(path: Path, count: int) -> None:
    plan = payloads.compile(INVOICE_SCHEMA)
    with path.open("rb") as file:
        pairs = [msgspec.json.decode(line, type=dict[str, msgspec.Raw]) for line in islice(file, count)]
    texts = [(bytes(pair["old"]), bytes(pair["new"])) for pair in pairs]
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        for old, new in texts:
            plan.compare(old, new).to_json()
        best = min(best, time.perf_counter() - started)
    print(json.dumps({"wall_s": best, "per_s": len(texts) / best}))


def _compare_one(case: str, old_path: str, new_path: str, seconds: str) -> None:
    plan = payloads.compile(SCHEMAS.get(case, {}), {"max_payload_size_mb": 50, "timeout_seconds": 600})
    old, new = Path(old_path).read_bytes(), Path(new_path).read_bytes()
    pair = (old, new) if case in ("text", "limit") else (json.loads(old), json.loads(new))
    best, cpu, end = float("inf"), float("inf"), time.perf_counter() + float(seconds)
    loads = float("inf")
    while True:
        if case == "text":
            started = time.perf_counter()
            json.loads(old), json.loads(new)
            loads = min(loads, time.perf_counter() - started)
        started, used = time.perf_counter(), time.process_time()
        report = plan.compare(*pair)
        if case == "text":
            report.to_json()
        best = min(best, time.perf_counter() - started)
        cpu = min(cpu, time.process_time() - used)
        if time.perf_counter() >= end:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"wall_s": best, "cpu_s": cpu, "per_s": 1 / best, "peak_mb": peak, "found": len(report.diffs)}
    if case == "text":
        figures |= {"loads_per_s": 1 / loads, "of_loads": loads / best}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
