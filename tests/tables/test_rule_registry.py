"""Rules of a plugin that have no column form: the same result for few and for many rows, on every engine."""

from __future__ import annotations

import importlib
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.errors import OptionError
from driftline.tables import _rules as rules
from driftline.tables._engines import TableDiffJob, find_engine
from driftline.tables._options import check_options

# As a user's module would be: importable where the diff starts, and shipped to where it runs.
PLUGIN = """
from driftline.tables._rules import KINDS, CellRule, Kind, Step, register

AS_NUMBER = CellRule(kind=KINDS["number"])


def without_spaces(text):
    return "".join(text.split())


def without_cents(text):
    return text.partition(".")[0]


def size(text):
    return AS_NUMBER.form(text.replace("k", "000"))


register(Step("nospace", without_spaces))
register(Step("nocents", without_cents))
register(Kind("size", size, measure="number"))
"""
ROWS = (10, 100_000)
# A column for each rule: what is said about it, and three spellings of row n. The rule makes the first two equal.
RULES = {
    "step": ({"normalize": "nospace"}, "a {n}", "a{n} ", "b{n}"),
    "steps": ({"normalize": "nospace,case"}, "a {n}", "A{n}", "b{n}"),
    "step_number": ({"normalize": "nocents", "types": "number"}, "{n}.50", "{n}.99", "{n}1.50"),
    "step_tolerance": ({"normalize": "nocents", "tolerance": "0.1"}, "{n}.5", "{n}.9", "{n}1.5"),
    "step_date": ({"normalize": "nospace", "types": "date"}, "2024-01- 0{d}", "2024-01-0{d}", "2025-01-0{d}"),
    "step_null": ({"normalize": "nospace"}, "n /a", "n/ a", "{n}"),
    "kind": ({"types": "size"}, "{n}k", "{n}000.0", "{n}k1"),
    "kind_tolerance": ({"types": "size", "tolerance": "5"}, "{n}k", "{n}002", "{n}009"),
    "kind_step": ({"types": "size", "normalize": "nospace"}, "{n} k", "{n}000", "{n}k1"),
}
OPTIONS = {
    "key": "id",
    "null": ["n/a"],
    "column_stats": True,
    **{
        option: {name: said[option] for name, (said, *_) in RULES.items() if option in said}
        for option in ("normalize", "types", "tolerance")
    },
}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A module that registers two steps and a kind, for as long as the tests of this file run."""
    file = tmp_path_factory.mktemp("plugin") / "my_table_rules.py"
    file.write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(file.parent)
        before = dict(rules.STEPS), dict(rules.KINDS)
        importlib.import_module(file.stem)
        yield file
        for table, entries in zip((rules.STEPS, rules.KINDS), before, strict=True):
            table.clear()
            table.update(entries)


def tables(folder: Path, rows: int) -> tuple[Path, Path, dict[str, int]]:
    """Two files in which every row is written in another way, and some rows differ in one column under its rule."""
    names = list(RULES)
    lines: tuple[list[str], list[str]] = ([",".join(["id", *names])], [",".join(["id", *names])])
    changes = dict.fromkeys(names, 0)
    for n in range(rows):
        differing = names[n % len(names)] if n % 2 else None
        before, after = [str(n)], [str(n)]
        for name, (_, one, alike, other) in RULES.items():
            before.append(one.format(n=n + 1, d=n % 9 + 1))
            after.append((other if name == differing else alike).format(n=n + 1, d=n % 9 + 1))
        lines[0].append(",".join(before))
        lines[1].append(",".join(after))
        if differing:
            changes[differing] += 1
    paths = folder / "a.csv", folder / "b.csv"
    for path, side in zip(paths, lines, strict=True):
        path.write_text("\n".join(side))
    return *paths, changes


def lines_of(a: Path, b: Path, engine: str) -> bytes:
    written: list[bytes] = []
    find_engine(engine)(TableDiffJob(a, b, check_options(**OPTIONS)), lambda data: written.append(bytes(data)))
    return b"".join(written)


def counted(lines: bytes) -> dict[str, int]:
    """How many cells of every column changed."""
    stats = json.loads(lines.splitlines()[-2])["columns"]
    changed = {column["name"]: column["changed"] for column in stats}
    return {name: changed[name] for name in RULES}


@pytest.mark.parametrize("rows", ROWS)
def test_ten_rows_and_many_have_the_same_result(plugin: Path, tmp_path: Path, rows: int) -> None:
    a, b, changes = tables(tmp_path, rows)
    assert counted(lines_of(a, b, "local")) == changes


@pytest.mark.spark
@pytest.mark.parametrize("rows", ROWS)
def test_spark_gives_the_bytes_of_the_local_engine(spark, plugin: Path, tmp_path: Path, rows: int) -> None:
    spark.sparkContext.addPyFile(str(plugin))
    a, b, changes = tables(tmp_path, rows)
    lines = lines_of(a, b, "spark")
    assert counted(lines) == changes
    assert lines == lines_of(a, b, "local")


@pytest.mark.spark
def test_dataframes_have_the_same_result(spark, plugin: Path, tmp_path: Path) -> None:
    from driftline.spark import diff

    spark.sparkContext.addPyFile(str(plugin))
    a, b, changes = tables(tmp_path, 100)
    found = diff(
        *(spark.read.csv(str(path), header=True, ignoreTrailingWhiteSpace=False) for path in (a, b)), **OPTIONS
    )
    events = [event for event in found.events.collect() if event["type"] == "changed"]
    deltas = [event["delta"].asDict() for event in events]
    assert {name: sum(delta[name] is not None for delta in deltas) for name in RULES} == changes


def test_what_is_registered_is_known_by_name_and_travels(plugin: Path) -> None:
    options = check_options(key="id", normalize={"v": "nospace,trim"}, types={"v": "size"})
    assert [step.name for step in options.normalize[0][1]] == ["trim", "nospace"]
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(ValueError, match="'nospace' is there already"):
        rules.register(rules.STEPS["nospace"])
    with pytest.raises(ValueError, match="'number' is there already"):
        rules.register(rules.KINDS["number"])


def test_what_is_not_registered_is_an_error() -> None:
    with pytest.raises(OptionError, match=f"'nosuch' for 'v' is none of {', '.join(rules.STEPS)}"):
        check_options(normalize={"v": "nosuch"})
    with pytest.raises(OptionError, match=f"'nosuch' for 'v' is none of {', '.join(rules.KINDS)}, "):
        check_options(types={"v": "nosuch"})
