"""On Spark the events are the same bytes as on one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from driftline import codeindex
from driftline.codeindex import DiffOptions, IndexDiff
from driftline.codeindex._diff import modes as kernels
from driftline.codeindex._diff.diff import run
from driftline.codeindex._diff.modes import Split
from driftline.codeindex._read.artifacts import every_row, rows_between
from driftline.codeindex._registry.keep import IndexDiffJob, run_job
from driftline.codeindex._storage import event_line
from driftline.errors import DriftlineError
from support.index_caches import make_cache
from support.index_cases import CASES, options_of, write_case
from support.index_layouts import LAYOUTS, chunk_row, file_row, write_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def both_ways(old: Path, new: Path, **options: Any) -> tuple[IndexDiff, IndexDiff]:
    from driftline.spark._index import index_scheduler

    request = codeindex.prepare(f"path:{old}", f"path:{new}", None, DiffOptions.of(**options))
    with index_scheduler() as scheduler:
        on_spark = run(request, scheduler=scheduler, created_at="2026-01-01T00:00:00.000Z")
    return run(request, created_at="2026-01-01T00:00:00.000Z"), on_spark


def assert_same(local: IndexDiff, on_spark: IndexDiff) -> None:
    assert on_spark.summary == local.summary
    assert list(map(event_line, on_spark.events)) == list(map(event_line, local.events))


# A case each for what only Spark does in its own way; `test_a_busy_index` has the rest.
ON_SPARK = ("relations", "limit-changed-files", "rename-pairing", "file-level-imports", "fast-path", "truncated")


@pytest.mark.spark
@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in ON_SPARK], ids=lambda case: case["id"])
def test_golden_cases(case: dict[str, Any], tmp_path: Path, spark: SparkSession) -> None:
    layout = list(LAYOUTS)[CASES.index(case) % len(LAYOUTS)] if case["layouts"] else "json"
    write_case(case, layout, tmp_path)
    local, on_spark = both_ways(tmp_path / "from", tmp_path / "to", **options_of(case))
    assert_same(local, on_spark)


def busy_index(version: int, files: int = 60) -> dict[str, Any]:
    """Many files: modified, renamed, added, removed, trimmed rows, lone surrogates, an overfull file."""
    paths = [f"src/{'ü' * (n % 3)}m{n}.js" for n in range(files)]
    paths = [f"moved/{n}.js" if version == 2 and n % 7 == 0 else path for n, path in enumerate(paths)]
    paths[1] = "\ud83d.js"
    paths[2] = f"only-in-{version}.js"
    hashes = [f"h{n}{version if n % 3 == 1 else ''}" for n in range(files)]
    hashes[2] = None
    file_meta = [file_row(n * version, path, hashes[n]) for n, path in enumerate(paths)]
    chunk_meta = []
    for n, path in enumerate(paths):
        for k in range(12 if n == 4 else 4):
            row = chunk_row(len(chunk_meta), path, f"f{k}", k * 10 + (version if k == 2 else 0), fileId=n * version)
            row["metaV2"]["signature"] = f"s{version if k == 1 else ''}"
            row["codeRelations"] = {"imports": [f"./{k}"], "calls": [["f", f"g{version if k == 3 else ''}"]]}
            if (n + k) % 5 == 0:
                row["file"] = None
            chunk_meta.append(row)
    chunk_meta.append({**chunk_row(10**6, "x", "lost"), "file": None, "fileId": 10**7})
    file_meta.append({"id": 10**8, "hash": "x"})
    relations = [{"file": path, "relations": {"imports": [f"./v{version}", "./0"]}} for path in paths]
    relations.append({"relations": {"imports": ["./lost"]}})
    return {"code": {"file_meta": file_meta, "chunk_meta": chunk_meta, "file_relations": relations}}


@pytest.mark.spark
@pytest.mark.parametrize(("layout", "limited"), [("jsonl", False), ("hot-cold", False), ("hot-cold", True)])
def test_a_busy_index(
    layout: str, limited: bool, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SPLIT_BYTES", 3000)
    monkeypatch.setattr(kernels.plan_splits, "__defaults__", (3000,))
    # Each task costs the same however little it does: shuffles into eight of them are as good as into thirty.
    monkeypatch.setattr("driftline.spark._index._SPLITS_PER_PARTITION", 5)
    if limited:
        monkeypatch.setattr("driftline.spark._index.NEEDED_FILES_LIMIT", 3)
    old = write_index(tmp_path / "old", busy_index(1), layout)
    new = write_index(tmp_path / "new", busy_index(2), layout)
    local, on_spark = both_ways(old, new, max_chunks_per_file=10, max_events=150)
    assert local.summary["skippedRows"] == {"from": 3, "to": 3}
    assert local.summary["truncated"]
    assert local.summary["modesSummary"]["code"]["files"]["renamed"] > 3
    assert_same(local, on_spark)


@pytest.mark.spark
def test_errors_keep_their_code(tmp_path: Path, spark: SparkSession) -> None:
    old = write_index(tmp_path / "old", busy_index(1), "jsonl")
    new = write_index(tmp_path / "new", busy_index(2), "jsonl")
    path = new / "index-code/chunk_meta.jsonl"
    path.write_bytes(path.read_bytes() + b"{broken\n")
    with pytest.raises(DriftlineError) as caught:
        codeindex.diff(f"path:{old}", f"path:{new}")
    local_error = caught.value
    from driftline.spark._index import index_scheduler

    request = codeindex.prepare(f"path:{old}", f"path:{new}", None, DiffOptions.of())
    with pytest.raises(DriftlineError) as caught, index_scheduler() as scheduler:
        run(request, scheduler=scheduler)
    assert (caught.value.code, caught.value.message) == (local_error.code, local_error.message)
    assert str(tmp_path) not in caught.value.message


@pytest.mark.spark
def test_many_repositories_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    from driftline.spark._index import run_jobs

    roots = [make_cache(tmp_path / name) for name in ("a", "b", "c")]
    (roots[1] / "builds/current.json").unlink()
    jobs = [IndexDiffJob.of("build:b1", "latest", str(root)) for root in roots]
    outcomes = run_jobs(jobs)
    assert [outcome["ok"] for outcome in outcomes] == [True, False, True]
    assert outcomes[1]["code"] == "NOT_FOUND"
    again = run_job(jobs[2])
    assert again["reused"]
    assert again["summary"] == outcomes[2]["summary"]


@pytest.mark.parametrize("split_bytes", [1, 2, 3, 7, 10, 64, 10_000])
@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"])
def test_every_line_is_in_exactly_one_split(tmp_path: Path, split_bytes: int, ending: bytes) -> None:
    from driftline.codeindex._read.artifacts import Artifact, Part

    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(json.dumps({"n": n, "pad": "x" * (n % 5)}).encode() for n in range(40)) + ending)
    splits = kernels.plan_splits(0, Artifact("rows", (Part(path, "rows", "lines"),)), split_bytes)
    found = [row["n"] for split in splits for _, row in rows_between(split.part, split.start, split.end, every_row)]
    assert found == list(range(40))


def test_a_worker_must_see_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{}")
    for split in (Split(0, str(path), "rows", "lines", 3), Split(0, str(tmp_path / "no"), "rows", "lines", 3)):
        with pytest.raises(DriftlineError, match="every worker"):
            _ = split.part
