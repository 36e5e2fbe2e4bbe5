from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import run_process

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_no_drawer_names() -> None:
    drawers = {"utils", "helpers", "misc", "common"}
    assert [path.name for path in SOURCES if path.stem in drawers or path.parent.name in drawers] == []


def test_decisions_are_numbered_dated_and_unique() -> None:
    """One page a package; a decision keeps its number as an anchor, and the list of decisions leads to it."""
    listed = (ROOT / "docs/decisions/README.md").read_text()
    packages = {path.name for path in (ROOT / "src/driftline").iterdir() if path.is_dir()} | {"project"}
    anchors = []
    for page in sorted(path for path in (ROOT / "docs/decisions").glob("*.md") if path.name != "README.md"):
        assert page.stem in packages
        for section in page.read_text().split("\n## ")[1:]:
            heading = re.match(r'<a id="(\d{4})"></a>(\d+) .+\n', section)
            assert heading, f"{page.name}: {section[:40]!r} has no number"
            anchor, number = heading.groups()
            assert anchor == f"{int(number):04}"
            assert re.search(r"\(20\d\d-\d\d-\d\d\)|Replaced by \[\d+\]", section), f"{page.name}#{anchor} has no date"
            assert re.search(rf"^\| {number} \| .*\({page.name}#{anchor}\)", listed, re.MULTILINE), (
                f"{anchor}: not listed"
            )
            anchors.append(anchor)
    assert len(anchors) > 80
    assert len(set(anchors)) == len(anchors)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_tracked_files_hold_no_paths_of_one_machine() -> None:
    pattern = "/(" + "|".join(["work", "root", "home/[a-z]+"]) + ")/"
    found = run_process(
        ["git", "grep", "-nIE", pattern, "--", ".", ":!*.lock", ":!tests/docs/test_house_rules.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert [line for line in found if "example" not in line] == []


def test_the_walks_name_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"\[([a-z_]+/[a-z_/]+)(?: or ([a-z_]+/[a-z_/]+))?\]", text))
    files = [name for pair in named for name in pair if name]
    assert len(files) > 30
    assert [name for name in files if not (ROOT / "src/driftline" / f"{name}.py").exists()] == []


def test_pages_about_the_code_name_files_that_exist() -> None:
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", *(ROOT / "docs/decisions").glob("*.md")]
    packages = "|".join(path.name for path in (ROOT / "src/driftline").iterdir() if (path / "__init__.py").exists())
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(rf"`((?:{packages})/(?:[\w/]+\.py|[\w/]*/)?)`", page.read_text())
    }
    assert len(named) > 60
    assert [pair for pair in sorted(named) if not (ROOT / "src/driftline" / pair[1]).exists()] == []


def test_only_registries_name_a_package_above_them() -> None:
    """What import-linter cannot see: modules loaded by name. Registries may name public functions of upper packages."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"driftline\.(\w+)", layer) for layer in contracts[0]["layers"]]
    layer_of = {package: number for number, packages in enumerate(layers) for package in packages}
    upward = set()
    for path in SOURCES:
        name = path.relative_to(ROOT / "src/driftline").as_posix()
        package = name.partition("/")[0].removesuffix(".py")
        for text in _strings(path):
            named = re.fullmatch(r"driftline\.(\w+)[\w.]*(:\w+)?", text)
            if named and package in layer_of and layer_of.get(named[1], 99) < layer_of[package]:
                upward.add((name, text))
    assert upward == {
        ("sinks/_formats/__init__.py", "driftline.changesets:write_changeset"),
        ("sinks/_formats/__init__.py", "driftline.changesets:write_patchset"),
        ("sources/_formats/__init__.py", "driftline.spark"),
        ("tables/_engines.py", "driftline.spark:run_table_diff"),
    }


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_delta_is_imported_by_one_store_one_source_and_one_sink() -> None:
    """Other files may list the name of the distribution, for versions and for what to install."""
    users = {
        path.relative_to(ROOT / "src/driftline").as_posix()
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "deltalake")
        or (isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == "deltalake" for alias in node.names))
    }
    assert users == {"lake/_store/delta.py", "sources/_formats/delta.py", "sinks/_formats/table.py"}
