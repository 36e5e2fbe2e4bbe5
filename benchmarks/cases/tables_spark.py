"""Table diffs on Spark `local[2]`, cold process to finished ordered file, against hand-written Spark SQL and datacompy.

Bars: at most 0.6 x the best Spark SQL plan for 1M and 10M rows (10M within 2.5 GB), at most 0.8 x when every row
changed, and at least 5 x faster than datacompy on Spark.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.contest import DATA, Contender, Row, driftline_command, hold, peer_command
from benchmarks.data_tables import make_pair

SPARK = ["--engine", "spark", "--master", "local[2]"]


def run(full: bool) -> list[Row]:
    rows = 1_000_000 if full else 100_000
    plain = make_pair(DATA / "tables" / str(rows), rows)
    changed = make_pair(DATA / "tables" / f"{rows}-all-changed", rows, changed=1.0, moved=0.0)
    warm_up = make_pair(DATA / "tables" / "1000", 1000)
    # A run that does not count: it leaves the class archive behind, as any earlier use would.
    hold("warm up", [_driftline(warm_up)], rounds=1)
    rounds = 3 if full else 1
    found = hold(f"{rows:,} rows, Spark", [_driftline(plain), *_spark_sql(plain)], rounds=rounds)
    found += hold(f"{rows:,} rows, Spark, datacompy", [_driftline(plain), _datacompy(plain)], rounds=1)
    found += hold(
        f"{rows:,} rows, every row changed, Spark", [_driftline(changed), *_spark_sql(changed)], rounds=rounds
    )
    if full:
        large = make_pair(DATA / "tables" / str(rows * 10), rows * 10)
        found += hold(f"{rows * 10:,} rows, Spark", [_driftline(large), *_spark_sql(large)], rounds=1)
    return found


def _driftline(pair: tuple[Path, Path]) -> Contender:
    out = pair[0].with_name("spark.jsonl")
    return Contender("driftline", driftline_command("diff", *map(str, pair), "--key", "id", *SPARK, "-o", str(out)))


def _spark_sql(pair: tuple[Path, Path]) -> list[Contender]:
    return [
        Contender(f"Spark SQL, {words}", peer_command("tables_spark_sql.py", name, *map(str, pair), "id", _out(pair)))
        for name, words in (("union", "union + aggregate"), ("hash", "shuffled hash join"))
    ]


def _datacompy(pair: tuple[Path, Path]) -> Contender:
    return Contender("datacompy", peer_command("tables_spark_datacompy.py", *map(str, pair), "id", _out(pair)))


def _out(pair: tuple[Path, Path]) -> str:
    return str(pair[0].with_name("peer.jsonl"))
