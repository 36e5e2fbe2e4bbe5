"""Every function of `driftline.spark` in one session of the caller's: its results, as plain data.

python frame_story.py sc://HOST:PORT FOLDER
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import driftline.spark

COLUMNS = {"id": "number", "name": "string", "x": "number"}
PEOPLE = {"table": "people", "columns": [{"name": name, "type": kind} for name, kind in COLUMNS.items()]}
FRAME = "id int, name string, x double"
PAYLOADS = {"properties": {"total": {"x-migration-precision": 0.01}}}


def story(spark: Any, folder: Path) -> dict[str, Any]:
    """A diff with rules and what is made of it, payloads, and the indexes `old` and `new` in `folder`."""
    before = spark.createDataFrame(
        [(1, " ann ", 1.0), (2, "Bob", 2.0), (2, "Bo", 5.0)], "id int, name string, x double"
    )
    after = spark.createDataFrame([(1, "Ann", 1.004), (2, "Bo", 5.0), (3, "Cy", 3.0)], FRAME)
    ruled = driftline.spark.diff(
        before, after, key="id", duplicates="match", normalize={"name": "trim,case"}, tolerance={"x": "1%"}
    )
    plain = driftline.spark.diff(before.where("x < 5"), after, key="id", ignore=["x"])
    deltas = driftline.spark.row_deltas(plain, table="people", client_id="nightly", start=1 << 40)
    changeset = io.BytesIO()
    whole = driftline.spark.diff(before.where("x < 5"), after, key="id")
    written = driftline.spark.write_changeset(whole, changeset, table="people")
    pairs = spark.createDataFrame([('{"total": 1.0}', '{"total": 1.004}'), ("{", "{}")], "old string, new string")
    references = [(f"path:{folder}/old", f"path:{folder}/new"), ("path:/nowhere", "nonsense")]
    indexes = spark.createDataFrame(references, "old string, new string")
    return {
        "ruled": _rows(ruled.events) + _rows(ruled.stats),
        "merge": _rows(driftline.spark.merge_rows(whole).orderBy("id")),
        "fold": _rows(driftline.spark.fold(deltas, PEOPLE, ordered=True)),
        "as_of": _rows(driftline.spark.state_as_of(deltas, PEOPLE, 1 << 40, ordered=True)),
        "changeset": [written, changeset.getvalue().hex()],
        "payloads": _rows(driftline.spark.compare_payloads(pairs, "old", "new", PAYLOADS).orderBy("old")),
        "indexes": _rows(
            driftline.spark.index_diffs(indexes, "old", "new").drop("summary").orderBy("old")
        ),  # it has times
    }


def _rows(frame: Any) -> list[Any]:
    return json.loads(json.dumps([row.asDict(recursive=True) for row in frame.collect()]))


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(sys.argv[1]).create()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    print(json.dumps(story(session, Path(sys.argv[2]))))
    session.stop()
