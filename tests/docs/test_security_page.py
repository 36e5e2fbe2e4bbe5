"""The page about security names a test for each attempt: it exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", (ROOT / "docs/guides/security.md").read_text())))


@pytest.mark.parametrize("named", NAMED)
def test_the_named_test_exists(named: str) -> None:
    path, _, name = named.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert (name in functions) if name else any(each.startswith("test_") for each in functions)


def test_every_attempt_names_one() -> None:
    rows = [line for line in (ROOT / "docs/guides/security.md").read_text().splitlines() if line.startswith("| ")]
    attempts = [line for line in rows if not line.startswith("| attempt")]
    assert len(attempts) > 20
    assert all("`tests/" in line for line in attempts)
