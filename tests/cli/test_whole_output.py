"""What a command prints is whole, or the command fails: also where stdout is unbuffered and the disk is full."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from driftline.changesets import Changeset, Table
from support.processes import run_process

LIMIT = 1 << 20


@pytest.mark.parametrize("flags", [[], ["-u"]])
@pytest.mark.parametrize("verb", ["invert", "show"])
def test_a_full_disk_is_an_error(tmp_path, monkeypatch, flags, verb):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    table = Table("t", columns=[("id", "INTEGER"), ("v", "TEXT")], primary_key=["id"])
    changes = Changeset()
    changes.insert_columns(table, {"id": list(range(50_000)), "v": ["x" * 40] * 50_000})
    source = tmp_path / "changes.bin"
    source.write_bytes(bytes(changes))
    with open(tmp_path / "out.bin", "wb") as out:
        done = run_process(
            [sys.executable, *flags, "-m", "driftline", "changeset", verb, str(source)],
            stdout=out,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)),
            check=False,
        )
    assert (tmp_path / "out.bin").stat().st_size == LIMIT < len(bytes(changes))
    assert done.returncode == 2
    assert done.stderr.startswith(b"error[")
    assert len(done.stderr.splitlines()) == 1
