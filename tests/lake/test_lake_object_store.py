"""A lake behind an object-store URL, spoken to over HTTP on loopback.

The server is moto's: it keeps objects in memory, but requests, listings, multipart uploads and conditional puts go
through the store client of `deltalake` and over a socket, as they do with any other S3.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from driftline.errors import LakeError
from driftline.lake import Lake, compact, flush, flush_envelopes, materialize, register, replay, vacuum, verify
from driftline.lake._read.state import all_deltas, state_rows
from driftline.lake._store.tables import load
from support.lakes import SCHEMA, delta, load_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "lakes"
BATCHES = [
    [delta("INSERT", f"r{n:03d}", n, title=f"t{n}", done=n % 2 == 0) for n in range(60)],
    [delta("UPDATE", f"r{n:03d}", 100 + n, title=None) for n in range(20)]
    + [delta("DELETE", f"r{n:03d}", 200 + n) for n in range(0, 20, 5)],
]
EVERYTHING = [each for batch in BATCHES for each in batch]


@pytest.fixture(scope="module")
def store(s3_process: tuple[Any, dict[str, str]]) -> tuple[Any, dict[str, str]]:
    """A client of the server and the options that a lake needs to reach it: nothing of it is in the environment."""
    client, settings = s3_process
    client.create_bucket(Bucket=BUCKET)
    return client, {**settings, "AWS_ALLOW_HTTP": "true"}


@pytest.fixture
def lake(store: tuple[Any, dict[str, str]], request: pytest.FixtureRequest) -> Lake:
    return Lake(f"s3://{BUCKET}/{request.node.name}", store[1])


def filled(lake: Lake) -> Lake:
    register(lake, SCHEMA)
    for number, batch in enumerate(BATCHES):
        flush(lake, "todos", batch, gateway_id="gw", sequence=number + 1)
    return lake


def test_everything_works_as_on_a_disk(lake: Lake, tmp_path: Path) -> None:
    flush(lake, "todos", BATCHES[0], gateway_id="gw", sequence=1)  # no schema yet: an envelope
    register(lake, SCHEMA)
    flush_envelopes(lake, "todos")
    assert compact(lake, "todos", rows_per_range=10, target_file_bytes=1000).is_new
    before = {file.path for file in load(lake, "todos", "base").files()}
    flush(lake, "todos", BATCHES[1], gateway_id="gw", sequence=2)
    assert flush(lake, "todos", BATCHES[1], gateway_id="gw", sequence=2).was_done_before
    assert compact(lake, "todos", rows_per_range=10, target_file_bytes=1000).deltas_folded == len(BATCHES[1])
    after = {file.path for file in load(lake, "todos", "base").files()}
    assert before & after, "files of ranges that nothing touched stay"
    assert before - after
    assert lake.tables() == ["todos"]
    assert sorted(all_deltas(lake, "todos"), key=lambda each: each.hlc) == EVERYTHING
    for hlc in (10, 110, 400):
        assert dict(state_rows(lake, "todos", as_of=hlc)) == replay(EVERYTHING, as_of=hlc)
    assert len(vacuum(lake, "todos", hours=0)) > 1
    assert verify(lake, "todos", oracle=True).is_proved
    assert written(lake) == written(load_lake(tmp_path, BATCHES))


def written(lake: Lake) -> list[Any]:
    out = io.BytesIO()
    materialize(lake, "todos", out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_rival_is_noticed(lake: Lake) -> None:
    filled(lake)
    stages: list[str] = []

    def rival(stage: str) -> None:
        stages.append(stage)
        if stages == ["planned", "folded"]:
            compact(lake, "todos")

    assert not compact(lake, "todos", at_stage=rival).is_new
    assert load(lake, "todos", "base").version() == 0
    assert verify(lake, "todos", oracle=True).is_proved


def test_a_damaged_object_is_named(lake: Lake, store: tuple[Any, dict[str, str]]) -> None:
    filled(lake)
    client = store[0]
    prefix = f"{lake.root.removeprefix(f's3://{BUCKET}/')}/tables/todos/deltas/2"
    victim = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"][0]["Key"]
    body = client.get_object(Bucket=BUCKET, Key=victim)["Body"].read()
    client.put_object(Bucket=BUCKET, Key=victim, Body=body[:-30])
    with pytest.raises(LakeError, match=victim.rpartition("/")[2]):
        compact(lake, "todos")
    assert load(lake, "todos", "base") is None


@pytest.mark.spark
def test_tasks_reach_the_store(lake: Lake, spark: SparkSession) -> None:
    from driftline.spark._lake import lake_engine

    filled(lake)
    assert compact(lake, "todos", engine=lake_engine(spark), rows_per_range=20).is_new
    assert dict(state_rows(lake, "todos")) == replay(EVERYTHING)
    assert verify(lake, "todos", engine=lake_engine(spark), oracle=True).is_proved
