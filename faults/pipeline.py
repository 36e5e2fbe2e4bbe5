"""Pipelines under fault: kills in random histories, damaged records, states, locks and logs, full disks."""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from faults.tools import Tally, driftline, mutate

ROOT = Path(__file__).parents[1]
HISTORIES = ROOT / "tests/support/pipeline_histories.py"
HISTORY_SECONDS = 120.0  # of one without Spark; a session for every run takes several times as much
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
PIPELINE = """\
[pipeline]
name = "p"
[lake]
path = "lake"
[tables.t]
snapshots = "data/t-{date}.csv"
key = "id"
events = "out/t-{to}.jsonl"
deltas = true
compact = true
[[tables.t.state]]
path = "out/now.csv"
format = "csv"
"""


def run(seed: int, rounds: int) -> Iterator[Tally]:
    """One tally a kind of fault."""
    yield _histories("random histories with kills, local", seed, rounds)
    yield _histories("random histories with kills, Spark", seed, max(1, rounds // 25), "local[2]")
    yield _damage("damaged stage and run records", seed, rounds, "stages/*.json", "runs/*.json", "fingerprints.json")
    yield _damage("damaged events and locks in the state", seed, rounds // 2, "../../out/*.jsonl", "lock")
    yield _damage("damaged logs of the lake", seed, rounds // 2, "../../lake/tables/t/deltas/_delta_log/*.json")
    yield _full_disk(seed, rounds // 4)


def _histories(name: str, seed: int, count: int, *master: str) -> Tally:
    tally = Tally(name)
    for number in range(seed * 1000, seed * 1000 + count):
        tally.tried += 1
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(HISTORIES), folder, str(number), "1", *master]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=HISTORY_SECONDS * (5 if master else 1), check=False
                )
            except subprocess.TimeoutExpired:
                tally.hang(f"history {number}")
                continue
        if done.returncode:
            tally.loss(f"history {number}: {done.stderr[-300:]}")
    return tally


def _shop(folder: Path, dice: random.Random) -> Path:
    (folder / "data").mkdir()
    rows = {str(number): f"name {number}" for number in range(40)}
    for day in DAYS:
        for _ in range(5):
            rows[str(dice.randrange(60))] = f"name {dice.randrange(1000)}"
        text = "id,name\n" + "".join(f"{key},{name}\n" for key, name in rows.items())
        (folder / f"data/t-{day}.csv").write_text(text)
    file = folder / "p.toml"
    file.write_text(PIPELINE)
    return file


def _outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir())}


def _damage(name: str, seed: int, count: int, *patterns: str) -> Tally:
    """Damage one file of a finished run; the next run must end as the first did, or say what is wrong."""
    tally, dice = Tally(name), random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place, "whole")
        whole.mkdir()
        file = _shop(whole, dice)
        driftline(tally, ["pipeline", "run", str(file)])
        right = _outputs(whole)
        for number in range(count):
            folder = Path(place, f"copy-{number}")
            shutil.copytree(whole, folder)
            _damaged_run(tally, folder, dice.choice(patterns), dice, right)
            shutil.rmtree(folder)
    return tally


def _damaged_run(tally: Tally, folder: Path, pattern: str, dice: random.Random, right: dict[str, bytes]) -> None:
    state = folder / ".driftline/p"
    # A finished run has no lock: there the damage is done to what a killed one would have left.
    victim = dice.choice(sorted(state.glob(pattern)) or [state / "lock"])
    before = victim.read_bytes() if victim.exists() else b'{"pid": 1, "host": "elsewhere"}'
    victim.write_bytes(mutate(before, dice))
    what = f"{victim.name} of {pattern}, seed state {victim.read_bytes()[:60]!r}"
    for command in (["pipeline", "status"], ["pipeline", "run"]):
        ended = driftline(tally, [*command, str(folder / "p.toml")], what=what)
        if ended.code == 2 and "error[" not in ended.stderr and " failed " not in ended.stdout.decode():
            tally.loss(f"{what}: exit 2 without a word: {ended.stderr[-200:]}")
    if ended.code == 0 and _outputs(folder) != right:
        tally.loss(f"{what}: other outputs")


def _full_disk(seed: int, count: int) -> Tally:
    """No file can grow beyond a random size; then there is room again, and the run must end as ever."""
    tally, dice = Tally("full disk"), random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        for number in range(count):
            folder = Path(place, str(number))
            folder.mkdir()
            file, limit = _shop(folder, dice), dice.choice([0, 50, 400, 900, 2000, 5000])

            def tight(limit: int = limit) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            ended = driftline(tally, ["pipeline", "run", str(file)], what=f"limit {limit}", preexec_fn=tight)
            if ended.code == 0:
                _check(tally, folder, f"limit {limit}, exit 0")
            if driftline(tally, ["pipeline", "run", str(file)], what=f"after limit {limit}").code != 0:
                tally.loss(f"limit {limit}: the next run fails")
            _check(tally, folder, f"limit {limit}, run again")
    return tally


def _check(tally: Tally, folder: Path, what: str) -> None:
    from driftline.lake import Lake, state_rows

    lines = (folder / f"data/t-{DAYS[-1]}.csv").read_text().splitlines()[1:]
    wanted = {key: {"id": key, "name": name} for key, name in (line.split(",") for line in lines)}
    found = dict(state_rows(Lake(folder / "lake"), "t"))
    if json.dumps(found, sort_keys=True) != json.dumps(wanted, sort_keys=True):
        tally.loss(f"{what}: the lake does not hold the newest snapshot")
