"""What a console shows in tests: tables, pairs of payloads, a pipeline, databases, a lake and a repository."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.lakes import delta, load_lake
from support.repositories import make_repository

CUSTOMERS = Path(__file__).parents[2] / "examples" / "customers"
HOUR = 3600 * 1000 << 16  # of a hybrid clock
PIPELINE = """
[pipeline]
name = "nightly"

[tables.customers]
snapshots = "snapshots/customers-{date}.csv"
key = "id"
events = "changes/customers-{to}.jsonl"
fail_if = ["changed > 1%"]
"""


def copy_tables(folder: Path) -> None:
    """Two versions of a table of customers."""
    for name in ("monday.csv", "tuesday.csv"):
        shutil.copy(CUSTOMERS / name, folder / name)


def write_events(path: Path, columns: list[str], rows: Iterable[dict[str, Any]]) -> None:
    """The events of a table diff in which every row was added."""
    lines: list[Any] = [{"type": "schema", "columns_a": columns, "columns_b": columns}]
    lines += [{"type": "added", "key": {columns[0]: row.get(columns[0])}, "row": row} for row in rows]
    counts = {"rows_added": len(lines) - 1, "rows_removed": 0, "rows_changed": 0, "rows_unchanged": 0}
    lines.append({"type": "stats", "rows_total_compared": 0, **counts})
    path.write_text("".join(compact_json(line) + "\n" for line in lines), encoding="utf-8")


def compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_pairs(path: Path, endpoint: str = "/orders") -> None:
    """40 pairs that differ in letter case, a quarter of them in a total too, and one line that is cut off."""
    lines = []
    for number in range(40):
        old = {"id": number, "status": "OPEN", "total": 10.0}
        new = {"id": number, "status": "open", "total": 10.01 if number % 4 == 0 else 10.0}
        lines.append(json.dumps({"id": number, "endpoint": endpoint, "old": old, "new": new}))
    lines.append('{"id": 40, "endpoint": "/orders", "old": {"id": 40}, "new": ')
    path.write_text("\n".join(lines) + "\n")


def write_pipeline(folder: Path, text: str = PIPELINE) -> None:
    """A pipeline of two snapshots of the table of customers; more than 1 % of the rows changed."""
    (folder / "snapshots").mkdir()
    for day, name in (("2026-03-01", "monday.csv"), ("2026-03-02", "tuesday.csv")):
        shutil.copy(folder / name, folder / f"snapshots/customers-{day}.csv")
    (folder / "nightly.toml").write_text(text)


def write_databases(folder: Path) -> bytes:
    """Two versions of a database, `before.db` and `after.db`; the changeset from one to the other."""
    import apsw

    from driftline.changesets import diff

    for name, rows in (("before.db", [(1, "Ann", 5), (2, "Bo", 7)]), ("after.db", [(1, "Anna", 5), (3, "Cy", 9)])):
        connection = apsw.Connection(str(folder / name))
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
        connection.executemany("INSERT INTO users VALUES (?, ?, ?)", rows)
        connection.close()
    return bytes(diff(str(folder / "before.db"), str(folder / "after.db")))


def write_lake(folder: Path, title: str = "oat milk") -> None:
    """A lake with two rows, of which one was written by two clients at once and the other was deleted."""
    first = [
        delta("INSERT", "r1", HOUR, "ann", title="milk", done=False),
        delta("INSERT", "r2", HOUR, "ann", title="tea"),
    ]
    second = [
        delta("UPDATE", "r1", 2 * HOUR, "ann", title=title),
        delta("UPDATE", "r1", 2 * HOUR, "bo", title="soy"),
    ]
    load_lake(folder, [first, second, [delta("DELETE", "r2", 3 * HOUR, "bo")]], {2})


def write_repository(folder: Path, file: str = "shop.py", comment: str = "the sum") -> None:
    """A repository of two commits, in which the body of a function changed."""
    bodies = ("return sum(prices)", "return round(sum(prices), 2)")
    make_repository(folder, *({file: f"def total(prices):\n    # {comment}\n    {body}\n"} for body in bodies))


REVIEWED = "src/shop/a_folder_with_a_rather_long_name/prices.py"


def write_reviewed_repository(folder: Path) -> None:
    """Two versions with a break, a move, a comment, a long gap in a body, a test and a workflow."""
    body = "".join(f"    step_{number} = {number}\n" for number in range(40))
    prices = 'def total(prices, currency="EUR"):\n' + body + "    return sum(prices)\n"
    moved = "def rounded(price):\n    cents = price * 100\n    whole = round(cents)\n    return whole / 100\n"
    old = {
        REVIEWED: prices + "\n\n" + moved,
        "src/shop/money.py": "# Money.\n\nRATE = 2\n",
        "src/shop/notes.py": "# One remark.\nLIMIT = 3\n",
        "src/shop/__init__.py": "",
        "pyproject.toml": '[project]\nname = "shop"\nversion = "1.2.0"\n',
        ".github/workflows/checks.yml": "on: push\n",
        "tests/test_shop.py": "def test_total():\n    assert True\n",
    }
    changed = prices.replace(', currency="EUR"', "").replace("step_0 = 0", "step_0 = 7").replace("sum(", "max(")
    added = "def tax(price):\n    # a fifth\n    return price / 5\n"
    new = {
        **old,
        REVIEWED: changed,
        "src/shop/money.py": "# Money.\n\nRATE = 2\n\n\n" + moved + "\n\n" + added,
        "src/shop/notes.py": "# Another remark.\nLIMIT = 3\n",
        ".github/workflows/checks.yml": "on: [push, pull_request]\n",
        "tests/test_shop.py": "def test_total():\n    assert 1\n",
    }
    make_repository(folder, old, new)
