"""Payload comparison: single pairs, long arrays, the size limit, batches and the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import data_openapi, data_payloads
from benchmarks.contest import DATA, PEERS_PYTHON, ROOT, Contender, Row, driftline_command, hold
from benchmarks.measure import Measurement, measure

PEERS = ("deepdiff", "jycm", "jsoncomparison")  # the others take minutes on long arrays
HERE = ROOT / "benchmarks" / "peers"


def run(full: bool) -> list[Row]:
    """All payload cases; `full` uses the sizes of the bars."""
    DATA.mkdir(parents=True, exist_ok=True)
    rows = _pair_rows(full)
    rows += _array_rows(20_000, 20_000 if full else 1_000)
    rows += _limit_rows(50 if full else 5)
    rounds = 3 if full else 1
    rows += _document_rows(1_000, rounds)
    rows += _service_rows(2_000 if full else 500, rounds)
    rows += _batch_rows([250_000, 1_000_000] if full else [20_000])
    return rows


def _pair_rows(full: bool) -> list[Row]:
    old = data_payloads.invoice()
    paths = _write_pair("invoice", old, data_payloads.counterpart(old))
    seconds = 3 if full else 0.4
    contenders = [_ours("invoice", paths, seconds), *(_peer(name, "invoice", paths, seconds) for name in PEERS)]
    rows = hold("pair of 10 KB, 40 keyed items, all rules", contenders)
    # Bars: deepdiff takes at least 100 times as long; `of_loads` (the time of `json.loads` of both) is at least 0.56,
    # and at least 1.25 where nine of ten members are equal.
    rows += hold("the same, parse and report included", [_ours("text", paths, seconds)])
    equal = _write_pair("equal", old, data_payloads.mostly_equal(old))
    return rows + hold("the same, nine of ten members equal", [_ours("text", equal, seconds)])


def _array_rows(items: int, with_peers: int) -> list[Row]:
    rows: list[Row] = []
    for case, tolerated in (("keyed", False), ("unordered", True)):
        # A quarter of the items first: time must grow with them.
        for count in sorted({with_peers, items // 4, items}):
            paths = _write_pair(f"{case}-{count}", *data_payloads.long_arrays(count, tolerated=tolerated))
            contenders = [_ours(case, paths, 0.5)]
            if count == with_peers:
                contenders.append(_peer("deepdiff", case, paths, 0))
            rows += hold(f"{case} array of {count:,} items", contenders, rounds=1)
    return rows


def _limit_rows(megabytes: int) -> list[Row]:
    """Payloads just below the size limit."""
    count = megabytes * 4700
    old, new = data_payloads.long_arrays(count, tolerated=False)
    paths = _write_pair("limit", old, new)
    return hold(f"pair of {paths[0].stat().st_size / 2**20:.0f} MB each, strict", [_ours("limit", paths, 0)], rounds=1)


def _document_rows(resources: int, rounds: int) -> list[Row]:
    """One root of a document with thousands of schemas that refer to each other."""
    path = DATA / f"payload-document-{resources}.json"
    document = data_openapi.document(resources)
    path.write_text(json.dumps(document))
    schemas = len(document["components"]["schemas"])
    root = f"GET /v1/{data_openapi.resource_names(resources)[5]}s 200"
    command = [sys.executable, str(HERE / "payloads_driftline.py"), "compile", str(path), root, "0"]
    case = f"compile one root of {schemas:,} schemas, {path.stat().st_size / 2**20:.0f} MB"
    return hold(case, [Contender("driftline", call=partial(_figures, command))], rounds=rounds)


def _service_rows(count: int, rounds: int) -> list[Row]:
    old = data_payloads.invoice()
    paths = _write_pair("invoice", old, data_payloads.counterpart(old))
    rows: list[Row] = []
    for mode, words in (("single", "10 KB pairs one by one"), ("batch", "10 KB pairs as NDJSON")):
        command = [sys.executable, str(HERE / "payloads_service.py"), mode, *map(str, paths), str(count)]
        contenders = [Contender("driftline", call=partial(_figures, command))]
        rows += hold(f"service, one worker: {words}", contenders, rounds=rounds)
    return rows


def _batch_rows(sizes: list[int]) -> list[Row]:
    """Pairs of 2 KB: the library on one core, then batches on Spark (bar: 1.5 x local + 5 s) and locally."""
    (DATA / "payload-schema.json").write_text(json.dumps(data_payloads.INVOICE_SCHEMA))
    few = 200
    for pairs in (few, *sizes):
        path = _pairs_file(pairs)
        if not path.exists():
            data_payloads.write_batch(path, pairs)
    spark = ("--engine", "spark", "--master", "local[2]")
    start = _batch_run(few, *spark)
    library = _library_rate(sizes[0])
    rows = [Row("2 KB pairs, parse and report included", "library, one core", {"per_s": library})]
    for pairs in sizes:
        whole = _batch_run(pairs, *spark)
        rate = (pairs - few) / (whole.wall - start.wall)
        figures = {"wall_s": whole.wall, "cpu_s": whole.cpu, "per_s": rate, "start_s": start.wall}
        figures |= {"peak_mb": whole.peak_mb, "driver_mb": whole.root_peak_mb}
        figures["share_of_two_cores"] = rate / (2 * library)  # bar: 0.7 at 1,000,000 pairs
        figures["busy_cores"] = whole.cpu / whole.wall
        here = _batch_run(pairs, "--engine", "local")
        case = f"batch of {pairs:,} pairs of 2 KB"
        rows.append(Row(case, "driftline, Spark local[2]", figures, ratio=whole.wall / here.wall))
        local = {"wall_s": here.wall, "cpu_s": here.cpu, "peak_mb": here.peak_mb}
        rows.append(Row(case, "driftline, local engine", local, ratio=1.0))
    return rows


def _pairs_file(pairs: int) -> Path:
    return DATA / f"payload-pairs-{pairs}.jsonl"


def _library_rate(pairs: int) -> float:
    command = [sys.executable, str(HERE / "payloads_driftline.py"), "pairs", str(_pairs_file(pairs)), "5000", "0"]
    return _figures(command)["per_s"]  # the best of three


def _batch_run(pairs: int, *engine: str) -> Measurement:
    files = [str(_pairs_file(pairs)), "--schema", str(DATA / "payload-schema.json")]
    command = driftline_command("compare-batch", *files, "-o", str(DATA / "payload-batch"), *engine)
    return measure(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


def _write_pair(name: str, old: Any, new: Any) -> tuple[Path, Path]:
    paths = (DATA / f"payload-{name}-old.json", DATA / f"payload-{name}-new.json")
    for path, value in zip(paths, (old, new), strict=True):
        path.write_text(json.dumps(value, separators=(",", ":")))
    return paths


def _ours(case: str, paths: tuple[Path, Path], seconds: float) -> Contender:
    command = [sys.executable, str(HERE / "payloads_driftline.py"), case, *map(str, paths), str(seconds)]
    return Contender("driftline", call=partial(_figures, command))


def _peer(name: str, case: str, paths: tuple[Path, Path], seconds: float) -> Contender:
    command = [str(PEERS_PYTHON), str(HERE / "payloads_peers.py"), name, case, *map(str, paths), str(seconds)]
    return Contender(name, call=partial(_figures, command))


def _figures(command: list[str]) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
