"""Who is told how a run ended: hooks that insist, messages for chat tools, lineage, and runs that could not begin."""

from __future__ import annotations

import json
import re
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from driftline.cli._outcome import run as run_command
from driftline.cli.main import driftline
from driftline.errors import PipelineError
from driftline.pipeline import RunRecord, load, report_of
from driftline.pipeline._declare.declaration import FinishHook, Pipeline
from driftline.pipeline._run.notify import call_hooks
from driftline.pipeline._run.run import locked
from support.shop import run

HEAD = '[pipeline]\nname = "p"\n[tables.t]\nsnapshots = "t-{date}.csv"\nkey = "id"\nevents = "{to}.jsonl"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for day in (1, 2):
        (tmp_path / f"t-2026-03-0{day}.csv").write_text(f"id,v\n1,{day}\n")
    (tmp_path / "p.toml").write_text(HEAD)
    return tmp_path / "p.toml"


@pytest.fixture
def ended(file: Path) -> tuple[Pipeline, RunRecord]:
    file.write_text(HEAD + 'fail_if = ["changed > 0"]\n')
    return load(file), run(file)


@contextmanager
def chat(*answers: int) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers with these codes in turn, the last one again and again."""
    received: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers[min(len(received), len(answers)) - 1])
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", received
    finally:
        server.shutdown()
        server.server_close()


def with_hook(pipeline: Pipeline, **how: Any) -> Pipeline:
    return replace(pipeline, hooks=(FinishHook(**{"wait": 0.001, **how}),))


def test_a_webhook_is_tried_again_where_that_may_help(ended: tuple[Pipeline, RunRecord]) -> None:
    pipeline, record = ended
    with chat(503, 429, 204) as (address, received):
        assert call_hooks(with_hook(pipeline, webhook=address, retries=3), record) == []
        assert len(received) == 3
    with chat(500) as (address, received):
        [words] = call_hooks(with_hook(pipeline, webhook=address, retries=2), record)
        assert words == "the webhook did not take the result: 500 Internal Server Error (tried 3 times)"
    with chat(404) as (address, received):
        [words] = call_hooks(with_hook(pipeline, webhook=address, retries=5), record)
        assert (len(received), words) == (1, "the webhook did not take the result: 404 Not Found")


def test_a_command_is_tried_again_and_stopped_when_it_takes_too_long(ended: tuple[Pipeline, RunRecord]) -> None:
    pipeline, record = ended
    script = "echo x >> tries; test $(wc -l < tries) -ge 3"
    assert call_hooks(with_hook(pipeline, command=("sh", "-c", script), retries=2), record) == []
    assert (pipeline.directory / "tries").read_text() == "x\n" * 3
    [words] = call_hooks(with_hook(pipeline, command=("sleep", "30"), timeout=0.1), record)
    assert words == "the finish command did not end within 0.1 s"
    [words] = call_hooks(with_hook(pipeline, command=("no-such-command",), retries=9), record)
    assert "No such file" in words


def test_the_recipe_makes_a_message_of_the_figures(ended: tuple[Pipeline, RunRecord]) -> None:
    pipeline, record = ended
    wild = replace(record, exceeded=('say "no"\n{summary}\\',))
    recipe = Path(__file__).parents[2] / "examples/recipes/chat/post_message.py"
    for member in ("text", "content"):
        with chat(204) as (address, received):
            command = (sys.executable, str(recipe), address, member)
            assert call_hooks(with_hook(pipeline, command=command), wild) == []
            assert received == [{member: 'p: exceeded\nsay "no"\n{summary}\\'}]
    with chat(500, 204) as (address, received):
        command = (sys.executable, str(recipe), address)
        assert call_hooks(with_hook(pipeline, command=command, retries=1), wild) == []
        assert len(received) == 2


@pytest.mark.parametrize("line", ['format = "slack"', 'template = "message.json"'])
def test_messages_of_earlier_versions_are_refused_by_name(line: str, file: Path) -> None:
    file.write_text(HEAD + f'[[hooks]]\nwebhook = "http://127.0.0.1/"\n{line}\n')
    with pytest.raises(PipelineError, match=f"p.toml:9: '{line.split()[0]}' is gone: a 'command' makes messages"):
        load(file)


def test_a_locked_start_is_told(file: Path) -> None:
    hook = '[[hooks]]\ncommand = ["sh", "-c", "echo $DRIFTLINE_RESULT >> told.txt"]\nwhen = "failure"\n'
    file.write_text(
        HEAD + hook + '[metrics]\nprometheus = "p.prom"\njson = "p.json"\n[lineage]\nopenlineage = "l.jsonl"\n'
    )
    with locked(load(file), 0):
        assert run_command(driftline, ["pipeline", "run", str(file)]) == 2
    assert (file.parent / "told.txt").read_text() == "locked\n"
    assert 'result="locked"} 1' in (file.parent / "p.prom").read_text()
    assert json.loads((file.parent / "p.json").read_text())["problem"].startswith(
        "locked: pipeline p is already running"
    )
    last = json.loads((file.parent / "l.jsonl").read_text().splitlines()[-1])
    assert last["eventType"] == "FAIL"


def check_shape(event: dict[str, Any]) -> None:
    """The required members of an OpenLineage run event, as its specification 2-0-2 writes them."""
    assert {"eventTime", "producer", "schemaURL", "run", "job", "eventType"} <= event.keys()
    assert event["eventType"] in {"START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"}
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert re.match(r"https://\S+$", event["producer"])
    assert re.match(r"https://\S+$", event["schemaURL"])
    uuid.UUID(event["run"]["runId"])
    assert {"namespace", "name"} <= event["job"].keys()
    facets = list(event["run"]["facets"].values())
    for side in ("inputs", "outputs"):
        for dataset in event[side]:
            assert {"namespace", "name"} <= dataset.keys()
            facets += dataset.get("outputFacets", {}).values()
    assert all({"_producer", "_schemaURL"} <= facet.keys() for facet in facets)


def test_lineage_says_what_was_read_and_written(file: Path) -> None:
    file.write_text(HEAD + 'deltas = true\n[lake]\npath = "lake"\n[lineage]\nopenlineage = "out/l.jsonl"\n')
    assert run_command(driftline, ["pipeline", "run", str(file)]) == 0
    events = [json.loads(line) for line in (file.parent / "out/l.jsonl").read_text().splitlines()]
    for event in events:
        check_shape(event)
    assert [event["eventType"] for event in events] == ["START", *["START", "COMPLETE"] * 3, "COMPLETE"]
    by_job = {event["job"]["name"]: event for event in events}
    diff = by_job["p.t/2026-03-02/diff"]
    assert [each["name"] for each in diff["inputs"]] == [str(file.parent / f"t-2026-03-0{day}.csv") for day in (1, 2)]
    assert str(file.parent / "2026-03-02.jsonl") in [each["name"] for each in diff["outputs"]]
    assert diff["run"]["facets"]["parent"]["run"]["runId"] == events[0]["run"]["runId"]
    loaded = by_job["p.t/2026-03-02/deltas"]["outputs"][-1]
    assert loaded["name"] == str(file.parent / "lake/tables/t")
    assert loaded["outputFacets"]["outputStatistics"]["rowCount"] == 1
    run_command(driftline, ["pipeline", "run", str(file)])  # nothing is done: the run alone is told
    assert len((file.parent / "out/l.jsonl").read_text().splitlines()) == len(events) + 2


def test_a_long_file_of_lineage_is_set_aside(file: Path) -> None:
    file.write_text(HEAD + '[lineage]\nopenlineage = "l.jsonl"\nmax_mb = 1\n')
    lines, aside = file.parent / "l.jsonl", file.parent / "l.jsonl.1"
    for number in range(2):
        grown = f"{number}" * 999_990
        lines.write_text(grown)
        assert run_command(driftline, ["pipeline", "run", str(file)]) == 0
        assert aside.read_text() == grown
        assert json.loads(lines.read_text().splitlines()[-1])["eventType"] == "COMPLETE"
    run_command(driftline, ["pipeline", "run", str(file)])
    assert len(lines.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ('[[hooks]]\nwhen = "failure"\n', "a hook needs 'command' or 'webhook'"),
        ('[finish]\nwebhook = "https://x"\nretries = -1\n', "at least 0"),
    ],
)
def test_hooks_that_cannot_be(file: Path, hook: str, words: str) -> None:
    file.write_text(HEAD + hook)
    with pytest.raises(PipelineError, match=re.escape(words)):
        load(file)


def test_stages_that_were_done_before_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from driftline.cli._views import show_run

    (tmp_path / "data").mkdir()
    for day in range(1, 27):
        (tmp_path / f"data/t-2026-01-{day:02d}.csv").write_text(f"id,v\n1,{day // 26}\n")
    file = tmp_path / "p.toml"
    file.write_text(
        '[pipeline]\nname = "p"\n[tables.t]\nsnapshots = "data/t-{date}.csv"\nkey = "id"\nevents = "out/{to}.jsonl"\n'
    )
    run(file)
    (tmp_path / "data/t-2026-01-26.csv").write_text("id,v\n1,x\n")
    show_run(report_of(load(file), run(file).to_dict()))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines[2:]] == [["t/2026-01-26/diff", "done"], ["and", "24"]]
