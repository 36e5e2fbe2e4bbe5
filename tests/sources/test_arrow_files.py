"""Arrow files beside Parquet files of the same rows: the same cells, the same diff (sources §2)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import driftline as dl

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


def test_no_batches_are_no_rows_and_damage_is_named(tmp_path: Path) -> None:
    feather.write_feather(OLD.slice(0, 0), tmp_path / "none.arrow")
    (tmp_path / "cut.arrow").write_bytes((tmp_path / "none.arrow").read_bytes()[:-9])
    assert len(dl.diff(tmp_path / "none.arrow", tmp_path / "none.arrow", key="id")) == 0
    with pytest.raises(dl.InputError, match=r"cut\.arrow is not a readable Arrow file") as raised:
        dl.diff(tmp_path / "cut.arrow", tmp_path / "none.arrow", key="id").stats  # noqa: B018 - read lazily
    assert raised.value.code == "invalid_arrow"
