"""DuckDB reads the lake: the guide's own lines with the `delta` extension, and plain `read_parquet` without it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from driftline.lake import Lake, compact
from support.lakes import delta, load_lake

duckdb = pytest.importorskip("duckdb", reason="needs the package duckdb, a dev dependency")

GUIDE = Path(__file__).parents[2] / "docs/guides/lake.md"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    batches = [
        [delta("INSERT", str(n), n, title=f"t{n}", **{"Unit Price": n / 4}) for n in range(8)],
        [delta("UPDATE", "1", 20, title=None), delta("DELETE", "2", 21)],
    ]
    made = load_lake(tmp_path, batches, {0})
    compact(made, "todos")
    return made


def lines_of_the_guide(word: str) -> list[str]:
    """The statements of the guide's SQL blocks that use `word`, made to read the lake of this test."""
    blocks = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    statements = [line for block in blocks for line in block.splitlines() if word in line]
    return [line.replace("people", "todos").replace("id, name", "_row_id, title").replace("name", "title")
            .replace("BY id", "BY _row_id") for line in statements]  # fmt: skip


def extension() -> Path:
    package = pytest.importorskip("duckdb_extension_delta", reason="needs duckdb-extension-delta, a dev dependency")
    [path] = Path(package.__file__).parent.rglob("delta.duckdb_extension")
    if f"v{duckdb.__version__}" not in path.parts:
        pytest.skip(f"the extension {path.parent.name} is not for DuckDB {duckdb.__version__}")
    return path


def test_the_guides_lines_with_the_delta_extension(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = extension()
    Path(lake.root, "lake").symlink_to(lake.root)
    monkeypatch.chdir(lake.root)
    statements = lines_of_the_guide("delta_scan")
    assert len(statements) == 3
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{path}'")
        state, base, history = (connection.execute(statement).fetchall() for statement in statements)
        assert sorted(row[0] for row in state) == [row[0] for row in base]
        assert base == [(str(n), None if n == 1 else f"t{n}") for n in range(8) if n != 2]
        assert history == [(1, "INSERT", "t1"), (20, "UPDATE", None)]


def test_plain_parquet_without_the_extension(lake: Lake) -> None:
    def scan(part: Any) -> str:
        return f"read_parquet({DeltaTable(lake.part('todos', part)).file_uris()})"

    with duckdb.connect() as connection:
        rows = connection.execute(f'SELECT _row_id, "Unit%20Price" FROM {scan("base")} ORDER BY _row_id').fetchall()
        assert rows == [(str(n), n / 4) for n in range(8) if n != 2]
        winner = f"SELECT _stamps.columns.title.hlc FROM {scan('base')} WHERE _row_id = '1'"
        assert connection.execute(winner).fetchall() == [(20,)]
        assert connection.execute(f"SELECT _row_id FROM {scan('deletes')}").fetchall() == [("2",)]
