"""Faults at the gateway: slow and greedy clients, damaged cursors, tokens and bodies, clients that die half-way.

One real server for each kind. After every kind its log must be free of tracebacks, it must still answer at once, and
everything that it acknowledged must be there, once.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from driftline.client import Follower, Store
from driftline.deltas import Clock, ColumnDelta, RowDelta
from driftline.errors import GatewayError
from driftline.gateway import sign
from faults.tools import Tally, mutate

SECRET = "a-secret-that-is-long-enough-for-hs256"
PUSH, PULL, SNAPSHOT = "/v1/sync/main/push", "/v1/sync/main/pull", "/v1/sync/main/snapshot"
PATIENCE = 20.0  # longer than every deadline of the server but the whole body's
CLOCK = Clock()

Kind = Callable[["Server", random.Random, int, Tally], None]


def run(seed: int, rounds: int) -> Iterator[Tally]:
    """One tally a kind of fault."""
    kinds: dict[str, Kind] = {
        "slow clients": slow_clients,
        "greedy clients": greedy_clients,
        "mutated cursors": mutated_cursors,
        "forged pages": forged_pages,
        "wrong clocks": wrong_clocks,
        "large writes": large_writes,
        "mutated tokens": mutated_tokens,
        "mutated push bodies": mutated_bodies,
        "mutated HTTP": mutated_http,
        "clients killed half-way": killed_clients,
    }
    for name, kind in kinds.items():
        tally = Tally(name)
        with serving(tally) as server:
            kind(server, random.Random(seed), rounds, tally)
            server.check()
        yield tally
    yield killed_servers(seed, rounds)


class Server:
    """A `driftline serve` process, and what it has acknowledged."""

    def __init__(self, data: Path, tally: Tally) -> None:
        command = [sys.executable, "-m", "driftline", "serve", "--gateway", "main", "--data", str(data), "--port", "0"]
        environment = {**os.environ, "DRIFTLINE_JWT_SECRET": SECRET}
        self.process = subprocess.Popen(
            [*command, "--rate-limit", "0"], env=environment, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.port = int(json.loads(self.process.stderr.readline())["port"])
        self.log: list[str] = []
        threading.Thread(target=self.log.extend, args=(self.process.stderr,), daemon=True).start()
        self.acknowledged: set[str] = set()
        self.tally = tally
        self.url = f"http://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, body: bytes | None = None, auth: str | None = None) -> tuple[int, bytes]:
        """Status and body; 0 where the server closed the connection without an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {"Authorization": auth or f"Bearer {token()}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            self.tally.hang(f"{method} {path[:80]}")
            return 0, b""
        except (OSError, http.client.HTTPException, UnicodeError):
            return 0, b""
        finally:
            connection.close()

    def push(self, *deltas: RowDelta) -> int:
        """Push; what is acknowledged is remembered."""
        status, _ = self.request("POST", PUSH, push_body(*deltas))
        if status == 200:
            self.acknowledged |= {delta.delta_id for delta in deltas}
        return status

    def check(self) -> None:
        """The server is well: it answers, has everything once, and said nothing about faults of its own."""
        if self.request("GET", "/health")[0] != 200:
            self.tally.hang("/health after all")
        status, body = self.request("GET", f"{PULL}?since=0&limit=10000")
        found = [delta["deltaId"] for delta in json.loads(body)["deltas"]] if status == 200 else []
        if len(found) != len(set(found)) or not self.acknowledged <= set(found):
            self.tally.loss(f"{len(self.acknowledged)} acknowledged, {len(found)} there")
        for line in self.log:
            if "Traceback" in line or '"internal error"' in line:
                self.tally.traceback(line)

    def connect(self, first: bytes) -> socket.socket:
        """A raw connection that has sent something."""
        connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        connection.sendall(first)
        return connection


@contextmanager
def serving(tally: Tally) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory), tally)
        try:
            yield server
        finally:
            server.process.send_signal(signal.SIGTERM)
            try:
                server.process.wait(20)
            except subprocess.TimeoutExpired:
                tally.hang("the server did not end")
                server.process.kill()
                server.process.wait()


def slow_clients(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Parts of requests, then silence: each must be closed by the server in time."""
    whole = request_bytes(push_body(made(dice)))
    count = min(rounds, 90)  # below the cap of one address
    waiting = [server.connect(whole[: dice.randrange(len(whole) - 1)]) for _ in range(count)]
    deadline = time.monotonic() + PATIENCE
    for connection in waiting:
        tally.tried += 1
        connection.settimeout(max(deadline - time.monotonic(), 0.1))
        try:
            while connection.recv(65536):
                pass
        except TimeoutError:
            tally.hang("a half request stays open")
        except OSError:
            pass
        connection.close()
    server.push(made(dice))


def greedy_clients(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Many connections and large unfinished bodies, while an honest client works beside them."""
    held: list[socket.socket] = []
    for _ in range(rounds):
        tally.tried += 1
        size = dice.choice([1 << 10, 1 << 20, 15 << 20])
        with suppress(OSError):
            held.append(server.connect(request_bytes(b"", size)))
            held[-1].settimeout(0.5)
            held[-1].sendall(b" " * (size - 1))
        if len(held) > 40:
            held.pop(dice.randrange(len(held))).close()
        status = server.push(made(dice))
        if status not in (200, 503):
            tally.loss(f"an honest push got {status}")
    for connection in held:
        connection.close()


def mutated_cursors(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Cursors with changed text, inside and outside of their encoding."""
    server.push(*[made(dice) for _ in range(5)])
    cursor = json.loads(server.request("GET", f"{PULL}?since=0&limit=2")[1])["cursor"]
    plain = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    for _ in range(rounds):
        inside = base64.urlsafe_b64encode(mutate(plain, dice)).rstrip(b"=")
        changed = dice.choice([inside, mutate(cursor.encode(), dice)])
        expect(server, tally, {200, 400, 410}, "GET", f"{PULL}?cursor={quoted(changed)}")


def forged_pages(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Page tokens with changed bytes, without a signature, and those of another caller."""
    server.push(*[made(dice) for _ in range(20)])
    first = server.request("GET", f"{SNAPSHOT}?limit=2")[1]
    page = json.loads(first.splitlines()[-1])["end"]["next"]
    plain = base64.urlsafe_b64decode(page + "=" * (-len(page) % 4))
    for _ in range(rounds):
        changed = dice.choice([mutate(plain, dice), plain[16:], bytes(16) + plain[16:], plain[: dice.randrange(40)]])
        if changed != plain:
            text = base64.urlsafe_b64encode(changed).decode().rstrip("=")
            expect(server, tally, {400}, "GET", f"{SNAPSHOT}?page={text}")
    expect(server, tally, {400}, "GET", f"{SNAPSHOT}?page={page}", auth=f"Bearer {token(sub='eve')}")
    expect(server, tally, {200}, "GET", f"{SNAPSHOT}?page={page}")


def wrong_clocks(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Stores whose clocks are wrong by up to days: every write gets through, and all of them end at the same rows."""
    shifts = [dice.choice([-1, 1]) * dice.randrange(3, 200_000) * 1000 for _ in range(3)]
    stores = [
        Store(
            ":memory:",
            f"clock{n}",
            wall=lambda off=shift: int(time.time() * 1000) + off,
            **address(server, f"clock{n}"),
        )
        for n, shift in enumerate(shifts)
    ]
    for _ in range(max(rounds // 5, 5)):
        tally.tried += 1
        store = dice.choice(stores)
        store.put("clocks", str(dice.randrange(4)), {dice.choice("xyz"): dice.randrange(9)})
        if dice.random() < 0.5:
            store.sync()
    for store in (*stores, *stores):
        store.sync()
    if any(store.pending or store.rejected() for store in stores):
        tally.loss("a write of a wrong clock did not get through")
    if any(store.rows("clocks") != stores[0].rows("clocks") for store in stores):
        tally.loss("stores with wrong clocks differ")


def large_writes(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Writes around the limit of a body between small ones: only those that are too large are set aside."""
    store = Store(":memory:", "large", **address(server, "large"))
    for _ in range(max(rounds // 40, 2)):
        tally.tried += 1
        too_large = dice.random() < 0.5
        store.put("large", "small", {"n": dice.random()})
        store.put("large", "big", {"text": "x" * ((17 if too_large else 3) << 20)})
        store.put("large", "small", {"n": dice.random()})
        report = store.sync()
        if (report.pushed, report.rejected) != ((2, 1) if too_large else (3, 0)) or store.pending:
            tally.loss(f"a large write: {report.pushed} pushed, {report.rejected} rejected, {store.pending} pending")
        store.delete("large", "big")
        store.sync()


def mutated_tokens(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Changed tokens, and signed ones with strange claims."""
    strange: list[Any] = [None, True, -1, 1e308, float("inf"), "9" * 30, "", [], {}, "\ud800", 1 << 80]
    for _ in range(rounds):
        claims: dict[str, Any] = {"sub": "alice", "gw": "main", "exp": int(time.time()) + 600}
        claims[dice.choice(["sub", "gw", "exp", "nbf", "iat", "role", "aud"])] = dice.choice(strange)
        try:
            signed = sign(claims, SECRET)
        except Exception:
            signed = token()
        changed = dice.choice([signed, quoted(mutate(token().encode(), dice))])
        expect(server, tally, {200, 401, 403}, "GET", f"{PULL}?since=0", auth=f"Bearer {changed}")


def mutated_bodies(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Damaged pushes, schemas and rules; a damaged push is never taken in part."""
    for _ in range(rounds):
        deltas = [made(dice), made(dice)]
        expect(server, tally, {200, 400, 403, 409}, "POST", PUSH, mutate(push_body(*deltas), dice))
        server.push(made(dice))
    bucket = {"name": "b", "tables": ["t"], "filters": [{"column": "c", "op": "eq", "value": 1}]}
    rules = {"version": 1, "buckets": [bucket]}
    for _ in range(rounds // 4):
        body = mutate(json.dumps(rules).encode(), dice)
        expect(server, tally, {200, 400}, "POST", "/admin/sync-rules/main", body, auth=f"Bearer {token(role='admin')}")
    server.request("DELETE", "/admin/sync-rules/main", auth=f"Bearer {token(role='admin')}")


def mutated_http(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Bytes that are nearly HTTP."""
    whole = request_bytes(push_body(made(dice)))
    for _ in range(rounds):
        tally.tried += 1
        try:
            connection = server.connect(mutate(whole, dice))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except TimeoutError:
            tally.hang("mutated HTTP")
        except OSError:
            pass


def killed_clients(server: Server, dice: random.Random, rounds: int, tally: Tally) -> None:
    """Clients that vanish while they send or while they are answered; they push again later."""
    for _ in range(rounds):
        tally.tried += 1
        delta = made(dice)
        whole = request_bytes(push_body(delta))
        connection = server.connect(whole[: dice.randrange(1, len(whole) + 1)])
        if dice.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, no goodbye
        connection.close()
        if server.push(delta) != 200:
            tally.loss("a push after a broken one was refused")


def killed_servers(seed: int, rounds: int) -> Tally:
    """The server is killed without a word while clients write, sync and follow; all of them end at the same rows."""
    tally, dice = Tally("servers killed under clients"), random.Random(seed)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        data = Path(directory) / "data"
        paths = {name: Path(directory) / f"{name}.db" for name in ("a", "b", "c")}
        for _ in range(max(rounds // 10, 2)):
            tally.tried += 1
            server = Server(data, tally)
            stores = {name: Store(path, name, **address(server, name)) for name, path in paths.items()}
            follower = stores["a"].follow()
            following = threading.Thread(target=_drain, args=(follower,), daemon=True)
            following.start()
            killer = threading.Timer(dice.uniform(0.2, 1.5), server.process.kill)
            killer.start()
            while killer.is_alive():
                name = dice.choice("abc")
                stores[name].put("todos", str(dice.randrange(5)), {dice.choice("xyz"): dice.randrange(9)})
                if name != "a" and dice.random() < 0.3:
                    with suppress(GatewayError):
                        stores[name].sync()
            server.process.wait()
            follower.stop()
            following.join(PATIENCE)
            for store in stores.values():
                store.close()
        _compare(Server(data, tally), paths, tally)
    return tally


def _compare(server: Server, paths: dict[str, Path], tally: Tally) -> None:
    try:
        stores = [Store(path, name, **address(server, name)) for name, path in paths.items()]
        for _ in range(2):
            for store in stores:
                store.sync()
        rows = [store.rows("todos") for store in stores]
        if rows != [rows[0]] * 3 or not rows[0] or any(store.pending or store.rejected() for store in stores):
            tally.loss(f"the clients differ: {rows}")
        server.check()
    finally:
        server.process.kill()
        server.process.wait()


def _drain(follower: Follower) -> None:
    with suppress(GatewayError):
        for _ in follower:
            pass


def address(server: Server, name: str) -> dict[str, Any]:
    return {"url": server.url, "gateway": "main", "token": token(sub=name)}


def expect(server: Server, tally: Tally, good: set[int], *request: Any, **more: Any) -> tuple[int, bytes]:
    """One request whose answer must be one of the good ones."""
    tally.tried += 1
    status, answer = server.request(*request, **more)
    if status not in good | {0}:
        tally.traceback(f"{request!r:.150}: {status} {answer[:200]!r}")
    return status, answer


def token(**claims: Any) -> str:
    return sign({"sub": "alice", "gw": "main", "exp": int(time.time()) + 3600, **claims}, SECRET)


def made(dice: random.Random) -> RowDelta:
    columns = [ColumnDelta("title", "x" * dice.randrange(200)), ColumnDelta("n", dice.randrange(1000))]
    row = str(dice.randrange(50))
    return RowDelta.make(op="UPDATE", table="todos", row_id=row, client_id="alice", columns=columns, hlc=CLOCK.now())


def push_body(*deltas: RowDelta) -> bytes:
    return json.dumps({"clientId": "alice", "deltas": [delta.to_wire() for delta in deltas]}).encode()


def request_bytes(body: bytes, length: int | None = None) -> bytes:
    head = f"POST {PUSH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token()}\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def quoted(data: bytes) -> str:
    """Printable as a header or a query: what cannot be sent at all is no test of the server."""
    return "".join(chr(byte) if chr(byte).isalnum() or byte in b"-_." else f"%{byte:02X}" for byte in data)
