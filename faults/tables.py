"""Table diffs under fault: damaged CSV read under rules, damaged patches, full disks, readers that go away."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driftline as dl
from driftline.errors import DriftlineError
from faults.tools import TIMEOUT_SECONDS, Tally, attempt, driftline, is_traceback, mutate

A = "id;name;price;day\r\n" + "".join(f'{n};"na;ïve {n % 7}";{n}.50;2024-05-{n % 28 + 1:02d}\r\n' for n in range(60))
B = A.replace("5.50", "5.5").replace("17;", "170;").replace("ïve 3", "IVE 3")
RULES: list[dict[str, Any]] = [
    {"key": "id"},
    {"key": "id", "types": {"price": "number", "day": "date"}, "normalize": {"name": ["case"]}},
    {"key": "id", "tolerance": {"price": "0.1"}, "duplicates": "match", "empty_key": "allow", "ragged": "pad"},
    {"ragged": "skip", "skip_blank_lines": True, "duplicate_columns": "rename"},
    {"ignore_row_order": True, "no_header": True, "ragged": "skip"},
    {"key": "id", "header_mode": "common", "encoding": "cp1252", "duplicates": "first", "null": [""]},
]
FORMATS = ("jsonl", "json", "csv", "markdown", "summary", "html")


def run(seed: int, rounds: int) -> Iterator[Tally]:
    """One tally a kind of fault."""
    yield _damaged_under_rules(seed, rounds)
    yield _damaged_patches(seed, rounds)
    yield _outputs(seed, max(6, rounds // 5))


def _damaged_under_rules(seed: int, rounds: int) -> Tally:
    """The plain reader and the vectorised steps say the same of a damaged file, whatever the rules."""
    tally = Tally("damaged CSV under rules")
    dice = random.Random(f"rules{seed}")
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder, "a.csv"), Path(folder, "b.csv")
        for number in range(rounds):
            a.write_bytes(mutate(A.encode(), dice))
            b.write_bytes(mutate(B.encode(), dice) if dice.random() < 0.5 else B.encode())
            rules = {**dice.choice(RULES), "delimiter": dice.choice([";", "auto"])}
            found = [
                attempt(tally, lambda e=engine, r=rules: _lines(a, b, e, r), DriftlineError, f"rules {number}")
                for engine in ("local", "vectorized")
            ]
            if found[0] != found[1]:
                tally.loss(f"seed {seed}, round {number}, {rules}: the ways of reading differ")
    return tally


def _lines(a: Path, b: Path, engine: str, rules: dict[str, Any]) -> bytes:
    return b"".join(dl.diff(a, b, engine=engine, **rules).lines())


def _damaged_patches(seed: int, rounds: int) -> Tally:
    """A damaged patch is refused, or it makes the very table that the events describe."""
    tally = Tally("damaged patches")
    dice = random.Random(f"patches{seed}")
    with tempfile.TemporaryDirectory() as folder:
        a, b, events, out = (Path(folder, name) for name in ("a.csv", "b.csv", "events.jsonl", "out.csv"))
        a.write_text(A, newline="")
        b.write_text(B, newline="")
        whole = _lines(a, b, "local", {"key": "id", "delimiter": ";"})
        for number in range(max(3, rounds // 4)):
            events.write_bytes(mutate(whole, dice))
            out.unlink(missing_ok=True)
            what = f"patch {number}, seed {seed}"
            done = driftline(tally, ["patch", str(a), str(events), "--delimiter", ";", "-o", str(out)], what=what)
            if (done.code == 0) != out.exists():
                tally.loss(f"{what}: exit {done.code}, output {'there' if out.exists() else 'missing'}")
            elif done.code == 0:
                _check_patched(tally, a, out, events, what)
    return tally


def _check_patched(tally: Tally, a: Path, out: Path, events: Path, what: str) -> None:
    stats = json.loads(events.read_bytes().splitlines()[-1])
    again = dl.diff(a, out, key="id", delimiter=";", duplicates="match", empty_key="allow").stats
    if len({again["rows_added"], stats["rows_added"]}) > 1 or again["rows_removed"] != stats["rows_removed"]:
        tally.loss(f"{what}: the patched table differs otherwise from A than the events say")


def _outputs(seed: int, rounds: int) -> Tally:
    """A full disk is exit 2, a reader that goes away 141 or the result's code, and never a traceback."""
    tally = Tally("full disks and closed pipes")
    dice = random.Random(f"outputs{seed}")
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder, "a.csv"), Path(folder, "b.csv")
        a.write_text("id,v\n" + "".join(f"{n},{'x' * 30}\n" for n in range(3000)))
        b.write_text("id,v\n" + "".join(f"{n},{'y' * 30}\n" for n in range(3000)))
        for number in range(rounds):
            name = dice.choice(FORMATS)
            command = [sys.executable, *dice.choice([[], ["-u"]]), "-m", "driftline", "diff", str(a), str(b)]
            command += ["--key", "id", "--format", name]
            tally.tried += 1
            what = f"{name}, round {number}, seed {seed}"
            wanted = _full(command, tally, what) if dice.random() < 0.5 else _closed(command, tally, what, dice)
            if wanted:
                tally.loss(f"{what}: {wanted}")
    return tally


def _full(command: list[str], tally: Tally, what: str) -> str | None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=False)
    if is_traceback(done.stderr.decode(errors="replace")):
        tally.traceback(what)
    return None if done.returncode == 2 else f"exit {done.returncode} on a full disk"


def _closed(command: list[str], tally: Tally, what: str, dice: random.Random) -> str | None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        os.read(running.stdout.fileno(), dice.choice([1, 100, 70_000]))
        running.stdout.close()
        err = running.stderr.read().decode(errors="replace")
        code = running.wait(TIMEOUT_SECONDS)
    if is_traceback(err):
        tally.traceback(what)
    return None if code in (1, 141) else f"exit {code} on a closed pipe"
