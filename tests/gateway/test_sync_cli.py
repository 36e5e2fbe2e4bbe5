"""`driftline gateway push`, `gateway pull` and the demo, as scripts use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline.client._http import GatewayClient
from driftline.deltas import RowDelta, extract
from driftline.errors import GatewayError
from support.gateways import GATEWAY, SOURCE, Server, delta, running, token
from support.processes import run_process, wait_until

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]


def driftline(*words: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_process(
        [sys.executable, "-m", "driftline", *words],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        input=stdin,
    )


def lines(deltas: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in deltas)


def test_pushing_and_pulling_files(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token() + "\n")
    where = ("--url", server.url, "--gateway", GATEWAY, "--token-file", str(tmp_path / "token"))
    deltas = [delta(row=str(number), title=f"é {number}") for number in range(25)]
    source, cursor, out = tmp_path / "in.jsonl", tmp_path / "cursor", tmp_path / "out.jsonl"
    source.write_text(lines(deltas))
    pushed = driftline("gateway", "push", str(source), *where, "--batch", "10")
    assert pushed.returncode == 0, pushed.stderr
    assert {**json.loads(pushed.stdout), "serverHlc": ""} == {"accepted": 25, "applied": 25, "serverHlc": ""}
    again = driftline("gateway", "push", "-", *where, stdin=lines(deltas))
    assert json.loads(again.stdout)["applied"] == 0

    pulled = driftline("gateway", "pull", *where, "--limit", "7")
    assert [json.loads(line) for line in pulled.stdout.splitlines()] == deltas
    assert driftline("gateway", "pull", *where, "--cursor-file", str(cursor), "-o", str(out)).stdout == ""
    assert len(out.read_text("utf-8").splitlines()) == 25
    late = delta(row="late", hlc=1000)
    driftline("gateway", "push", "-", *where, stdin=lines([late]))
    news = driftline("gateway", "pull", *where, "--cursor-file", str(cursor))
    assert [json.loads(line) for line in news.stdout.splitlines()] == [late]
    assert driftline("gateway", "pull", *where, "--cursor-file", str(cursor)).stdout == ""
    everything = driftline("gateway", "pull", *where, "--cursor-file", str(cursor), "--refetch")
    assert len(everything.stdout.splitlines()) == 26
    since = driftline("gateway", "pull", *where, "--since", deltas[-2]["hlc"])
    assert [json.loads(line) for line in since.stdout.splitlines()] == deltas[-1:]


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        (
            (
                "gateway",
                "pull",
            ),
            "",
            "AUTH_ERROR",
        ),
        (("gateway", "pull", "--since", "x"), "", "VALIDATION_ERROR"),
        (("gateway", "push", "-"), "{}\n", "VALIDATION_ERROR"),
        (("gateway", "push", "-"), "nonsense\n", "VALIDATION_ERROR"),
        (("gateway", "push", "missing.jsonl"), "", "usage"),
        (("gateway", "pull", "--url", "file:///etc"), "", "invalid_url"),
        (("gateway", "pull", "--url", "http://127.0.0.1:9", "--patience", "0"), "", "unreachable"),
    ],
)
def test_mistakes_are_one_line(shared_server: Server, words: tuple[str, ...], stdin: str, code: str) -> None:
    url = () if "--url" in words else ("--url", shared_server.url)
    ended = driftline(*words, *url, "--gateway", GATEWAY, stdin=stdin, DRIFTLINE_TOKEN=token(exp=10))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error[{code.lower()}]: "), ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_client_waits_when_told_to(tmp_path: Path) -> None:
    with running(tmp_path, "--rate-limit", "2") as server:
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            import time

            waits.append(seconds)
            time.sleep(seconds)

        client = GatewayClient(server.url, GATEWAY, "alice", token=token(), sleep=sleep)
        for number in range(8):
            made = extract(None, {"n": number}, table="t", row_id=str(number), client_id="alice", hlc=1000 + number)
            assert made is not None
            assert client.push([made])["accepted"] == 1
        assert waits
        assert [page.deltas[0].row_id for page in client.pull_all(limit=1) if page.deltas][:2] == ["0", "1"]


def test_the_client_survives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        server.kill()
    client = GatewayClient(f"http://127.0.0.1:{port}", GATEWAY, "alice", token=token(), patience=0.5)
    with pytest.raises(GatewayError) as caught:
        client.pull()
    assert caught.value.code == "unreachable"
    patient = GatewayClient(f"http://127.0.0.1:{port}", GATEWAY, "alice", token=token(), patience=60)
    started: list[Server] = []

    def start_it(_: float) -> None:
        if not started:
            started.append(Server(tmp_path, "--port", port))

    patient._sleep = start_it
    try:
        made = RowDelta.from_wire(delta())
        assert patient.push([made])["accepted"] == 1
        assert patient.pull().deltas == [made]
    finally:
        started[0].kill()


def test_a_snapshot_to_begin_with(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--retention-days", "0.000001", "--rate-limit", "0") as server:
        client = server.client()
        where = ("--url", server.url, "--gateway", GATEWAY, "--cursor-file", str(tmp_path / "cursor"))
        client.push(delta(row="1", op="INSERT", title="A"))
        server.client("ops", role="admin").admin("flush")
        wait_until(lambda: client.pull(since="0").status_code != 200)
        refused = driftline("gateway", "pull", *where, DRIFTLINE_TOKEN=token())
        assert (refused.returncode, "--snapshot" in refused.stderr) == (2, True)
        rows = driftline("gateway", "pull", *where, "--snapshot", DRIFTLINE_TOKEN=token())
        assert json.loads(rows.stdout)["columns"] == {"title": "A"}
        late = delta(row="2")
        client.push(late)
        assert json.loads(driftline("gateway", "pull", *where, DRIFTLINE_TOKEN=token()).stdout) == late


def test_the_demo_converges() -> None:
    demo = ROOT / "examples" / "sync-demo" / "demo.py"
    shown = run_process(
        [sys.executable, str(demo)], env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.endswith("converged\n")
    last = shown.stdout.partition("back again\n")[2].splitlines()
    state = "{'1': {'done': True, 'title': 'buy oat milk'}, '3': {'done': False, 'title': 'written on the train'}}"
    assert last[:2] == [f"  laptop  {state}", f"  phone   {state}"]
