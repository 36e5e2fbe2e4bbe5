"""Slow and greedy clients meet deadlines and caps, and others are served meanwhile (gateway §12).

Every deadline is met by a real server process; the slow clients of all of them wait at the same time.
"""

from __future__ import annotations

import asyncio
import json
import resource
import select
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.errors import GatewayError, OptionError
from driftline.http._requests import BodiesInMemory, BodyLimits, RateLimiter, read_body
from driftline.http._server import ConnectionLimits, ServerOptions, limited_protocol
from support.compare_server import serving
from support.gateways import GATEWAY, Server, delta, running, token
from support.processes import PATIENCE, start_process, wait_until

pytestmark = pytest.mark.servers

PUSH = f"POST /sync/{GATEWAY}/push HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {{}}\r\nContent-Length: 1000\r\n\r\nabc"
COMPARE = "POST /v1/compare HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"
HALF_HEAD = "GET /health HTTP/1.1\r\nHost: x\r\n"


def connect(url: str, first: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), 30)
    connection.sendall(first.encode())
    return connection


def answer(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of what the server says before it closes."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    connection.close()
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_half_heads_half_bodies_and_trickles_end_with_408(server: Server) -> None:
    with serving() as alone:
        trickling = connect(server.url, HALF_HEAD)
        waiting = [
            connect(server.url, ""),
            connect(server.url, HALF_HEAD),
            connect(server.url, PUSH.format(token())),
            connect(alone, HALF_HEAD),
            connect(alone, COMPARE),
        ]
        for number in range(6):  # a byte now and then does not renew the headers' deadline
            assert httpx.get(f"{server.url}/health", timeout=PATIENCE).status_code == 200
            trickling.sendall(f"X-{number}: 1\r\n".encode())
            time.sleep(1)
        for connection in [*waiting, trickling]:
            status, body = answer(connection)
            assert (status, body["code"]) == (408, "REQUEST_TIMEOUT")
    assert server.client().push(delta(row="1")).status_code == 200
    server.stop()
    assert not any("exception" in line for line in server.lines)


def test_one_address_has_a_hundred_connections(server: Server, tmp_path: Path) -> None:
    held = [connect(server.url, HALF_HEAD) for _ in range(100)]
    assert httpx.get(f"{server.url}/health").json()["code"] == "RATE_LIMITED"
    held.pop().close()
    wait_until(lambda: httpx.get(f"{server.url}/health").status_code == 200)
    for connection in held:
        connection.close()
    with running(tmp_path / "open", "--per-address", "0") as unlimited:
        held = [connect(unlimited.url, HALF_HEAD) for _ in range(150)]
        assert httpx.get(f"{unlimited.url}/health").status_code == 200
        for connection in held:
            connection.close()


def test_few_files_make_fewer_connections_but_nobody_hangs() -> None:
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)); "
        "sys.argv = ['driftline', 'serve', '--port', '0', '--per-address', '0']; "
        "from driftline.cli.main import main; main()"
    )
    process = start_process([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = json.loads(process.stderr.readline())["port"]
        url = f"http://127.0.0.1:{port}"
        held = [connect(url, HALF_HEAD) for _ in range(230)]
        assert httpx.get(f"{url}/health", timeout=PATIENCE).json()["code"] == "OVERLOADED"
        for connection in held:
            connection.close()
        wait_until(lambda: httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        assert process.stderr is not None
        process.stderr.close()


def test_the_file_limit_is_raised_as_far_as_it_goes() -> None:
    protocol = limited_protocol(ConnectionLimits(connections=10))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= 10
    assert protocol.keywords["open_connections"].limits.connections == 10  # type: ignore[attr-defined]


async def slow_body(*chunks: tuple[float, bytes]) -> bytes:
    waiting = list(chunks)

    async def receive() -> dict[str, Any]:
        pause, body = waiting.pop(0)
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    with BodiesInMemory(BodyLimits(0.2, 0.5, 100)).reading() as share:
        return await read_body({"headers": [], "body_share": share}, receive, 1000)


def test_gaps_and_whole_times_of_bodies() -> None:
    assert asyncio.run(slow_body((0, b"ab"), (0.05, b"c"))) == b"abc"
    with pytest.raises(GatewayError, match="too long") as gap:
        asyncio.run(slow_body((0, b"ab"), (5, b"c")))
    assert gap.value.code == "REQUEST_TIMEOUT"
    with pytest.raises(GatewayError, match="too long"):
        asyncio.run(slow_body(*[(0.15, b"a")] * 10))


def test_bodies_together_are_bounded_but_one_alone_is_not() -> None:
    under_way = BodiesInMemory(BodyLimits(under_way_bytes=100))
    with under_way.reading() as first:
        first.add(150)
        with under_way.reading() as second, pytest.raises(GatewayError) as refused:
            second.add(1)
        assert refused.value.code == "BACKPRESSURE_ERROR"
        first.add(50)
    assert under_way.held == 0


def test_large_bodies_at_once_are_refused_before_memory_is_gone(tmp_path: Path) -> None:
    with running(tmp_path, "--rate-limit", "0") as server:
        size = 15 << 20
        head = f"POST /sync/{GATEWAY}/push HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token()}\r\n"
        held = [connect(server.url, f"{head}Content-Length: {size}\r\n\r\n") for _ in range(8)]
        refused = set()
        for number, connection in enumerate(held):
            try:
                connection.sendall(b" " * (size - 1))  # never finished
            except OSError:
                refused.add(number)  # closed while we were sending: that is the refusal

        def are_refused() -> bool:
            readable, _, _ = select.select([held[number] for number in set(range(8)) - refused], [], [], 0)
            for connection in readable:
                assert int(connection.recv(65536).split()[1]) == 503
                refused.add(held.index(connection))
            return len(refused) >= 4

        wait_until(are_refused)
        assert len(refused) == 4  # four times 15 MiB are under way
        assert httpx.get(f"{server.url}/health").status_code == 200
        for connection in held:
            connection.close()
        wait_until(lambda: server.client().push(delta(row="after")).status_code == 200)


def test_failed_authentication_is_slowed_down_but_nobody_else(tmp_path: Path) -> None:
    with running(tmp_path) as server, httpx.Client(base_url=server.url) as http:
        assert [http.get(f"/sync/{GATEWAY}/pull?since=0").status_code for _ in range(10)] == [401] * 10
        refused: list[httpx.Response] = []

        def is_slowed_down() -> bool:
            """Tries at once, because each tenth of a second gives one more."""
            address, forged = f"/sync/{GATEWAY}/pull?since=0", {"Authorization": "Bearer x.y.z"}
            with ThreadPoolExecutor(20) as pool:
                answers = list(pool.map(lambda _: http.get(address, headers=forged), range(40)))
            assert {each.status_code for each in answers} <= {401, 429}
            refused.extend(each for each in answers if each.status_code == 429)
            return bool(refused)

        wait_until(is_slowed_down)
        assert {int(each.headers["retry-after"]) for each in refused} == {1}
        assert server.client().pull(since="0").status_code == 200


def test_buckets_refill() -> None:
    now = [0.0]
    limiter = RateLimiter(10, burst=2, clock=lambda: now[0])
    limiter.take("a")
    limiter.take("a")
    with pytest.raises(GatewayError):
        limiter.take("a")
    now[0] = 0.15
    limiter.take("a")


def test_what_is_not_http_gets_the_same_error_body(server: Server) -> None:
    status, body = answer(connect(server.url, "this is no HTTP\r\n\r\n"))
    assert (status, body["code"], set(body)) == (400, "VALIDATION_ERROR", {"error", "code", "requestId"})


def test_tls_needs_both_files() -> None:
    with pytest.raises(OptionError, match="both"):
        ServerOptions(tls_cert=Path("cert.pem"))


def test_a_request_with_two_lengths_is_the_last_of_its_connection(shared_server: Server) -> None:
    """What a proxy takes for the rest of a body must not be served as a second request."""
    head = f"POST /sync/{GATEWAY}/push HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(shared_server.url, head + "0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in received.lower()


def test_a_client_that_is_still_sending_gets_its_413(shared_server: Server) -> None:
    head = f"POST /sync/{GATEWAY}/push HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token()}\r\n"
    with connect(shared_server.url, head + f"Content-Length: {40 << 20}\r\n\r\n") as connection:
        piece = b"x" * 65536
        for _ in range(200):  # far more than the buffers between the two hold
            connection.sendall(piece)
        status, body = answer(connection)
    assert (status, body["code"], body["limit"]) == (413, "PAYLOAD_TOO_LARGE", 16 << 20)
