from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.codeindex._registry.contracts import schema
from support.index_caches import make_cache, put


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache")


@pytest.fixture
def call(cache: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run_command(*words: str, root: bool = True) -> tuple[int, str, str]:
        code = run(driftline, ["index", "diff", *words, *(["--cache-root", str(cache)] if root else [])])
        captured = capsysbinary.readouterr()
        out, err = captured.out.decode(), captured.err.decode()
        assert str(cache.parent) not in out + err
        return code, out, err

    return run_command


REFS = ("--from", "build:b1", "--to", "latest")


def test_compute_may_be_left_out(call: Any) -> None:
    assert json.loads(call(*REFS, "--json")[1])["reused"] is False
    answer = json.loads(call("compute", *REFS, "--json")[1])
    assert (answer["ok"], answer["persisted"], answer["reused"]) == (True, True, True)
    assert answer["summary"]["modesSummary"]["code"]["files"]["modified"] == 1
    assert "events" not in answer
    assert len(json.loads(call(*REFS, "--json", "--events")[1])["events"]) == 4


def test_text_goes_to_stderr(call: Any) -> None:
    code, out, err = call(*REFS)
    assert (code, out) == (0, "")
    assert "build:b1 -> latest" in err
    assert "files 1 modified; chunks 1 modified; relations 1 added, 1 removed" in err


def test_events_as_lines(call: Any) -> None:
    _, spaced, _ = call(*REFS, "--format", "jsonl")
    _, compact, _ = call(*REFS, "--format", "jsonl", "--compact")
    assert [json.loads(line) for line in spaced.splitlines()] == [json.loads(line) for line in compact.splitlines()]
    assert len(compact.splitlines()) == 4
    assert '": "' in spaced
    assert '": "' not in compact
    judge = Draft202012Validator(schema("diff_event"))
    assert all(judge.is_valid(json.loads(line)) for line in compact.splitlines())


def test_markdown(call: Any) -> None:
    _, out, _ = call(*REFS, "--format", "markdown")
    assert "| code | 1 modified | 1 modified | 1 added, 1 removed |" in out
    assert "- chunk.modified `a.js` `f`" in out


def test_exit_codes(call: Any) -> None:
    assert call(*REFS)[0] == 0
    assert call(*REFS, "--exit-code")[0] == 1
    assert call("--from", "latest", "--to", "build:b2", "--exit-code")[0] == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("compute", "--from", "latest"), "INVALID_REQUEST"),
        (("compute", "--from", "nope", "--to", "latest"), "INVALID_REQUEST"),
        (("compute", "--from", "build:nope", "--to", "latest"), "NOT_FOUND"),
        (("compute", *REFS, "--modes", "code,nope"), "INVALID_REQUEST"),
        (("compute", *REFS, "--modes", "prose"), "NOT_FOUND"),
        (("compute", *REFS, "--max-events", "x"), "INVALID_REQUEST"),
        (("show", "--diff", "diff_0123456789abcdef"), "NOT_FOUND"),
        (("show",), "INVALID_REQUEST"),
        (("list", "--mode", "nope"), "INVALID_REQUEST"),
        (("prune", "--max-diffs", "x"), "INVALID_REQUEST"),
    ],
)
def test_errors_are_json_on_stdout_and_a_line_on_stderr(call: Any, words: tuple[str, ...], code: str) -> None:
    exit_code, out, err = call(*words, "--json")
    answer = json.loads(out)
    assert (exit_code, answer["ok"], answer["code"]) == (2, False, code)
    assert err == f"error[{code.lower()}]: {answer['message']}\n"
    assert call(*words)[1] == ""


@pytest.mark.parametrize("asked", [("--json",), ("--format", "json"), ("--format=json",)])
@pytest.mark.parametrize("wrong", [("--bogus",), ("--persist", "maybe"), ("stray",)])
def test_wrong_usage_is_json_too(call: Any, asked: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    code, out, err = call("compute", *REFS, *wrong, *asked)
    assert (code, json.loads(out)["ok"], json.loads(out)["code"]) == (2, False, "INVALID_REQUEST")
    assert err.startswith("error[usage]: ")
    assert call("compute", *REFS, *wrong)[1] == ""


def test_without_a_cache_root_it_is_that_of_the_repository_here(call: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    answer = json.loads(call("list", "--json", root=False)[1])
    assert (answer["code"], "git cannot read the repository" in answer["message"]) == ("INVALID_REQUEST", True)
    assert json.loads(call(*REFS, "--json", root=False)[1])["code"] == "INVALID_REQUEST"


def test_persistence_options(call: Any, cache: Path) -> None:
    assert json.loads(call(*REFS, "--persist", "false", "--json")[1])["persisted"] is False
    paths = ("--from", f"path:{cache}/builds/b1", "--to", f"path:{cache}/builds/b2")
    assert json.loads(call(*paths, "--persist", "true", "--json")[1])["persisted"] is False
    assert "not persisted" in call(*paths)[2]
    assert not (cache / "diffs").exists()
    answer = json.loads(call(*paths, "--persist-unsafe", "--json")[1])
    assert answer["persisted"] is True
    assert answer["summary"]["from"]["ref"] == "path:<redacted>"


def test_list_show_and_prune(call: Any) -> None:
    diff_id = json.loads(call(*REFS, "--json")[1])["diffId"]
    listed = json.loads(call("list", "--json")[1])
    assert [entry["diffId"] for entry in listed["diffs"]] == [diff_id]
    assert json.loads(call("list", "--modes", "code,prose", "--json")[1])["diffs"] == []
    assert diff_id in call("list")[2]
    assert diff_id in call("list", "--format", "markdown")[1]
    shown = json.loads(call("show", "--diff", diff_id, "--json", "--events")[1])
    assert shown["summary"]["diffId"] == shown["diffId"] == diff_id
    assert shown["inputs"]["kind"] == "semantic-v1"
    assert len(shown["events"]) == 4
    assert len(call("show", "--diff", diff_id, "--format", "jsonl")[1].splitlines()) == 4
    dry = json.loads(call("prune", "--max-diffs", "0", "--retain-days", "0", "--dry-run", "--json")[1])
    assert (dry["removed"], dry["dryRun"]) == ([diff_id], True)
    pruned = json.loads(call("prune", "--max-diffs", "0", "--retain-days", "0", "--json")[1])
    assert (pruned["removed"], pruned["kept"]) == ([diff_id], 0)
    assert json.loads(call("list", "--json")[1])["diffs"] == []


def test_mismatch_and_lock(call: Any, cache: Path) -> None:
    put(cache / "builds/b1/build_state.json", {"buildId": "b1", "configHash": "other"})
    assert json.loads(call(*REFS, "--json")[1])["code"] == "INVALID_REQUEST"
    assert json.loads(call(*REFS, "--json", "--allow-mismatch")[1])["ok"] is True
    put(cache / "locks/index.lock", {"scope": "build", "pid": 1, "lockId": "x", "startedAt": "now"})
    words = (*REFS, "--allow-mismatch", "--max-changed-files", "9", "--wait-ms", "30", "--json")
    code, out, _ = call(*words)
    assert (code, json.loads(out)["code"]) == (2, "QUEUE_OVERLOADED")


def test_many_repositories_at_once(call: Any, tmp_path: Path) -> None:
    other, broken = make_cache(tmp_path / "other"), make_cache(tmp_path / "broken")
    (broken / "builds/current.json").unlink()
    code, out, _ = call(*REFS, "--cache-root", str(other), "--json", "--exit-code")
    answer = json.loads(out)
    assert (code, answer["ok"]) == (1, True)
    assert [item["repository"] for item in answer["diffs"]] == ["other", "cache"]
    assert len({item["diffId"] for item in answer["diffs"]}) == 1
    assert (other / "diffs/manifest.json").exists()
    code, out, _ = call(*REFS, "--cache-root", str(broken), "--json")
    answer = json.loads(out)
    assert (code, [item["ok"] for item in answer["diffs"]]) == (2, [False, True])
    assert answer["diffs"][0]["code"] == "NOT_FOUND"


def test_help_names_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(driftline, ["index", "--help"]) == 0
    shown = capsys.readouterr().out.partition("Commands:")[2]
    assert [line.split()[0] for line in shown.splitlines() if line] == ["api", "build", "diff", "list", "prune", "show"]
