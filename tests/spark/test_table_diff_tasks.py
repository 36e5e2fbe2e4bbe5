"""The tasks of a Spark diff without Spark: any cut and any order of blocks gives the bytes of plain Python."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from driftline.core._workspace import Workspace
from driftline.errors import DriftlineError
from driftline.sources._csv.strict import TextTable, read_records
from driftline.sources._open import open_source
from driftline.spark import _table_tasks as table_diff_tasks
from driftline.spark._jobs import OrderedPart, join_parts, write_part
from driftline.spark._table_diff import _numbered, _sided, gather, row_bounds, sampled_bounds
from driftline.spark._table_tasks import TaskPlan, encode_task, hash_task, match_task, pick_task
from driftline.spark._tasks import ShuffleBlock, pack, unpack
from driftline.tables._columns import raise_first_error, resolve_columns
from driftline.tables._engines import TableDiffJob, open_sides
from driftline.tables._events import column_stats_event, event_line
from driftline.tables._kernels.match import new_seeds
from driftline.tables._kernels.stages import DiffPlan
from driftline.tables._options import TableOptions, check_options
from driftline.tables._reference import diff_tables
from driftline.tables.kernels import total_stats
from support import table_rules_oracle as rules_oracle
from support.table_rules_strategies import cases

CELLS = ["", "a", "b", "é", "a,b", "l\nm", "c\r\nd", "\\", "\U0001f600", 'q"']
rows = st.lists(st.tuples(st.sampled_from("123456789"), st.sampled_from(CELLS)), max_size=14)


def shuffled(task, blocks: list[ShuffleBlock], chance: random.Random) -> list[ShuffleBlock]:
    """What a shuffle does: blocks of one target meet in one task, in any order."""
    targets = defaultdict(list)
    for block in blocks:
        targets[block.target].append(block)
    results: list[ShuffleBlock] = []
    for target in chance.sample(sorted(targets), len(targets)):
        group = chance.sample(targets[target], len(targets[target]))
        results += unpack(task(pack(group)))
    return results


def run_tasks(folder: Path, options: TableOptions, split_bytes: int, buckets: int, ranges: int, seed: int) -> bytes:
    """The whole way of the data, with a shuffle in memory."""
    with Workspace() as workspace:
        job, *sources = open_sides(TableDiffJob(folder / "a.csv", folder / "b.csv", options), workspace)
        options = job.options
        a, b = (
            source.normalized(side, workspace).lay_out(side, split_bytes, workspace)
            for source, side in zip(sources, "AB", strict=True)
        )
        assert a is not None
        assert b is not None
        plan = DiffPlan(options, resolve_columns(a.header, b.header, options), new_seeds(), buckets)
        bounds = sampled_bounds(a, b, plan, ranges)
        splits = _sided(a, b)
        if options.has_row_numbers:
            counts = [split.count() for split in (*a.splits, *b.splits)]
            cut = len(a.splits)
            splits = (*_numbered(splits[:cut], counts[:cut], a), *_numbered(splits[cut:], counts[cut:], b))
            rows = [sum(one.rows for one in part) for part in (counts[:cut], counts[cut:])]
            bounds = row_bounds(max(rows), ranges)
        shared = str(workspace.folder) if seed % 3 else None
        tasks = TaskPlan(plan, splits, bounds, 3, shared, Path(shared) if shared else None, split_bytes * (seed % 4))
        chance = random.Random(seed)
        numbers = pa.RecordBatch.from_arrays([pa.array(range(len(tasks.groups)), pa.int64())], names=["id"])
        blocks = list(unpack(hash_task(tasks, iter([numbers]))))
        for task in (partial(each, tasks) for each in (match_task, pick_task, encode_task)):
            blocks = shuffled(task, blocks, chance)
        findings = gather([block._asdict() for block in blocks], workspace.new_file("spool"))
        findings.raise_error()
        sides = findings.side("A", a), findings.side("B", b)
        raise_first_error(
            [
                *sides[0].problems,
                *sides[1].problems,
                *sides[0].duplicates([bucket.duplicate_a for bucket in findings.buckets], plan),
                *sides[1].duplicates([bucket.duplicate_b for bucket in findings.buckets], plan),
            ]
        )
        stats = total_stats((bucket.stats for bucket in findings.buckets), plan, *sides)
        out: list[bytes] = []
        join_parts(findings.parts, lambda data: out.append(bytes(data)))
        if options.column_stats:
            out.append(event_line(column_stats_event(plan.compared, stats, findings.column_changes(plan.compared))))
        return b"".join(out) + event_line(stats.to_event())


@settings(max_examples=30, deadline=None)
@given(case=cases(), cut=st.tuples(st.integers(4, 40), st.integers(1, 4), st.integers(1, 4), st.integers(0, 9)))
def test_rules_mean_the_same_in_tasks(case: tuple[bytes, bytes, dict], cut: tuple[int, int, int, int]) -> None:
    a, b, rules = case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.csv").write_bytes(a)
        (folder / "b.csv").write_bytes(b)
        try:
            checked = check_options(**rules)
            got: bytes | str = run_tasks(folder, checked, *cut)
        except DriftlineError as error:
            got = error.code
    plain = rules_oracle.diff(a, b, rules)
    if isinstance(plain, str) or isinstance(got, str):
        # Which of several errors is named when is the driver's affair; that there is one is not.
        assert isinstance(got, str), plain
        return
    assert got.decode() == plain[0].split("\n", 1)[1]


@pytest.mark.parametrize("options", [{"key_columns": ["id"]}, {}, {"ignore_row_order": True}, {"key_columns": ["v"]}])
@settings(max_examples=25)
@given(a=rows, b=rows, cut=st.tuples(st.integers(4, 40), st.integers(1, 4), st.integers(1, 4), st.integers(0, 9)))
def test_any_cut_and_any_order(options: dict, a: list, b: list, cut: tuple[int, int, int, int]) -> None:
    checked = check_options(**options, emit_unchanged=cut[3] % 2 == 1 and not options.get("ignore_row_order"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contents = [_csv(side) for side in (a, b)]
        for file, content in zip(("a.csv", "b.csv"), contents, strict=True):
            (folder / file).write_bytes(content)
        table_diff_tasks._ENCODE_BYTES, limit = 40, table_diff_tasks._ENCODE_BYTES
        try:
            got: bytes | str = run_tasks(folder, checked, *cut)
        except DriftlineError as error:
            got = f"{error.code}: {error.message}"
        finally:
            table_diff_tasks._ENCODE_BYTES = limit
    assert got == _plainly(*contents, checked)


def test_parts_are_joined_by_range_and_a_lost_one_is_told(tmp_path: Path) -> None:
    parts = [write_part(tmp_path, 2, [b"c"]), write_part(tmp_path, 1, [b"a", memoryview(b"b")])]
    write_part(tmp_path, 1, [b"the file of a failed attempt"])
    out: list[bytes] = []
    join_parts(parts, lambda data: out.append(bytes(data)))
    assert b"".join(out) == b"abc"
    with pytest.raises(DriftlineError, match="cut short"):
        join_parts([OrderedPart(1, parts[0].path, 0, 5)], out.append)


def test_a_missing_file_is_a_fact_that_names_it(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("id,v\n1,x\n")
    with Workspace() as workspace:
        layouts = [open_source(tmp_path / name, workspace).lay_out("A", 100, workspace) for name in ("a.csv", "b.csv")]
    a, b = layouts
    assert a is not None
    assert b is not None
    options = check_options(key_columns=["id"])
    plan = DiffPlan(options, resolve_columns(a.header, b.header, options), new_seeds(), 1)
    tasks = TaskPlan(plan, _sided(a, b), sampled_bounds(a, b, plan, 1), 3, None)
    (tmp_path / "b.csv").unlink()
    numbers = pa.RecordBatch.from_arrays([pa.array([0, 1], pa.int64())], names=["id"])
    findings = gather(
        [block._asdict() for block in unpack(hash_task(tasks, iter([numbers]))) if block.kind == "fact"], tmp_path
    )
    with pytest.raises(DriftlineError, match=r"b\.csv is not visible to Spark's workers") as caught:
        findings.raise_error()
    assert caught.value.code == "not_visible_to_workers"


def _csv(table: list[tuple[str, str]]) -> bytes:
    lines = [",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) for row in [("id", "v"), *table]]
    return ("\n".join(lines) + "\n").encode()


def _plainly(a: bytes, b: bytes, options: TableOptions) -> bytes | str:
    try:
        tables = (TextTable.of(read_records(data, side=side)) for side, data in (("A", a), ("B", b)))
        events, _ = diff_tables(*tables, options)
    except DriftlineError as error:
        return f"{error.code}: {error.message}"
    return b"".join(map(event_line, events[1:]))
