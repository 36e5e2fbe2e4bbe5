"""What a run does, skips, refuses and leaves behind."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from driftline.errors import LockedError, PipelineError
from driftline.pipeline import load, run_pipeline
from driftline.pipeline._run import run as running
from driftline.pipeline._run.run import locked
from support.processes import run_process
from support.shop import (
    DAYS,
    PIPELINE,
    SOURCE,
    assert_lake_is_the_snapshots,
    change_snapshot,
    lake_rows,
    last_record,
    make_shop,
    output_bytes,
    results,
    run,
    snapshot_rows,
    start_cli,
)

pytestmark = pytest.mark.histories


def test_a_run_makes_events_lake_states_and_a_record(tmp_path: Path) -> None:
    record = run(make_shop(tmp_path))
    assert (record.result, record.exit_code) == ("done", 0)
    assert set(results(record).values()) == {"done"}
    assert_lake_is_the_snapshots(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "out/customers-day-two.jsonl").read_text().splitlines()]
    expected = snapshot_rows(tmp_path, "customers", DAYS[1], ("price",))
    assert {row.pop("_row_id"): row for row in rows} == expected
    kept = last_record(tmp_path)
    diff = next(stage for stage in kept["stages"] if stage["stage"] == "customers/2026-03-02/diff")
    assert [entry["path"] for entry in diff["inputs"]] == [f"data/customers-{day}.csv" for day in DAYS[:2]]
    assert all(entry["size"] and entry["fingerprint"].startswith("xxh128:") for entry in diff["inputs"])
    assert diff["outputs"][0]["path"] == "out/customers-2026-03-02.jsonl"
    assert kept["versions"]["driftline"]
    assert kept["versions"]["polars"]
    assert str(tmp_path) not in "".join(path.read_text() for path in (tmp_path / ".driftline").rglob("*.json"))


READERS = """
import importlib, sys, threading
from driftline.core import location
from driftline.pipeline._run import records
from driftline.pipeline._stages import stage

sys.setswitchinterval(1e-6)
for _ in range(200):
    importlib.reload(stage)
    importlib.reload(records)
    store, start = records.RecordStore(location(sys.argv[1])), threading.Barrier(4)
    found = []
    def read():
        start.wait()
        found.append(store.stage("customers/2026-03-02/diff"))
    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads: one.start()
    for one in threads: one.join()
    assert None not in found
"""


def test_stages_read_their_records_side_by_side_from_the_first_one_on(tmp_path: Path) -> None:
    run(make_shop(tmp_path))
    state = next((tmp_path / ".driftline").iterdir())
    done = run_process([sys.executable, "-c", READERS, state], env={"PYTHONPATH": SOURCE}, check=False)
    assert done.returncode == 0, "msgspec crashes where two threads meet a type for the first time"


def test_events_are_those_of_the_diff_command(tmp_path: Path) -> None:
    run(make_shop(tmp_path))
    import driftline

    plain = driftline.diff(*(tmp_path / f"data/orders-{day}.csv" for day in DAYS[1:]), key=["id"])
    assert (tmp_path / "out/orders-2026-03-03.jsonl").read_bytes() == b"".join(plain.lines())


def test_nothing_changed_nothing_done(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    run(file)
    before = output_bytes(tmp_path)
    assert set(results(run(file)).values()) == {"kept"}
    assert set(results(run(file, thorough=True)).values()) == {"kept"}
    os.utime(tmp_path / "data/orders-2026-03-02.csv")  # other times, the same bytes
    assert set(results(run(file)).values()) == {"kept"}
    assert output_bytes(tmp_path) == before


def test_only_the_stages_of_a_changed_table_run(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    run(file)
    change_snapshot(tmp_path / "data/orders-2026-03-03.csv", lambda rows: rows.update({"7": ["7", "other", "5"]}))
    again = results(run(file))
    assert {stage for stage, result in again.items() if result == "done"} == {
        "orders/2026-03-03/diff",
        "orders/2026-03-03/deltas",
        "orders/lake/compact",
    }
    assert_lake_is_the_snapshots(tmp_path)
    assert set(results(run(file)).values()) == {"kept"}


@pytest.mark.parametrize("day", DAYS)
def test_a_snapshot_that_changed_after_it_was_loaded_is_corrected(day: str, tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    run(file)

    def edit(rows: dict[str, list[str]]) -> None:
        for key in ("5", "6", "7", "8"):
            rows.pop(key, None)
        rows["9"] = ["9", "renamed", "0.5"]
        rows["77777"] = ["77777", "late", "2"]
        for key in list(rows)[40:60]:
            rows[key][2] = "3.25"

    change_snapshot(tmp_path / f"data/customers-{day}.csv", edit)
    run(file)
    assert_lake_is_the_snapshots(tmp_path)
    # And back again: the lake follows, whatever was loaded in between.
    make_shop(tmp_path)
    run(file)
    assert_lake_is_the_snapshots(tmp_path)
    assert set(results(run(file)).values()) == {"kept"}


def test_a_correction_that_was_cut_off_before_its_commit_leaves_nothing_and_is_done_again(
    tmp_path: Path, monkeypatch
) -> None:
    from driftline.lake._store.delta import _StoredDelta

    file = make_shop(tmp_path)
    run(file)

    def edit(rows: dict[str, list[str]]) -> None:
        for key in list(rows)[20:60]:
            rows[key][1] = "renamed"

    before = lake_rows(tmp_path, "orders", DAYS[0])
    change_snapshot(tmp_path / f"data/orders-{DAYS[0]}.csv", edit)

    def cut_off(*arguments, **options):
        raise RuntimeError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(_StoredDelta, "append", cut_off)
        assert results(run(file))[f"orders/{DAYS[0]}/deltas"] == "failed"
    assert lake_rows(tmp_path, "orders", DAYS[0]) == before
    assert run(file).exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)


def test_a_new_day_and_old_days_that_are_gone(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    run(file)
    for table in ("customers", "orders"):
        shutil.copy(tmp_path / f"data/{table}-2026-03-03.csv", tmp_path / f"data/{table}-2026-03-04.csv")
        (tmp_path / f"data/{table}-2026-03-01.csv").unlink()
    change_snapshot(tmp_path / "data/orders-2026-03-04.csv", lambda rows: rows.pop("3", None))
    again = results(run(file))
    assert again["orders/2026-03-02/deltas"] in ("done", "kept")
    assert_lake_is_the_snapshots(tmp_path, (*DAYS[1:], "2026-03-04"))
    # Days in between are missing: the lake is compared with the snapshot itself.
    for table in ("customers", "orders"):
        for day in ("2026-03-02", "2026-03-03", "2026-03-04"):
            (tmp_path / f"data/{table}-{day}.csv").rename(tmp_path / f"data/{table}-{day}.old")
        shutil.copy(tmp_path / f"data/{table}-2026-03-02.old", tmp_path / f"data/{table}-2026-03-09.csv")
    run(file)
    assert_lake_is_the_snapshots(tmp_path, ("2026-03-09",))


def test_a_pair_of_files_that_is_replaced_every_night(tmp_path: Path) -> None:
    make_shop(tmp_path)
    text = PIPELINE.partition("[tables.customers]")[0] + (
        '[tables.orders]\nbefore = "yesterday.csv"\nafter = "today.csv"\nkey = "id"\ndeltas = true\n'
    )
    (tmp_path / "shop.toml").write_text(text)
    for yesterday, today in itertools.pairwise(DAYS):
        shutil.copy(tmp_path / f"data/orders-{yesterday}.csv", tmp_path / "yesterday.csv")
        shutil.copy(tmp_path / f"data/orders-{today}.csv", tmp_path / "today.csv")
        assert run(tmp_path / "shop.toml").exit_code == 0
        assert lake_rows(tmp_path, "orders") == snapshot_rows(tmp_path, "orders", today)
    change_snapshot(tmp_path / "today.csv", lambda rows: rows.update({"4": ["4", "late", "1"]}))
    run(tmp_path / "shop.toml")
    assert lake_rows(tmp_path, "orders")["4"]["name"] == "late"


def test_outputs_that_were_lost_or_touched_are_made_again(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    run(file)
    before = output_bytes(tmp_path)
    (tmp_path / "out/orders-2026-03-02.jsonl").unlink()
    with (tmp_path / "out/customers-now.csv").open("a") as out:
        out.write("more\n")
    assert sorted(stage for stage, result in results(run(file)).items() if result == "done") == [
        "customers/lake/state-2",
        "orders/2026-03-02/diff",
    ]
    assert output_bytes(tmp_path) == before


def test_a_lake_that_was_lost_is_filled_again(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    run(file)
    shutil.rmtree(tmp_path / "lake")
    assert run(file).exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)


def test_a_failing_stage_leaves_the_others_and_says_how_to_go_on(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    good = (tmp_path / "data/orders-2026-03-02.csv").read_text()
    (tmp_path / "data/orders-2026-03-02.csv").write_text(good + good.splitlines()[1] + "\n")
    process = start_cli(file)
    shown, words = process.communicate()
    assert process.returncode == 2
    assert "orders/2026-03-02/diff" in shown
    assert "failed" in shown
    assert "blocked" in shown
    assert "duplicate_key: Duplicate key in B" in words
    assert "run again: driftline pipeline run shop.toml" in words
    assert "Traceback" not in words
    fates = {stage["stage"]: stage["result"] for stage in last_record(tmp_path)["stages"]}
    assert {fate for stage, fate in fates.items() if stage.startswith("customers/")} == {"done"}
    assert fates["orders/2026-03-03/deltas"] == "blocked"
    (tmp_path / "data/orders-2026-03-02.csv").write_text(good)
    record = run(file)
    assert record.exit_code == 0
    assert results(record)["customers/2026-03-02/diff"] == "kept"
    assert_lake_is_the_snapshots(tmp_path)


def test_a_threshold_holds_back_what_follows(tmp_path: Path) -> None:
    limited = PIPELINE.replace('key = "id"\n', 'key = "id"\nfail_if = ["removed > 0.5%", "added > 1000"]\n')
    file = make_shop(tmp_path, limited)
    process = start_cli(file)
    _shown, words = process.communicate()
    assert process.returncode == 1, words
    assert "threshold exceeded: orders/2026-03-02/diff: removed > 0.5% (measured 1.00%)" in words
    fates = {stage["stage"]: stage["result"] for stage in last_record(tmp_path)["stages"]}
    assert fates["orders/2026-03-02/deltas"] == "gated"
    assert fates["orders/lake/compact"] == "gated"
    assert fates["customers/lake/compact"] == "done"
    assert (tmp_path / "out/orders-2026-03-02.jsonl").exists()
    assert run(file).exit_code == 1
    assert run(file, ignore_thresholds=True).exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)


def test_the_second_of_two_runs_refuses_or_waits(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    with locked(load(file), 0):
        with pytest.raises(LockedError, match=r"already running .*--wait"):
            run(file)
        process = start_cli(file)
        _, words = process.communicate()
        assert process.returncode == 2
        assert words.startswith("error[locked]: pipeline shop is already running")
        waiting = start_cli(file, "--wait", "60")
        time.sleep(0.5)
        assert waiting.poll() is None
    waiting.communicate()
    assert waiting.returncode == 0


def test_two_runs_at_once_do_the_work_once(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    both = [start_cli(file, "--wait", "60") for _ in range(2)]
    for process in both:
        process.communicate()
    assert [process.returncode for process in both] == [0, 0]
    runs = sorted((tmp_path / ".driftline/shop/runs").glob("*.json"))
    fates = [{stage["result"] for stage in json.loads(path.read_text())["stages"]} for path in runs]
    assert fates == [{"done"}, {"kept"}]
    assert_lake_is_the_snapshots(tmp_path)


@pytest.mark.parametrize("what", ["changes", "disappears", "changes and keeps its times"])
def test_a_source_that_does_not_hold_still_is_noticed(what: str, tmp_path: Path, monkeypatch) -> None:
    file = make_shop(tmp_path)
    victim = tmp_path / "data/orders-2026-03-03.csv"
    original = running.PipelineRun._context

    def meddling(self, stage):
        context = original(self, stage)
        if stage.name == "orders/2026-03-03/diff":
            status = victim.stat()
            if what == "disappears":
                victim.unlink()
            else:
                victim.write_bytes(victim.read_bytes().replace(b"orders 9", b"orderz 9", 1))
                if what != "changes":
                    os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
        return context

    monkeypatch.setattr(running.PipelineRun, "_context", meddling)
    record = run(file)
    fate = next(stage for stage in record.stages if stage.stage == "orders/2026-03-03/diff")
    assert fate.result == "failed"
    assert fate.problem.startswith("not_found" if what == "disappears" else "source_changed")
    assert not (tmp_path / "out/orders-2026-03-03.jsonl").exists()
    assert results(record)["customers/lake/compact"] == "done"
    monkeypatch.undo()
    if what != "disappears":
        assert run(file).exit_code == 0
        assert_lake_is_the_snapshots(tmp_path)


def test_missing_snapshots_are_told_before_anything_runs(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    for path in (tmp_path / "data").glob("orders-*"):
        path.unlink()
    with pytest.raises(PipelineError, match=r"shop.toml:23: \[tables.orders\] 0 snapshots match") as caught:
        run(file)
    assert caught.value.code == "no_snapshots"
    assert not (tmp_path / "out").exists()


FULL_DISK = """
import resource, sys
from driftline.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
main()
"""


def test_a_full_disk_is_one_clear_failure_and_leaves_no_half_files(tmp_path: Path) -> None:
    # A limit on file sizes fails writes in the middle, as a full disk does, and needs no privileges.
    file = make_shop(tmp_path, rows=4000)
    limited = run_process(
        [sys.executable, "-c", FULL_DISK, "20000", "pipeline", "run", file.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert limited.returncode == 2
    assert "File too large" in limited.stdout + limited.stderr
    assert "Traceback" not in limited.stderr
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith((".part", ".tmp"))]
    assert run(file).exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=1000)
    (tmp_path / "out").mkdir()
    mounted = run_process(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", tmp_path / "out"], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        record = run(file)
        problems = {stage.stage: stage.problem for stage in record.stages if stage.result == "failed"}
        assert record.exit_code == 2
        assert any("disk_full" in problem for problem in problems.values()), problems
        assert not list((tmp_path / "out").glob(".*"))
    finally:
        run_process(["umount", tmp_path / "out"], check=True)
    assert run(file).exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)


def test_hooks_and_metrics(tmp_path: Path) -> None:
    received = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    extra = f"""
[metrics]
json = "out/metrics.json"
prometheus = "out/shop.prom"

[finish]
command = ["sh", "-c", "cat > told.json; echo $DRIFTLINE_PIPELINE $DRIFTLINE_RESULT > told.txt"]
webhook = "http://127.0.0.1:{server.server_port}/hook"
"""
    process = start_cli(make_shop(tmp_path, PIPELINE + extra))
    _, words = process.communicate()
    server.shutdown()
    assert (process.returncode, words) == (0, "")
    assert (tmp_path / "told.txt").read_text() == "shop done\n"
    figures = json.loads((tmp_path / "out/metrics.json").read_text())
    assert received == [figures] == [json.loads((tmp_path / "told.json").read_text())]
    text = (tmp_path / "out/shop.prom").read_text()
    assert 'driftline_pipeline_result{pipeline="shop",result="done"} 1\n' in text
    assert 'driftline_stage_rows{pipeline="shop",stage="orders/2026-03-02/diff",count="removed"} 3\n' in text
    for line in text.splitlines():
        assert line.startswith("# ") or (line.rpartition(" ")[0].endswith("}") and float(line.rpartition(" ")[2]) >= 0)


def test_a_run_that_cannot_begin_is_told_too(tmp_path: Path) -> None:
    extra = (
        '\n[finish]\ncommand = ["sh", "-c", "echo $DRIFTLINE_RESULT > told.txt"]\n[metrics]\nprometheus = "shop.prom"\n'
    )
    file = make_shop(tmp_path, PIPELINE + extra)
    shutil.rmtree(tmp_path / "data")
    process = start_cli(file)
    _, words = process.communicate()
    assert process.returncode == 2
    assert words.startswith("error[no_snapshots]: shop.toml:7: [tables.customers] 0 snapshots match")
    assert (tmp_path / "told.txt").read_text() == "failed\n"
    assert 'result="failed"} 1' in (tmp_path / "shop.prom").read_text()


def test_a_fault_in_a_stage_does_not_end_the_others(tmp_path: Path, monkeypatch) -> None:
    from driftline.pipeline._stages import diffs as changeset_stages

    def broken(plan, kind, diff, context):
        raise RuntimeError("something nobody thought of")

    monkeypatch.setattr(changeset_stages, "_changeset", broken)
    text = PIPELINE.replace('key = "id"\n', 'key = "id"\npatchset = "out/{to}.patchset"\n')
    record = run(make_shop(tmp_path, text))
    assert record.exit_code == 2
    fates = {stage.stage: stage for stage in record.stages}
    assert fates["orders/2026-03-02/patchset"].problem == "internal: RuntimeError: something nobody thought of"
    assert fates["orders/lake/compact"].result == "done"
    assert_lake_is_the_snapshots(tmp_path)


def test_a_hook_that_fails_is_a_warning(tmp_path: Path) -> None:
    extra = '\n[finish]\ncommand = ["sh", "-c", "echo no >&2; exit 3"]\nwebhook = "http://127.0.0.1:9/"\n'
    process = start_cli(make_shop(tmp_path, PIPELINE + extra))
    _, words = process.communicate()
    assert process.returncode == 0
    assert "warning: the finish command ended with 3: no" in words
    assert "warning: the webhook did not take the result" in words


def test_a_cell_that_is_not_of_its_declared_type(tmp_path: Path) -> None:
    file = make_shop(tmp_path / "text", PIPELINE.replace('price = "number"', 'name = "number"'))
    fates = {stage.stage: stage.problem for stage in run(file).stages if stage.result == "failed"}
    assert fates["customers/2026-03-01/deltas"].startswith("wrong_type: row '0': column 'name' holds 'customers 0'")


def test_progress_is_told_for_each_stage(tmp_path: Path) -> None:
    from driftline.core._progress import Tracker

    seen = []
    run_pipeline(load(make_shop(tmp_path)), tracker=Tracker(seen.append, interval=0))
    assert {"orders/2026-03-02/diff: fingerprint", "orders/2026-03-02/deltas: deltas"} <= {
        entry.phase for entry in seen
    }


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_a_record_and_nothing_half_written(kind: signal.Signals, tmp_path: Path) -> None:
    text = PIPELINE + '\n[finish]\ncommand = ["sh", "-c", "echo $DRIFTLINE_RESULT > told.txt"]\n'
    file = make_shop(tmp_path, text, rows=5_000)
    process = start_cli(file)
    stages = tmp_path / ".driftline/shop/stages"
    while not list(stages.glob("*.json")):
        time.sleep(0.01)
    process.send_signal(kind)
    _, words = process.communicate()
    assert process.returncode == 130, words
    assert "Traceback" not in words
    assert "stages are done and stay done; go on with: driftline pipeline run shop.toml" in words
    assert (tmp_path / "told.txt").read_text() == "cancelled\n"
    kept = last_record(tmp_path)
    fates = {stage["stage"]: stage["result"] for stage in kept["stages"]}
    assert kept["result"] == "cancelled"
    assert {"done", "cancelled"} == set(fates.values())
    assert not list((tmp_path / "out").rglob("*.part"))
    again = run(file)
    assert again.exit_code == 0
    assert all(results(again)[stage] == "kept" for stage, fate in fates.items() if fate == "done")
    assert_lake_is_the_snapshots(tmp_path)
