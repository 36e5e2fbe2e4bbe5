"""What telling costs: CPU of `--format summary` against `-o x.jsonl`, and of a diff with its profile against without.

All alternate in one run; the best of the rounds counts. The profile is what `--format summary`, the terminal, reports
and the console compute beside the events.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.cases.console_memory import write_tables
from benchmarks.contest import Row, driftline_command

_ROUNDS = 5
_DIFF = """
import sys
from driftline.tables import TableDiffJob, check_options, find_engine
a, b, profile = sys.argv[1:]
find_engine("local")(TableDiffJob(a, b, check_options(key="id"), profile=bool(profile)), lambda data: None)
"""


def run(full: bool) -> list[Row]:
    rows = 1_000_000 if full else 200_000
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), rows)
        sides = [f"{folder}/old.csv", f"{folder}/new.csv"]
        jsonl = driftline_command("diff", *sides, "--key", "id", "-o", f"{folder}/x.jsonl")
        summary = driftline_command("diff", *sides, "--key", "id", "--format", "summary")
        found = _compared(
            f"{rows:,} rows, all changed, bound 1.1", {"-o x.jsonl": jsonl, "--format summary": summary}, full
        )
        for count, share in ((rows // 10, 1.0), (rows, 0.01)):
            write_tables(Path(folder), count, share)
            ways = {f"diff {words}": [sys.executable, "-c", _DIFF, *sides, mark] for words, mark in _WAYS}
            found += _compared(f"{count:,} rows, {share:.0%} changed, bound 1.15", ways, full)
        return found


_WAYS = (("without a profile", ""), ("with its profile", "1"))


def _compared(case: str, ways: dict[str, list[str]], full: bool) -> list[Row]:
    """The CPU of each way, and what it is of the first one."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS if full else 2):
        for name, command in ways.items():
            taken[name].append(_cpu(command))
    first = min(next(iter(taken.values())))
    return [Row(case, name, {"cpu_s": min(cpu), "ratio": min(cpu) / first}) for name, cpu in taken.items()]


def _cpu(command: list[str]) -> float:
    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    began = used()
    assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode in (0, 1)
    return used() - began
