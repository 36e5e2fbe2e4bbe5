"""Every public command does its work once; a command without an example here fails."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import httpx
import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from support.compare_server import serving
from support.console_server import Server as Console
from support.gateways import GATEWAY, SECRET, Server, delta, running, token
from support.index_caches import make_cache
from support.repositories import make_repository

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).parents[2]
SCHEMA = {"table": "users", "columns": [{"name": "id", "type": "string"}, {"name": "name", "type": "string"}]}
PIPELINE = '[pipeline]\nname = "p"\n[tables.t]\nbefore = "a.csv"\nafter = "b.csv"\nkey = "id"\nevents = "out/t.jsonl"\n'
CDC = '{"action":"I","schema":"public","table":"t","columns":[{"name":"id","type":"integer","value":9}]}\n'
HAR = {"request": {"method": "GET", "url": "https://x/a"}, "response": {"status": 200, "content": {"text": '{"n": 1}'}}}


def commands(group: click.Group = driftline, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The words of every command that `--help` lists."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        elif not command.hidden:
            yield " ".join((*words, name))


# Each command with its arguments, what it ends with, and what it prints or writes (`-o FILE`, looked at for the text).
EXAMPLES: dict[str, tuple[str, int, str]] = {
    "diff": ("a.csv b.csv --key id -o made/diff.jsonl", 1, '"type":"changed"'),
    "patch": ("a.csv events.jsonl -o made/patched.csv", 0, "2,Bob"),
    "merge": ("a.csv a.csv b.csv --key id -o made/merged.csv", 0, "2,Bob"),
    "compare": ("old.json new.json --schema schema.json -o made/report.json --format json", 1, '"is_match": false'),
    "payloads batch": ("pairs.jsonl --schema schema.json -o made/batch", 1, ""),
    "payloads pairs": ("old.har new.har -o made/pairs.jsonl", 0, '"old"'),
    "payloads suggest": ("pairs.jsonl -o made/rules.yaml", 0, "x-migration"),
    "payloads infer": ("old.json new.json -o made/inferred.yaml", 0, "type:"),
    "payloads lint": ("schema.json", 0, ""),
    "changeset apply": ("changes.bin copy.db", 0, ""),
    "changeset concat": ("changes.bin changes.bin -o made/both.bin", 0, "users"),
    "changeset diff": ("old.db new.db -o made/changes.bin", 1, "users"),
    "changeset digest": ("changes.sql --schema tables.sql -o made/digest.bin", 0, "users"),
    "changeset from-cdc": ("wal.jsonl --schema t.sql -o made/cdc.bin", 0, "t"),
    "changeset invert": ("changes.bin -o made/inverted.bin", 0, "users"),
    "changeset rebase": ("changes.bin rebase.bin -o made/rebased.bin", 0, "users"),
    "changeset record": (f"recorded.db -o made/recorded.bin -- {sys.executable} record.py", 0, "users"),
    "changeset show": ("changes.bin", 0, "users"),
    "changeset sql": ("changes.bin --database old.db", 0, "UPDATE"),
    "gateway token create": ("--sub laptop --gateway gw-1 --secret-file secret.txt", 0, "."),
    "gateway token rotate": ("--secret-file rotated.txt", 0, ""),
    "index api": ("git:v1 git:v2 --repo repo", 0, "m.py"),
    "index build": ("repo@v1 --cache-root made/index --format json", 0, "{"),
    "index diff": ("git:v1 git:v2 --repo repo --format json", 0, '"diffId"'),
    "index list": ("--cache-root cache", 0, "diff"),
    "index prune": ("--cache-root cache --dry-run", 0, ""),
    "index show": ("DIFF --cache-root cache", 0, ""),
    "lake schema": ("users users.schema.json --lake made/lake", 0, ""),
    "lake extract": ("a.csv b.csv -k id --table users --client-id nightly --load-base --lake made/extracted", 0, ""),
    "lake flush": ("deltas.jsonl --gateway laptop --lake flushed", 0, ""),
    "lake compact": ("--table users --lake lake", 0, ""),
    "lake materialize": ("--table users --lake lake -o made/users.jsonl --format jsonl", 0, "Bob"),
    "lake changes": ("--table users --from 0 --lake lake -o made/changes.jsonl", 1, "Bob"),
    "lake verify": ("--table users --lake lake", 0, ""),
    "lake tables": ("--lake lake", 0, "users"),
    "lake log": ("--table users --lake lake", 0, ""),
    "lake history": ("--table users --row ROW --lake lake", 0, "Bob"),
    "lake vacuum": ("--table users --dry-run --lake lake", 0, ""),
    "pipeline history": ("p.toml", 0, ""),
    "pipeline init": ("made/new.toml", 0, ""),
    "pipeline plan": ("p.toml", 0, "t/"),
    "pipeline report": ("p.toml -o made/run.html", 0, "<html"),
    "pipeline run": ("p.toml", 0, ""),
    "pipeline status": ("p.toml", 0, ""),
    "check": ("pairs.toml", 1, "orders"),
    "git diff": ("app.db old.db 0 100644 new.db 0 100644", 0, "Bob"),
    "git install": ("", 0, ""),
    "git merge": ("old.db merged.db new.db", 0, ""),
    "git textconv": ("old.db", 0, "users"),
    "doctor": ("--no-spark", 0, "driftline"),
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something for every command."""
    folder = tmp_path_factory.mktemp("workshop")
    files: dict[str, object] = {
        "a.csv": "id,name\n1,Ann\n2,Bo\n3,Cy\n",
        "b.csv": "id,name\n1,Ann\n2,Bob\n4,Di\n",
        "old.json": {"n": 1, "t": "x"},
        "new.json": {"n": 2, "t": "x"},
        "schema.json": {"type": "object", "properties": {"n": {"type": "number"}, "t": {"type": "string"}}},
        "pairs.jsonl": "".join(
            json.dumps({"id": n, "old": {"n": n}, "new": {"n": n + 0.001}}) + "\n" for n in range(30)
        ),
        "old.har": {"log": {"entries": [HAR]}},
        "new.har": {"log": {"entries": [HAR]}},
        "tables.sql": "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT);",
        "t.sql": "CREATE TABLE t (id INTEGER PRIMARY KEY);",
        "changes.sql": "INSERT INTO users VALUES (7, 'Gus');",
        "wal.jsonl": CDC,
        "record.py": "import sqlite3\nwith sqlite3.connect('recorded.db') as db: db.execute('DELETE FROM users')\n",
        "secret.txt": SECRET + "\n",
        "rotated.txt": SECRET + "\n",
        "users.schema.json": SCHEMA,
        "p.toml": PIPELINE,
        "pairs.toml": '[pairs.orders]\nold = "a.csv"\nnew = "b.csv"\nkey = "id"\n',
        "deltas.jsonl": "".join(
            json.dumps(delta("laptop", str(n), table="users", name="Bob")) + "\n" for n in range(3)
        ),
    }
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    (folder / "made").mkdir()
    for name in ("old", "new", "copy", "recorded", "merged", "far"):
        with sqlite3.connect(folder / f"{name}.db") as database:
            database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
            database.execute("INSERT INTO users VALUES (1, 'Ann'), (2, ?)", ("Bob" if name == "new" else "Bo",))
        database.close()
    make_repository(folder / "repo", {"m.py": "def f(): return 1\n"}, {"m.py": "def f(): return 2\ndef g(): pass\n"})
    make_repository(folder / ".", {"a.txt": "x"})
    make_cache(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (
            "diff a.csv b.csv --key id -o events.jsonl",
            "changeset diff old.db new.db -o changes.bin",
            "changeset apply changes.bin far.db --on-conflict omit --rebase-data rebase.bin",
            "index diff build:b1 latest --cache-root cache -o made/index.json --format json",
            "lake extract a.csv b.csv -k id --table users --client-id nightly --load-base --lake lake",
            "lake schema users users.schema.json --lake flushed",
            "pipeline run p.toml",
        ):
            assert run(driftline, words.split()) in (0, 1), words
    return folder


def places(folder: Path) -> dict[str, str]:
    """What stands for names that are known once the folder is made."""
    diffs = [path.name for path in (folder / "cache/diffs").iterdir() if path.is_dir()]
    return {"DIFF": diffs[0], "ROW": "2"}


@pytest.mark.parametrize("command", sorted({*EXAMPLES} & {*commands()}))
def test_a_command(command: str, workshop: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.chdir(workshop)
    text, code, expected = EXAMPLES[command]
    words = [places(workshop).get(word, word) for word in text.split()]
    found = run(driftline, [*command.split(), *words])
    told = capfd.readouterr()
    assert found == code, told.err
    assert "Traceback" not in told.err
    written = Path(words[words.index("-o") + 1]) if "-o" in words else None
    assert written is None or written.exists()
    content = written.read_bytes() if written is not None and written.is_file() else b""
    assert expected.encode() in content + told.out.encode() + told.err.encode()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("gateway")) as server:
        yield server


def test_gateway_push_and_pull(gateway: Server, workshop: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("DRIFTLINE_TOKEN", token("laptop"))
    assert run(driftline, ["gateway", "push", "deltas.jsonl", "--url", gateway.url, "--gateway", GATEWAY]) == 0
    capfd.readouterr()
    assert run(driftline, ["gateway", "pull", "--url", gateway.url, "--gateway", GATEWAY]) == 0
    assert [json.loads(line)["rowId"] for line in capfd.readouterr().out.splitlines()] == ["0", "1", "2"]


def test_serve() -> None:
    with serving() as address:
        answer = httpx.post(
            f"{address}/v1/compare",
            json={"old_json": {"n": 1}, "new_json": {"n": 2}, "schema_fragment": {}},
            timeout=60,
        )
        assert answer.json()["is_match"] is False


def test_ui(workshop: Path) -> None:
    console = Console(workshop)
    try:
        status, text, _ = console.ask("GET", "/")
        assert status == 200
        assert "a.csv" in text
    finally:
        console.close()


def test_every_command_has_an_example() -> None:
    with_tests_of_their_own = {"gateway push", "gateway pull", "serve", "ui"}
    assert sorted({*EXAMPLES} | with_tests_of_their_own) == sorted(commands())
