"""Three days of a shop and an API migration, made from a seed: `python make_data.py DIRECTORY [--rows 100000]`.

Writes data/{customers,products,orders}-{date}.csv, two price lists, the events of a stock database with a snapshot of
it, and api/pairs.jsonl. On day three some customers have a tier, a column that was not there before. The same rows and
seed give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
CITIES = ("Lisboa", "Kraków", "São Paulo", "Malmö", "Zürich", "Osaka", "Nairobi", "Québec", "Cork", "Łódź")
FIRST = ("Ana", "Bo", "Chidi", "Dagny", "Émile", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kaia", "Lena")
LAST = ("Almeida", "Berg", "Costa", "Dvořák", "Eriksen", "Fischer", "Gomes", "Horváth", "Ito", "Jansen")
THINGS = ("lamp", "chair", 'desk 24" oak', "shelf, small", "rug", "mirror", "clock", "vase", "stool", "frame")
STATES = ("new", "paid", "packed", "shipped", "delivered")

Rows = dict[str, list[str]]


def customers(chance: random.Random, count: int) -> Rows:
    rows = {}
    for number in range(1, count + 1):
        first, last = chance.choice(FIRST), chance.choice(LAST)
        mail = f"{first}.{last}.{number}@example.org".lower()
        rows[f"C{number:06d}"] = [
            f"C{number:06d}",
            f"{first} {last}",
            mail,
            chance.choice(CITIES),
            money(chance, 0, 500),
        ]
    return rows


def products(chance: random.Random, count: int) -> Rows:
    rows = {}
    for number in range(1, count + 1):
        name = f"{chance.choice(THINGS)} no. {number}"
        rows[f"P{number:05d}"] = [f"P{number:05d}", name, money(chance, 1, 900), str(chance.randrange(500)), "true"]
    return rows


def orders(chance: random.Random, count: int) -> Rows:
    return {f"O{number:07d}": new_order(chance, number) for number in range(1, count + 1)}


def new_order(chance: random.Random, number: int) -> list[str]:
    buyer, thing = f"C{chance.randrange(1, 20_000):06d}", f"P{chance.randrange(1, 10_000):05d}"
    pieces = chance.randrange(1, 6)
    note = chance.choice(("", "", "", "leave at the door", "two\nlines", 'call "Bo"'))
    return [f"O{number:07d}", buyer, thing, str(pieces), money(chance, 5, 2000), chance.choice(STATES), note]


def change_customers(chance: random.Random, rows: Rows) -> None:
    for key in chance.sample(sorted(rows), len(rows) // 100):
        rows[key][3] = chance.choice(CITIES)
        rows[key][4] = money(chance, 0, 500)


def change_products(chance: random.Random, rows: Rows) -> None:
    for key in chance.sample(sorted(rows), len(rows) // 50):
        rows[key][2 if chance.random() < 0.5 else 3] = str(chance.randrange(1, 900))
    for key in chance.sample(sorted(rows), len(rows) // 500):
        del rows[key]


def change_orders(chance: random.Random, rows: Rows) -> None:
    last = int(max(rows)[1:])
    for key in chance.sample(sorted(rows), len(rows) // 40):
        rows[key][5] = STATES[min(STATES.index(rows[key][5]) + 1, len(STATES) - 1)]
    for key in chance.sample(sorted(rows), len(rows) // 400):
        del rows[key]
    for number in range(last + 1, last + 1 + len(rows) // 60):
        rows[f"O{number:07d}"] = new_order(chance, number)


TABLES: dict[str, tuple[list[str], Callable[..., Rows], Callable[..., None], float]] = {
    "customers": (["customer_id", "name", "email", "city", "credit"], customers, change_customers, 0.2),
    "products": (["product_id", "name", "price", "stock", "active"], products, change_products, 0.1),
    "orders": (
        ["order_id", "customer_id", "product_id", "pieces", "total", "status", "note"],
        orders,
        change_orders,
        0.7,
    ),
}


def money(chance: random.Random, low: int, high: int) -> str:
    return f"{chance.randrange(low * 100, high * 100) / 100:.2f}"


def write_table(directory: Path, name: str, rows: int, seed: int) -> None:
    header, make, change, share = TABLES[name]
    chance = random.Random(f"{seed} {name}")
    state = make(chance, max(20, int(rows * share)))
    for day in DAYS:
        if (name, day) == ("customers", DAYS[2]):
            header = [*header, "tier"]
            state = {key: [*row, "gold" if chance.random() < 0.02 else ""] for key, row in state.items()}
        write_csv(directory / "data" / f"{name}-{day}.csv", header, chance.sample(list(state.values()), len(state)))
        change(chance, state)


def write_csv(place: Path, header: list[str], rows: list[list[str]]) -> None:
    with place.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def write_price_lists(directory: Path, count: int, seed: int) -> None:
    """The list of the old shop system and of the new one: a column has another name, prices are rounded otherwise."""
    chance = random.Random(f"{seed} prices")
    prices = {f"P{number:05d}": chance.randrange(100, 90_000) / 100 for number in range(1, count + 1)}
    write_csv(directory / "data/prices-old.csv", ["sku", "price_eur"], [[key, f"{p:.2f}"] for key, p in prices.items()])
    for key in chance.sample(sorted(prices), 3):
        prices[key] += 1  # really another price
    rows = [[key, f"{price + chance.choice((0, 0.004)):.3f}"] for key, price in prices.items()]
    write_csv(directory / "data/prices-new.csv", ["sku", "price"], rows)


def write_stock(directory: Path, count: int, seed: int) -> None:
    """What Debezium would write of a table of stock, a file a day, and the table as it is after them."""
    chance = random.Random(f"{seed} stock")
    state: dict[str, dict] = {}
    for day in DAYS:
        with (directory / "cdc" / f"stock-{day}.jsonl").open("w", encoding="utf-8") as out:
            for op, before, after in stock_events(chance, state, count):
                source = {"db": "warehouse", "schema": "public", "table": "stock"}
                out.write(json.dumps({"op": op, "before": before, "after": after, "source": source}) + "\n")
    rows = [[row["sku"], row["place"], str(row["pieces"])] for row in state.values()]
    write_csv(directory / f"data/stock-{DAYS[-1]}.csv", ["sku", "place", "pieces"], rows)


def stock_events(
    chance: random.Random, state: dict[str, dict], count: int
) -> Iterator[tuple[str, dict | None, dict | None]]:
    if not state:
        for number in range(1, count + 1):
            row = {"sku": f"P{number:05d}", "place": chance.choice("ABCD"), "pieces": chance.randrange(500)}
            state[row["sku"]] = row
            yield "c", None, row
        return
    for key in chance.sample(sorted(state), count // 20):
        state[key] = {**state[key], "pieces": chance.randrange(500)}
        yield "u", {"sku": key}, state[key]
    for key in chance.sample(sorted(state), count // 200):
        del state[key]
        yield "d", {"sku": key}, None


def write_pairs(directory: Path, count: int, seed: int) -> None:
    """Old and new answers of an order service: renamed fields, new codes, times in UTC; a few are really wrong."""
    chance = random.Random(f"{seed} api")
    with (directory / "api" / "pairs.jsonl").open("w", encoding="utf-8") as out:
        for number in range(1, count + 1):
            out.write(json.dumps(pair(chance, number), ensure_ascii=False) + "\n")


def pair(chance: random.Random, number: int) -> dict:
    total, status = chance.randrange(500, 200_000) / 100, chance.choice(("N", "P", "S"))
    lines = [{"sku": f"P{chance.randrange(1, 10_000):05d}", "qty": chance.randrange(1, 6)} for _ in range(3)]
    second = chance.randrange(50)
    old = {
        "orderId": f"O{number:07d}",
        "customer_name": f"{chance.choice(FIRST)} {chance.choice(LAST)}",
        "status": status,
        "total": total,
        "placed": f"2026-03-01T10:00:{second:02d}+01:00",
        "lines": lines,
    }
    new = {
        "orderId": old["orderId"],
        "customerName": old["customer_name"],
        "status": {"N": "new", "P": "paid", "S": "shipped"}[status],
        "total": round(total + chance.choice((0, 0, 0.01)), 2),
        "placed": f"2026-03-01T09:00:{second:02d}Z",
        "lines": chance.sample(lines, len(lines)),
        "traceId": f"{chance.randrange(16**8):08x}",
    }
    if number % 97 == 0:
        new["total"] = round(total + 10, 2)
    if number % 131 == 0:
        del new["customerName"]
    return {"id": old["orderId"], "old": old, "new": new}


def make(directory: Path, rows: int = 100_000, seed: int = 7) -> None:
    for folder in ("data", "api", "cdc"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        write_table(directory, name, rows, seed)
    write_price_lists(directory, max(200, rows // 100), seed)
    write_stock(directory, max(200, rows // 20), seed)
    write_pairs(directory, max(200, rows // 100), seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a day, all tables together")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    make(given.directory, given.rows, given.seed)
