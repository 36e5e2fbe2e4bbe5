"""Damage, missing pieces and odd storage: a code, a message without absolute paths, never a wrong answer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from driftline import codeindex
from driftline.codeindex._diff.chunks import RecordCodec
from driftline.core._progress import Tracker
from driftline.core._workspace import SpillStore
from driftline.errors import DriftlineError
from support.index_caches import put, small_index
from support.index_layouts import chunk_row, file_row, manifest_of, write_index


@pytest.fixture
def sides(tmp_path: Path) -> Any:
    def make(layout: str = "json", **options: Any) -> tuple[Path, Path]:
        return tuple(write_index(tmp_path / name, small_index(name[1]), layout, **options) for name in ("v1", "v2"))

    return make


def diff(sides: tuple[Path, Path], **options: Any) -> codeindex.IndexDiff:
    return codeindex.diff(f"path:{sides[0]}", f"path:{sides[1]}", **options)


def refused(sides: tuple[Path, Path]) -> DriftlineError:
    with pytest.raises(DriftlineError) as caught:
        diff(sides)
    assert str(sides[0].parent) not in json.dumps(caught.value.to_dict())
    assert caught.value.exit_code == 2
    return caught.value


def part_of(side: Path, number: int = 0, suffix: str = "") -> Path:
    return side / f"index-code/chunk_meta.parts/chunk_meta.part-{number:05d}.jsonl{suffix}"


@pytest.mark.parametrize("garbage", [b'{"file":"b.js"', b"nonsense\n", b"[1]\n", b"5\n", b'{"file":"b.js","x":NaN}\n'])
def test_a_corrupt_line_anywhere_in_a_shard(sides: Any, garbage: bytes) -> None:
    both = sides("sharded")
    path = part_of(both[1])
    path.write_bytes(path.read_bytes() + garbage)
    error = refused(both)
    assert error.code == "INVALID_REQUEST"
    assert "chunk_meta.part-00000.jsonl line 2" in error.message


@pytest.mark.parametrize(("suffix", "layout"), [(".gz", "sharded-gz"), (".zst", "sharded-zst")])
@pytest.mark.parametrize("keep", [0, 3, -4])
def test_a_compressed_shard_cut_short(sides: Any, suffix: str, layout: str, keep: int) -> None:
    both = sides(layout)
    path = part_of(both[0], 0, suffix)
    path.write_bytes(path.read_bytes()[:keep])
    assert refused(both).code == "INVALID_REQUEST"


def test_a_compressed_shard_with_flipped_bits(sides: Any) -> None:
    both = sides("jsonl-gz")
    path = both[0] / "index-code/chunk_meta.jsonl.gz"
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF  # the checksum
    path.write_bytes(bytes(data))
    assert "damaged" in refused(both).message


def test_missing_shards_and_artifacts(sides: Any) -> None:
    both = sides("sharded", manifest="auto")
    part_of(both[1], 2).unlink()
    error = refused(both)
    assert error.code == "NOT_FOUND"
    assert "part-00002" in error.message


@pytest.mark.parametrize("name", ["file_meta", "chunk_meta"])
@pytest.mark.parametrize("manifest", ["auto", None])
def test_a_missing_artifact(sides: Any, name: str, manifest: Any) -> None:
    both = sides(manifest=manifest)
    (both[1] / f"index-code/{name}.json").unlink()
    error = refused(both)
    assert error.code == "NOT_FOUND"
    assert name in error.message


def test_a_leftover_in_another_form_does_not_take_the_place_of_a_listed_piece(sides: Any) -> None:
    both = sides("jsonl", manifest="auto")
    folder = both[1] / "index-code"
    (folder / "chunk_meta.jsonl").rename(folder / "chunk_meta.old.jsonl")
    put(folder / "chunk_meta.json", [])
    assert refused(both).code == "NOT_FOUND"


@pytest.mark.parametrize("content", ["{", '{"rows": []}', "5", "[1]", '[{"file": "a.js"}', ""])
def test_wrong_json(sides: Any, content: str) -> None:
    both = sides()
    put(both[1] / "index-code/chunk_meta.json", content)
    assert refused(both).code == "INVALID_REQUEST"


@pytest.mark.parametrize("content", ["[", "{}", '{"arrays": {"file": 5}}', '{"length": 2, "arrays": {"file": ["a"]}}'])
def test_wrong_columns(sides: Any, content: str) -> None:
    both = sides("columnar")
    put(both[1] / "index-code/chunk_meta.columnar.json", content)
    assert refused(both).code == "INVALID_REQUEST"


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_wrong_manifest(sides: Any, content: str) -> None:
    both = sides()
    put(both[1] / "index-code/pieces/manifest.json", content)
    assert refused(both).code == "INVALID_REQUEST"


def test_a_form_that_cannot_be_read(sides: Any) -> None:
    both = sides()
    folder = both[1] / "index-code"
    (folder / "chunk_meta.json").rename(folder / "chunk_meta.parquet")
    error = refused(both)
    assert error.code == "INVALID_REQUEST"
    assert "form" in error.message


@pytest.mark.parametrize("listed", ["../../v1/index-code/chunk_meta.json", "/etc/hosts.json"])
def test_listed_paths_stay_in_the_index(sides: Any, listed: str) -> None:
    both = sides()
    folder = both[1] / "index-code"
    put(folder / "chunk_meta.meta.json", {"parts": [listed]})
    assert refused(both).code == "INVALID_REQUEST"
    (folder / "chunk_meta.meta.json").unlink()
    manifest = manifest_of(folder)
    manifest["pieces"][0]["path"] = listed
    put(folder / "pieces/manifest.json", manifest)
    assert refused(both).code == "INVALID_REQUEST"


def test_side_files_of_an_artifact_are_ignored(sides: Any) -> None:
    both = sides("sharded")
    expected = diff(both).events
    for side in both:
        (side / "index-code/chunk_meta.parts/chunk_meta.part-00000.jsonl.offsets.bin").write_bytes(b"\0" * 8)
        (side / "index-code/chunk_meta.offsets.bin").write_bytes(b"\0" * 8)
        put(side / "index-code/pieces/manifest.json", manifest_of(side / "index-code"))
    assert diff(both).events == expected


def test_compressed_arrays_and_lying_names_are_read(sides: Any) -> None:
    both = sides()
    expected = diff(both).events
    folder = both[1] / "index-code"
    data = (folder / "chunk_meta.json").read_bytes()
    (folder / "chunk_meta.json").unlink()
    (folder / "chunk_meta.json.gz").write_bytes(zstd.compress(data))
    files = (folder / "file_meta.json").read_bytes()
    (folder / "file_meta.json").unlink()
    (folder / "file_meta.json.zst").write_bytes(gzip.compress(files))
    assert diff(both).events == expected


def test_what_javascript_writes_is_read(tmp_path: Path) -> None:
    lone = "\ud83d"
    before = {"file_meta": [file_row(0, "a.js", "1")], "chunk_meta": [chunk_row(0, "a.js", lone, 0, note=lone)]}
    after = {"file_meta": [file_row(0, "a.js", "2")], "chunk_meta": [chunk_row(0, "a.js", lone, 7, note=lone)]}
    for layout in ("json", "jsonl", "columnar"):
        old = write_index(tmp_path / layout / "old", {"code": before}, layout)
        new = write_index(tmp_path / layout / "new", {"code": after}, layout)
        events = list(diff((old, new)).events)
        assert [event["kind"] for event in events] == ["file.modified", "chunk.moved"]
        assert events[1]["name"] == "\ud83d"


def test_blank_lines_and_spaces_are_no_rows(sides: Any) -> None:
    both = sides("jsonl")
    expected = diff(both).events
    path = both[1] / "index-code/chunk_meta.jsonl"
    path.write_bytes(b"\n  \r\n" + path.read_bytes().replace(b",", b" ,\t").replace(b"\n", b"\r\n") + b"\n")
    result = diff(both)
    assert result.events == expected
    assert result.summary["skippedRows"] == {"from": 0, "to": 0}


def test_only_rows_of_changed_files_are_parsed(tmp_path: Path) -> None:
    """Acceptance test 4: the others are scanned for their file alone."""
    count = 50
    rows = [chunk_row(number, f"f{number}.js", "x", 0) for number in range(count)]
    for layout in ("json", "jsonl", "sharded", "sharded-zst", "columnar", "hot-cold"):
        for name, version in (("old", "1"), ("new", "2")):
            files = [file_row(n, f"f{n}.js", version if n in (3, 7) else "same") for n in range(count)]
            write_index(tmp_path / layout / name, {"code": {"file_meta": files, "chunk_meta": rows}}, layout)
        result = diff((tmp_path / layout / "old", tmp_path / layout / "new"))
        for scan in (result.modes[0].before_scan, result.modes[0].after_scan):
            assert (scan.scanned_rows, scan.parsed_rows) == (count, 2)


def test_chunks_are_not_read_at_all_without_a_reason(sides: Any, tmp_path: Path) -> None:
    both = sides("jsonl")
    for side in both:
        put(side / "index-code/file_meta.jsonl", json.dumps(file_row(0, "a.js", "same")))
        put(side / "index-code/chunk_meta.jsonl", "not read")
    assert not diff(both).has_changes
    put(both[1] / "index-code/file_meta.jsonl", json.dumps(file_row(0, "a.js", "other")))
    put(both[1] / "index-code/chunk_meta.jsonl", "read")
    assert refused(both).code == "INVALID_REQUEST"


def test_the_fast_path_reads_no_artifact(sides: Any) -> None:
    both = sides("json", manifest={"pieces": [
        {"name": "file_meta", "path": "file_meta.json", "checksum": "xxh64:0"},
        {"name": "chunk_meta", "path": "chunk_meta.json", "checksum": "xxh64:0"},
    ]})  # fmt: skip
    for side in both:
        for name in ("file_meta", "chunk_meta", "file_relations"):
            (side / f"index-code/{name}.json").unlink()
    result = diff(both)
    assert not result.has_changes
    assert result.modes[0].fast_path


def test_a_diff_can_be_cancelled(sides: Any) -> None:
    tracker = Tracker()
    tracker.cancel()
    with pytest.raises(DriftlineError) as caught:
        diff(sides("jsonl"), tracker=tracker)
    assert caught.value.exit_code == 130


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ({"max_changed_files": 2.9}, {"maxChangedFiles": 2}),
        ({"max_changed_files": 0}, {"maxChangedFiles": 1}),
        ({"max_chunks_per_file": "7"}, {"maxChunksPerFile": 7}),
        ({"max_chunks_per_file": -3}, {"maxChunksPerFile": 1}),
    ],
)
def test_counts_are_floored_and_at_least_one(sides: Any, options: Any, stored: Any) -> None:
    assert stored.items() <= diff(sides(), **options).inputs["options"].items()


@pytest.mark.parametrize(
    "options", [{"max_events": "many"}, {"max_events": float("nan")}, {"modes": "code,nope"}, {"modes": ""}]
)
def test_wrong_options(sides: Any, options: Any) -> None:
    with pytest.raises(DriftlineError) as caught:
        diff(sides(), **options)
    assert caught.value.code == "INVALID_REQUEST"


def test_modes_are_ordered_before_hashing(tmp_path: Path) -> None:
    content = {mode: small_index("1")["code"] for mode in ("code", "prose")}
    old, new = write_index(tmp_path / "old", content), write_index(tmp_path / "new", content)
    spellings = ("prose,code", "code prose", " code,,prose code ", ["prose", "code"])
    results = [diff((old, new), modes=modes) for modes in spellings]
    assert {result.diff_id for result in results} == {results[0].diff_id}
    assert results[0].summary["modes"] == ["code", "prose"]


@pytest.mark.parametrize("layout", ["jsonl", "hot-cold"])
def test_many_files_go_over_the_disk_with_the_same_result(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renamed folder brings all chunks into the diff; only neighbours are in memory together."""
    count = 40
    for name, folder in (("old", "before"), ("new", "after")):
        paths = [f"{folder}/{number}.js" for number in range(count)]
        files = [file_row(number, path, f"h{number}") for number, path in enumerate(paths)]
        shift = 0 if name == "old" else 10
        chunks = [chunk_row(n, path, "x\ud83d", shift if n % 3 else 0, signature="s") for n, path in enumerate(paths)]
        relations = [{"file": path, "relations": {"imports": [f"./{name}{n}"]}} for n, path in enumerate(paths)]
        content = {"file_meta": files, "chunk_meta": chunks, "file_relations": relations}
        write_index(tmp_path / name, {"code": content}, layout)
    sides = (tmp_path / "old", tmp_path / "new")
    expected = diff(sides)
    assert expected.summary["modesSummary"]["code"]["files"]["renamed"] == count
    assert expected.summary["totalEvents"] == count + 26 + 2 * count
    monkeypatch.setattr("driftline.codeindex._diff.modes.FILES_PER_BUCKET", 3)
    monkeypatch.setattr("driftline.codeindex._diff.modes.SPILL_BYTES", 20_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    buckets: set[int] = set()
    files: set[str] = set()
    take, read = SpillStore.take, RecordCodec.read
    monkeypatch.setattr(SpillStore, "take", lambda store, bucket: buckets.add(bucket) or take(store, bucket))
    monkeypatch.setattr(RecordCodec, "read", lambda codec, path: files.add(path.name) or read(codec, path))
    spooled = diff(sides)
    assert buckets == set(range(14))
    assert len(files) > 14
    assert spooled.events == expected.events
    assert spooled.summary["modesSummary"] == expected.summary["modesSummary"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_the_first_events_are_the_same_however_few_are_wanted(sides: Any) -> None:
    both = sides()
    events = list(diff(both).events)
    for limit in range(1, len(events) + 2):
        result = diff(both, max_events=limit)
        assert result.events == events[:limit]
        assert result.summary["totalEvents"] == len(events)
