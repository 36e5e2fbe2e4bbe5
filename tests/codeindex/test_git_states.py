"""The change in hand: the working tree, the staged state, ranges, and what git cannot give."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.cli._outcome import run
from driftline.cli.main import driftline as cli
from driftline.codeindex._build import build as building
from driftline.codeindex._git import STAGED, WORKING_TREE, GitRepository
from driftline.core import exclusive_lock
from driftline.errors import DriftlineError
from support.processes import run_process
from support.repositories import git, make_repository

pytest.importorskip("tree_sitter")

BEFORE = {"a.py": "def f(a):\n    return a\n", "lib/b.py": "def g(): ...\n", "c.py": "x = 1\n", "gone.py": "y = 1\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "repo", BEFORE)
    git(made, "reset", "-q", "--hard")
    return made


def edit(repo: Path) -> None:
    (repo / "a.py").write_text("def f(a, b):\n    return a\n")
    (repo / "new.py").write_text("def fresh(): ...\n")
    (repo / "c.py").write_bytes(b"x = 1\r\n")
    (repo / "run.sh").write_text("go() { true; }\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("a.py")
    (repo / ".gitignore").write_text("ignored.py\n")
    (repo / "ignored.py").write_text("def no(): ...\n")
    (repo / "gone.py").unlink()


def events(repo: Path, before: str, after: str) -> list[Any]:
    return list(codeindex.diff(before, after, repo=repo).events)


def test_the_working_tree_is_what_a_commit_of_it_would_be(repo: Path) -> None:
    edit(repo)
    state = GitRepository(repo).state(WORKING_TREE)
    told = events(repo, "git:HEAD", "worktree")
    status = git(repo, "status", "--porcelain")
    git(repo, "add", "-A")
    staged = GitRepository(repo).state(STAGED)
    assert events(repo, "git:HEAD", "staged") == told
    git(repo, "commit", "-q", "-m", "it")
    assert state.tree_id == staged.tree_id == git(repo, "rev-parse", "HEAD^{tree}")
    assert events(repo, "git:HEAD~1", "git:HEAD") == told
    assert {event["file"] for event in told} == {"a.py", "c.py", "new.py", "run.sh", "link", ".gitignore", "gone.py"}
    assert "?? new.py" in status  # nothing was staged by looking


CRLF = b"T = '''one\r\ntwo'''\r\nU = 1\r\n"


def nested_repository(repo: Path) -> Path:
    inner = make_repository(repo / "inner", {"k.py": "k = 1\n"}, {"k.py": "k = 2\n"})
    git(inner, "reset", "-q", "--hard")
    return inner


def file_becomes_folder(repo: Path) -> None:
    (repo / "a.py").unlink()
    (repo / "a.py").mkdir()
    (repo / "a.py/z.py").write_text("def z(): ...\n")


def folder_becomes_file(repo: Path) -> None:
    (repo / "lib/b.py").unlink()
    (repo / "lib").rmdir()
    (repo / "lib").write_text("text\n")


def folder_becomes_link(repo: Path) -> None:
    (repo / "lib").rename(repo / "other")
    (repo / "other/b.py").write_text("def g(x): ...\n")
    (repo / "lib").symlink_to("other")


def converted_by_setting(repo: Path) -> None:
    git(repo, "config", "core.autocrlf", "true")
    git(repo, "config", "core.safecrlf", "true")
    (repo / "c.py").write_bytes(CRLF)
    (repo / "new.py").write_bytes(CRLF)


def converted_by_attributes(repo: Path) -> None:
    (repo / ".gitattributes").write_text("c.py text=auto\na.py ident\ngone.py working-tree-encoding=UTF-16\n")
    (repo / "c.py").write_bytes(CRLF)
    (repo / "a.py").write_text("x = '$Id: abc $'\n")
    (repo / "gone.py").write_bytes("y = 2\n".encode("utf-16"))


def repository_inside(repo: Path) -> None:
    nested_repository(repo)
    git(repo, "init", "-q", "without-a-commit")


def submodule_moves(repo: Path) -> None:
    inner = nested_repository(repo)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "with a submodule")
    git(inner, "checkout", "-q", "v1")
    (inner / "k.py").write_text("k = 3\n")


def modes_do_not_count(repo: Path) -> None:
    git(repo, "config", "core.fileMode", "false")
    (repo / "a.py").write_text("def f(): ...\n")
    (repo / "a.py").chmod(0o755)


def only_intended(repo: Path) -> None:
    (repo / "intended.py").write_text("def i(): ...\n")
    git(repo, "add", "-N", "intended.py")


def sparse(repo: Path) -> None:
    git(repo, "config", "core.splitIndex", "true")
    git(repo, "sparse-checkout", "set", "--cone", "--sparse-index", "lib")
    (repo / "lib/b.py").write_text("def g(n): ...\n")


def conflict(repo: Path) -> None:
    for branch, parameter in (("side", "s"), ("main", "m")):
        git(repo, "checkout", "-q", "-B", branch, "v1")
        (repo / "a.py").write_text(f"def f({parameter}): ...\n")
        (repo / "lib/b.py").write_text("def h(): ...\n") if branch == "side" else (repo / "lib/b.py").unlink()
        git(repo, "commit", "-q", "-a", "-m", branch)
    with pytest.raises(AssertionError):
        git(repo, "merge", "-q", "side")


STATES = [
    file_becomes_folder, folder_becomes_file, folder_becomes_link, converted_by_setting, converted_by_attributes,
    repository_inside, submodule_moves, modes_do_not_count, only_intended, sparse, conflict,
]  # fmt: skip


@pytest.mark.parametrize("change", STATES, ids=lambda change: change.__name__)
def test_states_are_what_git_would_commit(change: Any, repo: Path) -> None:
    change(repo)
    listed = sorted(path for path in (repo / ".git").rglob("*") if "driftline" not in path.parts)
    index, status = (repo / ".git/index").read_bytes(), git(repo, "status", "--porcelain")
    told = events(repo, "git:HEAD", "worktree")
    state, staged = (GitRepository(repo).state(kind).tree_id for kind in (WORKING_TREE, STAGED))
    page = codeindex.diff_page(codeindex.diff("git:HEAD", "worktree", repo=repo), "markdown", str(repo))
    assert sorted(path for path in (repo / ".git").rglob("*") if "driftline" not in path.parts) == listed
    assert ((repo / ".git/index").read_bytes(), git(repo, "status", "--porcelain")) == (index, status)
    if change is not conflict:
        assert staged == git(repo, "write-tree")
    if (repo / "without-a-commit").exists():
        shutil.rmtree(repo / "without-a-commit")  # git refuses to add it
    git(repo, "config", "core.safecrlf", "false")
    git(repo, "add", "-A")
    before = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "-m", "it")
    assert state == git(repo, "rev-parse", "HEAD^{tree}")
    assert told
    assert events(repo, f"git:{before}", "git:HEAD") == told
    assert (
        page.partition("\n")[2]
        == codeindex.diff_page(codeindex.diff(f"git:{before}", "git:HEAD", repo=repo), "markdown", str(repo)).partition(
            "\n"
        )[2]
    )


def test_before_the_first_commit_everything_is_added(tmp_path: Path, capfd: Any) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "a.py").write_text("def f(): ...\n")
    assert run(cli, ["index", "diff", "--repo", str(tmp_path), "--format", "json", "--events"]) == 0
    told = json.loads(capfd.readouterr().out)["events"]
    assert [(event["kind"], event["file"]) for event in told] == [("file.added", "a.py"), ("chunk.added", "a.py")]
    assert events(tmp_path, "git:HEAD", "staged") == []
    git(tmp_path, "add", "-A")
    assert events(tmp_path, "git:HEAD", "staged") == told
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "checkout", "-q", "--orphan", "other")
    assert events(tmp_path, "git:HEAD", "git:main") == told


def test_staged_and_changed_again(repo: Path) -> None:
    edit(repo)
    git(repo, "add", "a.py")
    (repo / "a.py").write_text("def f(c): ...\n")
    assert {event["file"] for event in events(repo, "git:HEAD", "staged")} == {"a.py"}
    result = codeindex.diff("staged", "worktree", repo=repo)
    assert "a.py" in {event["file"] for event in result.events}
    page = codeindex.diff_page(result, "markdown", str(repo))
    assert "def f(c): ..." in page


def test_words_like_those_of_git(repo: Path, capfd: Any) -> None:
    git(repo, "checkout", "-q", "-b", "side")
    edit(repo)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "side")
    git(repo, "checkout", "-q", "main")
    (repo / "ignored.py").unlink()
    (repo / "lib/b.py").write_text("def g(x): ...\n")

    def told(*words: str) -> set[str]:
        assert run(cli, ["index", "diff", *words, "--repo", str(repo), "--format", "json", "--events"]) == 0
        return {event["file"] for event in json.loads(capfd.readouterr().out)["events"]}

    all_of_it = {"a.py", "new.py", "c.py", "run.sh", "link", ".gitignore", "gone.py"}
    assert told() == told("HEAD") == told("main", "worktree") == {"lib/b.py"}
    assert told("--staged") == set()
    assert told("main..side") == told("main", "side") == told("git:main", "git:side") == all_of_it
    git(repo, "commit", "-q", "-a", "-m", "main")
    assert told("main...side") == all_of_it
    assert told("side..") == told("side", "HEAD") == {*all_of_it, "lib/b.py"}
    capfd.readouterr()
    words = ["index", "diff", "main..side", "--repo", str(repo), "--format", "json", "--events", "--", "lib", "a.py"]
    assert run(cli, words) == 0
    answer = json.loads(capfd.readouterr().out)
    assert {event["file"] for event in answer["events"]} == {"a.py", "lib/b.py"}
    assert answer["summary"]["totalEvents"] == len(answer["events"])
    assert run(cli, ["index", "diff", "nope", "--repo", str(repo)]) == 2
    assert run(cli, ["index", "diff", "a", "b", "c", "--repo", str(repo)]) == 2
    assert run(cli, ["index", "api", "main..side", "--repo", str(repo), "--exit-code"]) == 1


def test_nothing_of_the_configuration_is_run(repo: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    script = tmp_path / "command"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    for name in (
        "core.fsmonitor",
        "filter.x.clean",
        "filter.x.process",
        "diff.external",
        "core.pager",
        "diff.x.textconv",
    ):
        git(repo, "config", name, str(script))
    git(repo, "config", "filter.x.required", "true")
    (repo / ".git/hooks").mkdir(exist_ok=True)
    (repo / ".git/hooks/post-index-change").symlink_to(script)
    (repo / ".git/info/attributes").write_text("*.py filter=x diff=x\n")
    edit(repo)
    os.utime(repo / "lib/b.py", (1, 1))
    assert "a.py" in {event["file"] for event in events(repo, "git:HEAD", "worktree")}
    assert not mark.exists()


def test_a_missing_blob_is_told(repo: Path, capfd: Any) -> None:
    edit(repo)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "it")
    blob = git(repo, "rev-parse", "HEAD:a.py")
    (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert run(cli, ["index", "diff", "HEAD~1", "HEAD", "--repo", str(repo)]) == 0
    assert "not read, or not surely: a.py (missing)" in capfd.readouterr().err
    assert run(cli, ["index", "api", "HEAD~1", "HEAD", "--repo", str(repo), "--strict"]) == 1
    assert "unknown unread" in capfd.readouterr().err


def test_files_that_are_not_read_are_told(tmp_path: Path, capfd: Any) -> None:
    head = "// Code generated by x. DO NOT EDIT.\npackage m\n\n"
    repo = make_repository(
        tmp_path / "repo",
        {"a.go": head + "func F() {}\n", "go.mod": "module m\n", "b.ts": "export const k = 1\n"},
        {"a.go": head, "go.mod": "module m\n", "b.ts": "export function one(a { if (a {\n"},
    )
    assert run(cli, ["index", "diff", "v1", "v2", "--repo", str(repo)]) == 0
    assert "not read, or not surely: a.go (generated), b.ts (unparsed)" in capfd.readouterr().err
    assert run(cli, ["index", "api", "v1", "v2", "--repo", str(repo), "--exit-code"]) == 0
    said = capfd.readouterr().err
    assert "a.go was not read" in said
    assert "verdict: not known (0 major, 2 unknown" in said


def test_a_partial_clone_fetches_nothing_unless_asked(repo: Path, tmp_path: Path, capfd: Any) -> None:
    edit(repo)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "it")
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(repo, "config", "uploadpack.allowAnySHA1InWant", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", f"file://{repo}", str(clone))
    mark = tmp_path / "ran"
    script = tmp_path / "command"
    script.write_text(f'#!/bin/sh\necho x >> {mark}\nexec git-upload-pack "$@"\n')
    script.chmod(0o755)
    git(clone, "config", "remote.origin.uploadpack", str(script))
    words = ["index", "diff", "HEAD~1", "HEAD", "--repo", str(clone)]
    assert run(cli, words) == 0
    assert "(missing)" in capfd.readouterr().err
    assert not mark.exists()
    whole = events(repo, "git:HEAD~1", "git:HEAD")
    assert (
        run(cli, [*words, "--fetch-missing", "--format", "json", "--events", "--cache-root", str(tmp_path / "c")]) == 0
    )
    assert json.loads(capfd.readouterr().out)["events"] == whole
    assert not mark.exists()


PARALLEL = """
import sys
from driftline.cli._outcome import run
from driftline.cli.main import driftline as cli
sys.exit(run(cli, ["index", "diff", "git:v1", "git:v2", "--repo", sys.argv[1]]))
"""


def test_parallel_use_neither_fails_nor_waits_in_vain(tmp_path: Path) -> None:
    files = {f"m{number}.py": f"def f{number}(a):\n    return a\n" for number in range(40)}
    repo = make_repository(tmp_path / "repo", files, {**files, "m0.py": "def f0(a, b): ...\n"})
    words = [sys.executable, "-c", PARALLEL, str(repo)]
    running = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [(process.communicate()[1].count("error"), process.returncode) for process in running] == [(0, 0)] * 4
    assert not [path for path in (repo / ".git/driftline/builds").iterdir() if path.name.startswith(".")]


def test_a_build_that_another_process_made_meanwhile_stays(repo: Path, monkeypatch: Any) -> None:
    made: list[int] = []
    write = building._write_build

    def slow(writing: Any, folder: Path) -> None:
        write(writing, folder)
        if not made:
            made.append(0)
            made[0] = codeindex.build(repo).root.stat().st_ino

    monkeypatch.setattr(building, "_write_build", slow)
    assert codeindex.build(repo).root.stat().st_ino == made[0]


def test_prune_collects_builds_and_what_killed_processes_left(repo: Path, capfd: Any) -> None:
    first = codeindex.build(repo).build_id
    edit(repo)
    assert run(cli, ["index", "diff", "--repo", str(repo)]) == 0
    builds = repo / ".git/driftline/builds"
    (builds / ".git-0-0.abcd.tmp").mkdir()
    alive = builds / ".git-0-1.abcd.tmp"
    alive.mkdir()
    with exclusive_lock(alive.with_suffix(".lock"), scope="index-build"):
        capfd.readouterr()
        assert run(cli, ["index", "prune", "--repo", str(repo), "--max-builds", "0", "--format", "json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert len(told["builds"]) == 2
    assert ".git-0-0.abcd.tmp" in told["builds"]
    assert sorted(path.name for path in builds.iterdir()) == [alive.name, "current.json", first]


def test_bare_repositories_have_no_working_tree(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare")
    with pytest.raises(DriftlineError, match="work tree"):
        codeindex.diff("git:HEAD", "worktree", repo=tmp_path / "bare")


def test_ownership_by_another_user_says_the_way_out(repo: Path, monkeypatch: Any) -> None:
    done = run_process(
        ["git", "-C", str(repo), "status"],
        capture_output=True,
        env={**os.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"},
    )
    if b"dubious" not in done.stderr:
        pytest.skip("this git does not let tests assume another owner")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(DriftlineError, match=r"safe\.directory"):
        GitRepository(repo)


def test_a_short_value_moves_under_its_own_name(tmp_path: Path) -> None:
    before = {"a.py": "LIMIT = 3\nx = 1\n", "b.py": "x = 1\ny = 2\n", "c.py": "z = 1\n"}
    after = {"a.py": "", "b.py": "LIMIT = 3\nx = 1\ny = 2\n", "c.py": "z = 1\nx = 1\n"}
    repo = make_repository(tmp_path / "repo", before, after)
    told = {(event["kind"], event.get("name"), event["file"]) for event in events(repo, "git:v1", "git:v2")}
    assert ("chunk.moved", "LIMIT", "b.py") in told
    assert ("chunk.moved", "x", "c.py") in told
