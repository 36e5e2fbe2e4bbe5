"""The console against hostile data and hostile requests: a real server, no browser."""

from __future__ import annotations

import html
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest

import driftline as dl
from driftline.errors import InputError, OptionError
from driftline.tables import check_options
from driftline.tables._options import OPTIONS
from driftline.web._console import results
from driftline.web._console.event_file import EventFile, Selection
from driftline.web._console.folder import Folder
from driftline.web._console.payloads import Studies, Study
from driftline.web._console.results import Comparison, Job, Jobs, Results
from driftline.web._console.start import GROUPS, NOT_OFFERED, options_of
from support.console_folder import compact_json, write_events, write_pairs
from support.console_server import Server

# --- hostile data ----------------------------------------------------------------------------------------------------


def test_files_that_are_no_results_are_named(server: Server) -> None:
    (server.folder / "cut.jsonl").write_text('{"type":"schema","columns_a":["a"],"columns_b":["a"]}\n{"type":"added"')
    (server.folder / "binary.jsonl").write_bytes(b"\x00\xff\xfe" * 1000)
    for name, words in (("cut.jsonl", "cut off"), ("binary.jsonl", "holds no events"), ("monday.csv", "no events")):
        status, text, _ = server.ask("GET", f"/open?{urlencode({'path': name})}")
        assert status == 422
        assert words in text
        assert "Traceback" not in text


def test_damaged_and_changing_files_do_no_harm(server: Server) -> None:
    path = server.folder / "moving.jsonl"
    dice = random.Random(5)
    for round_number in range(25):
        write_events(path, ["id", "v"], [{"id": str(n), "v": "é" * dice.randint(0, 9)} for n in range(200)])
        data = bytearray(path.read_bytes())
        for _ in range(dice.randint(0, 4)):
            data[dice.randrange(60, len(data))] = dice.randrange(256)
        path.write_bytes(data[: len(data) - dice.choice([0, 0, dice.randrange(len(data) // 2)])])
        for query in ("", "&page=3", "&q=7", "&kind=added&page=2"):
            status, text, _ = server.ask("GET", f"/open?path=moving.jsonl{query}")
            assert status in (200, 409, 422), (round_number, query, text[:500])
            assert "Internal Server Error" not in text


# --- hostile requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../secret.csv", "/etc/passwd", "link.csv", "a\0b", "", "nowhere.csv", "..", "x/../../y"]
)
def test_nobody_leaves_the_folder(server: Server, name: str) -> None:
    query = urlencode({"path": name, "a": name, "b": "monday.csv"})
    assert server.ask("GET", f"/open?{query}")[0] == 404
    assert server.ask("GET", f"/columns?{query}")[0] == 404
    form = urlencode({"form_token": server.token(), "a": name, "b": "monday.csv"})
    assert server.ask("POST", "/compare", form)[0] == 404


def test_static_files_and_ids_do_not_leave_either(server: Server) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/results/../../etc", "/results/..%2f..", "/jobs/zzz"):
        status, text, _ = server.ask("GET", path)
        assert status == 404
        assert "import" not in text


def test_requests_from_elsewhere_are_refused(server: Server) -> None:
    token = server.token()
    form = urlencode({"form_token": token, "a": "monday.csv", "b": "tuesday.csv"})
    assert server.ask("GET", "/", Host="evil.example")[0] == 421
    assert server.ask("GET", "/", Host=f"127.0.0.1.evil.example:{server.port}")[0] == 421
    assert server.ask("POST", "/compare", form, Origin="http://evil.example")[0] == 403
    assert server.ask("POST", "/compare", form, Origin="null")[0] == 403
    assert server.ask("POST", "/compare", form.replace(token, "guessed"))[0] == 403
    assert server.ask("PUT", "/uploads/x.csv", "id\n1\n")[0] == 403
    assert server.ask("PUT", "/uploads/.hidden", "id\n1\n", X_Form_Token=token)[0] == 422
    assert server.ask("PUT", "/uploads/x.csv", "id\n1\n", X_Form_Token=token)[0] == 200
    assert server.ask("POST", "/compare", "x" * (2 << 20))[0] == 413
    for mode, status in (("no-cors", 403), ("cors", 403), ("navigate", 200)):
        assert server.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode=mode)[0] == status
    assert not (server.folder / "x.csv").exists()


def test_every_answer_carries_the_policy(server: Server) -> None:
    for path in ("/", "/static/console.js", "/nowhere", "/open?path=../x"):
        headers = server.ask("GET", path)[2]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_beyond_loopback_a_token_is_asked_for(tmp_path: Path) -> None:
    server = Server(tmp_path, "--host", "0.0.0.0")
    try:
        token = server.said.partition("token=")[2].split()[0]
        assert server.ask("GET", "/")[0] == 401
        assert server.ask("GET", "/?token=wrong")[0] == 401
        status, _, headers = server.ask("GET", f"/?token={token}")
        assert (status, headers["location"]) == (303, "/")
        assert "HttpOnly" in headers["set-cookie"]
        assert server.ask("GET", "/", Cookie=headers["set-cookie"].split(";")[0])[0] == 200
    finally:
        server.close()


# --- parts -----------------------------------------------------------------------------------------------------------


def test_every_option_of_a_diff_is_in_the_form_or_left_out_on_purpose() -> None:
    offered = [name for names in GROUPS.values() for name in names]
    assert sorted([*offered, *NOT_OFFERED]) == sorted(OPTIONS)


def test_a_form_becomes_options() -> None:
    form = {"key": ["id"], "tolerance": ["balance=1\r\n\r\ntotal=5%"], "null": ['NULL\n""'], "header_mode": ["sorted"]}
    options = options_of({**form, "ragged": ["error"], "no_header": ["on"], "delimiter": [""]})
    assert options == {
        "key": ["id"],
        "tolerance": ["balance=1", "total=5%"],
        "null": ["NULL", ""],
        "header_mode": "sorted",
        "no_header": True,
    }
    with pytest.raises(OptionError, match="tolerance"):
        check_options(**options_of({"tolerance": ["balance"]}))


def test_search_finds_values_and_never_names(tmp_path: Path) -> None:
    columns = ["id", "a:name", "note"]
    rows = [{"id": "1", "a:name": "x", "note": "ends with:"}, {"id": "2", "a:name": "NAME", "note": "a,b"}]
    write_events(tmp_path / "events.jsonl", columns, rows)
    events = EventFile(tmp_path / "events.jsonl")
    found = {words: list(events.select(Selection(words=words))) for words in ("name", "note", ",", "}", "ENDS", "ends")}
    assert found == {"name": [1], "note": [], ",": [1], "}": [], "ENDS": [], "ends": [0]}


def test_more_columns_than_a_machine_word_has_bits(tmp_path: Path) -> None:
    columns = ["id", *(f"c{n}" for n in range(100))]
    before, after = dict.fromkeys(columns, "x"), {**dict.fromkeys(columns, "x"), "c99": "y"}
    lines = [
        {"type": "schema", "columns_a": columns, "columns_b": columns},
        {"type": "changed", "key": {"id": "x"}, "changed": ["c99"], "before": before, "after": after,
         "delta": {"c99": {"from": "x", "to": "y"}}},
        {"type": "stats", "rows_total_compared": 1, "rows_added": 0, "rows_removed": 0, "rows_changed": 1,
         "rows_unchanged": 0},
    ]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("".join(compact_json(line) + "\n" for line in lines))
    events = EventFile(tmp_path / "events.jsonl")
    assert list(events.select(Selection(column="c99"))) == [0]
    assert list(events.select(Selection(column="c35"))) == []  # 99 - 64
    assert events.column_counts()["c99"] == 1  # type: ignore[index]
    assert (tmp_path / ".events.jsonl.index.npz").exists()


def test_folders_tables_and_versions_are_offered_and_links_out_refused(tmp_path: Path) -> None:
    import sqlite3

    import pyarrow as pa
    from deltalake import write_deltalake

    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "parts").mkdir(parents=True)
    outside.mkdir()
    (root / "parts" / "1.csv").write_text("id\n1\n")
    (root / "parts" / "2.csv").write_text("id\n2\n")
    connection = sqlite3.connect(root / "shop.db")
    connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    connection.close()
    write_deltalake(root / "delta", pa.table({"id": [1]}))
    os.mkfifo(root / "pipe.csv")
    shown = Folder(root)
    names = [entry.name for entry in shown.tables()]
    assert names == ["delta/", "parts/", "parts/1.csv", "parts/2.csv", "shop.db::users"]
    assert shown.table_address("delta@0").endswith("delta@0")
    (root / "leaky").mkdir()
    (root / "leaky" / "1.csv").symlink_to(outside / "secret.csv")
    absolute = {
        "add": {
            "path": f"file://{outside}/secret.parquet",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 0,
            "dataChange": True,
        }
    }
    write_deltalake(root / "clone", pa.table({"id": [1]}))
    (root / "clone/_delta_log/00000000000000000001.json").write_text(json.dumps(absolute) + "\n")
    (outside / "secret.parquet").write_bytes(b"PAR1")
    for name in ("leaky", "leaky/", "clone", "clone@1", "pipe.csv", "delta@../../outside", "shop.db::x::y/../../z"):
        with pytest.raises(InputError):
            shown.table_address(name)


def test_work_can_be_cancelled_while_it_waits_and_while_it_runs() -> None:
    jobs, running = Jobs(), threading.Semaphore(0)

    def work(job: Job) -> str:
        running.release()
        while True:
            job.tracker.advance()

    busy = [jobs.start(str(n), work) for n in range(2)]
    for _ in busy:
        running.acquire()
    waiting = jobs.start("waiting", work)
    for job in (waiting, *busy):
        job.tracker.cancel()
        while not job.done:
            threading.Event().wait(0.01)
        assert job.error is not None
        assert job.error.code == "cancelled"


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)

    def work(job: Job) -> str:
        import deltalake

        return str(deltalake)

    job = Jobs().start("lake", work)
    while not job.done:
        threading.Event().wait(0.01)
    assert job.error is not None
    assert job.error.code == "missing_extra"
    assert "driftline[lake]" in job.error.message


def test_suggestions_are_made_from_the_pairs_that_their_rules_are_for(tmp_path: Path) -> None:
    lines = []
    for number in range(20):
        for endpoint, old, new in (("/a", {"x": "OPEN"}, {"x": "open"}), ("/b", {"y": " v "}, {"y": "v"})):
            lines.append(json.dumps({"id": f"{endpoint}{number}", "endpoint": endpoint, "old": old, "new": new}))
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    jobs = Jobs()
    studies = Studies(Folder(tmp_path), jobs)
    job = studies.start(Study("pairs.jsonl", (("/a", "a.yaml"), (None, "rest.yaml"))))
    while not job.done:
        threading.Event().wait(0.01)
    assert job.error is None
    batch = studies.open(job.address.partition("path=")[2])
    assert {(one["endpoint"], one["file"], one["path"]) for one in batch.suggestions} == {
        ("/a", "a.yaml", "$.x"),
        (None, "rest.yaml", "$.y"),
    }


def after_job(server: Server, answer: tuple[int, str, dict[str, str]]) -> str:
    """The address that work under way leads to."""
    status, text, headers = answer
    assert status == 303, text
    address = headers["location"]
    while address.startswith("/jobs/"):
        threading.Event().wait(0.05)
        _, text, headers = server.ask("GET", address)
        assert "error[" not in text, text
        address = headers.get("location", address)
    return address


def links(text: str, start: str) -> list[str]:
    return [html.unescape(found) for found in re.findall(f'href="({re.escape(start)}[^"]*)"', text)]


def test_two_clicks_from_an_endpoint_to_a_pair_and_a_rule_from_its_place(server: Server) -> None:
    write_pairs(server.folder / "pairs.jsonl")
    address = after_job(server, server.post("/payloads/compare", pairs="pairs.jsonl", rules="rules.yaml", root=""))
    start = server.ask("GET", address)[1]
    counts = [int(count) for count in re.findall(r'<td class="count">([0-9]+)</td>', start)]
    assert counts == sorted(counts, reverse=True) == [40, 10]
    endpoint = next(link for link in links(start, "/payloads/batch?") if "endpoint=%2Forders" in link)
    listed = server.ask("GET", endpoint)[1]  # the first click
    pair = links(listed, "/payloads/pair?")[0]
    status, text, _ = server.ask("GET", pair)  # the second click
    assert status == 200
    assert "$.status" in text
    assert "OPEN" in text
    # A rule for the total, looked at, then written.
    accept = next(link for link in links(listed, "/payloads/accept?") if "total" in link)
    shown = server.ask("GET", accept)[1]
    assert "x-migration-strategy: ignore" in html.unescape(shown)
    assert not (server.folder / "rules.yaml").exists()
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', shown)}
    refused = server.ask("POST", "/payloads/accept", urlencode({**fields, "form_token": "wrong"}))
    assert refused[0] == 403
    assert not (server.folder / "rules.yaml").exists()
    again = server.ask("GET", after_job(server, server.ask("POST", "/payloads/accept", urlencode(fields))))[1]
    assert "x-migration-strategy: ignore" in (server.folder / "rules.yaml").read_text()
    assert re.findall(r'<td class="count">([0-9]+)</td>', again) == ["40"]


def test_a_pair_that_is_not_there_is_said(server: Server) -> None:
    write_pairs(server.folder / "pairs.jsonl")
    address = after_job(server, server.post("/payloads/compare", pairs="pairs.jsonl", rules="", root=""))
    path = address.partition("path=")[2]
    for identity in ('"nobody"', "{", "", "99"):
        status, text, _ = server.ask("GET", f"/payloads/pair?{urlencode({'path': path, 'id': identity})}")
        assert status == 404
        assert "has no pair with the id" in text
    status, text, _ = server.ask("GET", f"/payloads/pair?{urlencode({'path': path, 'id': '40'})}")
    assert status == 200
    assert "error[VALIDATION_ERROR]" in text


def _finished(folder: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Job], object] = id) -> tuple[Results, Job]:
    """A comparison in a process of its own, `act` called once that reports progress."""
    monkeypatch.setattr(results, "LARGE_BYTES", 0)
    found = Results(Folder(folder), Jobs())
    job = found.start(Comparison("a.csv", "b.csv", {"key": ["id"]}))
    while not job.done and job.progress is None:
        time.sleep(0.01)
    act(job)
    while not job.done:
        time.sleep(0.01)
    return found, job


def _write_tables(folder: Path, rows: int, extra: str = "") -> None:
    for name, shift in (("a.csv", 0), ("b.csv", 1)):
        lines = (f"{row},{row + shift * (row % 3)}\n" for row in range(rows))
        (folder / name).write_text("id,v\n" + "".join(lines) + extra)


def test_large_tables_are_compared_apart_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_tables(tmp_path, 3000)
    found, job = _finished(tmp_path, monkeypatch)
    assert job.error is None
    made = (found.stored / job.id / "events.jsonl").read_bytes()
    with dl.diff(str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), key="id") as diff:
        assert made == b"".join(diff.lines())
        assert found.get(job.id).profile == diff.profile().to_dict()
    assert found.events(job.id).column_counts() == {"id": 0, "v": 2000}


def test_an_error_of_a_process_apart_is_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_tables(tmp_path, 10, "3,9\n")
    found, job = _finished(tmp_path, monkeypatch)
    assert job.error is not None
    assert (job.error.code, list(found.stored.iterdir())) == ("duplicate_key", [])


@pytest.mark.parametrize(("number", "code"), [(None, "cancelled"), (signal.SIGKILL, "worker_ended")])
def test_a_process_apart_ends_with_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, code: str
) -> None:
    _write_tables(tmp_path, 300_000)

    def end(job: Job) -> None:
        if number is None:
            job.tracker.cancel()
        for process in multiprocessing.active_children() if number is not None else ():
            os.kill(process.pid, number)

    found, job = _finished(tmp_path, monkeypatch, end)
    assert job.error is not None
    assert (job.error.code, list(found.stored.iterdir()), multiprocessing.active_children()) == (code, [], [])
