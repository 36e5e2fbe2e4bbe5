"""Iceberg tables of a SQL catalog: snapshots, renamed columns, a warehouse in a store, refusals (sources §8)."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import driftline as dl
from driftline.errors import InputError

pytest.importorskip("pyiceberg", reason="needs pyiceberg, the extra iceberg")
pytest.importorskip("sqlalchemy", reason="needs SQLAlchemy, a dev dependency")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog that addresses find through the environment."""
    (tmp_path / "warehouse").mkdir()
    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}/warehouse",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{name}", value)
    catalog = opened(monkeypatch)
    catalog.create_namespace("sales")
    return catalog


def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The catalog under the variables that are set now; pyiceberg reads them when it is imported."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    return catalog.load_catalog("shop")


def kinds(a: str, b: str) -> list[str]:
    return [event["type"] for event in dl.diff(a, b, key="id", engine="vectorized", header_mode="common")][1:-1]


def test_snapshots_are_tables(shop: Any) -> None:
    table = shop.create_table("sales.orders", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    first = table.current_snapshot().snapshot_id
    table.append(pa.table({"id": [3], "v": ["c"]}))
    name = "iceberg:shop/sales.orders"
    assert kinds(f"{name}@{first}", name) == ["added"]
    assert kinds(f"{name}@{first}", f"{name}@2999-01-01T00:00:00Z") == ["added"]

    with table.update_schema() as update:
        update.rename_column("v", "words")
    events = list(dl.diff(name, [{"id": n, "words": w} for n, w in ((1, "a"), (2, "x"), (3, "c"))], key="id"))
    assert [event["type"] for event in events] == ["schema", "changed", "stats"], "columns by their ids, not names"

    from driftline.core._workspace import Workspace
    from driftline.sources._open import open_source

    with Workspace() as workspace:
        source = open_source(name, workspace)
        sides = [each.lay_out("A", 1, workspace) for each in (source, pickle.loads(pickle.dumps(source)))]
    assert len(sides[0].splits) == 2
    tables = [[split.read().table for split in side.splits] for side in sides]
    assert tables[0] == tables[1], "splits are read anywhere"


def test_what_cannot_be_read_is_told(shop: Any) -> None:
    table = shop.create_table("sales.orders", schema=pa.schema([("id", pa.int64())]))
    name = "iceberg:shop/sales.orders"
    assert kinds(name, name) == []
    table.append(pa.table({"id": [1]}))
    for address, code in {
        f"{name}@5": "no_such_version",
        f"{name}@2001-01-01T00:00:00Z": "no_such_version",
        "iceberg:shop/sales.nothing": "not_found",
        "iceberg:shop": "invalid_address",
        "iceberg:nowhere/a.b": "bad_catalog",
    }.items():
        with pytest.raises(InputError) as caught:
            list(dl.diff(address, name, key="id"))
        assert caught.value.code == code, address
        assert "\n" not in caught.value.message
    with pytest.raises(InputError, match="no row order"):
        list(dl.diff(name, name))


def test_a_warehouse_in_a_store(shop: Any, s3: tuple[Any, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "WAREHOUSE": "s3://data/warehouse",
        "S3__ENDPOINT": s3[1]["AWS_ENDPOINT_URL"],
        "S3__ACCESS-KEY-ID": "test",
        "S3__SECRET-ACCESS-KEY": "test",
        "S3__REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{key}", value)
    table = opened(monkeypatch).create_table("sales.stored", schema=pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    assert kinds("iceberg:shop/sales.stored", "iceberg:shop/sales.stored") == []
    assert len(list(dl.diff("iceberg:shop/sales.stored", [{"id": 1}], key="id"))) == 3
