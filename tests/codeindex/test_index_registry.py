from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.codeindex import DiffOptions, Keeping, KeptDiff, Registry
from driftline.codeindex._diff.diff import timestamp
from driftline.codeindex._registry.contracts import CONTRACTS, check, complaint_about, schema
from driftline.codeindex._registry.registry import LeakCheck
from driftline.codeindex._storage import CacheRoot
from driftline.errors import DriftlineError
from support.index_caches import make_cache, persisted_bytes, put, small_index
from support.index_layouts import LAYOUTS, write_index
from support.processes import start_process

ROOT = Path(__file__).parents[2]


def keep(
    root: Path, from_ref: str = "build:b1", to_ref: str = "latest", keeping: Any = None, **options: Any
) -> KeptDiff:
    cache = CacheRoot(root)
    request = codeindex.prepare(from_ref, to_ref, cache, DiffOptions.of(**options))
    return codeindex.compute(request, cache, keeping)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache")


def test_the_same_inputs_are_the_same_diff(cache: Path) -> None:
    first = keep(cache)
    written = persisted_bytes(cache)
    again = keep(cache)
    assert (first.persisted, first.reused) == (True, False)
    assert (again.persisted, again.reused) == (True, True)
    assert again.result.diff_id == first.result.diff_id
    assert again.result.summary == first.result.summary
    assert list(again.result.events) == list(first.result.events)
    assert persisted_bytes(cache) == written


def test_what_is_on_disk(cache: Path) -> None:
    kept = keep(cache)
    folder = cache / "diffs" / kept.result.diff_id
    inputs = json.loads((folder / "inputs.json").read_bytes())
    summary = json.loads((folder / "summary.json").read_bytes())
    events = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    manifest = json.loads((cache / "diffs/manifest.json").read_bytes())
    assert {name: inputs[name] for name in kept.result.inputs} == kept.result.inputs
    assert summary == kept.result.summary
    assert [event["kind"] for event in events] == [
        "file.modified", "chunk.modified", "relation.removed", "relation.added",
    ]  # fmt: skip
    assert manifest["diffs"][kept.result.diff_id] == {
        "diffId": kept.result.diff_id,
        "id": kept.result.diff_id,
        "createdAt": summary["createdAt"],
        "modes": ["code"],
        "from": "build:b1",
        "to": "latest",
        "summary": {"filesChanged": 1, "chunksChanged": 1},
    }
    assert not list(cache.rglob("*.tmp"))
    assert not (cache / "locks/index.lock").exists()


def test_identical_input_gives_identical_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.codeindex._diff.diff.timestamp", lambda: "2026-01-24T00:00:00.000Z")
    monkeypatch.setattr("driftline.codeindex._registry.registry.timestamp", lambda: "2026-01-24T00:00:00.000Z")
    one, two = make_cache(tmp_path / "one"), make_cache(tmp_path / "elsewhere" / "two")
    keep(one), keep(two)
    assert persisted_bytes(one) == persisted_bytes(two)
    assert len(persisted_bytes(one)) == 4


def test_events_are_the_same_bytes_in_every_storage_form(tmp_path: Path) -> None:
    files = set()
    for layout in LAYOUTS:
        root = make_cache(tmp_path / layout, layout=layout)
        kept = keep(root)
        files.add((root / "diffs" / kept.result.diff_id / "events.jsonl").read_bytes())
    assert len(files) == 1


def test_a_truncated_diff_is_computed_again(cache: Path) -> None:
    short = keep(cache, max_events=1)
    assert len(list(short.result.events)) == 1
    assert short.result.summary["truncated"]
    full = keep(cache)
    assert not full.reused
    assert len(list(full.result.events)) == 4
    cut = keep(cache, max_events=2)
    assert cut.reused
    assert (len(list(cut.result.events)), cut.result.summary["truncated"]) == (2, True)
    assert len(list(Registry(CacheRoot(cache)).load(full.result.diff_id).events)) == 4


@pytest.mark.parametrize("manifest", ["auto", None])
def test_changed_artifacts_are_noticed(tmp_path: Path, manifest: Any) -> None:
    cache = make_cache(tmp_path / "cache", manifest=manifest)
    keep(cache)
    file_meta = cache / "builds/b2/index-code/file_meta.json"
    file_meta.write_text(file_meta.read_text().replace('"a2"', '"a1"'))
    again = keep(cache)
    assert not again.reused
    assert not again.result.has_changes
    assert keep(cache).reused


def test_a_collision_is_an_error(cache: Path) -> None:
    kept = keep(cache)
    path = cache / "diffs" / kept.result.diff_id / "inputs.json"
    inputs = json.loads(path.read_text())
    inputs["options"]["maxChangedFiles"] = 7
    path.write_text(json.dumps(inputs))
    with pytest.raises(DriftlineError, match="diffId collision") as caught:
        keep(cache)
    assert caught.value.code == "INTERNAL"


def test_a_damaged_diff_is_computed_again(cache: Path) -> None:
    kept = keep(cache)
    events = cache / "diffs" / kept.result.diff_id / "events.jsonl"
    events.write_bytes(events.read_bytes()[:-9].rpartition(b"\n")[0])
    assert not keep(cache).reused
    events.unlink()
    assert not keep(cache).reused
    (cache / "diffs" / kept.result.diff_id / "summary.json").write_text("{")
    with pytest.raises(DriftlineError) as caught:
        Registry(CacheRoot(cache)).load(kept.result.diff_id)
    assert caught.value.code == "INVALID_REQUEST"
    assert not keep(cache).reused
    assert keep(cache).reused


def test_paths_are_not_persisted_by_default(cache: Path) -> None:
    refs = f"path:{cache}/builds/b1", f"path:{cache}/builds/b2"
    for keeping in (None, Keeping(persist=True)):
        kept = keep(cache, *refs, keeping)
        assert not kept.persisted
        assert kept.result.has_changes
        assert not (cache / "diffs").exists()


def test_unsafe_persistence_redacts_paths(cache: Path) -> None:
    kept = keep(cache, f"path:{cache}/builds/b1", "latest", Keeping(persist_unsafe=True))
    assert kept.persisted
    inputs = json.loads((cache / "diffs" / kept.result.diff_id / "inputs.json").read_text())
    assert inputs["from"]["ref"] == "path:<redacted>"
    assert len(inputs["from"]["pathHash"]) == 40
    assert str(cache.parent).encode() not in b"".join(persisted_bytes(cache).values())


PLANTED = [
    ("file_meta", ("file",)), ("file_meta", ("hash",)), ("file_meta", ("ext",)),
    ("chunk_meta", ("chunkId",)), ("chunk_meta", ("kind",)), ("chunk_meta", ("name",)),
    ("chunk_meta", ("segment", "segmentId")), ("chunk_meta", ("metaV2", "signature")),
    ("chunk_meta", ("metaV2", "chunkId")), ("chunk_meta", ("codeRelations", "imports", 0)),
    ("chunk_meta", ("codeRelations", "calls", 0)), ("chunk_meta", ("codeRelations", "usageLinks", 0)),
    ("file_relations", ("relations", "imports", 0)),
]  # fmt: skip
PATHS = [place for place in PLANTED if place[0] == "file_meta" or place[1][-1] == "chunkId"]


def plant(cache: Path, artifact: str, place: Any, text: str) -> None:
    """Put a text into one member of the index of build b2."""
    content = small_index("2")["code"]
    row: Any = content[artifact][0]
    content["chunk_meta"][0]["codeRelations"] = {"imports": ["i"], "calls": [["f", "g"]], "usageLinks": ["u"]}
    content["chunk_meta"][0]["segment"] = {"segmentId": ""}
    if place == ("chunkId",):
        del row["metaV2"]["chunkId"]
    for step in place[:-1]:
        row = row[step]
    row[place[-1]] = ["f", text] if place[-2:-1] == ("calls",) else text
    shutil.rmtree(cache / "builds/b2/index-code")
    write_index(cache / "builds/b2", {"code": content})


def refused(cache: Path, text: str) -> None:
    before = persisted_bytes(cache)
    with pytest.raises(DriftlineError, match="absolute path") as caught:
        keep(cache)
    assert caught.value.code == "INVALID_REQUEST"
    assert text not in json.dumps(caught.value.to_dict())
    assert persisted_bytes(cache) == before == {}


@pytest.mark.parametrize(("artifact", "place"), PLANTED, ids=lambda value: str(value))
def test_directories_of_this_run_are_never_persisted(cache: Path, artifact: str, place: Any) -> None:
    for directory in (cache, Path.home(), Path(tempfile.gettempdir())):
        plant(cache, artifact, place, f"{directory}/secret")
        refused(cache, str(directory))


@pytest.mark.parametrize(("artifact", "place"), PATHS, ids=lambda value: str(value))
@pytest.mark.parametrize("text", ["C:\\Users\\example", "file:///srv/example"])
def test_paths_of_other_machines_are_never_persisted(cache: Path, artifact: str, place: Any, text: str) -> None:
    plant(cache, artifact, place, text)
    refused(cache, "example")


@pytest.mark.parametrize(("artifact", "place"), PLANTED, ids=lambda value: str(value))
@pytest.mark.parametrize("text", ["/pets/{id}", "/api/users", "/", "/=", "x = /etc/hosts"])
def test_routes_and_operators_are_names(cache: Path, artifact: str, place: Any, text: str) -> None:
    plant(cache, artifact, place, text)
    assert keep(cache).persisted


def test_a_planted_build_id_is_refused(cache: Path) -> None:
    put(cache / "builds/b2/build_state.json", {"buildId": f"{cache}/secret"})
    with pytest.raises(DriftlineError, match="absolute path"):
        keep(cache)
    assert not (cache / "diffs").exists()


def test_only_the_beginning_of_a_text_tells_a_directory() -> None:
    leaks = LeakCheck(["/srv2", "/builds9/x", "/"])
    for text in ("src/srv2/a.js", "a-/srv2x", "./srv2", "/srv", "/srv2x", "f(x='/srv2')", "/builds9"):
        leaks.refuse({"a": [text]}, "it")
    for text in ("/srv2", "/srv2/a", "/builds9/x/y", "|fn|/srv2/a|", "file:/srv2/a"):
        with pytest.raises(DriftlineError):
            leaks.refuse({"a": [text]}, "it")
        with pytest.raises(DriftlineError):
            leaks.refuse({text: 1}, "it", is_event=True)


def test_list_is_newest_first_and_filters_by_modes(cache: Path) -> None:
    registry = Registry(CacheRoot(cache))
    manifest = registry.manifest()
    for name, day, modes in (("a", 1, ["code"]), ("b", 3, ["code", "prose"]), ("d", 2, ["prose"]), ("c", 3, ["code"])):
        diff_id = "diff_" + name * 16
        entry = {"diffId": diff_id, "createdAt": f"2026-01-0{day}T00:00:00.000Z", "modes": modes}
        counts = {"filesChanged": 0, "chunksChanged": 0}
        manifest["diffs"][diff_id] = {**entry, "from": "latest", "to": "build:x", "summary": counts}
    put(cache / "diffs/manifest.json", manifest)
    assert [entry["diffId"][5] for entry in registry.entries()] == ["b", "c", "d", "a"]
    assert [entry["diffId"][5] for entry in registry.entries(["code"])] == ["b", "c", "a"]
    assert [entry["diffId"][5] for entry in registry.entries(["code", "prose"])] == ["b"]


def aged(cache: Path, ages: list[int]) -> list[str]:
    """Registered diffs of the given ages in days, newest first."""
    kept = keep(cache)
    manifest = json.loads((cache / "diffs/manifest.json").read_text())
    entry = manifest["diffs"].pop(kept.result.diff_id)
    ids = []
    for number, age in enumerate(ages):
        diff_id = f"diff_{number:016x}"
        shutil.copytree(cache / "diffs" / kept.result.diff_id, cache / "diffs" / diff_id)
        created = timestamp(datetime.now(UTC) - timedelta(days=age))
        manifest["diffs"][diff_id] = {**entry, "diffId": diff_id, "createdAt": created}
        ids.append(diff_id)
    shutil.rmtree(cache / "diffs" / kept.result.diff_id)
    put(cache / "diffs/manifest.json", manifest)
    return ids


def test_prune_keeps_the_newest_or_the_young(cache: Path) -> None:
    ids = aged(cache, [1, 5, 20, 40, 50])
    registry = Registry(CacheRoot(cache))
    dry = codeindex.prune(registry, max_diffs=1, retain_days=10, dry_run=True)
    assert dry.removed == ids[2:]
    assert len(registry.entries()) == 5
    assert codeindex.prune(registry, max_diffs=4, retain_days=10).removed == ids[4:]
    assert codeindex.prune(registry, max_diffs=0, retain_days=10).removed == ids[2:4]
    assert [entry["diffId"] for entry in registry.entries()] == ids[:2]
    assert sorted(path.name for path in (cache / "diffs").iterdir()) == [*ids[:2], "manifest.json"]
    assert codeindex.prune(registry, max_diffs=0, retain_days=0).kept == 0


def test_prune_collects_orphans_and_nothing_else(cache: Path, tmp_path: Path) -> None:
    kept = keep(cache)
    outside = tmp_path / "outside"
    put(outside / "precious", "x")
    orphan = "diff_" + "0" * 16
    (cache / "diffs" / orphan).mkdir()
    (cache / "diffs" / ("diff_" + "1" * 16)).symlink_to(outside)
    put(cache / "diffs" / ".manifest.json.1-a.tmp", "half")
    put(cache / "diffs" / "notes.txt", "mine")
    pruned = codeindex.prune(Registry(CacheRoot(cache)))
    assert pruned.orphans == [".manifest.json.1-a.tmp", orphan, "diff_" + "1" * 16]
    assert sorted(path.name for path in (cache / "diffs").iterdir()) == sorted(
        [kept.result.diff_id, "manifest.json", "notes.txt"]
    )
    assert (outside / "precious").exists()


def test_a_living_lock_is_respected_and_a_dead_one_taken_over(cache: Path) -> None:
    holder = {"scope": "build", "pid": os.getpid(), "lockId": "x", "startedAt": "2026-01-01T00:00:00Z"}
    put(cache / "locks/index.lock", holder)
    with pytest.raises(DriftlineError) as caught:
        keep(cache, keeping=Keeping(wait_ms=0))
    assert caught.value.code == "QUEUE_OVERLOADED"
    assert str(cache) not in json.dumps(caught.value.to_dict())
    assert not (cache / "diffs").exists()
    dead = start_process([sys.executable, "-c", ""])
    dead.wait()
    put(cache / "locks/index.lock", {**holder, "pid": dead.pid})
    assert keep(cache).persisted


def run_python(cache: Path, code: str) -> subprocess.Popen[bytes]:
    prelude = (
        "import sys, os, signal; from driftline.codeindex._registry.keep import IndexDiffJob, run_job\n"
        "job = IndexDiffJob.of('build:b1', 'latest', sys.argv[1], wait_ms=20000)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", prelude + code, str(cache)]
    return start_process(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_two_processes_at_once(cache: Path) -> None:
    code = "import json; print(json.dumps(run_job(job)))"
    processes = [run_python(cache, code) for _ in range(3)]
    outcomes = [json.loads(process.communicate()[0]) for process in processes]
    assert [outcome["ok"] for outcome in outcomes] == [True] * 3
    assert len({json.dumps(outcome["summary"]) for outcome in outcomes}) == 1
    assert sum(not outcome["reused"] for outcome in outcomes) == 1
    assert len(Registry(CacheRoot(cache)).entries()) == 1


KILL_AT_REPLACE = """
import driftline.core._files as files
calls = iter(range(100))
real = os.replace
def replace(*args):
    if next(calls) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args)
files.os.replace = replace
run_job(job)
"""


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("step", range(5))
def test_killed_in_the_middle_of_persisting(cache: Path, step: int, recompute: bool) -> None:
    if recompute:
        keep(cache, max_events=1)
    process = run_python(cache, KILL_AT_REPLACE.format(step=step))
    process.communicate()
    died = process.returncode == -9
    assert died == (step < (5 if recompute else 4))
    registry = Registry(CacheRoot(cache))
    for entry in registry.entries():
        stored = registry.load(entry["diffId"])
        assert len(list(stored.events)) == (1 if stored.summary["truncated"] else 4)
    again = keep(cache)
    # Killed before the very first list was written: all files of the diff are whole, and their digests say so.
    assert again.reused is (not died or (step == 3 and not recompute))
    assert len(list(registry.load(again.result.diff_id).events)) == 4
    codeindex.prune(registry)
    assert not list((cache / "diffs").glob(".*"))


def test_a_registry_that_leaves_the_cache_root(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (cache / "diffs").symlink_to(tmp_path / "outside")
    with pytest.raises(DriftlineError) as caught:
        keep(cache)
    assert caught.value.code == "INVALID_REQUEST"
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("content", ["{", "[]", "", '{"version": 1}', '{"version": 1, "diffs": []}', None])
def test_a_damaged_list_is_made_again(cache: Path, content: str | None) -> None:
    kept = keep(cache)
    path = cache / "diffs/manifest.json"
    written = json.loads(path.read_bytes())["diffs"]
    path.unlink()
    if content is not None and "version" not in content:
        path.write_text(content)
        assert {entry["diffId"]: entry for entry in Registry(CacheRoot(cache)).entries()} == written
        assert keep(cache).reused
    elif content is not None:
        path.write_text(content)
        assert not keep(cache).reused
    else:
        assert [entry["diffId"] for entry in Registry(CacheRoot(cache)).entries()] == [kept.result.diff_id]
    keep(cache, max_events=1, max_changed_files=3)
    assert len(json.loads(path.read_bytes())["diffs"]) == 2


def test_a_list_of_a_later_version_is_left_alone(cache: Path) -> None:
    put(cache / "diffs/manifest.json", {"version": 2, "diffs": {}})
    with pytest.raises(DriftlineError) as caught:
        keep(cache)
    assert caught.value.code == "INVALID_REQUEST"
    assert json.loads((cache / "diffs/manifest.json").read_bytes()) == {"version": 2, "diffs": {}}


FOREIGN = {
    "id": "diff_" + "f" * 16,
    "createdAt": "2026-02-01T00:00:00.000Z",
    "from": {"ref": "build:b1", "buildId": "b1"},
    "to": {"ref": "latest"},
    "modes": ["code"],
    "summaryPath": "diffs/x/summary.json",
    "truncated": False,
}


def share(cache: Path) -> None:
    """What the indexer does to the list when it keeps a diff of its own: it files entries by their `id`."""
    path = cache / "diffs/manifest.json"
    manifest = json.loads(path.read_bytes()) if path.exists() else {"version": 1, "updatedAt": None, "diffs": {}}
    entries = [*manifest["diffs"].values(), FOREIGN]
    put(path, {**manifest, "diffs": {entry.get("id", "undefined"): entry for entry in entries}})
    put(cache / "diffs" / FOREIGN["id"] / "summary.json", {"id": FOREIGN["id"], "totals": {}})


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_registry_is_shared_with_another_tool(cache: Path, first: str) -> None:
    registry = Registry(CacheRoot(cache))
    if first == "ours":
        keep(cache)
    share(cache)
    kept = keep(cache)
    assert kept.reused is (first == "ours")
    listed = json.loads((cache / "diffs/manifest.json").read_bytes())["diffs"]
    assert listed[FOREIGN["id"]] == FOREIGN
    assert [entry["diffId"] for entry in registry.entries()] == [kept.result.diff_id, FOREIGN["id"]]
    assert registry.entries()[1]["from"] == "build:b1"
    assert len(list(registry.load(kept.result.diff_id).events)) == 4
    with pytest.raises(DriftlineError, match="another tool"):
        registry.load(FOREIGN["id"])
    pruned = codeindex.prune(registry, max_diffs=0, retain_days=0)
    assert (pruned.removed, pruned.orphans) == ([kept.result.diff_id], [])
    assert json.loads((cache / "diffs/manifest.json").read_bytes())["diffs"] == {FOREIGN["id"]: FOREIGN}
    assert (cache / "diffs" / FOREIGN["id"] / "summary.json").exists()


def test_an_entry_that_was_filed_under_a_wrong_key_is_found(cache: Path) -> None:
    kept = keep(cache)
    path = cache / "diffs/manifest.json"
    manifest = json.loads(path.read_bytes())
    entry = manifest["diffs"].pop(kept.result.diff_id)
    put(path, {**manifest, "diffs": {"undefined": {name: entry[name] for name in entry if name != "id"}}})
    assert keep(cache).reused
    broken = {name: entry[name] for name in ("diffId", "createdAt")}
    put(path, {**manifest, "diffs": {kept.result.diff_id: broken}})
    assert Registry(CacheRoot(cache)).entries() == [entry]
    assert keep(cache).reused


@pytest.mark.parametrize("damage", ["cut", "emptied", "edited", "swapped", "summary", "inputs", "other"])
def test_a_stored_diff_is_whole_or_computed_again(cache: Path, damage: str) -> None:
    kept = keep(cache)
    folder = cache / "diffs" / kept.result.diff_id
    events = (folder / "events.jsonl").read_bytes()
    lines = events.splitlines(keepends=True)
    changed = {
        "cut": events[:-20],
        "emptied": b"",
        "edited": events.replace(b'"a.js"', b'"z.js"'),
        "swapped": b"".join(lines[::-1]),
    }
    if damage in changed:
        (folder / "events.jsonl").write_bytes(changed[damage])
    elif damage == "summary":
        summary = json.loads((folder / "summary.json").read_bytes())
        summary["modesSummary"]["code"]["files"]["modified"] = 9
        put(folder / "summary.json", summary)
    elif damage == "inputs":
        put(folder / "inputs.json", {**json.loads((folder / "inputs.json").read_bytes()), "content": 1})
    else:
        other = keep(cache, max_changed_files=9)
        shutil.copytree(cache / "diffs" / other.result.diff_id, folder, dirs_exist_ok=True)
        shutil.copy(folder / "inputs.json", folder / "inputs.json.bak")
        with pytest.raises(DriftlineError, match="another diff"):
            Registry(CacheRoot(cache)).load(kept.result.diff_id)
        return
    with pytest.raises(DriftlineError):
        Registry(CacheRoot(cache)).load(kept.result.diff_id)
    again = keep(cache)
    assert not again.reused
    assert (folder / "events.jsonl").read_bytes() == events
    assert keep(cache).reused


def test_a_diff_of_an_earlier_version_is_read(cache: Path) -> None:
    kept = keep(cache)
    folder = cache / "diffs" / kept.result.diff_id
    inputs = json.loads((folder / "inputs.json").read_bytes())
    del inputs["content"]
    put(folder / "inputs.json", inputs)
    assert keep(cache).reused
    (folder / "events.jsonl").write_bytes((folder / "events.jsonl").read_bytes()[:-20])
    assert not keep(cache).reused


def test_show_asks_for_a_known_id(cache: Path) -> None:
    for diff_id, code in (("diff_" + "0" * 16, "NOT_FOUND"), ("../x", "INVALID_REQUEST")):
        with pytest.raises(DriftlineError) as caught:
            Registry(CacheRoot(cache)).load(diff_id)
        assert caught.value.code == code


def documents(cache: Path) -> list[tuple[str, Any]]:
    kept = keep(cache)
    folder = cache / "diffs" / kept.result.diff_id
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    return [
        ("manifest_entry", next(iter(json.loads((cache / "diffs/manifest.json").read_bytes())["diffs"].values()))),
        ("diff_inputs", json.loads((folder / "inputs.json").read_bytes())),
        ("diff_summary", json.loads((folder / "summary.json").read_bytes())),
        *(("diff_event", json.loads(line)) for line in lines),
        ("diff_event", {"kind": "file.added", "mode": "code", "file": "", "after": {}}),
    ]


def mutations(value: Any) -> list[Any]:
    """The value with each member, at any depth, removed or replaced by something odd."""
    if not isinstance(value, dict):
        return [None, True, -1, 1.5, 1.0, "", "x\n", [], {}, ["code"]]
    found = [{**value, "surprise": 1}]
    for name, item in value.items():
        rest = {other: kept for other, kept in value.items() if other != name}
        found += [rest, {**rest, name + "\n": item}]
        found += [{**value, name: mutated} for mutated in mutations(item)]
    return found


def test_the_compiled_contracts_agree_with_a_json_schema_library(cache: Path) -> None:
    from jsonschema import Draft202012Validator

    seen = {True: 0, False: 0}
    judges = {contract: Draft202012Validator(schema(contract)) for contract in CONTRACTS}
    for contract, document in documents(cache):
        for candidate in (document, *mutations(document)):
            if any("\n" in text for text in json.dumps(candidate).split('"')) or "\\n" in json.dumps(candidate):
                continue  # Python's `$` and JavaScript's differ before a last line feed
            if "1.0" in json.dumps(candidate):
                continue  # JSON Schema takes it for an integer; nobody writes one like that
            verdict = judges[contract].is_valid(candidate)
            assert (complaint_about(contract, candidate) is None) == verdict, candidate
            seen[verdict] += 1
    assert min(seen.values()) > 20


def test_contracts_are_valid_schemas_and_complain_with_a_place() -> None:
    from jsonschema import Draft202012Validator

    for contract in CONTRACTS:
        Draft202012Validator.check_schema(schema(contract))
    with pytest.raises(DriftlineError, match=r"Expected `object`, got `array` - at `\$.diffs`"):
        check("diffs_manifest", {"version": 1, "updatedAt": "2026-01-24T00:00:00Z", "diffs": []}, "manifest")
