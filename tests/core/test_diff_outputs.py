"""`driftline diff -o` to objects, folders of parts and tables: the same events everywhere (storage §1, §4, §6)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.cli import _outcome as outcome
from driftline.cli.main import driftline
from driftline.core._objects import ObjectPath
from driftline.core._parts import read_manifest, read_pieces
from support.processes import run_process

pytest.importorskip("obstore", reason="needs obstore, the extra cloud")

A = "id,v\n" + "".join(f"{n},v{n}\n" for n in range(3000))
B = A.replace("77,v77\n", "77,x\n").replace("5,v5\n", "") + 'new,"ü ""q"""\n'


@pytest.fixture(scope="module")
def sides(s3: tuple[Any, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sides")
    for name, text in (("a.csv", A), ("b.csv", B)):
        (folder / name).write_text(text)
        s3[0].put_object(Bucket="data", Key=f"sides/{name}", Body=text.encode())
    run(folder, "a.csv", "b.csv", "-o", "events.jsonl")
    return folder


def run(folder: Path, *arguments: str, code: int = 1) -> str:
    """The command in this process; relative paths are those of the folder."""
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stderr(said):
        ended = outcome.run(driftline, ["diff", *arguments, "-k", "id"])
    assert ended == code, said.getvalue()
    return said.getvalue()


def events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_an_object_and_a_folder_of_parts(sides: Path) -> None:
    expected = (sides / "events.jsonl").read_bytes()
    run(sides, "s3://data/sides/a.csv", "s3://data/sides/b.csv", "-o", "s3://data/out/events.jsonl")
    assert ObjectPath("s3://data/out/events.jsonl").read_bytes() == expected
    for folder in ("s3://data/out/parts/", "parts/"):
        for _ in range(2):  # the second time in the place of the first
            run(sides, "a.csv", "b.csv", "-o", folder)
        place = ObjectPath(folder) if folder.startswith("s3") else sides / folder
        assert b"".join(read_pieces(place)) == expected
    # What the manifest does not name is not there for us either.
    ObjectPath("s3://data/out/parts/part-000000-0123.jsonl").write_bytes(b'{"type":"schema"}\n')
    run(sides, "s3://data/out/parts/", "events.jsonl", code=2)  # nested values are no table, but it is read
    assert b"".join(read_pieces(ObjectPath("s3://data/out/parts/"))) == expected


def check_table(table: Any, expected: list[dict]) -> None:
    rows = sorted(table.to_pylist(), key=lambda row: row["number"])
    assert [row["number"] for row in rows] == list(range(len(expected)))
    for row, event in zip(rows, expected, strict=True):
        assert row["type"] == event["type"]
        if "key" not in event:
            assert json.loads(row["details"]) == event
            continue
        assert json.loads(row["key"]) == event["key"]
        assert row["changed"] == event.get("changed")
        before = event.get("before", event["row"] if event["type"] == "removed" else None)
        after = event.get("after", event["row"] if event["type"] == "added" else None)
        assert [row["before"] and json.loads(row["before"]), row["after"] and json.loads(row["after"])] == [
            before,
            after,
        ]


def test_events_as_a_table(sides: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")
    expected = events(sides)
    run(sides, "a.csv", "b.csv", "-o", "events.parquet")
    check_table(pq.read_table(sides / "events.parquet"), expected)
    run(sides, "a.csv", "b.csv", "--format", "parquet", "-o", "s3://data/out/table/")
    manifest = read_manifest(ObjectPath("s3://data/out/table"))
    assert manifest is not None
    [part] = manifest
    with ObjectPath(f"s3://data/out/table/{part.name}").open() as stream:
        check_table(pq.read_table(stream), expected)
    for _ in range(2):
        run(sides, "a.csv", "b.csv", "--format", "delta", "-o", "s3://data/out/delta")
    table = deltalake.DeltaTable("s3://data/out/delta", storage_options={"AWS_ALLOW_HTTP": "true"})
    assert table.version() == 1
    check_table(table.to_pyarrow_table(), expected)


def test_what_cannot_be_written_is_refused(sides: Path) -> None:
    for arguments, words in {
        ("--format", "html", "-o", "out/"): "error[invalid_option_combination]: a folder of parts holds",
        ("--limit", "3", "-o", "s3://data/x/"): "error[invalid_option_combination]: --limit",
        ("--format", "delta"): "a Delta table needs a place",
        ("-o", "hdfs://name/x.jsonl"): "error[unsupported_address]: hdfs://name/x.jsonl",
        ("-o", "s3://no-such-bucket/x.jsonl"): "error[not_found]: s3://no-such-bucket/x.jsonl",
    }.items():
        said = run(sides, "a.csv", "b.csv", *arguments, code=2)
        assert words in said, said
        assert "Traceback" not in said
    said = run(sides, "s3://data/sides/a.csv", "b.csv", "-o", "s3://data/sides/a.csv", code=2)
    assert "output_is_input" in said


def run_alone(folder: Path, *arguments: str) -> None:
    """In a process of its own: the workers of a session that is there already do not know this store."""
    command = [sys.executable, "-m", "driftline", "diff", *arguments, "-k", "id"]
    done = run_process(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr


@pytest.mark.own_session
def test_spark_writes_the_same(sides: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks write where the output lies, and what they need in between into the store itself."""
    monkeypatch.setenv("DRIFTLINE_SHARED_DIR", "s3://data/scratch")
    given = (str(sides / "a.csv"), str(sides / "b.csv"), "--engine", "spark")
    run_alone(sides, *given, "-o", "s3://data/spark/parts/")
    assert b"".join(read_pieces(ObjectPath("s3://data/spark/parts/"))) == (sides / "events.jsonl").read_bytes()
    assert not ObjectPath("s3://data/scratch").below(), "what was in between is gone"


@pytest.mark.own_session
@pytest.mark.faults  # three more processes with a session each
def test_spark_writes_the_same_with_other_outputs_and_scratch(sides: Path) -> None:
    expected = (sides / "events.jsonl").read_bytes()
    given = (str(sides / "a.csv"), str(sides / "b.csv"), "--engine", "spark")
    run_alone(sides, *given, "-o", "s3://data/spark/from-disk/")
    assert b"".join(read_pieces(ObjectPath("s3://data/spark/from-disk/"))) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTLINE_SHARED_DIR", "s3://data/scratch")
        run_alone(sides, *given, "--format", "parquet", "-o", "s3://data/spark/table/")
        run_alone(sides, *given, "-o", "one.jsonl")
    assert (sides / "one.jsonl").read_bytes() == expected
    tables = []
    for part in read_manifest(ObjectPath("s3://data/spark/table")) or ():
        with ObjectPath(f"s3://data/spark/table/{part.name}").open() as stream:
            tables.append(pq.read_table(stream))
    check_table(pa.concat_tables(tables), events(sides))
    assert not ObjectPath("s3://data/scratch").below(), "what was in between is gone"
