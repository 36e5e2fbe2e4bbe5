"""On Spark a changeset has the same bytes as one that a local builder makes."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

from driftline.changesets._make.rows import from_events
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.core._workspace import Workspace
from driftline.errors import ChangesetError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def events(seed: int, count: int, last: str) -> list[dict[str, Any]]:
    """A keyed diff with composite keys, empty cells, long texts and updates that types make void."""
    rng = random.Random(seed)
    columns = ["v", "a", "b", "w"]
    made: list[dict[str, Any]] = [{"type": "schema", "columns_a": columns, "columns_b": columns}]
    for number in range(count):
        key = {"a": f"k{number // 3:05d}", "b": str(number)}
        before = {"v": rng.choice(["1", "2.5", ""]), **key, "w": rng.choice(["x", "é" * 200, ""])}
        after = {**before, "v": rng.choice(["3", "3.75", before["v"]]), "w": rng.choice(["y", "x"])}
        kind = last if number == count - 1 else rng.choice(["added", "removed", "changed", "changed"])
        if kind == "changed":
            made.append({"type": kind, "key": key, "before": before, "after": after})
        else:
            made.append({"type": kind, "key": key, "row": before})
    return [*made, {"type": "stats"}]


def on_spark(
    spark: SparkSession, folder: Path, stream: list[dict[str, Any]], form: str, types: dict[str, str]
) -> bytes:
    from driftline.spark import events_to_changeset

    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in stream))
    out = io.BytesIO()
    with Workspace() as workspace:
        events_to_changeset(
            spark,
            str(path),
            out,
            form,
            folder=workspace.folder,
            table="t",
            types=types,
            split_bytes=40_000,
            range_bytes=60_000,
        )
    return out.getvalue()


@pytest.mark.parametrize(
    ("count", "last", "form"),
    [
        (0, "added", "patchset"),
        (128, "added", "changeset"),
        (128, "changed", "changeset"),
        (700, "removed", "patchset"),
    ],
)
def test_same_bytes_as_the_local_door(count: int, last: str, form: Any, tmp_path: Path, spark: SparkSession) -> None:
    stream = events(count, count, last)
    types = {"b": "INTEGER"} if count == 700 else {}
    assert on_spark(spark, tmp_path, stream, form, types) == bytes(from_events(stream, "t", format=form, types=types))


def test_keys_that_become_the_same(tmp_path: Path, spark: SparkSession) -> None:
    stream: list[dict[str, Any]] = [{"type": "schema", "columns_a": ["a", "b"], "columns_b": ["a", "b"]}]
    filler = [{"a": "x" * 8000, "b": str(number)} for number in range(20)]
    rows = [{"a": "k", "b": "1"}, *filler, {"a": "k", "b": "01"}]
    stream += [{"type": "added", "key": row, "row": row} for row in rows]
    types = {"b": "INTEGER"}
    with pytest.raises(ChangesetError, match="different keys become the same") as local:
        from_events(stream, "t", types=types)
    with pytest.raises(ChangesetError) as spread:
        on_spark(spark, tmp_path, stream, "changeset", types)
    assert spread.value.message == local.value.message


def test_diff_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(4)
    for name in ("old", "new"):
        rows = [f"{number},{rng.choice(['x', 'y'])},{rng.randrange(5)}" for number in range(900) if rng.random() < 0.8]
        Path(f"{name}.csv").write_text("id,name,n\n" + "\n".join(rows) + "\n")
    for engine in ("local", "spark"):
        arguments = ["diff", "old.csv", "new.csv", "-k", "id", "--format", "changeset", "--table", "t"]
        assert run(driftline, [*arguments, "--engine", engine, "-o", f"{engine}.bin"]) == 1
    assert Path("spark.bin").read_bytes() == Path("local.bin").read_bytes()
    assert sum(1 for _ in apsw.Changeset.iter(Path("spark.bin").read_bytes())) > 500
