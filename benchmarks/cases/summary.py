"""A summary against the events: CPU of `--format summary` and of `-o x.jsonl`, alternating; every row differs."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from pathlib import Path

from benchmarks.cases.console_memory import write_tables
from benchmarks.contest import Row, driftline_command

_ROUNDS = 5


def run(full: bool) -> list[Row]:
    rows = 1_000_000 if full else 200_000
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), rows)
        sides = [f"{folder}/old.csv", f"{folder}/new.csv", "--key", "id"]
        ways = {"-o x.jsonl": ["-o", f"{folder}/x.jsonl"], "--format summary": ["--format", "summary"]}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_ROUNDS if full else 2):
            for name, words in ways.items():
                taken[name].append(_cpu(driftline_command("diff", *sides, *words)))
    least = min(taken["-o x.jsonl"])
    return [
        Row(
            f"{rows:,} events, bound 1.1",
            f"driftline diff {name}",
            {"cpu_s": min(found), "of_jsonl": min(found) / least},
        )
        for name, found in taken.items()
    ]


def _cpu(command: list[str]) -> float:
    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    began = used()
    assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 1
    return used() - began
