"""Indexes of git revisions: built from objects, once a blob, the same bytes each time."""

# ruff: noqa: E501 - small files of source read best on one line

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.cli._outcome import run
from driftline.cli.main import driftline as cli
from driftline.codeindex._build import build as building
from driftline.codeindex._git import TreeEntry
from driftline.errors import DriftlineError
from support.processes import run_process
from support.repositories import ENVIRONMENT, git, make_repository

pytest.importorskip("tree_sitter")

V1 = {
    "pkg/__init__.py": "from .core import f\n",
    "pkg/core.py": "def f(a):\n    return a\n\nclass A:\n    def m(self):\n        return f(1)\n",
    "README.md": "# Title\n\ntext\n\n## Part\n\nmore\n",
    "data.json": '{"a": {"b": 1, "c": [1, 2]}, "/pets/{id}": 2}\n',
    "conf.yaml": "paths:\n  /pets/{id}: 1\n  /x: 2\nother: 3\n",
    "conf.toml": 'top = 1\n[tool.x]\na = 1\nb = "2"\n',
}
V2 = {**V1, "pkg/core.py": V1["pkg/core.py"].replace("f(a)", "f(a, b)"), "pkg/new.py": "X = 1\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo", V1, V2)


def tree_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def kinds(result: Any) -> list[tuple[str, str]]:
    return [(event["kind"], event.get("name", event["file"])) for event in result.events]


def test_equal_trees_give_equal_bytes_however_they_were_built(repo: Path, tmp_path: Path) -> None:
    full = codeindex.build(repo, "v2", tmp_path / "full")
    first = codeindex.build(repo, "v1", tmp_path / "steps")
    second = codeindex.build(repo, "v2", tmp_path / "steps")
    assert (first.parsed, second.parsed, second.reused) == (6, 2, False)
    assert tree_bytes(full.root) == tree_bytes(second.root)
    again = codeindex.build(repo, "v2", tmp_path / "steps")
    assert (again.reused, again.chunks) == (True, full.chunks)
    forced = codeindex.build(repo, "v2", tmp_path / "steps", force=True)
    assert (forced.reused, forced.parsed) == (False, 7)
    assert tree_bytes(forced.root) == tree_bytes(full.root)
    current = json.loads((tmp_path / "steps/builds/current.json").read_bytes())
    assert current["buildId"] == full.build_id == f"git-{full.tree_id[:12]}-{building.config_hash()[:8]}"
    assert not list((tmp_path / "steps/builds").glob(".*"))


def test_rows_are_taken_over_under_another_path(tmp_path: Path) -> None:
    moved = {path.replace("pkg/", "_lib/"): text for path, text in V1.items()}
    repo = make_repository(tmp_path / "repo", V1, moved)
    codeindex.build(repo, "v1", tmp_path / "steps")
    second = codeindex.build(repo, "v2", tmp_path / "steps")
    assert second.parsed == 0
    assert tree_bytes(second.root) == tree_bytes(codeindex.build(repo, "v2", tmp_path / "full").root)
    assert {event["kind"] for event in codeindex.diff("git:v1", "git:v2", repo=repo).events} == {"file.renamed"}


def test_many_files_are_parsed_in_processes_with_the_same_bytes(tmp_path: Path, monkeypatch: Any) -> None:
    files = {f"d{n % 7}/m{n}.py": f"def f{n}(a):\n    return a + {n}\n" for n in range(300)}
    repo = make_repository(tmp_path / "repo", files)
    one = codeindex.build(repo, "v1", tmp_path / "one")
    monkeypatch.setattr(building, "_SPAWN_FROM_BYTES", 1)
    monkeypatch.setattr(building, "_BATCH_BYTES", 2000)
    many = codeindex.build(repo, "v1", tmp_path / "many")
    assert tree_bytes(one.root) == tree_bytes(many.root)
    assert len(list((one.root / "index-code/chunk_meta.parts").iterdir())) > 2


def test_a_bare_clone_a_worktree_and_the_repository_agree(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"), "v1")
    results = [
        kinds(codeindex.diff("git:v1", "git:v2", repo=place))
        for place in (repo, tmp_path / "bare.git", tmp_path / "tree")
    ]
    assert results[0] == results[1] == results[2]
    assert ("chunk.modified", "f") in results[0]
    assert (repo / ".git/driftline/builds").is_dir()
    assert (tmp_path / "bare.git/driftline/builds").is_dir()
    assert not (tmp_path / "tree/driftline").exists()


def test_a_diff_is_true_where_the_sides_differ(repo: Path) -> None:
    assert codeindex.diff("git:v1", "git:v2", repo=repo)
    assert not codeindex.diff("git:v1", "git:v1", repo=repo)


def test_a_shallow_clone_says_so(repo: Path, tmp_path: Path) -> None:
    words = ["git", "clone", "-q", "--depth", "1", "--no-tags", f"file://{repo}", str(tmp_path / "shallow")]
    run_process(words, check=True, env=ENVIRONMENT)
    with pytest.raises(DriftlineError, match=r"shallow.*--unshallow") as caught:
        codeindex.diff("git:HEAD~1", "git:HEAD", repo=tmp_path / "shallow")
    assert caught.value.code == "NOT_FOUND"
    assert not codeindex.diff("git:HEAD", "git:main", repo=tmp_path / "shallow").has_changes


@pytest.mark.parametrize("revision", ["nope", "--all", "HEAD^{blob}", "v1:nowhere", " "])
def test_a_wrong_revision(repo: Path, revision: str) -> None:
    with pytest.raises(DriftlineError) as caught:
        codeindex.diff(f"git:{revision}", "git:v2", repo=repo)
    assert caught.value.code in ("NOT_FOUND", "INVALID_REQUEST")
    assert str(repo) not in caught.value.message


def test_what_is_not_a_repository(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DriftlineError) as caught:
            codeindex.build(place)
        assert str(tmp_path) not in caught.value.message


def test_hooks_do_not_lead_astray(repo: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert codeindex.build(repo, "v1").files == 6


def test_files_that_are_not_read_are_told(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "big.py": "x = 1\n" * 200_000, "nul.py": b"x = 1\0\n", "api_pb2.py": "x = 1\n", "a.min.js": "x = 1\n",
        "gen.go": "// Code generated by x. DO NOT EDIT.\npackage p\n", "vendor/v.py": "x = 1\n", "ok.py": "x = 1\n",
        "broken.py": "def f(:\n  return\nclass A: pass\n", "LICENSE": "text\n", "empty.py": "",
    }  # fmt: skip
    repo = make_repository(tmp_path / "repo", files)
    git(repo, "checkout", "-q", "-f", "main")
    (repo / "link.py").symlink_to("ok.py")
    git(repo, "add", "link.py")
    git(repo, "commit", "-q", "-m", "link")
    built = codeindex.build(repo)
    assert built.skipped == {"binary": 1, "generated": 3, "symlink": 1, "too-large": 1, "vendored": 1}
    assert (built.files, built.parse_errors) == (11, 1)


def test_paths_that_are_not_text(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", {"a.py": "x = 1\n"})
    blob = git(repo, "rev-parse", "v1:a.py")
    entry = f"100644 blob {blob}\t".encode() + b"\xff\xfe.py\0"
    tree = git(repo, "mktree", "-z", stdin=entry)
    result = codeindex.diff("git:v1", f"git:{tree}", repo=repo)
    assert [event["file"] for event in result.events] == ["\\xff\\xfe.py"]


GENERATED = [
    "// Code generated by x. DO NOT EDIT.\n", "/* @generated */\n", "/**\n * @generated SignedSource<<1>>\n */\n",
    "// <auto-generated>\n", '"""\nCode generated by x; do not edit.\n"""\n', '"""@generated by x"""\n',
]  # fmt: skip
WRITTEN = [
    "import { client } from '@generated/client';\n", 'MARK = re.compile(r"code generated .* do not edit|@generated")\n',
    'say("<auto-generated")\n', "// generated by hand\n",
]  # fmt: skip


@pytest.mark.parametrize("text", [*GENERATED, *WRITTEN])
def test_a_file_is_generated_if_it_says_so_and_not_if_it_speaks_of_it(text: str) -> None:
    (rows,) = building.parse_batch([(TreeEntry("a.py", "100644", "0" * 40, 1), "python", text.encode() + b"x = 1\n")])
    assert rows.skipped == ("generated" if text in GENERATED else None)


def test_entries_and_headings(tmp_path: Path) -> None:
    after = {
        **V1,
        "data.json": V1["data.json"].replace("[1, 2]", "[1, 3]"),
        "conf.yaml": V1["conf.yaml"].replace("/x: 2", "/x: 4"),
        "conf.toml": V1["conf.toml"].replace('"2"', '"3"').replace("top = 1", "top = 2"),
        "README.md": V1["README.md"].replace("more", "less"),
    }
    repo = make_repository(tmp_path / "repo", V1, after)
    result = codeindex.diff("git:v1", "git:v2", repo=repo, modes="code,prose")
    told = [(event["file"], event["name"], event["changes"]) for event in result.events if "changes" in event]
    assert told == [
        ("conf.toml", "tool.x.b", ["body"]), ("conf.toml", "top", ["body"]), ("conf.yaml", "paths./x", ["body"]),
        ("data.json", "a.c", ["body"]), ("README.md", "Title.Part", ["body"]),
    ]  # fmt: skip


def test_a_diff_of_revisions_is_kept_by_tree(repo: Path, capfd: Any) -> None:
    words = ["index", "diff", "git:v1", "git:v2", "--repo", str(repo), "--json"]
    assert run(cli, words) == 0
    first = json.loads(capfd.readouterr().out)
    assert run(cli, ["index", "diff", "git:v1^{tree}", "git:HEAD", *words[4:], "--exit-code"]) == 1
    again = json.loads(capfd.readouterr().out)
    assert (first["reused"], again["reused"]) == (False, True)
    assert again["summary"]["from"]["label"] == "v1^{tree}"
    assert again["summary"]["from"]["ref"] == f"git:{git(repo, 'rev-parse', 'v1^{tree}')}"
    assert list(again["summary"]["modesSummary"]["code"]["chunks"]) == [
        "added",
        "removed",
        "modified",
        "renamed",
        "moved",
    ]
    assert run(cli, ["index", "list", "--repo", str(repo), "--json"]) == 0
    assert [entry["diffId"] for entry in json.loads(capfd.readouterr().out)["diffs"]] == [first["diffId"]]
    assert run(cli, ["index", "show", first["diffId"], "--repo", str(repo), "--format", "markdown"]) == 0
    assert "+def f(a, b):" in capfd.readouterr().out


def test_semantic_v1_reads_the_same_builds_and_v2_only_these(repo: Path, tmp_path: Path) -> None:
    old = codeindex.diff("git:v1", "git:v2", repo=repo, kind="semantic-v1")
    assert old.inputs["kind"] == "semantic-v1"
    assert ("chunk.modified", "f") in kinds(old)
    from support.index_caches import make_cache

    cache = make_cache(tmp_path / "cache")
    with pytest.raises(DriftlineError, match="no body hashes") as caught:
        codeindex.diff("build:b1", "latest", cache_root=cache, kind="semantic-v2")
    assert caught.value.code == "INVALID_REQUEST"


def test_limits(repo: Path) -> None:
    result = codeindex.diff("git:v1", "git:v2", repo=repo, max_chunks_per_file=1)
    assert result.summary["modesSummary"]["code"]["limits"]["reason"] == "max-chunks-per-file"
    many = make_repository(repo.parent / "many", {"a.py": "a=1\n", "b.py": "b=1\n"}, {"a.py": "a=2\n", "b.py": "b=2\n"})
    result = codeindex.diff("git:v1", "git:v2", repo=many, max_changed_files=1)
    assert next(event["kind"] for event in result.events) == "limits.chunkDiffSkipped"
    assert len(list(codeindex.diff("git:v1", "git:v2", repo=many, max_events=1).events)) == 1


def test_a_damaged_build_is_told_and_built_again(repo: Path, tmp_path: Path, capfd: Any) -> None:
    cache = tmp_path / "cache"
    for revision in ("v1", "v2"):
        built = codeindex.build(repo, revision, cache)
    shard = next((built.root / "index-code/chunk_meta.parts").iterdir())
    shard.write_bytes(shard.read_bytes()[:-5])
    words = ["index", "diff", "git:v1", "git:v2", "--repo", str(repo), "--cache-root", str(cache), "--json"]
    assert run(cli, words) == 2
    assert "build the index again" in json.loads(capfd.readouterr().out)["message"]
    assert run(cli, ["index", "build", f"{repo}@v2", "--cache-root", str(cache), "--force"]) == 0
    assert run(cli, words) == 0


def test_a_damaged_shard_does_not_go_into_the_next_build(repo: Path, tmp_path: Path) -> None:
    built = codeindex.build(repo, "v1", tmp_path / "cache")
    (shard,) = (built.root / "index-code/chunk_meta.parts").iterdir()
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DriftlineError, match=r"chunk_meta\.part-00000\.jsonl\.zst is damaged.*--force"):
        codeindex.build(repo, "v2", tmp_path / "cache")
    assert codeindex.build(repo, "v2", tmp_path / "cache", force=True).files == 7


def test_a_missing_shard_is_not_linked(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo", {"m.py": "A = 1\n"}, {"m.py": "A = 1\n", "n.md": "# A\n"})
    built = codeindex.build(repo, "v1", tmp_path / "cache")
    next((built.root / "index-code/chunk_meta.parts").iterdir()).unlink()
    with pytest.raises(DriftlineError, match=r"part-00000\.jsonl\.zst is damaged"):
        codeindex.build(repo, "v2", tmp_path / "cache")


def test_builds_of_earlier_versions_are_compared_too(repo: Path, tmp_path: Path) -> None:
    """Their meta files list no frames: shards are read whole."""
    cache = tmp_path / "cache"
    builds = [codeindex.build(repo, revision, cache) for revision in ("v1", "v2")]
    refs = [f"build:{built.build_id}" for built in builds]
    expected = list(codeindex.diff(*refs, cache_root=cache, kind="semantic-v2").events)
    for built in builds:
        meta = built.root / "index-code/chunk_meta.meta.json"
        content = json.loads(meta.read_bytes())
        for part in content["parts"]:
            del part["frames"]
        meta.write_text(json.dumps(content))
    assert len(expected) > 3
    assert list(codeindex.diff(*refs, cache_root=cache, kind="semantic-v2").events) == expected


def test_the_review_reads_renames_first_and_escapes_source(tmp_path: Path, capfd: Any) -> None:
    body = "    total = 0\n    for item in items:\n        if item.price > limit:\n            total += item.price\n    return total\n"
    before = {"m.py": f"def total(items, limit):\n{body}\ndef g(a):\n    return '<b>'\n"}
    after = {"m.py": f"def sum_above(items, limit):\n{body}\ndef g(a):\n    return '<script>alert(1)</script>'\n"}
    repo = make_repository(tmp_path / "repo", before, after)
    words = ["index", "diff", "git:v1", "git:v2", "--repo", str(repo), "--no-persist"]
    assert run(cli, [*words, "--format", "html"]) == 0
    page = capfd.readouterr().out
    assert page.index("Renamed and moved") < page.index("sum_above") < page.index("<section")
    assert "<script>" not in page
    assert "&lt;" in page
    assert "script&gt;" in page
    assert "<mark>" in page
    assert run(cli, [*words, "--format", "markdown"]) == 0
    text = capfd.readouterr().out
    assert "- `total` in `m.py` → `sum_above` in `m.py` (similarity 1.0)" in text
    assert "  +    return '<script>alert(1)</script>'" in text


def test_results_as_frames(repo: Path) -> None:
    frame = codeindex.diff("git:v1", "git:v2", repo=repo).to_frame()
    assert frame.filter(frame["kind"] == "chunk.modified")["name"].to_list() == ["f"]
    assert frame.filter(frame["kind"] == "chunk.modified")["changes"].to_list() == [["signature"]]
    empty = codeindex.diff("git:v1", "git:v1", repo=repo).to_frame()
    assert (empty.height, empty.columns) == (0, frame.columns)
    report = codeindex.api("git:v1", "git:v2", repo=repo)
    assert report.to_frame()["verdict"].to_list()[:2] == ["breaking", "compatible"]


UNGUARDED = """
import sys
from driftline import codeindex
from driftline.codeindex._build import build as building
building._SPAWN_FROM_BYTES = 1
print(codeindex.build(sys.argv[1]).files, __file__ == sys.argv[0], __spec__)
"""


def test_a_script_needs_no_guard_for_its_main_program(repo: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    done = run_process([sys.executable, str(script), str(repo)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("7 True None\n", "")


def test_git_is_asked_for_in_words(repo: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DriftlineError, match="git is not installed"):
        codeindex.build(repo)
    shutil.rmtree(repo)


def test_the_api_gate(repo: Path, capfd: Any) -> None:
    words = ["index", "api", "--from", "git:v1", "--to", "git:v2", "--repo", str(repo)]
    assert run(cli, words) == 0
    assert "verdict: major (1 major, 0 unknown, 1 minor, 0 patch)" in capfd.readouterr().err
    assert run(cli, [*words, "--exit-code", "--format", "json"]) == 1
    answer = json.loads(capfd.readouterr().out)
    told = [
        (change["rule"], change["name"], change["why"]) for change in answer["changes"] if change["level"] == "major"
    ]
    assert (answer["ok"], answer["breaking"], told) == (True, 1, [("parameter-added-required", "pkg.core.f", "b")])
    assert run(cli, ["index", "api", "git:v1", "git:v1", "--repo", str(repo), "--exit-code"]) == 0
    assert run(cli, ["index", "api", "git:v1", "git:nope", "--repo", str(repo), "--exit-code"]) == 2
    capfd.readouterr()
    assert run(cli, [*words, "--format", "markdown", "--breaking-only"]) == 0
    out = capfd.readouterr().out
    assert "### major" in out
    assert "minor:" not in out
