"""The data that `scripts/bytes.py` runs its commands on: made from fixed seeds, the same bytes each time."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import zstandard
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

ROOT = Path(__file__).resolve().parents[1]
HEADER = ["id", "name", "city", "price", "qty", "at", "active", "note"]
NAMES = ("Ann", "Bob", "Cyd", "Dagný", "Émile", "O'Neil", 'Jo "J" Ito', "Łucja, jr.", "<b>Max</b>", "李")
CITIES = ("Oslo", "Rome", "Bern", "Kraków", "São Paulo")
NOTES = ("", "", "two\nlines", "a,b", 'say "hi"', "  padded ", "NULL", "50 %", "c:\\dir")
Row = list[str]


def make_data(folder: Path, environment: dict[str, str]) -> None:
    """Write all inputs below `folder`."""
    folder.mkdir(parents=True)
    small_tables(folder)
    odd_tables(folder)
    large_tables(folder)
    iceberg_tables(folder)
    merge_tables(folder)
    databases(folder)
    change_messages(folder)
    payload_files(folder)
    lake_files(folder)
    settings_files(folder)
    repository(folder / "repo", environment)
    maker = ROOT / "examples/retail/make_data.py"
    subprocess.run([sys.executable, maker, folder / "shop", "--rows", "600"], check=True, env=environment)
    shutil.copy(ROOT / "examples/retail/retail.toml", folder / "shop")
    shutil.copy(ROOT / "examples/retail/api/schema.yaml", folder / "shop/api")


def rows_of(count: int, seed: str) -> list[Row]:
    chance = random.Random(seed)
    return [row_of(chance, number) for number in range(1, count + 1)]


def row_of(chance: random.Random, number: int) -> Row:
    moment = f"2024-0{chance.randrange(1, 10)}-1{chance.randrange(10)}T08:{chance.randrange(10, 60)}:00Z"
    amount, pieces = f"{chance.randrange(1, 99_999) / 100:.2f}", str(chance.randrange(50))
    words = (chance.choice(NAMES), chance.choice(CITIES), chance.choice(NOTES))
    return [str(number), words[0], words[1], amount, pieces, moment, chance.choice(("true", "false")), words[2]]


def changed(rows: list[Row], seed: str, share: float = 0.1) -> list[Row]:
    """The next version of a table: some rows are gone, changed or new, and one has moved."""
    chance = random.Random(seed)
    after = [list(row) for row in rows if chance.random() > share / 3]
    for row in after:
        if chance.random() < share:
            row[chance.choice((1, 2, 7))] = chance.choice(CITIES)
        if chance.random() < share:
            row[3] = f"{float(row[3]) + chance.choice((0.01, 0.005, 5)):.3f}"
    after += [row_of(chance, len(rows) + number) for number in range(1, max(2, int(len(rows) * share / 4)))]
    after.append(after.pop(3))
    return after


def write_csv(path: Path, rows: Iterable[Row], header: list[str] | None = HEADER, **form: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    encoding = form.pop("encoding", "utf-8")
    with path.open("w", newline="", encoding=encoding) as out:
        writer = csv.writer(out, lineterminator="\n", **form)
        writer.writerows([header] if header else [])
        writer.writerows(rows)


def typed(rows: list[Row]) -> list[dict]:
    return [
        {
            **dict(zip(HEADER, row, strict=True)),
            "id": int(row[0]),
            "price": float(row[3]),
            "qty": None if row[4] == "7" else int(row[4]),
            "active": row[6] == "true",
        }
        for row in rows
    ]


def small_tables(folder: Path) -> None:
    """The tables a and b of 120 rows, in every form that can be read."""
    before = rows_of(120, "small")
    for name, rows in (("a", before), ("b", changed(before, "small b"))):
        write_csv(folder / f"{name}.csv", rows)
        write_csv(folder / f"{name}.tsv", rows, delimiter="\t")
        plain = (folder / f"{name}.csv").read_bytes()
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(plain, mtime=0))
        (folder / f"{name}.csv.zst").write_bytes(zstandard.compress(plain))
        for part, at in enumerate(range(0, len(rows), 50)):
            write_csv(folder / f"{name}_parts/part-{part}.csv", rows[at : at + 50])
        typed_tables(folder, name, typed(rows))


def typed_tables(folder: Path, name: str, records: list[dict]) -> None:
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / f"{name}.json").write_text("[" + ",\n".join(lines) + "]", encoding="utf-8")
    table = pa.Table.from_pylist(records)
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=50)
    feather.write_feather(table, str(folder / f"{name}.arrow"))
    write_deltalake(folder / f"{name}_delta", table)
    if name == "b":
        write_deltalake(folder / "a_delta", table, mode="overwrite")  # version 1 of a is b
    for city in CITIES:
        (folder / f"{name}_hive/city={city}").mkdir(parents=True)
        some = pa.Table.from_pylist([record for record in records if record["city"] == city]).drop_columns("city")
        pq.write_table(some, folder / f"{name}_hive/city={city}/part.parquet")
    with sqlite3.connect(folder / f"{name}.db") as database:
        database.execute(
            "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, city TEXT, price REAL, qty INTEGER, at TEXT,"
            " active INTEGER, note TEXT)"
        )
        database.executemany(
            "INSERT INTO items VALUES (?,?,?,?,?,?,?,?)", [tuple(record.values()) for record in records]
        )
    database.close()


def odd_tables(folder: Path) -> None:
    """Tables that rules are for, and tables that are refused."""
    texts = {
        "semicolon.csv": "id;name;price\n1;Ann;1,50\n2;Bob;2\n",
        "rules_a.csv": "id,price,city,day,seen_at,ok\n1,10,Oslo,01.02.2024,mon,yes\n2,3.50, Lima,03.02.2024,mon,no\n"
        "3,NULL,Rome,04.02.2024,mon,1\n4,7.001,Bern,05.02.2024,mon,0\n",
        "rules_b.csv": "id,cost,city,day,seen_at,ok\n1,10.0,OSLO,2024-02-01,tue,true\n"
        "2,3.75,Lima,2024-02-03,tue,false\n3,,Rome,2024-02-05,tue,true\n4,7.004,Bern,2024-02-05,tue,false\n",
        "reordered.csv": "name,id,extra\nAnn,1,x\nBobby,2,y\n",
        "plain.csv": "id,name\n1,Ann\n2,Bob\n",
        "other_header.csv": "id,title\n1,Ann\n2,Bob\n",
        "twice.csv": "id,name\n1,Ann\n2,Bob\n1,Cy\n1,Ann\n",
        "twice_b.csv": "id,name\n1,Cy\n2,Bob\n1,Dan\n",
        "keyless.csv": "id,name\n1,Ann\n,Bob\n",
        "ragged.csv": "id,name,city\n1,Ann\n2,Bob,Rome,extra\n\n3,Cy,Bern\n",
        "same_columns.csv": "id,name,name,\n1,a,b,c\n",
        "open_quote.csv": 'id,name\n1,"Ann\n',
        "empty.csv": "",
        "only_header.csv": "id,name,city,price,qty,at,active,note\n",
        "headless.csv": "1,Ann\n2,Bob\n",
        "headless_b.csv": "1,Ann\n2,Rob\n3,Cy\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin.csv").write_bytes("id,name\n1,Ann\n2,Bøb\n".encode("latin-1"))
    (folder / "not_utf8.csv").write_bytes(b"id,name\n1,\xff\xfe\n")


def large_tables(folder: Path) -> None:
    """100,000 rows: beyond the small path, in several splits."""
    before = rows_of(100_000, "large")
    after = changed(before, "large b", 0.004)
    for name, rows in (("a", before), ("b", after)):
        write_csv(folder / f"large/{name}.csv", rows)
    pq.write_table(pa.Table.from_pylist(typed(before)), folder / "large/a.parquet")
    pq.write_table(pa.Table.from_pylist(typed(after)), folder / "large/b.parquet")


def iceberg_tables(folder: Path) -> None:
    """The small tables again, in a catalog that is a SQLite file."""
    (folder / "iceberg").mkdir()
    catalog = SqlCatalog("shop", uri=f"sqlite:///{folder}/iceberg/catalog.db", warehouse=f"file://{folder}/iceberg")
    catalog.create_namespace("db")
    for name in ("a", "b"):
        rows = pq.read_table(folder / f"{name}.parquet")
        catalog.create_table(f"db.{name}", rows.schema).append(rows)
    catalog.close()


def merge_tables(folder: Path) -> None:
    base = rows_of(12, "merge")
    ours, theirs, clash = ([list(row) for row in base] for _ in range(3))
    ours[1][1], ours[4][3] = "Ours", "1.00"
    theirs[1][2], theirs[7][1] = "Theirs", "New"
    del theirs[9]
    clash[1][1], clash[4][3] = "Clash", "2.00"
    for name, rows in (("base", base), ("ours", ours), ("theirs", theirs), ("clash", clash)):
        write_csv(folder / f"merge/{name}.csv", rows)


SHOP = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER, photo BLOB);
CREATE TABLE prices (shop TEXT, sku TEXT, cents REAL, PRIMARY KEY (shop, sku)) WITHOUT ROWID;
"""


def databases(folder: Path) -> None:
    """Three versions of a database of two tables, and one with what a changeset cannot say."""
    chance = random.Random("databases")
    first = SHOP + "".join(
        f"INSERT INTO users VALUES ({n}, 'user ''{n}''', {chance.randrange(90)}, x'00{n:02d}');" for n in range(1, 21)
    )
    first += "".join(f"INSERT INTO prices VALUES ('s{n % 3}', 'k{n}', {n * 1.5});" for n in range(1, 15))
    second = "UPDATE users SET age = age + 1 WHERE id % 4 = 0; DELETE FROM users WHERE id = 7;"
    second += "INSERT INTO users VALUES (30, NULL, 3, NULL); UPDATE prices SET cents = NULL WHERE sku = 'k4';"
    third = "UPDATE users SET name = 'Zoë' WHERE id < 4; DELETE FROM prices WHERE shop = 's1';"
    versions = {"one": first, "two": first + second, "three": first + second + third}
    versions["local"] = first + "UPDATE users SET age = 99 WHERE id IN (4, 5);"
    versions["alien"] = first + "CREATE TABLE extra (x); INSERT INTO extra VALUES (1);"
    (folder / "db").mkdir()
    (folder / "db/tables.sql").write_text(SHOP)
    (folder / "db/statements.sql").write_text(
        "INSERT INTO users VALUES (50, 'Fifty', 5, NULL);\nUPDATE users SET age = 6 WHERE id = 2;\n"
        "DELETE FROM prices WHERE shop = 's0' AND sku = 'k3';\n"
    )
    for name, script in versions.items():
        database = sqlite3.connect(folder / f"db/{name}.db")
        database.executescript(script)
        database.close()


def change_messages(folder: Path) -> None:
    """The same changes as wal2json, Debezium and Maxwell tell them."""
    (folder / "cdc").mkdir()
    (folder / "cdc/tables.sql").write_text("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price TEXT);\n")
    one, two = {"id": 1, "name": "tea", "price": "1.50"}, {"id": 2, "name": "cake", "price": None}
    steps = [("c", None, one), ("c", None, two), ("u", one, {**one, "price": "1.75"}), ("d", two, None)]
    makers = {"wal2json": wal2json, "debezium": debezium, "maxwell": maxwell}
    for name, maker in makers.items():
        lines = [json.dumps(maker(number, *step)) for number, step in enumerate(steps)]
        (folder / f"cdc/{name}.jsonl").write_text("\n".join(lines) + "\n")


def wal2json(number: int, kind: str, before: dict | None, after: dict | None) -> dict:
    message: dict = {
        "action": {"c": "I", "u": "U", "d": "D"}[kind],
        "schema": "public",
        "table": "items",
        "xid": number,
    }
    for name, values in (("columns", after), ("identity", before)):
        if values is not None:
            message[name] = [{"name": key, "type": "text", "value": value} for key, value in values.items()]
    return message


def debezium(number: int, kind: str, before: dict | None, after: dict | None) -> dict:
    return {"op": kind, "before": before, "after": after, "source": {"db": "shop", "table": "items", "txId": number}}


def maxwell(number: int, kind: str, before: dict | None, after: dict | None) -> dict:
    word = {"c": "insert", "u": "update", "d": "delete"}[kind]
    message: dict = {"database": "shop", "table": "items", "type": word, "xid": number, "commit": True}
    message["data"] = after or before
    if before and after:
        message["old"] = {key: value for key, value in before.items() if after[key] != value}
    return message


def payload_files(folder: Path) -> None:
    """Answers of an old and a new API, as files, pairs and two lists to join."""
    chance = random.Random("payloads")
    old = [{"id": n, "total": n * 1.1, "name": chance.choice(NAMES), "lines": [1, 2, n]} for n in range(1, 31)]
    new = [{**answer, "total": round(answer["total"] + chance.choice((0, 0, 0.5)), 2)} for answer in old[:-1]]
    (folder / "api").mkdir()
    for name, answers in (("old", old), ("new", new)):
        (folder / f"api/{name}.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    (folder / "api/deep.json").write_text("[" * 40 + "]" * 40)
    (folder / "api/broken.json").write_text('{"id": 1,')
    (folder / "api/config.yaml").write_text("max_depth: 10\n")
    (folder / "api/mask.key").write_text("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n")


def lake_files(folder: Path) -> None:
    """Three days of a table, and two schemas."""
    (folder / "days").mkdir()
    texts = {
        "empty": "id,name,city\n",
        "monday": "id,name,city\n1,Ann,Oslo\n2,Bob,Rome\n3,Cyd,Bern\n",
        "tuesday": "id,name,city\n1,Anna,Oslo\n3,Cyd,Bern\n4,Dan,Kyiv\n",
        "wednesday": "id,name,city\n1,Anna,Lima\n4,Dan,Kyiv\n5,Eve,Rome\n",
    }
    for name, text in texts.items():
        (folder / f"days/{name}.csv").write_text(text)
    columns = [{"name": "id", "type": "string"}, {"name": "price", "type": "number"}, {"name": "more", "type": "json"}]
    (folder / "days/goods.schema.json").write_text(json.dumps({"table": "goods", "columns": columns, "key": ["id"]}))
    columns = [
        {"name": "id", "type": "number"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": "string"},
    ]
    (folder / "days/items.schema.json").write_text(json.dumps({"table": "items", "columns": columns, "key": ["id"]}))


def settings_files(folder: Path) -> None:
    texts = {
        "rules.toml": 'key = "id"\nignore = ["note"]\ntolerance = { price = "1%" }\n'
        'normalize = { city = "case,trim" }\n',
        "pairs.toml": '[defaults]\nkey = "id"\n\n[pairs.same]\nold = "a.csv"\nnew = "a.csv.gz"\n\n'
        '[pairs.near]\nold = "a.csv"\nnew = "b.csv"\nfail_if = ["different > 90%"]\n\n'
        '[pairs.far]\nold = "a.parquet"\nnew = "b.parquet"\n\n[pairs.gone]\nold = "a.csv"\nnew = "nowhere.csv"\n',
        "token.secret": "0123456789abcdef0123456789abcdef0123456789abcdef\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


FIRST_CODE = {
    "cart.py": "import os\n\n\ndef total(items, limit):\n    result = 0\n    for item in items:\n"
    "        if item.price > limit:\n            result += item.price\n    return result\n\n\n"
    "def price(item):\n    return item.price\n\n\ndef vat(amount):\n    return amount * 0.2\n",
    "web/page.js": "export function show(cart) {\n  return cart.items.length;\n}\n\nexport class Page {\n  draw() {\n"
    "    return show(this.cart);\n  }\n}\n",
    "README.md": "# Shop\n\nA shop.\n\n## Carts\n\nThey hold items.\n",
}
SECOND_CODE = {
    "lib/cart.py": FIRST_CODE["cart.py"]
    .replace("def total", "def sum_above")
    .replace("def price(item)", "def price(item, currency)")
    .replace("0.2", "0.19"),
    "web/page.js": FIRST_CODE["web/page.js"].replace("draw()", "draw(size)"),
    "README.md": FIRST_CODE["README.md"] + "\n## Prices\n\nThey have a currency.\n",
}


def repository(folder: Path, environment: dict[str, str]) -> None:
    """A git repository of two commits with fixed authors and dates."""
    git(folder.parent, environment, "init", "-q", "-b", "main", folder.name)
    for tag, files in (("v1", FIRST_CODE), ("v2", SECOND_CODE)):
        for old in folder.iterdir():
            if old.name != ".git":
                shutil.rmtree(old) if old.is_dir() else os.remove(old)
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        git(folder, environment, "add", "-A")
        git(folder, environment, "commit", "-q", "-m", tag)
        git(folder, environment, "tag", tag)


def git(folder: Path, environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True)
