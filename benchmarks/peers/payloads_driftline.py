"""driftline on the payload cases: CASE OLD NEW SECONDS, or `text` pairs with parsing and report included."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from benchmarks.data_payloads import INVOICE_SCHEMA, KEYED_SCHEMA, UNORDERED_SCHEMA

from driftline import payloads

SCHEMAS = {"invoice": INVOICE_SCHEMA, "text": INVOICE_SCHEMA, "keyed": KEYED_SCHEMA, "unordered": UNORDERED_SCHEMA}


def main() -> None:
    case, old_path, new_path, seconds = sys.argv[1:]
    plan = payloads.compile(SCHEMAS.get(case, {}), {"max_payload_size_mb": 50, "timeout_seconds": 600})
    old, new = Path(old_path).read_bytes(), Path(new_path).read_bytes()
    pair = (old, new) if case in ("text", "limit") else (json.loads(old), json.loads(new))
    best, cpu, end = float("inf"), float("inf"), time.perf_counter() + float(seconds)
    while True:
        started, used = time.perf_counter(), time.process_time()
        report = plan.compare(*pair)
        if case == "text":
            report.to_json()
        best = min(best, time.perf_counter() - started)
        cpu = min(cpu, time.process_time() - used)
        if time.perf_counter() >= end:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"wall_s": best, "cpu_s": cpu, "per_s": 1 / best, "peak_mb": peak, "found": len(report.diffs)}))


if __name__ == "__main__":
    main()
