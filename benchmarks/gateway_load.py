"""A load generator for the gateway: pre-encoded bodies over plain sockets, so that it takes little of the two cores.

Run as `python -m benchmarks.gateway_load JOB URL TOKEN-FILE …`; prints one JSON object with what it saw.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.data_gateway import push_bodies

GATEWAY = "bench"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_CURSOR = re.compile(rb'"hasMore":(true|false),"cursor":"([^"]+)"\}$')


class Connection:
    """One keep-alive connection that sends ready-made requests."""

    def __init__(self, url: str, token: str) -> None:
        self._address = urlsplit(url)
        self._token = token

    async def open(self) -> None:
        host, port = self._address.hostname, self._address.port
        self._reader, self._writer = await asyncio.open_connection(host, port, limit=1 << 25)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def send(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        assert found, head
        body = await self._reader.readexactly(int(found.group(1)))
        assert head.startswith(b"HTTP/1.1 200"), head + body[:500]
        return body

    def close(self) -> None:
        self._writer.close()


async def push(url: str, tokens: list[str], clients: int, batches: int, size: int) -> dict[str, float]:
    """`clients` push `batches` batches each, as fast as they are answered."""
    connections = [Connection(url, tokens[number]) for number in range(clients)]
    requests = []
    for number, connection in enumerate(connections):
        bodies = push_bodies(f"client-{number}", batches, size)
        requests.append([connection.request("POST", f"/sync/{GATEWAY}/push", body) for body in bodies])
    for connection in connections:  # not before: a server does not wait long for a request's first byte
        await connection.open()
    seconds: list[float] = []

    async def work(connection: Connection, mine: list[bytes]) -> None:
        for request in mine:
            begun = time.perf_counter()
            await connection.send(request)
            seconds.append(time.perf_counter() - begun)

    cpu, begun = time.process_time(), time.perf_counter()
    await asyncio.gather(*[work(*pair) for pair in zip(connections, requests, strict=True)])
    wall = time.perf_counter() - begun
    for connection in connections:
        connection.close()
    ordered = sorted(seconds)
    return {
        "wall_s": wall,
        "deltas_per_s": clients * batches * size / wall,
        "p50_ms": statistics.median(ordered) * 1000,
        "p99_ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000,
        "generator_cpu_s": time.process_time() - cpu,
    }


async def pull(url: str, token: str, page: int, wanted: int) -> dict[str, float]:
    """Pull pages one after the other, by cursor."""
    connection = Connection(url, token)
    await connection.open()
    place, found, size = "since=0", 0, 0
    cpu, begun = time.process_time(), time.perf_counter()
    while found < wanted:
        body = await connection.send(connection.request("GET", f"/sync/{GATEWAY}/pull?{place}&limit={page}"))
        more = _CURSOR.search(body, len(body) - 400)
        assert more
        found += min(page, wanted - found)
        size += len(body)
        if more.group(1) == b"false":
            break
        place = f"cursor={more.group(2).decode()}"
    wall = time.perf_counter() - begun
    connection.close()
    return {
        "wall_s": wall,
        "deltas_per_s": found / wall,
        "megabytes": size / 1e6,
        "generator_cpu_s": time.process_time() - cpu,
    }


async def feed(url: str, tokens: list[str], listeners: int, commits: int) -> dict[str, float]:
    """So many feeds are open while one client pushes now and then; how long each event takes to each listener."""
    address = urlsplit(url)
    heard: list[float] = []
    pushed_at = 0.0
    ready = asyncio.Semaphore(0)

    async def listen(token: str) -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = f"GET /sync/{GATEWAY}/feed?since=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        await reader.readuntil(b"retry: 2000")
        ready.release()
        try:
            for _ in range(commits):
                await reader.readuntil(b"event: deltas")
                heard.append(time.perf_counter() - pushed_at)
        finally:
            writer.close()

    tasks = [asyncio.create_task(listen(tokens[1 + number // 4])) for number in range(listeners)]
    for _ in range(listeners):
        await ready.acquire()
    pusher = Connection(url, tokens[0])
    await pusher.open()
    cpu = time.process_time()
    for body in push_bodies("client-0", commits, 1):
        await asyncio.sleep(2)
        pushed_at = time.perf_counter()
        await pusher.send(pusher.request("POST", f"/sync/{GATEWAY}/push", body))
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    pusher.close()
    ordered = sorted(heard)
    return {
        "deltas_per_s": len(heard) / (2 * commits),
        "p50_ms": statistics.median(ordered) * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "generator_cpu_s": time.process_time() - cpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=["push", "pull", "feed"])
    parser.add_argument("url")
    parser.add_argument("tokens", type=Path)
    parser.add_argument(
        "numbers", nargs="+", type=int, help="push: CLIENTS BATCHES SIZE; pull: PAGE DELTAS; feed: LISTENERS COMMITS"
    )
    options = parser.parse_args()
    tokens = options.tokens.read_text().split()
    jobs: dict[str, Any] = {
        "push": lambda: push(options.url, tokens, *options.numbers),
        "pull": lambda: pull(options.url, tokens[0], *options.numbers),
        "feed": lambda: feed(options.url, tokens, *options.numbers),
    }
    work = jobs[options.job]()
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
