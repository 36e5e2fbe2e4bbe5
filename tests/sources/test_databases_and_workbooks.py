"""Excel workbooks, DuckDB files and queries as sides: what their own libraries read is what is compared."""

from __future__ import annotations

import datetime
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pytest

import driftline as dl
from driftline.errors import DriftlineError

ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "Ann", "amount": 1.5, "day": datetime.date(2026, 3, 1), "open": True, "note": None},
    {"id": 2, "name": "05", "amount": 2, "day": datetime.date(2026, 3, 2), "open": False, "note": "x"},
    {"id": 3, "name": "Cy", "amount": -0.25, "day": datetime.date(2000, 1, 1), "open": None, "note": "y"},
]


def workbook(path: Path, *sheets: str) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in sheets:
        sheet = book.create_sheet(name)
        sheet.append(list(ROWS[0]))
        for row in ROWS:
            sheet.append(list(row.values()))
    book.save(path)
    return path


def test_a_sheet_has_the_values_that_were_written(tmp_path: Path) -> None:
    book = workbook(tmp_path / "book.xlsx", "Data", "Other sheet")
    for sheet in ("Data", "Other sheet"):
        assert not dl.diff(f"{book}::{sheet}", ROWS, key="id")
        assert not dl.diff(f"{book}::{sheet}", f"{book}::Data", key="id")
    anna = [{**ROWS[0], "name": "Anna"}, *ROWS[1:]]
    (changed,) = dl.diff(f"{book}::Data", anna, key="id").changed.rows()
    assert changed == (1, "name", "Ann", "Anna")


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("book.xlsx", "missing_table_name", "has 2 sheets: name one, as .*book.xlsx::One .it has: One, Two."),
        ("book.xlsx::Three", "no_such_table", "has no sheet Three .it has: One, Two."),
        ("broken.xlsx::One", "invalid_workbook", "not a readable workbook"),
        ("missing.xlsx::One", "not_found", "missing.xlsx"),
    ],
)
def test_what_is_wrong_with_a_workbook_is_said(tmp_path: Path, address: str, code: str, words: str) -> None:
    workbook(tmp_path / "book.xlsx", "One", "Two")
    (tmp_path / "broken.xlsx").write_bytes(b"PK\x03\x04" + b"\x00" * 60)
    with pytest.raises(DriftlineError, match=words) as caught:
        dl.diff(str(tmp_path / address), ROWS, key="id")
    assert caught.value.code == code


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT, total DECIMAL(12, 2), placed TIMESTAMP, tags VARCHAR[])")
        connection.execute("INSERT INTO orders VALUES (1, 10.10, '2026-03-01 10:00:00', ['a']), (2, 0.20, NULL, NULL)")
        connection.execute("CREATE VIEW cheap AS SELECT * FROM orders WHERE total < 1")
    return path


def test_a_duckdb_table_is_what_duckdb_gives(database: Path) -> None:
    with duckdb.connect(str(database), read_only=True) as connection:
        expected = connection.execute("SELECT * FROM orders").to_arrow_table()
    assert not dl.diff(f"{database}::orders", expected, key="id")
    assert len(dl.diff(f"{database}::orders", f"{database}::cheap", key="id")) == 1
    query = f"{database}::SELECT id, total::VARCHAR AS total FROM orders WHERE id = 1"
    assert not dl.diff(query, [{"id": 1, "total": "10.10"}], key="id")
    rows = [{"id": 1, "total": Decimal("10.10")}, {"id": 2, "total": Decimal(3)}]
    (changed,) = dl.diff(f"{database}::SELECT id, total FROM orders", rows, key="id").changed.rows()
    assert changed[:2] == (2, "total")


@pytest.mark.parametrize(
    ("table", "code", "words"),
    [
        ("", "missing_table_name", "name the table too, as .*::TABLE .it has: cheap, orders."),
        ("::none", "no_such_table", "has no table none .it has: cheap, orders."),
        ("::SELECT nothing FROM orders", "invalid_duckdb", "nothing"),
        ("::SELECT * FROM read_csv('/etc/passwd')", "invalid_duckdb", "disabled"),
        ("::WITH x AS (SELECT 1) INSERT INTO orders SELECT 1", "invalid_duckdb", "cannot be read as DuckDB"),
    ],
)
def test_what_is_wrong_with_a_duckdb_address_is_said(database: Path, table: str, code: str, words: str) -> None:
    before = database.read_bytes()
    with pytest.raises(DriftlineError, match=words) as caught:
        dl.diff(f"{database}{table}", f"{database}::orders", key="id")
    assert (caught.value.code, database.read_bytes()) == (code, before)


def test_a_query_of_sqlite_is_a_side(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL, note)")
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(1, 1.5, "a"), (2, 2.5, None)])
    both = f"{path}::SELECT id, total * 2 AS double, note FROM orders WHERE id > 0 ORDER BY id"
    assert not dl.diff(both, [{"id": 1, "double": 3.0, "note": "a"}, {"id": 2, "double": 5.0, "note": None}], key="id")
    assert not dl.diff(str(path), f"{path}::orders", key="id")  # the only table needs no name
    for query, code in {
        "SELECT nothing FROM orders": "invalid_sqlite",
        "SELECT id, id FROM orders": "invalid_query",
        "WITH x AS (SELECT 1) DELETE FROM orders": "invalid_sqlite",
    }.items():
        with pytest.raises(DriftlineError) as caught:
            dl.diff(f"{path}::{query}", f"{path}::orders", key="id")
        assert caught.value.code == code
