"""The public names of every package: each resolves and is used, and those of version 0.2 are still there."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import driftline
from driftline import _OLD_MODULES as OLD_MODULES, _OLD_MODULES_END as OLD_MODULES_END, _RENAMED as RENAMED
from driftline.sources._formats import FORMATS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/driftline"
PACKAGES = sorted(f"driftline.{path.parent.name}" for path in SOURCE.glob("*/__init__.py"))
KERNELS = sorted(f"driftline.{path.parent.name}.kernels" for path in SOURCE.glob("*/kernels.py"))

# What programs import since version 0.2: these stay, whether or not anything here uses them.
PROMISED = {
    "driftline": """Lake TableDiff TablesDifferError DriftlineError InputError OptionError TableError __version__
        assert_equal assert_equivalent compare diff""",
    "driftline.changesets": """UNDEFINED Applied Captured ChangeFile Changeset Column Conflict Diff Note Operation
        Patchset Problem Session Table TableReport apply concat diff from_cdc from_deltas from_events invert iterate
        parse rebase write_columns""",
    "driftline.client": "Change Follower Rejected Store SyncReport",
    "driftline.codeindex": """ApiReport Built DiffOptions DiffRequest IndexDiff IndexRef Keeping KeptDiff Registry api
        build compute diff diff_id parse_ref prepare prune""",
    "driftline.deltas": """Clock ColumnDelta ColumnSchema RowDelta RowState TableSchema delta_id extract from_events
        merge""",
    "driftline.lake": """Backlog ChangeCounts CompactionPolicy CompactionResult FlushResult HistoryEntry Lake LogEntry
        TableStatus Verification backlog_of changes compact compact_due flush flush_envelopes lake_log materialize
        merge_small_files register registered replay row_history set_horizon status_of vacuum verify""",
    "driftline.payloads": """EngineConfig Entry Finding PayloadPlan Report assert_equivalent compare compile
        error_response lint""",
    "driftline.pipeline": "Pipeline RunRecord StageRun load run_pipeline",
    "driftline.spark": """DataFrameDiff compare_payloads diff fold index_diffs merge_rows row_deltas state_as_of
        write_changeset""",
}


@pytest.mark.parametrize("package", PROMISED)
def test_names_of_version_0_2_stay(package: str) -> None:
    module = importlib.import_module(package)
    assert not [name for name in PROMISED[package].split() if name not in module.__all__ or not hasattr(module, name)]


@pytest.mark.parametrize("surface", ["driftline", *PACKAGES, *KERNELS])
def test_every_public_name_resolves(surface: str) -> None:
    module = importlib.import_module(surface)
    assert not [name for name in module.__all__ if not hasattr(module, name)]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = module.nonsense


@pytest.mark.parametrize("surface", [*PACKAGES, *KERNELS])
def test_every_public_name_is_used_outside_its_package_or_documented(
    surface: str, used: dict[tuple[str, str], set[str]], documented: set[str]
) -> None:
    package = surface.split(".")[1]
    needed = {*documented, *PROMISED.get(surface, "").split()}
    if any(one.module == surface for one in FORMATS.values()):  # called through the module that the table names
        needed |= {"open_input", "tables_beside"}
    needed |= {RENAMED.get(name, name) for new, names in OLD_MODULES.values() if new == surface for name in names}
    names = set(importlib.import_module(surface).__all__) - needed
    assert not [name for name in sorted(names) if not used.get((surface.rpartition(".")[2], name), set()) - {package}]


@pytest.mark.parametrize("package", ["driftline", *PACKAGES])
def test_no_module_hides_a_public_name_once_it_is_imported(package: str) -> None:
    module = importlib.import_module(package)
    files = {found.name for found in pkgutil.iter_modules(module.__path__)}
    old = {name.rpartition(".")[2] for name in OLD_MODULES if name.rpartition(".")[0] == package}
    assert not (files | old) & set(module.__all__)


@pytest.fixture(scope="module")
def used() -> dict[tuple[str, str], set[str]]:
    """(last word of a surface, name) -> the packages, or folders beside them, with code that takes it from there."""
    found: dict[tuple[str, str], set[str]] = {}
    for folder in ("src", "tests", "benchmarks/cases", "benchmarks/peers", "faults", "scripts", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            user = path.relative_to(SOURCE).parts[0] if folder == "src" else folder
            for use in _taken(path.read_text(encoding="utf-8")):
                found.setdefault(use, set()).add(user)
    return found


def _taken(code: str) -> Iterator[tuple[str, str]]:
    """What some code imports from a surface, or reads as its attribute."""
    for module, names in re.findall(r"from driftline\.([a-z.]+) import (\([^)]*\)|.*)", code):
        for name in re.findall(r"(?:^|[(,])\s*(\w+)", names):
            yield module.rpartition(".")[2], name
    yield from re.findall(rf"\b({'|'.join(map(_last, [*PACKAGES, 'kernels']))})[.:](\w+)", code)


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]


@pytest.fixture(scope="module")
def documented() -> set[str]:
    """The words of code in guides, stories and references; the lists that are made from the surfaces do not count."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(
        page.read_text(encoding="utf-8")
        for page in pages
        if page.name != "architecture.md" and page.parent.name != "cli"
    )
    return set(re.findall(r"\w+", " ".join(re.findall(r"```.*?```|`[^`]+`|^:::.*$", text, re.DOTALL | re.MULTILINE))))


def test_packages_are_reachable_from_the_root() -> None:
    assert driftline.deltas.Clock is importlib.import_module("driftline.deltas").Clock
    assert driftline.client.Store is importlib.import_module("driftline.client").Store
    assert "diff" in dir(driftline)


@pytest.mark.parametrize("old", [old for old, (_, names) in OLD_MODULES.items() if names])
def test_old_modules_warn_once_and_give_the_names_of_today(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, names = OLD_MODULES[old]
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match="is removed in driftline") as caught:
        module = importlib.import_module(old)
    today = importlib.import_module(package)
    news = [RENAMED.get(name, name) for name in names]
    assert [str(each.message) for each in caught] == [
        f"{old} is removed in driftline {OLD_MODULES_END}; use: from {package} import {', '.join(news)}"
    ]
    assert [getattr(module, name) for name in module.__all__] == [getattr(today, name) for name in news]
    for name in names:
        assert pickle.loads(f"c{old}\n{name}\n.".encode()) is getattr(module, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = module.nonsense


def test_the_warning_names_the_line_that_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "driftline.lake.state", raising=False)
    with pytest.warns(DeprecationWarning, match="is removed in driftline") as caught:
        from driftline.lake.state import state_rows
    assert [each.filename for each in caught] == [__file__]
    import driftline.lake.state

    assert driftline.lake.state.state_rows is driftline.lake.state_rows is state_rows


@pytest.mark.parametrize(
    "name", ["driftline.lake.nothing", "driftline.spark.runtime.java", "driftline.lake.state.more"]
)
def test_other_old_modules_are_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        importlib.import_module(name)


def test_old_modules_end_with_their_version() -> None:
    version, end = ([int(part) for part in text.split(".")[:2]] for text in (driftline.__version__, OLD_MODULES_END))
    assert version < end


def test_names_are_found_also_where_a_collection_parses_something() -> None:
    """Python before 3.11.8 has one counter for all parsers: a collection inside of one lets another begin."""
    program = """
import ast, gc
from driftline.core import _extras

def parse(phase, _):
    gc.callbacks.clear()
    ast.parse("x = 1")
    gc.callbacks.append(parse)

gc.set_threshold(50)
gc.callbacks.append(parse)
for _ in range(20):
    assert "Tracker" in _extras._type_checking_imports("driftline.core")
assert gc.isenabled()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
