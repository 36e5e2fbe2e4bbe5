"""The nightly run: three tables, 2 % different, diff + deltas + compaction + patchsets on Spark local[2].

The lake holds the first night. `pipeline` is a cold `driftline pipeline run` of the second night, start-up and all;
`jobs` is the sum of the same diff, deltas, compaction and patchset jobs, each alone in a warm session. Then nothing
changed, and then one table of three.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.contest import DATA, ROOT, Contender, Row, driftline_command, hold
from benchmarks.data_pipeline import NIGHTS, write_tables
from benchmarks.measure import measure

SIZES = {"small": 1_000_000, "middle": 2_000_000, "large": 5_000_000}
QUICK_SHARE = 20
MASTER = "local[2]"

TABLE = """
[tables.{name}]
snapshots = "data/{name}-{{date}}.csv"
key = "id"
events = "out/{name}-{{to}}.jsonl"
deltas = true
compact = true
patchset = "out/{name}-{{to}}.patchset"
"""


def run(full: bool) -> list[Row]:
    sizes = SIZES if full else {name: rows // QUICK_SHARE for name, rows in SIZES.items()}
    home = DATA / ("pipeline-full" if full else "pipeline-quick")
    prepare(home, sizes)
    case = "nightly, " + " + ".join(f"{rows:,}" for rows in sizes.values()) + " rows"
    rows = hold(
        case,
        [Contender("pipeline, cold", call=lambda: nightly(home)), Contender("jobs, warm", call=lambda: jobs(home))],
        rounds=2 if full else 3,
    )
    nightly(home)
    rows += hold("rerun, nothing changed", [Contender("pipeline", call=lambda: again(home))], rounds=3)
    replace_with_third_night(home, "small")
    rows += hold("rerun, one of three tables changed", [Contender("pipeline", call=lambda: again(home))], rounds=1)
    done = {stage["stage"].partition("/")[0] for stage in last_run(home) if stage["result"] == "done"}
    assert done == {"small"}, f"only the changed table's stages run, not those of {done}"
    return rows


def prepare(home: Path, sizes: dict[str, int]) -> None:
    """The first night in the lake, kept as `first`; later runs work on copies of it."""
    write_tables(home / "tables", sizes)
    first = home / "first"
    if (first / "loaded").exists():
        return
    shutil.rmtree(first, ignore_errors=True)
    (first / "data").mkdir(parents=True)
    for name in sizes:
        os.link(home / "tables" / f"{name}-{NIGHTS[0]}.csv", first / "data" / f"{name}-{NIGHTS[0]}.csv")
    text = '[pipeline]\nname = "nightly"\n[lake]\npath = "lake"\n' + "".join(TABLE.format(name=name) for name in sizes)
    (first / "nightly.toml").write_text(text)
    print("  loading the first night into the lake", file=sys.stderr, flush=True)
    subprocess.run(command(first), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (first / "loaded").touch()


def fresh(home: Path) -> Path:
    """A copy of the first night's lake, with the second night's files beside it."""
    work = home / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(home / "first", work, copy_function=os.link)
    for path in (home / "tables").glob(f"*-{NIGHTS[1]}.csv"):
        os.link(path, work / "data" / path.name)
    for path in work.rglob("*.*"):
        bring_into_memory(path)
    return work


def bring_into_memory(path: Path) -> None:
    """Nobody shall pay for the disk because it is his turn first."""
    if path.is_file():
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass


def command(work: Path) -> list[str]:
    return driftline_command("pipeline", "run", str(work / "nightly.toml"), "--master", MASTER)


def nightly(home: Path) -> dict[str, float]:
    taken = measure(command(fresh(home)), cwd=ROOT)
    figures = {"wall_s": taken.wall, "cpu_s": taken.cpu, "peak_mb": taken.peak_mb}
    return {**figures, "driver_mb": taken.root_peak_mb}  # the driver's Python alone


def jobs(home: Path) -> dict[str, float]:
    script = ROOT / "benchmarks" / "peers" / "pipeline_jobs.py"
    work = fresh(home)
    taken = measure([sys.executable, str(script), str(work)], cwd=ROOT)
    seconds = json.loads((work / "out" / "seconds.json").read_text())
    for job, wall in seconds.items():
        print(f"    {job}: {wall:.1f} s", file=sys.stderr)
    return {"wall_s": sum(seconds.values()), "peak_mb": taken.peak_mb}


def again(home: Path) -> dict[str, float]:
    taken = measure(command(home / "work"), cwd=ROOT)
    return {"wall_s": taken.wall, "cpu_s": taken.cpu, "peak_mb": taken.peak_mb}


def replace_with_third_night(home: Path, table: str) -> None:
    target = home / "work" / "data" / f"{table}-{NIGHTS[1]}.csv"
    target.unlink()
    shutil.copy(home / "tables" / f"{table}-{NIGHTS[2]}.csv", target)


def last_run(home: Path) -> list[dict]:
    newest = sorted((home / "work/.driftline/nightly/runs").glob("*.json"))[-1]
    return json.loads(newest.read_text())["stages"]
