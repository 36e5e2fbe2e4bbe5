"""Payload commands on a real terminal: words and tables for people; in a pipe the data as before."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.processes import run_process
from support.terminals import ROOT, on_terminal, plain

PAYLOADS = ROOT / "examples/payloads"
COMPARE = [
    "compare", str(PAYLOADS / "old.json"), str(PAYLOADS / "new.json"), "--schema", str(PAYLOADS / "invoice.yaml"),
]  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    lines = [
        {"id": f"r{n}", "endpoint": f"GET /v1/{'orders' if n % 2 else 'users'}/{{id}}",
         "old": {"zip": n, "mail": f"a{n}@example.org"}, "new": {"zip": str(n), "mail": f"a{n}@example.org"}}
        for n in range(20)
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "pairs.jsonl").write_text(text + '{"id": "bad", "endpoint": "GET /v1/users/{id}", "old": \n')
    (folder / "good.jsonl").write_text(text)
    return folder


def test_a_comparison_is_words_on_a_terminal_and_json_in_a_pipe() -> None:
    code, screen = on_terminal(COMPARE, 100)
    assert code == 1
    assert "VALUE_MISMATCH $.lineItems[?(@.sku=='GADGET-X')].quantity" in "\n".join(plain(screen))
    command = [sys.executable, "-m", "driftline", *COMPARE]
    piped = run_process(command, capture_output=True, check=False, env={"PYTHONPATH": str(ROOT / "src")})
    assert json.loads(piped.stdout)["is_match"] is False


@pytest.mark.parametrize("columns", [80, 140])
def test_a_batch_shows_endpoints_places_and_failures(pairs: Path, columns: int) -> None:
    arguments = ["payloads", "batch", str(pairs / "pairs.jsonl"), "-o", str(pairs / "out"), "--no-progress"]
    code, screen = on_terminal(arguments, columns)
    lines = plain(screen)
    assert code == 1
    assert max(len(line) for line in lines if "report.html" not in line) <= columns
    assert lines[0] == "21 pairs  0 match (0.0%)  20 differ  1 failed"
    text = "\n".join(lines)
    assert "GET /v1/users/{id}" in text
    assert "TYPE_MISMATCH" in text
    assert '1 → "1"' in text
    assert 'failed "bad" (line 21)' in text


def test_suggestions_show_their_evidence_and_how_to_accept(pairs: Path) -> None:
    code, screen = on_terminal(["payloads", "suggest", str(pairs / "good.jsonl")], 100)
    text = "\n".join(plain(screen))
    assert code == 0
    assert "sure    $.zip  in force" in text
    assert "x-migration-cast: " in text
    assert "explains 20 of 20 differing" in text
    assert "--accept ID --apply rules.yaml" in text.replace("\n", " ")


def test_lint_says_where_and_how_many() -> None:
    code, screen = on_terminal(["payloads", "lint", str(PAYLOADS / "typo.yaml")], 140)
    lines = plain(screen)
    assert code == 1
    assert f"{PAYLOADS / 'typo.yaml'}:3:47: unknown extension" in "".join(lines)
    assert lines[-1] == "2 findings"


def test_rules_that_wait_are_named_beside_a_file(tmp_path: Path) -> None:
    scaled = [{"id": n, "old": {"total": n + 0.5}, "new": {"total": n * 100 + 50}} for n in range(1, 21)]
    (tmp_path / "scaled.jsonl").write_text("".join(json.dumps(line) + "\n" for line in scaled))
    arguments = ["payloads", "suggest", str(tmp_path / "scaled.jsonl"), "-o", str(tmp_path / "rules.yaml")]
    code, screen = on_terminal(arguments, 100)
    assert code == 0
    assert "for you to decide:\n  --accept '$.total:scale'   New is Old times 100" in "\n".join(plain(screen))
