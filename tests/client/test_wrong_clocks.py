"""Clocks that are wrong, or were: every write gets through with the next round, in its order; reading never waits."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from driftline.client import Store
from driftline.client._http import GatewayClient
from driftline.deltas import RowDelta
from driftline.errors import GatewayError
from support.gateways import GATEWAY, Server, delta, running, token
from support.processes import run_process, wait_until

DAY = 86_400_000
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


def store(server: Server, client: str, path: Any = ":memory:", shift: int = 0, **options: Any) -> Store:
    far = int(time.time()) + 5 * 86_400
    options = {"url": server.url, "gateway": GATEWAY, "token": token(client, exp=far), **options}
    return Store(path, client, wall=lambda: time.time_ns() // 1_000_000 + shift, **options)


@pytest.mark.parametrize("shift", [5_700, DAY, -DAY])
def test_a_device_with_a_wrong_clock_writes_and_reads(server: Server, shift: int) -> None:
    one, two = store(server, "a", shift=shift), store(server, "b")
    two.put("todos", "seen", {"n": 1})
    two.sync()
    for number in range(3):
        one.put("todos", "1", {"n": number})
    report = one.sync()
    assert (report.pushed, report.rejected, one.pending) == (3, 0, 0)
    assert one.get("todos", "seen") == {"n": 1}
    two.sync()
    assert two.get("todos", "1") == {"n": 2}
    two.put("todos", "1", {"n": "later"})
    two.sync()
    one.sync()
    assert one.get("todos", "1") == {"n": "later"}
    # Once it has heard the time, it stamps by it: nothing is refused any more, and nobody is outrun.
    one.put("todos", "1", {"n": "last"})
    one.sync()
    assert abs((int(server.client().pull_all()[0][-1]["hlc"]) >> 16) - time.time() * 1000) < 60_000
    two.sync()
    assert two.get("todos", "1") == {"n": "last"}


def test_a_device_whose_clock_was_corrected_meanwhile(server: Server, tmp_path: Path) -> None:
    ahead = store(server, "a", tmp_path / "a.db", DAY)
    ahead.put("todos", "1", {"n": 1})
    ahead.close()
    right = store(server, "a", tmp_path / "a.db")
    right.put("todos", "1", {"n": 2})
    right.put("todos", "2", {"n": 3})
    assert right.sync().pushed == 3
    assert right.rows("todos") == {"1": {"n": 2}, "2": {"n": 3}}
    stamps = [int(each["hlc"]) for each in server.client().pull_all()[0]]
    assert stamps == sorted(stamps)
    assert stamps[-1] >> 16 < time.time() * 1000 + 60_000


def test_an_answer_that_was_lost_before_the_clock_was_wrong(server: Server) -> None:
    """What the gateway has keeps its stamp: it comes before the first delta that is refused."""
    shift = [0]
    one = Store(
        ":memory:",
        "a",
        url=server.url,
        gateway=GATEWAY,
        token=token("a"),
        wall=lambda: time.time_ns() // 1_000_000 + shift[0],
    )
    one.put("todos", "1", {"n": 1})
    GatewayClient(server.url, GATEWAY, "a", token=token("a")).push([each for _, each in one.queued(10)])
    shift[0] = DAY
    one.put("todos", "1", {"n": 2})
    assert one.sync().pushed == 2
    assert [each["columns"][0]["value"] for each in server.client().pull_all()[0]] == [1, 2]
    assert one.rows("todos") == {"1": {"n": 2}}


def test_many_writes_of_a_wrong_clock_keep_their_order(server: Server) -> None:
    one = store(server, "a", shift=DAY)
    for number in range(1200):
        one.put("todos", str(number % 7), {"n": number})
    assert (one.sync().pushed, one.pending, one.rejected()) == (1200, 0, [])
    pulled = [RowDelta.from_wire(each) for each in server.client().pull_all()[0]]
    assert [each.columns[0].value for each in pulled] == list(range(1200))
    assert all(before.hlc < after.hlc for before, after in itertools.pairwise(pulled))


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs libfaketime: apt-get install -y faketime")
def test_a_gateway_that_was_a_day_ahead(tmp_path: Path) -> None:
    quiet = ("--rate-limit", "0", "--flush-seconds", "3600")
    shifted = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+1d"}
    files = {name: tmp_path / f"{name}.db" for name in ("ann", "bob")}
    with running(tmp_path / "data", *quiet, environment=shifted) as server:
        ann, bob = (store(server, name, path) for name, path in files.items())
        ann.put("todos", "1", {"n": 1})
        ann.sync()
        bob.sync()
        for each in (ann, bob):
            each.close()
    with running(tmp_path / "data", *quiet) as server:
        stores = [store(server, name, files.get(name, ":memory:")) for name in ("ann", "bob", "cyd")]
        for each in stores:
            each.put("todos", "1", {each.client_id: True})
            assert (each.sync().pushed, each.pending) == (1, 0)
        for each in stores:
            each.sync()
            assert each.get("todos", "1") == {"ann": True, "bob": True, "cyd": True, "n": 1}
        wait_until(lambda: any("clock ahead by 86" in line.get("event", "") for line in server.lines))
        assert server.client().http.get("/ready").status_code == 200
        figures = server.client().http.get("/metrics").text.splitlines()
        [ahead] = [line.split()[1] for line in figures if line.startswith("driftline_clock_ahead_ms")]
        assert float(ahead) > DAY - 600_000


IN_NODE = """
import { Store } from %r;
const [url, gateway, token] = process.argv.slice(1);
let shift = 0;
const store = await Store.open({ clientId: "dan", url, gateway, token, wall: () => Date.now() + shift });
await store.sync();
shift = 2 * 86400000;
await store.put("todos", "1", { n: "dan" });
await store.sync();
console.log(JSON.stringify(await store.get("todos", "1")));
"""


@pytest.mark.node
@pytest.mark.skipif(not FAKETIME.exists(), reason="needs libfaketime: apt-get install -y faketime")
@pytest.mark.parametrize("client", ["python", "javascript"])
def test_a_corrected_write_is_newer_than_what_was_seen(tmp_path: Path, client: str) -> None:
    """The rows are of a gateway that was a day ahead; then a device is two days ahead, and writes over one of them."""
    quiet = ("--rate-limit", "0", "--flush-seconds", "3600")
    shifted = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+1d"}
    with running(tmp_path / "data", *quiet, environment=shifted) as server:
        ann = store(server, "ann")
        ann.sync()  # from now on it writes by the gateway's time
        ann.put("todos", "1", {"n": "ann"})
        ann.sync()
    with running(tmp_path / "data", *quiet) as server:
        if client == "javascript":
            script = IN_NODE % str(Path(__file__).parents[2] / "clients/javascript/src/index.js")
            words = [server.url, GATEWAY, token("dan")]
            ended = run_process(
                ["node", "--input-type=module", "-e", script, *words], capture_output=True, text=True, check=True
            )
            assert json.loads(ended.stdout) == {"n": "dan"}
        else:
            shift = [0]
            far = {"url": server.url, "gateway": GATEWAY, "token": token("dan")}
            dan = Store(":memory:", "dan", wall=lambda: time.time_ns() // 1_000_000 + shift[0], **far)
            dan.sync()
            shift[0] = 2 * DAY
            dan.put("todos", "1", {"n": "dan"})
            dan.sync()
            assert dan.get("todos", "1") == {"n": "dan"}
        bob = store(server, "bob")
        bob.sync()
        assert bob.get("todos", "1") == {"n": "dan"}


def test_reading_goes_on_while_writes_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that concerns the token keeps the queue; what others wrote is read before it is raised."""
    one = store(server, "a")
    one.put("todos", "2", {"n": 1})
    server.client("b").push(delta("b", "1", "INSERT", x=1))
    monkeypatch.setattr(one, "client_id", "z")  # writes of another client: 403 with their positions
    one.put("todos", "3", {"n": 1})
    assert one.sync().rejected == 1
    assert one.get("todos", "1") == {"x": 1}

    def refuse(*_: Any, **__: Any) -> Any:
        raise GatewayError("no", code="FORBIDDEN")

    server.client("b").push(delta("b", "1", x=2))
    one.put("todos", "2", {"n": 2})
    monkeypatch.setattr(GatewayClient, "push", refuse)
    with pytest.raises(GatewayError, match="no"):
        one.sync()
    assert (one.get("todos", "1"), one.pending) == ({"x": 2}, 1)


def test_one_large_write_is_set_aside_and_the_rest_is_sent(server: Server) -> None:
    one = store(server, "a")
    one.put("todos", "1", {"n": 1})
    one.put("todos", "2", {"text": "x" * 20_000_000})
    one.put("todos", "3", {"n": 3})
    report = one.sync()
    assert (report.pushed, report.rejected, one.pending) == (2, 1, 0)
    assert [(each.delta.row_id, each.code) for each in one.rejected()] == [("2", "PAYLOAD_TOO_LARGE")]
    assert one.rows("todos") == {"1": {"n": 1}, "3": {"n": 3}}


def test_batches_are_bounded_in_bytes(server: Server) -> None:
    one = store(server, "a")
    for number in range(5):
        one.put("todos", str(number), {"text": "x" * 3_000_000})
    assert [len(one.queued(500, size)) for size in (1, 7_000_000, 50_000_000)] == [1, 2, 5]
    assert (one.sync().pushed, one.rejected()) == (5, [])
