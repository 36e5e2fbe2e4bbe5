"""The whole story in one command: `python examples/retail/story.py [--rows 100000] [--master URL]`.

Makes three days of a shop (seeded), runs the pipeline over them, shows an order as of day two, applies the patchset
of day three to a SQLite file of day two and proves that it then equals day three.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import make_data

HERE = Path(__file__).resolve().parent


def tell(directory: Path, rows: int, options: list[str]) -> None:
    prepare(directory, rows)
    driftline(directory, "pipeline", "run", "retail.toml", *options)
    show_day_two(directory)
    show_api(directory)
    deliver(directory)
    driftline(directory, "pipeline", "report", "retail.toml", "-o", "out/report.html")
    print("\nThe whole night on one page: out/report.html")


def prepare(directory: Path, rows: int) -> None:
    """Data and pipeline file, unless they are there for so many rows."""
    mark = directory / ".rows"
    if mark.exists() and mark.read_text() == str(rows):
        return
    shutil.rmtree(directory, ignore_errors=True)
    print(f"making three days of a shop, {rows:,} rows a day, in {directory.name}/")
    make_data.make(directory, rows)
    shutil.copy(HERE / "retail.toml", directory)
    shutil.copy(HERE / "api" / "schema.yaml", directory / "api")
    mark.write_text(str(rows))


def driftline(directory: Path, *arguments: str) -> None:
    print(f"\n$ driftline {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "driftline", *arguments], cwd=directory, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def show_day_two(directory: Path) -> None:
    """An order that changed (twice, if there is one), as the lake had it at the end of day two."""
    changed = {day: changed_keys(directory / f"out/orders-{day}.jsonl") for day in make_data.DAYS[1:]}
    order = min(changed["2026-03-02"] & changed["2026-03-03"] or changed["2026-03-02"])
    print(f"\nTime travel. Order {order} went on every day; the lake remembers each of them:")
    for day in make_data.DAYS:
        print(f"  snapshot of {day}:  {cell(directory / f'data/orders-{day}.csv', order)}")
    print(f"  lake as of 2026-03-02: {cell(directory / 'out/orders-day-two.csv', order)}")


def changed_keys(events: Path) -> set[str]:
    with events.open(encoding="utf-8") as lines:
        found = (json.loads(line) for line in lines)
        return {event["key"]["order_id"] for event in found if event["type"] == "changed"}


def cell(table: Path, order: str) -> str:
    with table.open(newline="", encoding="utf-8") as source:
        return next((row["status"] for row in csv.DictReader(source) if row["order_id"] == order), "gone")


def show_api(directory: Path) -> None:
    with (directory / "out/api-report/reports.jsonl").open(encoding="utf-8") as lines:
        reports = [json.loads(line) for line in lines]
    wrong = [line for line in reports if not line["report"]["is_match"]]
    print(f"\nAPI migration. {len(reports) - len(wrong):,} of {len(reports):,} answers match under the rules of")
    print("api/schema.yaml (new names, enum values, cents); the first that does not:")
    for entry in wrong[0]["report"]["diffs"][:1]:
        print(f"  order {wrong[0]['id']}, {entry['path']}: {entry['old_value']} became {entry['new_value']}")


def deliver(directory: Path) -> None:
    """A SQLite file of day two, and the patchset that makes it day three."""
    from driftline.changesets import apply

    shop = directory / "out/shop.db"
    shutil.copy(directory / "out/orders-day-two.db", shop)
    patch = (directory / "out/orders-2026-03-03.patchset").read_bytes()
    whole = (directory / "data/orders-2026-03-03.csv").stat().st_size
    print("\nDelivery. out/shop.db holds the orders of day two; the patchset of day three is applied to it")
    print(f"  ({len(patch):,} bytes, where the whole snapshot has {whole:,})")
    apply(patch, shop)
    same = content(shop) == content(directory / "out/orders-day-three.db")
    print("  shop.db equals day three" if same else "  shop.db is not day three")
    if not same:
        sys.exit(1)


def content(database: Path) -> list[tuple]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute("SELECT * FROM orders ORDER BY order_id").fetchall()
    finally:
        connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a day, all tables together")
    parser.add_argument("--dir", type=Path, default=Path("out/retail"))
    given, options = parser.parse_known_args()
    tell(given.dir.absolute(), given.rows, options)
