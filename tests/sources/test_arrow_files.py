"""Arrow files beside Parquet files of the same rows: the same cells, the same diff (sources §2)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import driftline as dl
from driftline.core import Workspace
from driftline.sources import open_source

OLD = pa.table({"id": range(50), "v": [number / 4 for number in range(50)]})
NEW = OLD.slice(1).set_column(1, "v", pa.array([0.5] * 49))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_the_diff_is_that_of_the_same_rows_in_parquet(tmp_path: Path, compression: str) -> None:
    for name, table in (("old", OLD), ("new", NEW)):
        feather.write_feather(table, tmp_path / f"{name}.arrow", compression=compression, chunksize=7)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    ours = list(dl.diff(tmp_path / "old.arrow", tmp_path / "new.arrow", key="id"))
    assert ours == list(dl.diff(tmp_path / "old.parquet", tmp_path / "new.parquet", key="id"))
    assert not dl.diff(tmp_path / "old.arrow", tmp_path / "old.parquet", key="id")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_stream_is_read_whatever_its_name_and_version(tmp_path: Path, legacy: bool) -> None:
    for name, table in (("old", OLD), ("new", NEW)):
        options = pa.ipc.IpcWriteOptions(use_legacy_format=legacy)  # without a mark at the start
        with pa.ipc.new_stream(str(tmp_path / f"{name}.arrow"), table.schema, options=options) as out:
            out.write_table(table)
    assert (
        dl.diff(tmp_path / "old.arrow", tmp_path / "new.arrow", key="id").counts == dl.diff(OLD, NEW, key="id").counts
    )


def test_no_batches_are_no_rows_and_damage_is_named(tmp_path: Path) -> None:
    feather.write_feather(OLD.slice(0, 0), tmp_path / "none.arrow")
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "none.arrow").read_bytes()[:-9])
    assert len(dl.diff(tmp_path / "none.arrow", tmp_path / "none.arrow", key="id")) == 0
    with pytest.raises(dl.InputError, match=r"cut\.arrow is not a readable Arrow file") as raised:
        dl.diff(tmp_path / "cut.arrow", tmp_path / "none.arrow", key="id").stats  # noqa: B018 - read lazily
    assert raised.value.code == "invalid_arrow"


PLAIN = {
    **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    "float": pa.float32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "date": pa.date32(),
}
WRITERS: list[dict[str, object]] = [
    {},
    {"compression": "zstd", "use_dictionary": False},
    {"version": "1.0", "compression": "gzip"},
    {"data_page_version": "2.0", "compression": "lz4", "data_page_size": 64},
    {"store_schema": False, "compression": "none", "write_batch_size": 2},
    {"use_dictionary": False, "column_encoding": {"string": "DELTA_BYTE_ARRAY", "int64": "DELTA_BINARY_PACKED"}},
    {
        "use_dictionary": False,
        "column_encoding": {"double": "BYTE_STREAM_SPLIT", "large_string": "DELTA_LENGTH_BYTE_ARRAY"},
    },
]


def plain_table(rows: int) -> pa.Table:
    """Every plain type with its ends, nulls, signed zeros, NaN and texts with any character."""
    values: dict[str, list[object]] = {
        "float": [0.0, -0.0, float("nan"), float("-inf"), 0.1, 3e38],
        "double": [0.0, -0.0, float("nan"), float("inf"), 0.1, 5e-324],
        "bool": [True, False],
        "string": ["", "a", "ä\x00b", "\U0001f600", "null", "x" * 300],
        "large_string": ["^a$", "*", '"', "\\", "\r\n"],
        "date": [0, -1, 20_000],
    }
    for name, type_ in PLAIN.items():
        if "int" in name:
            top = 2 ** (type_.bit_width - (0 if name.startswith("u") else 1))
            values[name] = [0, 1, top - 1, 0 if name.startswith("u") else -top]
    columns = {
        name: pa.array([None if at % 7 == 3 else values[name][at % len(values[name])] for at in range(rows)], type_)
        for name, type_ in PLAIN.items()
    }
    return pa.table({"^odd *$": pa.array(range(rows), pa.int64()), **columns})


@pytest.mark.parametrize("writer", WRITERS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 250])
def test_row_groups_have_the_values_that_arrow_reads(tmp_path: Path, writer: dict[str, object], rows: int) -> None:
    path = tmp_path / "a[1]*.parquet"
    pq.write_table(plain_table(rows), path, row_group_size=40, **writer)
    with Workspace() as workspace:
        splits = open_source(path, workspace).lay_out("A", 0, workspace).splits
    for split in splits:
        assert split.first is not None, "by Polars"
        ours, theirs = split.frame(), pl.DataFrame(pl.from_arrow(split.typed_rows()))
        assert ours.schema == theirs.schema
        assert [str(row) for row in ours.rows()] == [str(row) for row in theirs.rows()]  # -0.0 and NaN too


def test_a_row_group_that_polars_does_not_read_is_read_by_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(OLD, tmp_path / "old.parquet")
    pq.write_table(NEW, tmp_path / "new.parquet")
    expected = list(dl.diff(tmp_path / "old.parquet", tmp_path / "new.parquet", key="id"))

    def refuse(*given: object, **options: object) -> None:
        raise pl.exceptions.ComputeError("an encoding that Polars lacks")

    monkeypatch.setattr(pl, "scan_parquet", refuse)
    assert list(dl.diff(tmp_path / "old.parquet", tmp_path / "new.parquet", key="id")) == expected
