"""`driftline diff` as a process: exit codes, streams, files, bad input."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.core import _workspace as spill
from driftline.core._progress import Tracker
from driftline.errors import Cancelled, DriftlineError
from driftline.sources._csv.parse import ByteRange
from driftline.tables import _engines as local
from driftline.tables._engines import LocalPlan, TableDiffJob, run_vectorized
from driftline.tables._options import check_options
from support.processes import run_process


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "a.csv").write_text("id,name\n1,Ann\n2,Bob\n")
    (tmp_path / "b.csv").write_text("id,name\n1,Anna\n3,Cy\n")
    return str(tmp_path / "a.csv"), str(tmp_path / "b.csv")


def diff(*arguments: str) -> int:
    return run(driftline, ["diff", *arguments])


def test_exit_codes_and_streams(pair: tuple[str, str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert diff(*pair, "--key", "id") == 1
    out, err = capfdbinary.readouterr()
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["schema", "changed", "removed", "added", "stats"]
    assert err == b""
    assert diff(pair[0], pair[0]) == 0
    assert diff(pair[0], "missing.csv") == 2
    out, err = capfdbinary.readouterr()
    assert err == b"error[not_found]: no such file or directory: missing.csv\n"


def test_the_output_file_is_whole_or_absent(pair: tuple[str, str], tmp_path: Path) -> None:
    target = tmp_path / "out" / "diff.jsonl"
    target.parent.mkdir()
    assert diff(*pair, "-k", "id", "-o", str(target)) == 1
    assert len(target.read_bytes().splitlines()) == 5
    Path(pair[1]).write_text("id,name\n1\n")
    assert diff(*pair, "-k", "id", "-o", str(target.with_name("other.jsonl"))) == 2
    assert [path.name for path in target.parent.iterdir()] == ["diff.jsonl"]


def test_column_order_delimiter_and_limit_options(
    pair: tuple[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    Path(pair[1]).write_text("name\tid\nAnna\t1\nBob\t2\n")
    Path(pair[0]).write_text("id\tname\n1\tAnn\n2\tBob\n3\tCy\n4\tDi\n")
    assert diff(*pair, "-k", "id", "--ignore-column-order", "--delimiter", "tab", "--limit", "1") == 1
    events = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [event["type"] for event in events] == ["schema", "changed", "removed", "stats"]
    assert events[-1]["rows_removed"] == 2
    assert events[-1]["truncated"] is True


def test_a_positional_diff_of_shuffled_rows_hints_at_keys(
    pair: tuple[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    Path(pair[0]).write_text("id,kind,code\n1,x,\n2,x,b\n3,y,c\n")
    Path(pair[1]).write_text("id,kind,code\n3,y,c\n1,x,\n2,x,b\n")
    assert diff(*pair) == 1
    err = capfdbinary.readouterr().err.decode()
    assert "--key" in err
    assert "(candidates: id)" in err
    assert diff(*pair, "--ignore-row-order") == 0
    assert capfdbinary.readouterr().err == b""


def test_the_hint_has_no_candidates_for_typed_sources(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":1}\n{"id":2}\n')
    (tmp_path / "b.jsonl").write_text('{"id":2}\n{"id":1}\n')
    assert diff(str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")) == 1
    err = capfdbinary.readouterr().err.decode()
    assert err == "hint: more than half of the rows changed; if rows have an identity, give --key COL\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--mode", "bag"], "invalid_mode"),
        (["--header-mode", "x"], "invalid_header_mode"),
        (["--format", "xml"], "invalid_format"),
        (["--engine", "abacus"], "invalid_engine"),
        (["--memory", "lots"], "invalid_size"),
        (["--memory", "1MB"], "invalid_size"),
        (["--limit", "-1"], "usage"),
        (["-k", "id", "--ignore-row-order"], "invalid_option_combination"),
        (["-k", "nope"], "missing_key_column"),
    ],
)
def test_bad_options_are_one_line(
    pair: tuple[str, str], arguments: list[str], code: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert diff(*pair, *arguments) == 2
    out, err = capfdbinary.readouterr()
    assert out == b""
    assert err.decode().startswith(f"error[{code}]: ")
    assert err.count(b"\n") == 1


# Importing them takes longer than comparing two small files does.
HEAVY = {"polars", "pyarrow", "numpy", "pandas", "pyspark", "rich", "backports.zstd"}
HEAVY |= {"concurrent.futures", "decimal", "logging", "socket", "tempfile", "tomllib"}


def test_small_files_need_neither_arrow_nor_polars(pair: tuple[str, str]) -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\n"
        "from driftline.cli.main import driftline\nfrom driftline.cli._outcome import run\n"
        f"code = run(driftline, ['diff', {pair[0]!r}, {pair[1]!r}, '-k', 'id'])\n"
        f"heavy = {HEAVY} & set(sys.modules) - before\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = run_process([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def _many_rows(tmp_path: Path, rows: int = 3000) -> TableDiffJob:
    (tmp_path / "a.csv").write_text("id,v\n" + "".join(f"{n},a\n" for n in range(rows)))
    (tmp_path / "b.csv").write_text("id,v\n" + "".join(f"{n},b\n" for n in range(rows)))
    return TableDiffJob(tmp_path / "a.csv", tmp_path / "b.csv", check_options(key_columns=["id"]))


SMALL_PIECES = LocalPlan(threads=2, split_bytes=4000, early_bytes=0, bucket_rows=500, hash_bytes=1000, chunk_bytes=0)


def test_a_full_disk_while_spilling_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill, "open", full, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    written: list[bytes] = []
    with pytest.raises(DriftlineError, match="the disk is full") as caught:
        run_vectorized(_many_rows(tmp_path), lambda data: written.append(bytes(data)), SMALL_PIECES)
    assert caught.value.code == "disk_full"
    assert not written


@pytest.mark.parametrize("change", ["grow", "shrink", "vanish"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    job = _many_rows(tmp_path)
    reading = ByteRange.read
    changed: list[str] = []

    def read_and_change(self: ByteRange) -> bytes:
        if self.start > 8000 and not changed:
            changed.append(change)
            _change(tmp_path / "a.csv", change)
        return reading(self)

    monkeypatch.setattr(ByteRange, "read", read_and_change)
    written: list[bytes] = []
    with pytest.raises(DriftlineError) as caught:
        run_vectorized(job, lambda data: written.append(bytes(data)), SMALL_PIECES)
    assert caught.value.code == ("not_found" if change == "vanish" else "file_changed")
    assert changed


def _change(path: Path, change: str) -> None:
    if change == "vanish":
        path.unlink()
    elif change == "grow":
        path.write_bytes(path.read_bytes() + b"99999,x\n")
    else:
        os.truncate(path, 8000)


def test_cancelling_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspaces = tmp_path / "temporary"
    workspaces.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(workspaces))
    job = _many_rows(tmp_path)
    tracker = Tracker(lambda record: tracker.cancel() if record.phase == "match" else None, interval=0)
    with pytest.raises(Cancelled):
        run_vectorized(TableDiffJob(job.a, job.b, job.options, tracker=tracker), lambda data: None, SMALL_PIECES)
    assert list(workspaces.iterdir()) == []


def test_progress_reaches_its_totals(tmp_path: Path) -> None:
    job = _many_rows(tmp_path)
    ended = {}
    tracker = Tracker(lambda record: ended.update({record.phase: record.fraction}), interval=0)
    run_vectorized(TableDiffJob(job.a, job.b, job.options, tracker=tracker), lambda data: None, SMALL_PIECES)
    assert ended == {"read": 1.0, "match": 1.0, "fetch": 1.0, "write": 1.0}


def test_pieces_get_smaller_with_the_memory_limit() -> None:
    little, much = LocalPlan.within(256 << 20), LocalPlan.within(16 << 30)
    assert little.split_bytes < much.split_bytes
    assert little.hash_bytes + little.chunk_bytes + little.early_bytes < 256 << 20
    assert much.early_bytes > local.SMALL_BYTES


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        (
            "id;v\n1;x\n",
            "id;v\n1;x\n",
            ["-k", "id"],
            'its only column is "id;v"; for this delimiter give --delimiter ";"',
        ),
        ("id,v\n", "id,v\n", ["-k", "idd"], 'in A (columns: "id", "v"); did you mean "id"?'),
        ("id,v,w\n", "id,x,w\n", [], 'only in A: ["v"], only in B: ["x"]'),
        ("id,v\n", "v,id\n", [], "the same columns in another order: --header-mode sorted takes that"),
        ("id\n", "id\n", ["--engine", "foo"], 'Unsupported engine: "foo" (auto, local, spark)'),
        ("id\n", "id\n", ["--engine", "local", "--master", "local[1]"], "no use for a Spark master"),
    ],
)
def test_messages_say_how_to_mend_it(
    pair: tuple[str, str], capfdbinary: pytest.CaptureFixture[bytes], a: str, b: str, options: list[str], words: str
) -> None:
    Path(pair[0]).write_text(a)
    Path(pair[1]).write_text(b)
    assert diff(*pair, *options) == 2
    assert words in capfdbinary.readouterr().err.decode()


def test_the_ending_of_the_output_chooses_its_format(pair: tuple[str, str], tmp_path: Path) -> None:
    assert diff(*pair, "-k", "id", "-o", str(tmp_path / "r.html")) == 1
    assert (tmp_path / "r.html").read_text().lower().startswith("<!doctype html>")
    assert diff(*pair, "-k", "id", "-o", str(tmp_path / "r.html"), "--format", "jsonl") == 1
    assert (tmp_path / "r.html").read_text().startswith('{"type":"schema"')


@pytest.mark.parametrize(
    ("words", "current", "offered"),
    [
        ("driftline diff --format ''", "3", "plain,jsonl plain,json plain,csv"),
        ("driftline diff --engine s", "3", "plain,spark"),
        ("driftline diff a", "2", "file,a"),
        ("driftline compare a.json --schema s", "4", "file,s"),
        ("driftline diff -o s", "3", "file,s"),
    ],
)
def test_shells_complete_files_and_words(words: str, current: str, offered: str) -> None:
    env = {**os.environ, "_DRIFTLINE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": current}
    done = run_process([sys.executable, "-m", "driftline"], env=env, capture_output=True, text=True, check=False)
    assert " ".join(done.stdout.split()).startswith(offered), done


def test_explain_says_what_would_be_done(pair: tuple[str, str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    Path(pair[0]).write_text("id;price;seen_at\n1;5;mon\n")
    Path(pair[1]).write_text("id;cost;seen_at\n1;6;tue\n")
    rules = ["--delimiter", "auto", "--rename", "price=cost", "--ignore", "*_at", "--as", "price=number"]
    assert diff(*pair, *rules, "--explain") == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[2:6] == [
        "compared: id, price → cost (number)",
        "not compared: seen_at",
        "key: none, rows by position; columns that could be the key: id, seen_at",
        "rules: delimiter 'auto' · rename price → cost · ignore *_at · as price number",
    ]
    assert diff(*pair, "--delimiter", "auto", "--explain") == 0
    shown = capfdbinary.readouterr().out
    assert b"--rename" not in shown  # no row says that price is cost
    assert shown.endswith(b"remedy: this pair is read with --header-mode common\n")
    assert diff(pair[0], "missing.csv", "--explain") == 2


def test_rules_come_from_a_file_and_options_replace_them(
    pair: tuple[str, str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    Path(pair[0]).write_text("id,n,v\n1,1.0,a\n")
    Path(pair[1]).write_text("id,n,v\n1,1,A\n")
    (tmp_path / "rules.toml").write_text('key = ["id"]\nignore = ["v"]\n[as]\nn = "number"\n')
    assert diff(*pair, "--rules", str(tmp_path / "rules.toml")) == 0
    assert diff(*pair, "--rules", str(tmp_path / "rules.toml"), "--ignore", "n") == 1
    assert diff(*pair, "--rules", str(tmp_path / "rules.toml"), "--ignore", "n", "--fail-if", "changed > 1") == 0
    (tmp_path / "rules.toml").write_text("colour = 1\n")
    assert diff(*pair, "--rules", str(tmp_path / "rules.toml")) == 2
    assert b"unknown option 'colour'" in capfdbinary.readouterr().err


def test_changed_columns_only(pair: tuple[str, str], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    Path(pair[0]).write_text("id,v,w,x\n1,a,b,c\n2,a,b,c\n")
    Path(pair[1]).write_text("id,v,w,x\n1,a,B,c\n3,a,b,c\n")
    assert diff(*pair, "--key", "id", "--format", "csv", "--changed-columns-only") == 1
    out = capfdbinary.readouterr().out.decode()
    assert out == "_change,id,w\nbefore,1,b\nafter,1,B\nremoved,2,b\nadded,3,b\n"
