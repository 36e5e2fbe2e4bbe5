"""What may be named as a side, and what is refused in clear words (sources §1, §5)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import driftline as dl
from driftline.core._workspace import Workspace
from driftline.errors import DriftlineError, InputError
from driftline.sources._addresses import parse_address
from driftline.sources._open import open_source

deltalake = pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")


@pytest.mark.parametrize(
    ("text", "path", "kind", "version"),
    [
        ("a@3.csv", "a@3.csv", "", None),
        ("s3://bucket/a%20b?.csv", "s3://bucket/a%20b?.csv", "", None),
        ("file:///data/a.csv", "/data/a.csv", "", None),
        ("delta:lake/t@12", "lake/t", "delta", "12"),
        ("delta:s3://lake/t@2026-01-31T12:00:00Z", "s3://lake/t", "delta", "2026-01-31T12:00:00Z"),
        ("delta:lake/t@v2", "lake/t@v2", "delta", None),
    ],
)
def test_parts_of_an_address(text: str, path: str, kind: str, version: str | None) -> None:
    found = parse_address(text)
    assert (found.path, found.kind, found.version) == (path, kind, version)


@pytest.mark.parametrize("text", ["hdfs://name/a.csv", "ftp://host/a.csv", "mysql://h/db::t"])
def test_what_nobody_serves_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        list(dl.diff(text, text, key="id"))
    assert caught.value.code == "unsupported_address"
    assert text in caught.value.message


def test_an_existing_file_is_never_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("delta:x@1").write_text("id\n1\n")
    assert next(iter(dl.diff("delta:x@1", "delta:x@1")))["columns_a"] == ["id"]


def rows(given: str) -> list[dict]:
    with Workspace() as workspace:
        side = open_source(given, workspace).lay_out("A", 1 << 20, workspace)
        tables = [split.read().table for split in side.splits]
    found = [{k: json.loads(v) for k, v in row.items()} for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda row: row["id"])


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three versions; partitioned by a value that looks like a number, with names that need escaping."""
    path = str(tmp_path / "a table")
    first = pa.table({"id": [1, 2, 3], "part": ["01", "1 %/", None], "v": ["a", "b", "c"]})
    deltalake.write_deltalake(path, first, partition_by=["part"])
    deltalake.write_deltalake(path, pa.table({"id": [4], "part": ["01"], "v": ["d"], "new": [1.5]}), mode="append",
                              schema_mode="merge")  # fmt: skip
    deltalake.DeltaTable(path).delete("id = 2")
    return path


def test_a_delta_table_is_what_its_log_says(table: str) -> None:
    loaded = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    assert rows(table) == rows(f"delta:{table}") == sorted(loaded, key=lambda row: row["id"])
    assert [row["id"] for row in rows(table)] == [1, 3, 4], "files that were removed are not read"
    assert [row["id"] for row in rows(f"{table}@0")] == [1, 2, 3]
    assert {row["part"] for row in rows(f"delta:{table}@0")} == {"01", "1 %/", None}


def test_versions_of_a_delta_table_are_compared(table: str) -> None:
    for engine in ("local", "vectorized"):
        events = list(dl.diff(f"{table}@1", table, key="id", engine=engine))
        assert [event["type"] for event in events] == ["schema", "removed", "stats"]
        assert events[1]["row"] == {"id": 2, "part": "1 %/", "v": "b", "new": None}


def test_a_delta_table_has_no_row_order(table: str) -> None:
    with pytest.raises(DriftlineError, match="A has no row order: name a key, or ignore row order") as caught:
        list(dl.diff(table, table))
    assert caught.value.code == "needs_key"
    assert not dl.diff(table, table, ignore_row_order=True).has_differences


@pytest.mark.parametrize("version", ["99", "1999-01-01T00:00:00Z"])
def test_a_version_that_is_not_there_is_refused(table: str, version: str) -> None:
    with pytest.raises(InputError, match=f"no version {version}") as caught:
        rows(f"{table}@{version}")
    assert caught.value.code == "no_such_version"


def test_the_time_of_a_version(table: str) -> None:
    stamps = {entry["version"]: entry["timestamp"] for entry in deltalake.DeltaTable(table).history()}
    between = dt.datetime.fromtimestamp(stamps[0] / 1000, dt.UTC).isoformat(timespec="milliseconds")
    assert [row["id"] for row in rows(f"{table}@{between}")] == [1, 2, 3]


def test_deleted_rows_in_place_are_left_out(tmp_path: Path) -> None:
    """A deletion vector as Spark writes it: the file stays, a bitmap says which rows are gone."""
    path = tmp_path / "dv"
    deltalake.write_deltalake(str(path), pa.table({"id": [1, 2, 3, 4]}))
    log = path / "_delta_log"
    add = next(json.loads(line)["add"] for line in (log / f"{0:020d}.json").read_text().splitlines() if '"add"' in line)
    vector = {"storageType": "i", "pathOrInlineDv": inline_vector(1, 3), "sizeInBytes": 44, "cardinality": 2}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"]}  # fmt: skip
    remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    actions = [{"protocol": protocol}, {"remove": remove}, {"add": {**add, "deletionVector": vector}}]
    (log / f"{1:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert rows(str(path)) == [{"id": 1}, {"id": 3}]
    assert len(rows(f"{path}@0")) == 4


def inline_vector(*deleted: int) -> str:
    """A 64-bit Roaring bitmap of small numbers, in the base 85 of the Delta protocol."""
    import base64
    import struct

    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16) + struct.pack(f"<{len(deleted)}H", *deleted)
    data = struct.pack("<i", 1681511377) + struct.pack("<QI", 1, 0) + bitmap
    data += b"\0" * (-len(data) % 4)
    letters = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    plain = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    return base64.b85encode(data).translate(bytes.maketrans(plain, letters)).decode()


def test_unknown_features_of_a_table_are_refused(table: str) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["futureThing"],
                "writerFeatures": ["futureThing"]}  # fmt: skip
    log = Path(table, "_delta_log")
    (log / f"{3:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(InputError) as caught:
        rows(table)
    assert caught.value.code in ("unsupported_table", "invalid_delta")


def test_hive_folders_keep_their_values_as_text(tmp_path: Path) -> None:
    for day, ids in (("01", [1]), ("02", [2, 3])):
        folder = tmp_path / f"day={day}" / "shop=a%20b"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": ids}), folder / "part.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert rows(str(tmp_path)) == [
        {"id": 1, "day": "01", "shop": "a b"},
        {"id": 2, "day": "02", "shop": "a b"},
        {"id": 3, "day": "02", "shop": "a b"},
    ]


def test_hive_folders_of_anything_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "day=01").mkdir()
    (tmp_path / "day=01" / "a.csv").write_text("id\n1\n")
    with pytest.raises(InputError) as caught:
        rows(str(tmp_path))
    assert caught.value.code == "unsupported_format"


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(DriftlineError, match=r"mysql://ann:\*\*\*@host/shop::t: addresses of mysql") as raised:
        parse_address("mysql://ann:secret@host/shop::t")
    assert "secret" not in str(raised.value.to_dict())
