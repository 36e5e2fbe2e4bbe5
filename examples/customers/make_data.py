"""Writes the two example versions of a customer table (seeded: always the same bytes)."""

from __future__ import annotations

import csv
import random
from datetime import date, timedelta
from pathlib import Path

HERE = Path(__file__).parent
ROWS = 4000
COLUMNS = ["id", "name", "email", "city", "plan", "balance", "since", "note"]
FIRST = [
    "Ada",
    "Boris",
    "Chloé",
    "Dmitri",
    "Eva",
    "Farid",
    "Greta",
    "Hugo",
    "Inés",
    "Jamal",
    "Katja",
    "Liam",
    "Mei",
    "Otto",
]
LAST = ["Okafor", "Smith", "García", "Müller", "Tanaka", "Olsen", "Novak", "Rossi", "Dubois", "Kim", "Silva", "Haddad"]
CITIES = ["Berlin", "Paris", "São Paulo", "Washington, DC", "Tokyo", "Oslo", "Lima", "Nairobi"]
PLANS = ["free", "basic", "pro", "team"]
NOTES = ["", "", "", "prefers e-mail", 'says "call me" first', "two lines:\nleave at the door", "VIP"]


def customer(number: int, random: random.Random) -> dict[str, str]:
    first, last = random.choice(FIRST), random.choice(LAST)
    return {
        "id": f"C{number:05d}",
        "name": f"{first} {last}",
        "email": f"{first.lower()}.{number}@example.com",
        "city": random.choice(CITIES),
        "plan": random.choice(PLANS),
        "balance": f"{random.randrange(-5000, 250000) / 100:.2f}",
        "since": str(date(2019, 1, 1) + timedelta(days=random.randrange(2600))),
        "note": random.choice(NOTES),
    }


def next_day(rows: list[dict[str, str]], random: random.Random) -> list[dict[str, str]]:
    """1 % leave, 3 % change, 2 % are new, and the order is another one."""
    kept = [dict(row) for row in rows if random.random() > 0.01]
    for row in kept:
        if random.random() < 0.03:
            if random.random() < 0.7:
                row["balance"] = f"{float(row['balance']) + random.randrange(1, 9000) / 100:.2f}"
            if random.random() < 0.4:
                row["plan"] = random.choice([plan for plan in PLANS if plan != row["plan"]])
    new = [customer(ROWS + number, random) for number in range(1, ROWS // 50)]
    rows = kept + new
    random.shuffle(rows)
    return rows


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    generator = random.Random(20261115)
    monday = [customer(number, generator) for number in range(1, ROWS + 1)]
    write(HERE / "monday.csv", monday)
    write(HERE / "tuesday.csv", next_day(monday, generator))
