"""Index diffs: JSONL and zstd shards in one process, the fast path, and a ten times larger index on Spark.

The peer is the plain way in JavaScript (`peers/index_diff.mjs`); it loads every chunk row, as index tools do.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.contest import DATA, ROOT, Contender, Row, driftline_command, hold
from benchmarks.data_codeindex import make_pair, make_twin

FILES, MODIFIED = 20_000, 150


def run(full: bool) -> list[Row]:
    files = FILES if full else FILES // 20
    folder = DATA / "codeindex" / str(files)
    plain = make_pair(folder / "jsonl", files, MODIFIED)
    packed = make_pair(folder / "zstd", files, MODIFIED, compressed=True)
    twin = make_twin(plain[0], folder / "jsonl" / "twin")
    rounds = 5 if full else 3
    contenders = [_driftline("driftline, JSONL", plain), _driftline("driftline, zstd", packed)]
    rows = hold(f"{files:,} files a side, 4 shards", [*contenders, *_node(plain)], rounds=rounds)
    rows += hold("fast path, start included", [_driftline("driftline", (plain[0], twin))], rounds=rounds)
    return rows + _on_spark(files, plain, folder)


def _on_spark(files: int, plain: tuple[Path, Path], folder: Path) -> list[Row]:
    large = make_pair(folder / "ten-times", files * 10, MODIFIED)
    spark = ["--engine", "spark", "--master", "local[2]"]
    small = hold(
        f"{files:,} files a side, on Spark", [_driftline("driftline, Spark local[2]", plain, *spark)], rounds=1
    )
    contenders = [
        _driftline("driftline, Spark local[2]", large, *spark),
        _driftline("driftline, one process", large, "--engine", "local"),
    ]
    return small + hold(f"{files * 10:,} files a side", contenders, rounds=1)


def _driftline(name: str, sides: tuple[Path, Path], *options: str) -> Contender:
    refs = ["--from", f"path:{sides[0]}", "--to", f"path:{sides[1]}"]
    return Contender(name, driftline_command("index", "diff", "compute", *refs, "--json", *options))


def _node(sides: tuple[Path, Path]) -> list[Contender]:
    node = shutil.which("node")
    script = ROOT / "benchmarks" / "peers" / "index_diff.mjs"
    # Every row of both sides is an object in memory: more than node takes by default.
    return (
        [Contender("plain JavaScript", [node, "--max-old-space-size=8192", str(script), *map(str, sides)])]
        if node
        else []
    )
