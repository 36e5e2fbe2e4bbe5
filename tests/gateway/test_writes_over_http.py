"""The vectors of tests/vectors/sync-writes.json (pages, write rules, clocks, values, errors) over HTTP, on both logs.

Most cases share one server: each has tables of its own. The others need an option, a schema, a damaged lake or a clock.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.deltas import RowDelta, merge
from driftline.deltas._deltas import delta_id
from support.gateways import GATEWAY, Client, Server, delta, running
from support.postgres import postgres_server
from support.processes import wait_until

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/sync-writes.json").read_text())
CASES = {case["id"]: case for case in VECTORS}
ALONE = ("P5", "P6", "P8", "K3")
OWN_SERVER = [name for name, case in CASES.items() if {"options", "schemas"} & set(case) or name in ALONE]
SHARED = [name for name in CASES if name not in OWN_SERVER]
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
QUIET = ("--rate-limit", "0", "--flush-seconds", "3600", "--no-compact")


class Runner:
    """Runs the steps of a case; on a shared server its tables have names of their own."""

    def __init__(self, server: Server, suffix: str = "", options: Sequence[str] = QUIET) -> None:
        self.server = server
        self.suffix = suffix
        self.options = options  # of a server that is started again
        self.labels: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}
        self.server_hlc = 0
        self.day = 0  # the server's clock, in days from now

    def run(self, case: dict[str, Any]) -> None:
        admin = self.client("ops", role="admin")
        for schema in case.get("schemas", ()):
            assert admin.admin("schema", self.named(schema)).status_code == 200
        answer = admin.admin("sync-rules", self.named(case["rules"])) if "rules" in case else None
        assert answer is None or answer.status_code == 200, answer.text
        for step in case["steps"]:
            kind = next(name for name in step if name not in ("expect", "label"))
            getattr(self, kind)(step[kind], step.get("expect", {}), step.get("label"))

    def client(self, sub: str, **claims: Any) -> Client:
        return self.server.client(sub, exp=int(time.time()) + 3 * 86_400, **claims)

    def named(self, content: Any) -> Any:
        """Tables under the names of this case."""
        if not self.suffix:
            return content
        text = json.dumps(content)
        for name in ("notes", "other", "feedback"):
            text = text.replace(f'"{name}"', f'"{name}{self.suffix}"')
        return json.loads(text)

    def made(self, given: dict[str, Any], sub: str) -> tuple[dict[str, Any], dict[str, str]]:
        """A delta, and the characters that stand for some of its values on the wire."""
        if "again" in given:
            return self.labels[given["again"]]
        raw: dict[str, str] = {}
        columns = {}
        for name, value in given["columns"].items():
            if isinstance(value, dict) and "raw" in value:
                raw[f'"raw:{value["raw"]}"'] = value["raw"]
                columns[name] = f"raw:{value['raw']}"
            else:
                columns[name] = "x" * value["text"] if isinstance(value, dict) else value
        hlc = None
        if "at" in given:
            hlc = (time.time_ns() // 1_000_000 + given["at"]) << 16
        elif "hlc" in given:
            hlc = self.server_hlc + int(given["hlc"].removeprefix("server+"))
        found = delta(sub, given["row"], given["op"], hlc, self.named_table(given["table"]), **columns)
        if raw:  # the id is that of the values, not of the words that stand for them here
            entries = [
                {"column": each["column"], "value": json.loads(raw.get(json.dumps(each["value"]), "null"))}
                if json.dumps(each["value"]) in raw
                else each
                for each in found["columns"]
            ]
            row, table = found["rowId"], found["table"]
            found["deltaId"] = delta_id(client_id=sub, hlc=int(found["hlc"]), table=table, row_id=row, columns=entries)
        if "label" in given:
            self.labels[given["label"]] = (found, raw)
        return found, raw

    def named_table(self, table: str) -> str:
        return f"{table}{self.suffix}"

    def push(self, given: dict[str, Any], expect: dict[str, Any], label: str | None = None) -> None:
        self.check(self.pushed(given), expect, label)

    def pushed(self, given: dict[str, Any]) -> httpx.Response:
        sub, claims = given["as"], dict(given.get("claims", {}))
        if "role" in given:
            claims["role"] = given["role"]
        made = [self.made(each, sub) for each in given["deltas"]]
        text = json.dumps({"clientId": sub, "deltas": [each for each, _ in made]})
        for _, raw in made:
            for word, characters in raw.items():
                text = text.replace(word, characters)
        return self.client(sub, **claims).http.post(f"/sync/{GATEWAY}/push", content=text.encode())

    def together(self, given: list[dict[str, Any]], expect: dict[str, Any], _: str | None) -> None:
        with ThreadPoolExecutor(len(given)) as pool:
            statuses = sorted(answer.status_code for answer in pool.map(self.pushed, given))
        assert statuses == expect["statuses"]

    def pull(self, given: dict[str, Any], expect: dict[str, Any], _: str | None) -> None:
        client = self.client(given["as"], **given.get("claims", {}))
        deltas, _ = client.pull_all()
        self.server_hlc = int(client.pull(since="0", limit=1).json()["serverHlc"])
        self.check_rows([RowDelta.from_wire(each) for each in deltas], expect)

    def check_rows(self, deltas: list[RowDelta], expect: dict[str, Any]) -> None:
        own = [each for each in deltas if not self.suffix or each.table.endswith(self.suffix)]
        rows = {f"{key[0].removesuffix(self.suffix)}/{key[1]}": state for key, state in merge(own).items()}
        assert {name: state.columns for name, state in rows.items() if state.live} == expect["rows"]

    def snapshot(self, given: dict[str, Any], expect: dict[str, Any], _: str | None) -> None:
        client = self.client(given["as"])
        query: dict[str, Any] = {}
        pages: list[httpx.Response] = []
        while True:
            pages.append(client.http.get(f"/sync/{GATEWAY}/snapshot", params=query))
            if pages[-1].status_code != 200:
                self.check(pages[-1], expect)
                return
            end = json.loads(pages[-1].text.splitlines()[-1])["end"]
            if end["next"] is None:
                break
            query = {"page": end["next"]}
        assert len(pages) == expect["pages"]
        assert max(len(page.content) for page in pages) <= expect["maxPageBytes"]
        assert sum(len(page.text.splitlines()) - 2 for page in pages) == expect["count"]

    def page(self, given: dict[str, Any], expect: dict[str, Any], _: str | None) -> None:
        def fetch(sub: str, claims: dict[str, Any], **query: Any) -> httpx.Response:
            return self.client(sub, **claims).http.get(f"/sync/{GATEWAY}/snapshot", params=query)

        first = fetch(given["as"], {}, limit=2)
        assert first.status_code == 200, first.text
        following = json.loads(first.text.splitlines()[-1])["end"]["next"]
        for forged in forgeries(following, given["forge"]):
            before = files_below(self.server.data.parent)
            self.check(fetch(given.get("by", given["as"]), given.get("claims", {}), page=forged), expect)
            assert given["forge"] == "keep" or files_below(self.server.data.parent) == before

    def firsts(self, count: int, expect: dict[str, Any], _: str | None) -> None:
        def fetch(number: int) -> int:
            return self.client(f"c{number}").http.get(f"/sync/{GATEWAY}/snapshot").status_code

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(fetch, range(count))) == {200}
        folders = [path for path in (self.server.data / "snapshots").iterdir() if path.is_dir()]
        assert len(folders) == expect["folds"]

    def rules(self, given: dict[str, Any], expect: dict[str, Any], _: str | None) -> None:
        answer = self.client("ops", role="admin").admin("sync-rules", self.named(given))
        self.check(answer, expect or {"status": 200})

    def damage(self, _given: str, _expect: dict[str, Any], _: str | None) -> None:
        assert self.client("ops", role="admin").admin("flush").status_code == 200
        for path in (self.server.data / "lake" / "tables").rglob("*.parquet"):
            path.unlink()

    def restart(self, given: dict[str, Any], _expect: dict[str, Any], _: str | None) -> None:
        self.server.kill()
        environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": given["shift"]} if "shift" in given else {}
        self.server = Server(self.server.data, *self.options, environment=environment)

    def check(self, answer: httpx.Response, expect: dict[str, Any], label: str | None = None) -> None:
        assert answer.status_code == expect["status"], answer.text
        body = {} if "x-ndjson" in answer.headers["content-type"] else answer.json()
        for name, wanted in expect.get("body", {}).items():
            found = body[name]
            if not isinstance(wanted, dict):
                assert found == wanted, body
            elif "min" in wanted:
                assert found >= wanted["min"]
            else:
                assert isinstance(found, {"int": int, "string": str}[wanted["type"]]), body
        assert not set(expect.get("absent", ())) & set(body)
        assert set(expect.get("headers", ())) <= set(answer.headers)
        body.pop("requestId", None)
        if label is not None:
            self.answers[label] = body
        if "sameAs" in expect:
            assert body == self.answers[expect["sameAs"]]
        if "logSays" in expect:
            wait_until(lambda: re.search(expect["logSays"], json.dumps(self.server.lines)))
        if "serverHlc" in body:
            self.server_hlc = int(body["serverHlc"])


def files_below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if "-wal" not in path.name and "-shm" not in path.name}


def forgeries(page: str, how: str) -> list[str]:
    plain = base64.urlsafe_b64decode(page + "=" * (-len(page) % 4))

    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    if how == "flip":
        places = range(0, len(plain), 7)
        return [text(plain[:at] + bytes([plain[at] ^ 1]) + plain[at + 1 :]) for at in places] + [page[:-5], "x" + page]
    if how == "unsigned":
        old = ["0123456789abcdef", 0, 5, 0, 0, "-", 0, 2, [["/tmp/victim", -1]], 0, None]
        return [text(plain[16:]), text(json.dumps(old).encode()), text(b"\0" * 16 + json.dumps(old).encode())]
    return [page]


LOGS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(scope="module")
def new_database() -> Iterator[Callable[[str], str]]:
    """Makes databases of one server."""
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra postgresql")
    with postgres_server() as address:

        def made(name: str) -> str:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{name}"')
            return f"{address.rpartition('/')[0]}/{name}"

        yield made


@pytest.fixture(scope="module", params=LOGS)
def both_logs(request: Any, tmp_path_factory: Any) -> Iterator[Server]:
    log = ("--log", request.getfixturevalue("new_database")("shared")) if request.param == "postgres" else ()
    with running(tmp_path_factory.mktemp("both") / "data", *QUIET, *log) as server:
        yield server


@pytest.mark.servers
@pytest.mark.parametrize("name", SHARED)
def test_shared(both_logs: Server, name: str) -> None:
    both_logs.client("ops", role="admin").admin("sync-rules", None, "DELETE")
    Runner(both_logs, f"_{name}").run(CASES[name])


@pytest.mark.servers
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("name", OWN_SERVER)
def test_own_server(tmp_path: Path, name: str, log: str, request: Any) -> None:
    if name == "K3" and not FAKETIME.exists():
        pytest.skip("needs libfaketime: apt-get install -y faketime")
    place = ("--log", request.getfixturevalue("new_database")(name)) if log == "postgres" else ()
    options = (*QUIET, *place, *CASES[name].get("options", ()))
    with running(tmp_path / "data", *options) as server:
        runner = Runner(server, options=options)
        try:
            runner.run(CASES[name])
        finally:
            if runner.server.process.poll() is None:
                runner.server.kill()
