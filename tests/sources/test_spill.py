"""One store for what does not fit into memory: order, limits, and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from driftline.core._workspace import ArrowCodec, SpillStore, Workspace
from driftline.errors import DriftlineError
from support.processes import start_process


@pytest.mark.parametrize("limit", [0, 100, 1 << 20])
def test_pieces_come_back_in_their_order(tmp_path, limit):
    rng = random.Random(3)
    with Workspace(str(tmp_path)) as workspace:
        store = SpillStore(workspace, limit, ArrowCodec())
        expected = {key: [] for key in "abc"}
        for number in range(300):
            key = rng.choice("abc")
            store.add(key, pa.table({"n": [number]}))
            expected[key].append(number)
            if number == 150:
                assert _numbers(store.take("a")) == expected["a"]
                assert "a" not in store
                expected["a"].clear()
        assert store.keys() == set("abc")
        for key, numbers in expected.items():
            assert _numbers(store.take(key)) == numbers
        assert store.keys() == set()
        assert not [path for path in workspace.folder.iterdir() if path.name != ".owner"]
    assert list(tmp_path.iterdir()) == []


def _numbers(pieces):
    return pa.concat_tables(pieces)["n"].to_pylist()


def test_tables_of_several_spills(tmp_path):
    with Workspace(str(tmp_path)) as workspace:
        store = SpillStore(workspace, 1, ArrowCodec())
        tables = [pa.table({"n": [number], "t": pa.array([f"x{number}"]).dictionary_encode()}) for number in range(5)]
        for table in tables:
            store.add(0, table)
        read = pa.concat_tables(store.take(0))
    assert read.to_pylist() == pa.concat_tables(tables).to_pylist()


def test_a_full_disk_is_told(tmp_path):
    with Workspace("/dev/full") as workspace, pytest.raises(DriftlineError):
        SpillStore(workspace, 0, ArrowCodec()).add("a", pa.table({"n": [1]}))


def test_the_folder_of_a_killed_process_goes_with_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = (
        "import time; from driftline.core._workspace import Workspace; w = Workspace()\n"
        "w.new_file('x').write_bytes(b'x'); print(w.folder, flush=True); time.sleep(60)"
    )
    processes = [start_process([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in "ab"]
    killed, living = (process.stdout.readline().decode().strip() for process in processes)
    processes[0].send_signal(signal.SIGKILL)
    processes[0].wait()
    long_ago = time.time() - 3600
    for folder in (killed, living):
        os.utime(os.path.join(folder, ".owner"), (long_ago, long_ago))
    try:
        with Workspace() as workspace:
            assert workspace.folder.exists()
            assert not os.path.exists(killed)
            assert os.path.exists(living)
    finally:
        processes[1].kill()
        processes[1].wait()
        for process in processes:
            process.stdout.close()
