"""Where results go: closed pipes, full disks, closed streams, and files that are more than a name."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.changesets import Changeset, Table
from support.processes import run_process, start_process

DRIFTLINE = [sys.executable, "-m", "driftline"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs that make every command write more than a pipe holds."""
    folder = tmp_path_factory.mktemp("place")
    rows = range(2000)
    (folder / "a.csv").write_text("id,v\n" + "".join(f"{n},{'x' * 20}\n" for n in rows))
    (folder / "b.csv").write_text("id,v\n" + "".join(f"{n},{'y' * 20}\n" for n in rows))
    (folder / "a.json").write_text('{"a": [' + ",".join(f'"{n}{"x" * 30}"' for n in rows) + "]}")
    (folder / "b.json").write_text('{"a": [' + ",".join(f'"{n}{"y" * 30}"' for n in rows) + "]}")
    (folder / "schema.yaml").write_text(
        "type: object\nproperties: {a: {type: array, items: {type: string}}}\nx-migration-schema-version: 1\n"
    )
    changes = Changeset()
    table = Table("t", columns=[("id", "INTEGER"), ("v", "TEXT")], primary_key=["id"])
    changes.insert_columns(table, {"id": list(rows), "v": ["x" * 40] * len(rows)})
    (folder / "c.bin").write_bytes(bytes(changes))
    return folder


COMMANDS = [
    *(["diff", "a.csv", "b.csv", "--key", "id", "--format", name] for name in ("jsonl", "csv", "markdown", "html")),
    ["diff", "a.csv", "b.csv", "--key", "id", "--format", "changeset", "--table", "t"],
    ["compare", "a.json", "b.json", "--schema", "schema.yaml"],
    ["changeset", "invert", "c.bin"],
]
SHORT = [["diff", "a.csv", "b.csv", "--key", "id", "--format", "summary"], ["--help"]]


def start(place: Path, arguments: list[str], **streams: object) -> subprocess.Popen:
    return start_process([*DRIFTLINE, *arguments], cwd=place, stderr=subprocess.PIPE, **streams)


def test_a_closed_pipe_is_never_a_success(place: Path) -> None:
    for arguments, running in [(each, start(place, each, stdout=subprocess.PIPE)) for each in COMMANDS]:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(1)
        running.stdout.close()
        err = running.stderr.read()
        assert running.wait() in (141, 1), (arguments, err)
        assert b"Traceback" not in err
        assert b"error[" not in err


def test_a_full_disk_is_an_error_of_one_line(place: Path) -> None:
    with open("/dev/full", "wb") as full:
        all_running = [(each, start(place, each, stdout=full)) for each in [*COMMANDS, *SHORT]]
        for arguments, running in all_running:
            _, err = running.communicate()
            assert running.returncode == 2, (arguments, err)
            assert err.splitlines()[-1].startswith(b"error[disk_full]: the disk is full while writing standard output")
            assert b"Traceback" not in err


def test_a_closed_stdout_is_an_error_of_one_line(place: Path) -> None:
    all_running = [
        start_process(["sh", "-c", f"exec {' '.join([*DRIFTLINE, *each])} >&-"], cwd=place, stderr=subprocess.PIPE)
        for each in [*COMMANDS, *SHORT]
    ]
    for running in all_running:
        _, err = running.communicate()
        assert running.returncode == 2, (running.args, err)
        assert err.splitlines()[-1].startswith(b"error[output_closed]")
        assert b"Traceback" not in err


def test_closed_stdin_and_stderr(place: Path) -> None:
    command = f"exec {' '.join(DRIFTLINE)} diff - b.csv <&- 2>&1"
    done = run_process(["sh", "-c", command], cwd=place, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout.split(b":")[0]) == (2, b"error[input_closed]")
    command = f"exec {' '.join(DRIFTLINE)} diff missing.csv b.csv 2>&-"
    done = run_process(["sh", "-c", command], cwd=place, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def run(place: Path, *arguments: object) -> subprocess.CompletedProcess:
    return run_process([*DRIFTLINE, *map(str, arguments)], cwd=place, capture_output=True, check=False)


def test_devices_and_pipes_are_written_through(place: Path, tmp_path: Path) -> None:
    pair = ("diff", "a.csv", "b.csv", "--key", "id")
    whole = run(place, *pair).stdout
    assert run(place, *pair, "-o", "/dev/stdout").stdout == whole
    assert run(place, *pair, "-o", "/dev/fd/1").stdout == whole
    assert run(place, *pair, "-o", "/dev/null").returncode == 1
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    done = run(place, *pair, "-o", "/dev/full")
    assert (done.returncode, done.stderr.split(b":")[0]) == (2, b"error[disk_full]")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    os.mkfifo(tmp_path / "fifo")
    running = start(place, [*pair, "-o", str(tmp_path / "fifo")])
    assert (tmp_path / "fifo").read_bytes() == whole
    assert running.wait() == 1
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)


def test_what_was_redirected_is_not_cut(place: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    with open(tmp_path / "log", "ab") as log:
        run_process([*DRIFTLINE, "diff", "a.csv", "a.csv", "-o", "/dev/stdout"], cwd=place, stdout=log, check=True)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1].startswith('{"type":"stats"')


def test_links_are_followed_and_access_stays(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "real.jsonl"
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "link.jsonl").symlink_to(target)
    assert run(place, "diff", "a.csv", "a.csv", "-o", tmp_path / "link.jsonl").returncode == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert target.read_text().startswith('{"type":"schema"')
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "new.jsonl")
    assert run(place, "diff", "a.csv", "a.csv", "-o", tmp_path / "dangling.jsonl").returncode == 0
    assert (tmp_path / "new.jsonl").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "dangling.jsonl",
        "link.jsonl",
        "new.jsonl",
        "real.jsonl",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["diff", "in.csv", "other.csv", "-o", "in.csv"],
        ["diff", "other.csv", "link.csv", "-o", "in.csv"],
        ["diff", ".", "other.csv", "-o", "in.csv"],
        ["diff", "i*.csv", "other.csv", "-o", "in.csv"],
        ["compare", "in.csv", "other.csv", "--schema", "schema.yaml", "-o", "other.csv"],
        ["changeset", "concat", "c.bin", "c.bin", "-o", "c.bin"],
    ],
    ids=" ".join,
)
def test_an_output_that_is_an_input_is_refused(place: Path, tmp_path: Path, arguments: list[str]) -> None:
    for name in ("in.csv", "other.csv"):
        (tmp_path / name).write_text("[]" if arguments[0] == "compare" else "id\n1\n")
    (tmp_path / "link.csv").symlink_to("in.csv")
    for name in ("schema.yaml", "c.bin"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error[output_is_input]"), done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
