"""Batches: order, joins, failures, aggregates, and the same bytes whoever runs the pieces."""

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import PayloadError
from driftline.payloads import compare, read_pairs
from driftline.payloads._batch import job, run as batch
from driftline.payloads._batch.job import BatchJob, open_source

SCHEMA = {
    "properties": {
        "n": {"type": "number", "x-migration-precision": 0.5},
        "never": {"x-migration-strategy": "ignore"},
        "items": {"type": "array", "items": {"properties": {"x": {"x-migration-strategy": "lenient"}}}},
    }
}
NAMES = ["reports.jsonl", "aggregate.json", "coverage.json", "summary.json", "report.html"]


def pairs(count):
    for number in range(count):
        identity = number if number % 3 else f"k{number:05d}"
        old = {"n": 1, "items": [{"x": "A"}, {"x": "b"}], "t": number}
        new = {"n": 1.25 if number % 2 else 2, "items": [{"x": "a "}, {"x": "b" if number % 5 else "c"}], "t": number}
        yield {"id": identity, "old": old, "new": new}


def write_lines(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def schema_file(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def call(*arguments):
    return run(driftline, ["compare-batch", *map(str, arguments)])


def outputs(folder: Path) -> dict[str, bytes]:
    """The files of a batch; the page's line with the names of the inputs is left out."""
    found = {name: (folder / name).read_bytes() for name in NAMES}
    found["report.html"], lines = re.subn(rb'<p class="meta">.*?</p>', b"", found["report.html"])
    assert lines == 1
    return found


def reports(folder: Path) -> list:
    return [json.loads(line) for line in (folder / "reports.jsonl").read_text().splitlines()]


def test_reports_are_the_library_s_in_the_order_of_ids(tmp_path, schema_file):
    records = list(pairs(60))
    source = write_lines(tmp_path / "pairs.jsonl", reversed(records))
    assert call(source, "--schema", schema_file, "-o", tmp_path / "out") == 1
    found = reports(tmp_path / "out")
    numbers = sorted(record["id"] for record in records if isinstance(record["id"], int))
    texts = sorted(record["id"] for record in records if isinstance(record["id"], str))
    assert [row["id"] for row in found] == numbers + texts
    by_id = {record["id"]: record for record in records}
    for row in found:
        pair = by_id[row["id"]]
        assert row["report"] == json.loads(compare(pair["old"], pair["new"], SCHEMA).to_json(execution=False))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*NAMES, "reports.parquet"])


def test_aggregate_counts_rates_and_samples(tmp_path, schema_file):
    source = write_lines(tmp_path / "pairs.jsonl", pairs(60))
    call(source, "--schema", schema_file, "-o", tmp_path / "out")
    rows = {(row["path"], row["type"]): row for row in json.loads((tmp_path / "out" / "aggregate.json").read_text())}
    numbers = rows["$.n", "PRECISION_EXCEEDED"]
    assert (numbers["count"], numbers["pairs"], numbers["rate"]) == (30, 30, 0.5)
    assert numbers["rule"] == "x-migration-precision: 0.5"
    assert (numbers["first_id"], numbers["last_id"], len(numbers["sample"])) == (2, "k00054", 5)
    assert rows["$.items[*].x", "VALUE_MISMATCH"]["count"] == 12
    unused = [row["rule"] for row in json.loads((tmp_path / "out" / "coverage.json").read_text()) if not row["used"]]
    assert unused == ["x-migration-strategy: ignore"]


def test_a_pair_that_fails_is_an_error_row(tmp_path, schema_file):
    deep = "[" * 300 + "]" * 300
    lines = ['{"id": 1, "old": {"n": 1}, "new": {"n": 1}}', "not json", '{"id": 2, "old": 1}', '{"old": 1, "new": 1}']
    lines += [
        '{"id": 3, "old": {"n": "\\ud800"}, "new": 1}',
        f'{{"id": 4, "old": {deep}, "new": {deep}}}',
    ]
    source = tmp_path / "pairs.jsonl"
    source.write_text("\n".join(lines))
    assert call(source, "--schema", schema_file, "-o", tmp_path / "out") == 1
    found = reports(tmp_path / "out")
    codes = [(row["id"], row.get("error", {}).get("code")) for row in found]
    error = "VALIDATION_ERROR"
    assert codes == [(None, error), (None, error), (1, None), (2, error), (3, None), (4, "MAX_DEPTH_EXCEEDED")]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["pairs"], summary["failed"]) == (6, 4)


def test_error_rows_say_which_line_and_what_was_found(tmp_path, schema_file):
    lines = [
        '{"id": "good", "old": {"n": 1}, "new": {"n": 1}}',
        "",
        '{"id": "nan", "old": {"a": NaN}, "new": {}}',
        '{"id": "cut", "endpoint": "/x", "old": {"a": 1}, "new": {"a": ',
        '{"id": "twice", "old": {"a": 1, "a": 2}, "new": {}}',
        '{"id": "again", "id": "again", "old": 1, "new": 1}',
        json.dumps({"id": "deep", "old": {"n": 1, "x": json.loads("[" * 120 + "]" * 120)}, "new": {"n": 3, "x": []}}),
    ]
    source = tmp_path / "pairs.jsonl"
    source.write_text("\n".join(lines))
    assert call(source, "--schema", schema_file, "-o", tmp_path / "out") == 1
    found = {row["id"]: row for row in reports(tmp_path / "out")}
    places = {row["id"]: (row["line"], row["error"]["code"]) for row in found.values() if "error" in row}
    error = "VALIDATION_ERROR"
    assert places == {
        "nan": (3, error), "cut": (4, error), "twice": (5, error), "again": (6, error),
        "deep": (7, "MAX_DEPTH_EXCEEDED"),
    }  # fmt: skip
    partial = found["deep"]["partial_result"]
    assert (partial["is_match"], [entry["path"] for entry in partial["diffs"]]) == (None, ["$.n"])


def test_an_endpoint_that_is_no_text_is_named(tmp_path, schema_file):
    source = write_lines(tmp_path / "pairs.jsonl", [{"id": 1, "endpoint": 7, "old": {}, "new": {}}])
    assert call(source, "--schema", schema_file, "-o", tmp_path / "out") == 1
    (row,) = reports(tmp_path / "out")
    assert (row["id"], row["error"]["message"]) == (1, "the endpoint must be text, not 7")


def test_lines_are_counted_through_all_pieces_of_a_file(tmp_path, schema_file, monkeypatch):
    source = tmp_path / "pairs.jsonl"
    good = json.dumps({"id": 1, "old": {}, "new": {}})
    source.write_text("".join(f'{{"id": {n}, "old": NaN}}\n' if n % 7 == 0 else good + "\n" for n in range(1, 200)))
    monkeypatch.setattr("driftline.payloads._batch.job.SPLIT_BYTES", 300)
    monkeypatch.setattr("driftline.payloads._batch.job.splits_of.__defaults__", (300,))
    assert call(source, "--schema", schema_file, "-o", tmp_path / "out") == 1
    rows = [(row["id"], row["line"]) for row in reports(tmp_path / "out") if "error" in row]
    assert rows == [(n, n) for n in range(7, 200, 7)]


def test_a_timeout_is_an_error_row(tmp_path, schema_file):
    source = write_lines(tmp_path / "pairs.jsonl", pairs(3))
    (tmp_path / "engine.json").write_text('{"timeout_seconds": 0}')
    assert call(source, "--schema", schema_file, "--config", tmp_path / "engine.json", "-o", tmp_path / "out") == 1
    assert [row["error"]["code"] for row in reports(tmp_path / "out")] == ["TIMEOUT"] * 3
    table = pq.read_table(tmp_path / "out" / "reports.parquet").to_pylist()
    assert [(row["error"], row["is_match"]) for row in table] == [("TIMEOUT", None)] * 3


def test_two_inputs_are_joined_by_id(tmp_path, schema_file):
    old = write_lines(tmp_path / "old.jsonl", [{"key": number, "n": 1} for number in (3, 1, 2)])
    new = write_lines(tmp_path / "new.jsonl", [{"key": number, "n": 1.25} for number in (4, 2, 3)])
    assert call(old, new, "--id", "key", "--schema", schema_file, "-o", tmp_path / "out") == 1
    found = [(row["id"], [entry["type"] for entry in row["report"]["diffs"]]) for row in reports(tmp_path / "out")]
    assert found == [(1, ["MISSING_PARTNER"]), (2, []), (3, []), (4, ["MISSING_PARTNER"])]
    sides = [row["report"]["diffs"][0]["side"] for row in reports(tmp_path / "out") if row["report"]["diffs"]]
    assert sides == ["new", "old"]


def test_schemas_are_chosen_by_endpoint(tmp_path, schema_file):
    ignoring = tmp_path / "b.yaml"
    ignoring.write_text("properties: {n: {x-migration-strategy: ignore}}")
    records = [{"id": name, "endpoint": name, "old": {"n": 1}, "new": {"n": 9}} for name in ("/a", "/b", "/c")]
    source = write_lines(tmp_path / "pairs.jsonl", records)
    options = ["--schema", f"/a={schema_file}", "--schema", f"/b={ignoring}"]
    assert call(source, *options, "-o", tmp_path / "out") == 1
    found = [row.get("report", {}).get("is_match") for row in reports(tmp_path / "out")]
    assert found == [False, True, None]


def test_parquet_and_compressed_input_give_the_same_reports(tmp_path, schema_file):
    records = list(pairs(40))
    plain = write_lines(tmp_path / "pairs.jsonl", records)
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    texts = [record | {"id": str(record["id"])} for record in records]
    columns = {
        "id": [record["id"] for record in texts],
        "old": [json.dumps(record["old"]) for record in texts],
        "new": [json.dumps(record["new"]) for record in texts],
    }
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet", row_group_size=7)
    same = write_lines(tmp_path / "texts.jsonl", texts)
    for name in ("pairs.jsonl", "pairs.jsonl.gz", "pairs.parquet", "texts.jsonl"):
        call(tmp_path / name, "--schema", schema_file, "-o", tmp_path / f"out-{name}")
    assert outputs(tmp_path / "out-pairs.jsonl") == outputs(tmp_path / "out-pairs.jsonl.gz")
    assert outputs(tmp_path / "out-pairs.parquet") == outputs(tmp_path / f"out-{same.name}")


def test_reports_as_parquet_hold_the_same(tmp_path, schema_file):
    source = write_lines(tmp_path / "pairs.jsonl", pairs(20))
    call(source, "--schema", schema_file, "-o", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "reports.parquet").to_pylist()
    assert [json.loads(row["report"]) for row in table] == reports(tmp_path / "out")
    assert {row["is_match"] for row in table} == {True, False}


def job_of(source: Path) -> BatchJob:
    return BatchJob((open_source(source, "pairs"),), {None: json.dumps(SCHEMA).encode()})


def test_pieces_do_not_show_in_the_output(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "pairs.jsonl", pairs(400))
    batch.run_batch(job_of(source), tmp_path / "whole", batch._Local())
    monkeypatch.setattr(batch, "RANGE_BYTES", 4_000)
    monkeypatch.setattr(batch, "splits_of", lambda job, size=5_000: splits_in_pieces(job, min(size, 5_000)))
    batch.run_batch(job_of(source), tmp_path / "pieces", batch._Local())
    assert outputs(tmp_path / "pieces") == outputs(tmp_path / "whole")
    assert len(list((tmp_path / "pieces" / "reports.parquet").iterdir())) > 3


def test_partners_meet_whatever_the_pieces(tmp_path, monkeypatch):
    sides = {"old": [{"id": number, "n": 1} for number in range(300)]}
    sides["new"] = [{"id": number, "n": 1} for number in range(299, -1, -1)]
    sides["new"] += [{"id": 7, "n": 1}, {"id": 7, "n": 5}]  # in the order of the input: one joins, one is alone
    paths = {role: write_lines(tmp_path / f"{role}.jsonl", records) for role, records in sides.items()}
    sources = tuple(open_source(paths[role], role) for role in ("old", "new"))
    job = BatchJob(sources, {None: json.dumps(SCHEMA).encode()})
    batch.run_batch(job, tmp_path / "whole", batch._Local())
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert (summary["pairs"], summary["matched"], summary["mismatched"]) == (302, 300, 2)
    monkeypatch.setattr(batch, "RANGE_BYTES", 100)
    monkeypatch.setattr(batch, "splits_of", lambda job, size=500: splits_in_pieces(job, min(size, 500)))
    batch.run_batch(job, tmp_path / "pieces", batch._Local())
    assert outputs(tmp_path / "pieces") == outputs(tmp_path / "whole")


def splits_in_pieces(job, size):
    from driftline.payloads._batch.job import splits_of

    return splits_of(job, size)


def test_processes_give_the_same_bytes(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "pairs.jsonl", pairs(300))
    batch.run_batch(job_of(source), tmp_path / "one", batch._Local())
    monkeypatch.setattr(batch, "PROCESSES_FROM_BYTES", 1_000)
    job = job_of(source)
    with batch.local_scheduler(job, workers=2) as scheduler:
        batch.run_batch(job, tmp_path / "two", scheduler)
    assert outputs(tmp_path / "two") == outputs(tmp_path / "one")


@pytest.mark.spark
def test_spark_gives_the_same_bytes(tmp_path, spark, schema_file, monkeypatch):
    monkeypatch.setattr(batch, "PROCESSES_FROM_BYTES", 1_000)
    source = write_lines(tmp_path / "pairs.jsonl", pairs(300))
    assert call(source, "--schema", schema_file, "-o", tmp_path / "local", "--engine", "local", "--workers", "1") == 1
    assert call(source, "--schema", schema_file, "-o", tmp_path / "spark", "--engine", "spark") == 1
    assert outputs(tmp_path / "spark") == outputs(tmp_path / "local")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.jsonl"], "error[not_found]"),
        (["a", "b", "c"], "error[usage]"),
        (["pairs.parquet"], "error[corrupt_parquet]"),
    ],
)
def test_bad_input_is_one_line(tmp_path, schema_file, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.parquet").write_text("nothing")
    assert call(*arguments, "--schema", schema_file, "-o", "out") == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


def test_rules_of_leading_items_are_covered(tmp_path):
    rule = {"x-migration-precision": 1}
    schema = {"properties": {"at": {"prefixItems": [rule, {"properties": {"n": rule}}, rule], "items": rule}}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    line = {"id": 1, "old": {"at": [1, {"n": 1}]}, "new": {"at": [1, {"n": 2}]}}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(line) + "\n")
    command = ["payloads", "batch", str(tmp_path / "pairs.jsonl"), "--schema", str(tmp_path / "schema.json")]
    assert run(driftline, [*command, "-o", str(tmp_path / "out")]) == 0
    rows = json.loads((tmp_path / "out" / "coverage.json").read_bytes())
    used = {row["pointer"].removeprefix("/properties/at/"): row["used"] for row in rows}
    # Neither the third item nor any after it is there.
    assert used == {
        "prefixItems/0/x-migration-precision": True,
        "prefixItems/1/properties/n/x-migration-precision": True,
        "prefixItems/2/x-migration-precision": False,
        "items/x-migration-precision": False,
    }


def test_blank_lines_count(tmp_path, monkeypatch):
    good = json.dumps({"id": 1, "old": {"a": 1}, "new": {"a": 1}})
    path = tmp_path / "pairs.jsonl"
    path.write_text(f"\n{good}\n\n  \n{good}\n{{\n")
    for size in (1 << 20, len(good)):  # in one piece, and in several
        monkeypatch.setattr(job.splits_of, "__defaults__", (size,))
        with pytest.raises(PayloadError, match=r"pairs.jsonl, line 6: "):
            list(read_pairs(path))
