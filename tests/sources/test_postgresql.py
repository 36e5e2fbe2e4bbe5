"""PostgreSQL tables as sides, against a real server (sources §6)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import driftline as dl
from driftline.core._workspace import Workspace
from driftline.errors import InputError
from driftline.sources._open import open_source
from support.engines import LOCAL_ENGINES
from support.postgres import postgres_server
from support.processes import run_process

pytestmark = pytest.mark.postgres

dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="needs adbc-driver-postgresql, the extra postgresql")

TYPES = """
CREATE TYPE mood AS ENUM ('ok', 'bad');
CREATE DOMAIN code AS text;
CREATE TABLE kinds (id int PRIMARY KEY, n numeric, u uuid, j jsonb, i interval, b bytea, d date, s timestamptz,
                    f float8, t boolean, m mood, a int[], c code, "odd ""name" text);
INSERT INTO kinds VALUES
 (1, 12345678901234567890.1200, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"b": [1, 2.50], "a": "é"}', '1 day 2 hours',
  '\\xff00', '2026-01-31', '2026-01-31 12:00:00+02', 0.1, true, 'ok', '{1,null}', 'x', 'q'),
 (2, 'NaN', NULL, 'null', NULL, NULL, NULL, NULL, 'Infinity', NULL, NULL, NULL, NULL, NULL);
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with postgres_server() as uri:
        run(uri, TYPES)
        run(uri, "CREATE TABLE a (id bigint PRIMARY KEY, v text); CREATE SCHEMA other;")
        run(uri, "INSERT INTO a SELECT n * 3, 'row ' || n FROM generate_series(1, 5000) n;")
        run(uri, "CREATE TABLE other.b (id bigint, v text); INSERT INTO other.b SELECT * FROM a;")
        run(uri, "UPDATE other.b SET v = 'changed' WHERE id = 300; DELETE FROM other.b WHERE id = 600;")
        yield uri


def run(uri: str, statements: str) -> None:
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        for statement in statements.split(";"):
            if statement.strip():
                cursor.execute(statement)
        connection.commit()


def test_values_of_every_kind(address: str) -> None:
    with Workspace() as workspace:
        side = open_source(f"{address}::kinds", workspace).lay_out("A", 1 << 20, workspace)
        [table] = [split.read().table for split in side.splits]
    first, second = table.to_pylist()
    assert first["n"] == "12345678901234567890.12", "digits are kept"
    assert {name: json.loads(cell) for name, cell in first.items() if name != "n"} == {
        "id": 1, "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "j": {"b": [1, 2.5], "a": "é"}, "i": "P1DT2H",
        "b": "ff00", "d": "2026-01-31", "s": "2026-01-31T10:00:00Z", "f": 0.1, "t": True, "m": "ok", "a": [1, None],
        "c": "x", 'odd "name': "q",
    }  # fmt: skip
    assert (second["n"], second["f"], second["u"], second["j"]) == ('"NaN"', '"Infinity"', "null", "null")


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_tables_and_queries_are_compared(address: str, engine: str) -> None:
    queries = (f"{address}::a", f"{address}::SELECT id, v FROM other.b WHERE id > 0")
    for b in (f"{address}::other.b", queries[1]):
        events = list(dl.diff(f"{address}::a", b, key="id", engine=engine))
        assert [event["type"] for event in events] == ["schema", "changed", "removed", "stats"]
        assert events[1]["delta"] == {"v": {"from": "row 100", "to": "changed"}}


def test_ranges_of_the_key_are_the_whole_table(address: str) -> None:
    with Workspace() as workspace:
        source = open_source(f"{address}::a", workspace)
        side = source.lay_out("A", 20_000, workspace)
        assert len(side.splits) > 5
        ids = [cell for split in side.splits for cell in split.read().table.column("id").to_pylist()]
    assert ids == [str(n * 3) for n in range(1, 5001)]


def test_all_readings_see_one_state(address: str) -> None:
    run(address, "CREATE TABLE moving (id int PRIMARY KEY, v text); INSERT INTO moving VALUES (1, 'old')")
    with Workspace() as workspace:
        side = open_source(f"{address}::moving", workspace).lay_out("A", 1 << 20, workspace)
        run(address, "UPDATE moving SET v = 'new'")
        assert [split.read().table.column("v").to_pylist() for split in side.splits] == [['"old"']]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("::nothing", "no_such_table"),
        ("", "missing_table_name"),
        ("::SELECT nope FROM a", "no_such_table"),
        ("::SELECT '127.0.0.1'::inet AS ip", "unsupported_type"),
        ("::SELECT FROM WHERE", "invalid_query"),
    ],
)
def test_clear_words(address: str, what: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        list(dl.diff(f"{address}{what}", f"{address}{what}", key="id"))
    assert caught.value.code == code
    assert len(caught.value.message.splitlines()) == 1


def test_passwords_and_absent_servers() -> None:
    with pytest.raises(InputError) as caught:
        list(dl.diff("postgresql://me:secret@127.0.0.1:1/x::t", "postgresql://me@127.0.0.1:1/x::t", key="id"))
    assert caught.value.code == "password_in_address"
    assert "secret" not in caught.value.message
    with pytest.raises(InputError) as caught:
        list(dl.diff("postgresql://me@127.0.0.1:1/x::t", "postgresql://me@127.0.0.1:1/x::t", key="id"))
    assert caught.value.code == "database_unreachable"


@pytest.mark.own_session
def test_both_engines_write_the_same_bytes(address: str, tmp_path: Path) -> None:
    for engine in ("local", "spark"):
        done = run_process(
            [sys.executable, "-m", "driftline", "diff", f"{address}::a", f"{address}::other.b", "-k", "id",
             "--engine", engine, "-o", f"{engine}.jsonl"],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
    assert (tmp_path / "spark.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()


def test_an_exported_csv_file_is_the_table_that_it_came_from(address: str, tmp_path: Path) -> None:
    """Dates, times and truth values are read as what the column holds, however PostgreSQL writes them (tables §4.6)."""
    run(
        address,
        "CREATE TABLE typed (id int PRIMARY KEY, n numeric(9,3), f float8, ok boolean, d date, local timestamp, "
        "at timestamptz);"
        "INSERT INTO typed VALUES (1, 1.500, 1e-7, true, '2026-01-31', '2026-01-31 10:00', '2026-01-31 12:00:00.5+02'),"
        "(2, 12, 0, false, '0044-03-15', '2026-01-31 10:00:00.25', '2026-07-31 00:00+00'),"
        "(3, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    exported = tmp_path / "typed.csv"
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(address) as connection, exported.open("wb") as out:
        connection.execute("SET timezone = 'Asia/Kolkata'")
        with connection.cursor().copy("COPY typed TO STDOUT (FORMAT csv, HEADER)") as rows:
            out.writelines(rows)
    assert "2026-01-31 15:30:00.5+05:30" in exported.read_text()
    for table in ("typed", "SELECT * FROM typed"):  # cut by its key, and copied
        assert not dl.diff(exported, f"{address}::{table}", key="id", null="")
    exported.write_text(exported.read_text().replace(",t,2026-01-31,", ",f,2026-02-01,"))
    (changed,) = (one for one in dl.diff(exported, f"{address}::typed", key="id", null="") if one["type"] == "changed")
    assert changed["changed"] == ["ok", "d"]
