"""What happens at the seams: lost shards, pipes, directories that may not be read, names of repositories."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.cli._outcome import run
from driftline.cli.main import driftline as cli
from driftline.codeindex._registry.keep import IndexDiffJob, name_repositories, run_job
from driftline.errors import DriftlineError
from support.index_caches import make_cache, put
from support.index_layouts import chunk_row, file_row, manifest_of, write_index

INDEX = {
    "code": {
        "file_meta": [file_row(0, "a.js", "a")],
        "chunk_meta": [chunk_row(number, "a.js", f"f{number}", number * 10) for number in range(6)],
    }
}
CHANGED = {"code": {**INDEX["code"], "file_meta": [file_row(0, "a.js", "b")]}}


@contextmanager
def unprivileged() -> Iterator[None]:
    """Without the rights of the superuser, whom no permission stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may look into, which pytest's are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def diff(before: Path, after: Path) -> Any:
    return codeindex.diff(f"path:{before}", f"path:{after}")


def sharded(root: Path, content: Any, **meta: Any) -> Path:
    write_index(root, content, "sharded")
    put(root / "index-code/chunk_meta.meta.json", {"format": "jsonl-sharded", **meta})
    return root


def test_an_empty_list_of_parts_is_an_empty_artifact(tmp_path: Path) -> None:
    before = sharded(tmp_path / "a", INDEX, parts=[])
    after = sharded(tmp_path / "b", CHANGED, parts=[])
    assert [event["kind"] for event in diff(before, after).events] == ["file.modified"]
    for shard in (after / "index-code/chunk_meta.parts").iterdir():
        shard.unlink()
    assert [event["kind"] for event in diff(before, after).events] == ["file.modified"]


def test_shards_that_the_manifest_lists_are_not_left_out(tmp_path: Path) -> None:
    before, after = sharded(tmp_path / "a", INDEX, parts=[]), sharded(tmp_path / "b", CHANGED, parts=[])
    put(after / "index-code/pieces/manifest.json", manifest_of(after / "index-code"))
    with pytest.raises(DriftlineError, match="leaves out shards"):
        diff(before, after)


@pytest.mark.parametrize("told", ["manifest", "bytes", "records"])
def test_an_emptied_shard_is_damage(tmp_path: Path, told: str) -> None:
    before, after = tmp_path / "a", tmp_path / "b"
    write_index(before, INDEX, "sharded")
    write_index(after, CHANGED, "sharded")
    folder = after / "index-code"
    shard = "chunk_meta.parts/chunk_meta.part-00001.jsonl"
    if told == "manifest":
        put(folder / "pieces/manifest.json", manifest_of(folder))
    else:
        sizes = [path.relative_to(folder) for path in sorted(folder.glob("chunk_meta.parts/*"))]
        parts = [{"path": str(path), told: (folder / path).stat().st_size} for path in sizes]
        put(folder / "chunk_meta.meta.json", {"parts": parts})
    assert [event["kind"] for event in diff(before, after).events] == ["file.modified"]
    (folder / shard).write_bytes(b"")
    with pytest.raises(DriftlineError, match="cut short") as caught:
        diff(before, after)
    assert caught.value.code == "INVALID_REQUEST"


@pytest.mark.parametrize("name", ["chunk_meta.jsonl", "chunk_meta.meta.json", "pieces/manifest.json"])
def test_a_pipe_does_not_block(tmp_path: Path, name: str) -> None:
    write_index(tmp_path / "a", INDEX, "jsonl")
    write_index(tmp_path / "b", CHANGED, "jsonl")
    path = tmp_path / "b/index-code" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(DriftlineError, match="not a regular file"):
        diff(tmp_path / "a", tmp_path / "b")


def test_meta_files_and_sidecars_do_not_defeat_the_fast_path(tmp_path: Path) -> None:
    for side in ("a", "b"):
        write_index(tmp_path / side, INDEX, "sharded")
        folder = tmp_path / side / "index-code"
        for name in ("file_meta", "chunk_meta"):
            meta = json.loads((folder / f"{name}.meta.json").read_bytes())
            put(folder / f"{name}.meta.json", {**meta, "generatedAt": side})
        put(folder / "chunk_meta.offsets.bin", side)
        put(folder / "pieces/manifest.json", manifest_of(folder))
    result = diff(tmp_path / "a", tmp_path / "b")
    assert result.modes[0].fast_path
    assert not result.has_changes


@pytest.mark.parametrize("member", ["buildRoot", "buildRoots", "buildRootsByMode"])
def test_current_may_hold_bare_build_ids(tmp_path: Path, member: str) -> None:
    cache = make_cache(tmp_path / "cache")
    put(cache / "builds/current.json", {member: "b1" if member == "buildRoot" else {"code": "b1"}})
    result = codeindex.diff("build:b1", "latest", cache_root=cache)
    assert not result.has_changes
    assert result.inputs["to"]["buildIdByMode"] == {"code": "b1"}


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(DriftlineError, match="unknown mode codee: the modes are"):
        codeindex.DiffOptions.of(modes="codee")
    with pytest.raises(DriftlineError, match="unknown mode") as caught:
        codeindex.DiffOptions.of(modes=f"{tempfile.gettempdir()}/x")
    assert tempfile.gettempdir() not in caught.value.message


@pytest.mark.parametrize("locked", ["builds/b2/index-code", "builds/b2", "builds", "diffs", "diffs/manifest.json", "."])
def test_what_may_not_be_read_is_an_error_without_a_path(open_folder: Path, locked: str, capfd: Any) -> None:
    closed, good = make_cache(open_folder / "closed"), make_cache(open_folder / "good")
    put(closed / "diffs/manifest.json", {"version": 1, "updatedAt": None, "diffs": {}})
    for path in (good, good / "builds"):
        os.chmod(path, 0o777)
    os.chmod(closed / locked, 0)
    words = ["index", "diff", "build:b1", "build:b2", "--json"]
    with unprivileged():
        code = run(cli, [*words, "--cache-root", str(closed)])
        answer = json.loads(capfd.readouterr().out)
        jobs = [IndexDiffJob.of("build:b1", "build:b2", str(root)) for root in (closed, good)]
        outcomes = [run_job(job) for job in jobs]
    os.chmod(closed / locked, 0o755)
    assert (code, answer["ok"]) == (2, False)
    assert str(open_folder) not in answer["message"]
    assert [outcome["ok"] for outcome in outcomes] == [False, True]
    assert str(open_folder) not in json.dumps(outcomes)


def test_a_cache_root_with_a_blank_in_its_name(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    cache = make_cache(tmp_path / "my cache")
    monkeypatch.setenv("DRIFTLINE_CACHE_ROOT", str(cache))
    assert run(cli, ["index", "diff", "--from", "build:b1", "--to", "latest", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["persisted"] is True


def test_every_format_with_many_roots(tmp_path: Path, capfd: Any) -> None:
    roots = [make_cache(tmp_path / name / "cache") for name in ("one", "two")]
    words = ["index", "diff", "build:b1", "latest", *(word for root in roots for word in ("--cache-root", str(root)))]
    assert run(cli, [*words, "--format", "jsonl"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["repository"] for line in lines] == ["one/cache"] * 4 + ["two/cache"] * 4
    assert [line["kind"] for line in lines[:4]] == [line["kind"] for line in lines[4:]]
    assert run(cli, [*words, "--format", "markdown"]) == 0
    out = capfd.readouterr().out
    assert out.index("# one/cache") < out.index("- chunk.modified `a.js` `f`") < out.index("# two/cache")
    assert run(cli, [*words, "--cache-root", str(tmp_path / "none"), "--format", "jsonl"]) == 2
    captured = capfd.readouterr()
    assert len(captured.out.splitlines()) == 8
    assert "none: error[not_found]" in captured.err


def test_an_output_file_is_whole_and_its_ending_chooses_the_format(tmp_path: Path, capfd: Any) -> None:
    cache = make_cache(tmp_path / "cache")
    words = ["index", "diff", "build:b1", "latest", "--cache-root", str(cache)]
    assert run(cli, [*words, "--format", "jsonl"]) == 0
    expected = capfd.readouterr().out
    assert run(cli, [*words, "-o", str(tmp_path / "events.jsonl")]) == 0
    assert (tmp_path / "events.jsonl").read_text() == expected
    assert run(cli, [*words, "-o", str(tmp_path / "diff.json"), "--exit-code"]) == 1
    assert json.loads((tmp_path / "diff.json").read_text())["ok"] is True
    assert capfd.readouterr().out == ""
    assert run(cli, ["index", "diff", "build:none", *words[3:], "-o", str(tmp_path / "none.json")]) == 2
    assert json.loads(capfd.readouterr().out)["code"] == "NOT_FOUND"
    assert run(cli, ["index", "list", "--cache-root", str(cache), "-o", str(tmp_path / "list.html")]) == 2
    assert "its ending tells no format of this command" in capfd.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "events.jsonl", "diff.json"}


def test_repositories_are_told_apart() -> None:
    roots = ["/x/a/cache", "/x/b/cache", "/y/other", None, "/x/b/cache"]
    jobs = name_repositories([IndexDiffJob.of("latest", "latest", root) for root in roots])
    assert [job.repository for job in jobs] == ["a/cache", "b/cache", "other", ".", "b/cache"]


@pytest.mark.parametrize(
    ("words", "persisted"),
    [
        (["--persist", "true"], True), (["--persist", "FALSE"], False), (["--persist=no"], False), ([], True),
        (["--no-persist"], False), (["--persist"], True), (["--persist", "--detect-renames", "false"], True),
        (["--include-relations", "false", "--persist", "0"], False),
    ],
)  # fmt: skip
def test_flags_with_and_without_values(tmp_path: Path, words: list[str], persisted: bool, capfd: Any) -> None:
    cache = make_cache(tmp_path / "cache")
    for place in (["--json", *words], [*words, "--json"]):
        assert run(cli, ["index", "diff", *place, "build:b1", "latest", "--cache-root", str(cache)]) == 0
        assert json.loads(capfd.readouterr().out)["persisted"] is persisted


@pytest.mark.parametrize("words", [["list"], ["diff", "list"]])
def test_registry_commands_have_short_and_old_names(tmp_path: Path, words: list[str], capfd: Any) -> None:
    cache = str(make_cache(tmp_path / "cache"))
    assert run(cli, ["index", "diff", "build:b1", "latest", "--cache-root", cache, "--format", "json"]) == 0
    diff_id = json.loads(capfd.readouterr().out)["diffId"]
    assert run(cli, ["index", *words, "--cache-root", cache, "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["diffs"][0]["diffId"] == diff_id
    show = [*words[:-1], "show"]
    assert run(cli, ["index", *show, diff_id, "--cache-root", cache, "--json"]) == 0
    assert run(cli, ["index", *show, "--diff", diff_id, "--cache-root", cache, "--json"]) == 0
